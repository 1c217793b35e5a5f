/* The innermost frame of the user's own code, as a numbered location. Code objects already judged are remembered. */
#include "_probe.h"

#include <frameobject.h>

#define CODE_LIMIT 65536

static PyObject *prefixes;  /* tuple of str */
static Table codes;         /* code object -> LIBRARY or USER */
static Table locations;     /* code object, instruction -> location symbol */
static PyObject *held;      /* list: the code objects of `codes`, so that an address stays theirs */

enum { LIBRARY = 1, USER };

void location_clear(void)
{
    table_clear(&codes);
    table_clear(&locations);
    Py_CLEAR(held);
}

int location_set_prefixes(PyObject *given)
{
    PyObject *tuple = PySequence_Tuple(given);
    if (!tuple)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *prefix = PyTuple_GET_ITEM(tuple, i);
        if (!PyUnicode_Check(prefix)) {
            PyErr_Format(PyExc_TypeError, "prefixes must be strings, not %.200s", Py_TYPE(prefix)->tp_name);
            Py_DECREF(tuple);
            return -1;
        }
    }
    Py_XSETREF(prefixes, tuple);
    location_clear();
    return 0;
}

static int judge(PyCodeObject *code)
{
    for (Py_ssize_t i = 0; prefixes && i < PyTuple_GET_SIZE(prefixes); i++)
        if (PyUnicode_Tailmatch(code->co_filename, PyTuple_GET_ITEM(prefixes, i), 0, PY_SSIZE_T_MAX, -1) == 1)
            return LIBRARY;
    PyErr_Clear();
    return USER;
}

static int kind_of(PyCodeObject *code)
{
    uint64_t key = (uint64_t)(uintptr_t)code;
    int kind = (int)table_get(&codes, &key, 1);
    if (LIKELY(kind))
        return kind;
    kind = judge(code);
    if (codes.used >= CODE_LIMIT)
        location_clear();
    if ((held || (held = PyList_New(0))) && PyList_Append(held, (PyObject *)code) == 0)
        table_put(&codes, &key, 1, (uint32_t)kind);
    PyErr_Clear();
    return kind;
}

/* New references, or false. */
static bool user_frame(PyFrameObject **frame, PyCodeObject **code)
{
    PyFrameObject *f = PyThreadState_GetFrame(PyThreadState_Get());
    while (f) {
        PyCodeObject *c = PyFrame_GetCode(f);
        if (kind_of(c) == USER) {
            *frame = f;
            *code = c;
            return true;
        }
        Py_DECREF(c);
        PyFrameObject *back = PyFrame_GetBack(f);
        Py_DECREF(f);
        f = back;
    }
    return false;
}

static PyObject *describe(PyFrameObject *frame, PyCodeObject *code)
{
    return Py_BuildValue("(OiO)", code->co_filename, PyFrame_GetLineNumber(frame), code->co_name);
}

PyObject *location_now(void)
{
    PyFrameObject *frame;
    PyCodeObject *code;
    if (!user_frame(&frame, &code))
        Py_RETURN_NONE;
    PyObject *location = describe(frame, code);
    Py_DECREF(frame);
    Py_DECREF(code);
    return location;
}

uint32_t location_symbol_now(void)
{
    PyFrameObject *frame;
    PyCodeObject *code;
    if (!user_frame(&frame, &code))
        return 0;
#if PY_VERSION_HEX >= 0x030B0000
    int instruction = PyFrame_GetLasti(frame);
#else
    int instruction = frame->f_lasti;
#endif
    uint64_t key[2] = {(uint64_t)(uintptr_t)code, (uint64_t)(int64_t)instruction};
    uint32_t id = table_get(&locations, key, 2);
    if (!id) {
        PyObject *location = describe(frame, code);
        uint32_t epoch = recorder.epoch;
        id = location ? miss(MISS_LOCATION, location) : 0;
        uint64_t held_key = key[0];
        /* Only while the code object is held may its address stand for it. */
        if (id && epoch == recorder.epoch && table_get(&codes, &held_key, 1))
            id = table_put(&locations, key, 2, id);
        Py_XDECREF(location);
        if (PyErr_Occurred())
            fault("location", NULL);
    }
    Py_DECREF(frame);
    Py_DECREF(code);
    return id;
}
