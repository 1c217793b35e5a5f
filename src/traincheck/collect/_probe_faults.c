/* Faults of ours: counted by place, with the message of the first; never raised into the user's call. */
#include "_probe.h"

#include <sys/syscall.h>
#include <unistd.h>

#define PLACES 256

static PyObject *faults; /* dict: where -> [message, count]; bounded */

static bool on_main_thread(void) { return syscall(SYS_gettid) == getpid(); }

static int deliver(void *exception)
{
    PyObject *e = exception;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return -1;
}

bool hand_on(PyObject *exception)
{
    if (Py_AddPendingCall(deliver, Py_NewRef(exception)) == 0)
        return true;
    Py_DECREF(exception);
    return false;
}

/* Whether the exception is none of ours: a signal handler of the program's raised it while our code happened to run. */
static bool foreign(PyObject *exception)
{
    if (!on_main_thread())
        return false;
    if (!PyErr_GivenExceptionMatches(exception, PyExc_Exception))
        return true;
    PyObject *module = PyImport_ImportModule("traincheck.collect.interrupts");
    PyObject *answer = module ? PyObject_CallMethod(module, "raised_by_signal_handler", "O", exception) : NULL;
    bool found = answer == Py_True;
    PyErr_Clear();
    Py_XDECREF(module);
    Py_XDECREF(answer);
    return found;
}

/* "Type: text" of an exception; new reference, or NULL without an exception set. */
static PyObject *message_of(PyObject *value)
{
    PyObject *text = PyObject_Str(value);
    if (!text) {
        PyErr_Clear();
        return PyUnicode_FromString(Py_TYPE(value)->tp_name);
    }
    PyObject *message = PyUnicode_FromFormat("%s: %U", Py_TYPE(value)->tp_name, text);
    Py_DECREF(text);
    return message;
}

static PyObject *place_of(const char *where, PyObject *what)
{
    if (!what)
        return PyUnicode_FromString(where);
    PyObject *name = PyObject_GetAttrString(what, "__qualname__");
    if (!name || !PyUnicode_Check(name)) {
        PyErr_Clear();
        Py_XDECREF(name);
        return PyUnicode_FromFormat("%s of a %s", where, Py_TYPE(what)->tp_name);
    }
    PyObject *place = PyUnicode_FromFormat("%s of %U", where, name);
    Py_DECREF(name);
    return place;
}

static void count(PyObject *place, PyObject *message)
{
    if (!faults && !(faults = PyDict_New()))
        return;
    PyObject *entry = PyDict_GetItemWithError(faults, place);
    if (entry) {
        PyObject *n = PyLong_FromLong(PyLong_AsLong(PyList_GET_ITEM(entry, 1)) + 1);
        if (n)
            PyList_SetItem(entry, 1, n);
        return;
    }
    if (PyDict_GET_SIZE(faults) >= PLACES)
        return;
    entry = Py_BuildValue("[Oi]", message ? message : Py_None, 1);
    if (entry) {
        PyDict_SetItem(faults, place, entry);
        Py_DECREF(entry);
    }
}

void fault(const char *where, PyObject *what)
{
    Raised raised;
    raised_fetch(&raised);
#if PY_VERSION_HEX < 0x030C0000
    if (raised.type)
        PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
#endif
    Thread *t = &this_thread;
    t->muted += 1;
    if (raised.traceback && raised.value)
        PyException_SetTraceback(raised.value, raised.traceback);
    if (!raised.value || !foreign(raised.value) || !hand_on(raised.value)) {
        PyObject *place = place_of(where, what);
        PyObject *message = raised.value ? message_of(raised.value) : NULL;
        if (place)
            count(place, message);
        Py_XDECREF(place);
        Py_XDECREF(message);
    }
    PyErr_Clear();
    t->muted -= 1;
    raised_drop(&raised);
}

PyObject *faults_list(void)
{
    PyObject *list = PyList_New(0);
    if (!list || !faults)
        return list;
    PyObject *place, *entry;
    Py_ssize_t at = 0;
    while (PyDict_Next(faults, &at, &place, &entry)) {
        PyObject *row = PyTuple_Pack(3, place, PyList_GET_ITEM(entry, 0), PyList_GET_ITEM(entry, 1));
        if (!row || PyList_Append(list, row) < 0) {
            Py_XDECREF(row);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(row);
    }
    return list;
}

void faults_clear(void) { Py_CLEAR(faults); }
