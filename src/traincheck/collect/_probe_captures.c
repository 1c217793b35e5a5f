/* What a probe reads of a call: the plan's paths, or every argument and the result. */
#include "_probe.h"

#define ELEMENT_LIMIT 8
#define ARGUMENT_LIMIT 64

/* --- the plan's paths --------------------------------------------------------------------------------------------- */

void captures_free(Capture *captures, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; captures && i < n; i++) {
        for (uint32_t j = 0; captures[i].step && j < captures[i].steps; j++)
            Py_XDECREF(captures[i].step[j].name);
        PyMem_Free(captures[i].step);
    }
    PyMem_Free(captures);
}

static int take_name(PyObject *o, Step *step)
{
    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "a capture step's name must be a string, not %.200s", Py_TYPE(o)->tp_name);
        return -1;
    }
    step->name = Py_NewRef(o);
    PyUnicode_InternInPlace(&step->name);
    return 0;
}

static int take_index(PyObject *o, Step *step)
{
    step->index = PyLong_AsSsize_t(o);
    return step->index == -1 && PyErr_Occurred() ? -1 : 0;
}

static int parse_step(PyObject *spec, bool first, Step *step)
{
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(spec, 0))) {
        PyErr_Format(PyExc_TypeError, "a capture step must be a tuple that starts with its kind, not %R", spec);
        return -1;
    }
    PyObject *kind = PyTuple_GET_ITEM(spec, 0);
    Py_ssize_t n = PyTuple_GET_SIZE(spec);
    PyObject *operand = n > 1 ? PyTuple_GET_ITEM(spec, 1) : NULL;
#define IS(text, size) (PyUnicode_CompareWithASCIIString(kind, text) == 0 && n == (size))
    if (first && IS("arg", 3)) {
        step->kind = STEP_ARGUMENT;
        if (take_index(operand, step) < 0)
            return -1;
        if (step->index < 0) {
            PyErr_Format(PyExc_ValueError, "a positional argument's index must be 0 or more: %R", spec);
            return -1;
        }
        return PyTuple_GET_ITEM(spec, 2) == Py_None ? 0 : take_name(PyTuple_GET_ITEM(spec, 2), step);
    }
    if (first && IS("kw", 2)) {
        step->kind = STEP_KEYWORD;
        return take_name(operand, step);
    }
    if (first && IS("self", 1)) {
        step->kind = STEP_ARGUMENT;
        return 0;
    }
    if (first && IS("ret", 1)) {
        step->kind = STEP_RESULT;
        return 0;
    }
    if (!first && IS("attr", 2)) {
        step->kind = STEP_ATTRIBUTE;
        return take_name(operand, step);
    }
    if (!first && IS("item", 2)) {
        step->kind = PyUnicode_Check(operand) ? STEP_KEY : STEP_INDEX;
        return step->kind == STEP_KEY ? take_name(operand, step) : take_index(operand, step);
    }
#undef IS
    PyErr_Format(PyExc_ValueError,
                 "unknown capture step %R: a path starts with ('arg', index, name or None), ('kw', name), ('self',) or "
                 "('ret',) and goes on with ('attr', name) or ('item', int or str)",
                 spec);
    return -1;
}

static int parse_path(PyObject *path, Capture *capture)
{
    if (!PyTuple_Check(path) || PyTuple_GET_SIZE(path) < 1) {
        PyErr_Format(PyExc_TypeError, "a capture's path must be a tuple of steps, not %R", path);
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(path);
    capture->step = PyMem_Calloc((size_t)n, sizeof(Step));
    if (!capture->step) {
        PyErr_NoMemory();
        return -1;
    }
    capture->steps = (uint32_t)n;
    for (Py_ssize_t i = 0; i < n; i++)
        if (parse_step(PyTuple_GET_ITEM(path, i), i == 0, &capture->step[i]) < 0)
            return -1;
    return 0;
}

int captures_parse(PyObject *spec, Capture **in, Py_ssize_t *n_in, Capture **out, Py_ssize_t *n_out)
{
    PyObject *list = PySequence_Fast(spec, "captures must be a sequence of (id, moment, path)");
    if (!list)
        return -1;
    size_t n = (size_t)PySequence_Fast_GET_SIZE(list);
    int result = -1;
    if (n == 0) {
        result = 0;
        goto done;
    }
    *in = PyMem_Calloc(n, sizeof(Capture));
    *out = PyMem_Calloc(n, sizeof(Capture));
    if (!*in || !*out) {
        PyErr_NoMemory();
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(list, (Py_ssize_t)i), *path;
        unsigned int id;
        int moment;
        if (!PyTuple_Check(item)) {
            PyErr_Format(PyExc_TypeError, "a capture must be a tuple (id, moment, path), not %R", item);
            goto done;
        }
        if (!PyArg_ParseTuple(item, "IiO;a capture is (id, moment, path)", &id, &moment, &path))
            goto done;
        if (moment != 0 && moment != 1) {
            PyErr_Format(PyExc_ValueError, "a capture's moment must be 0 (in) or 1 (out), not %d", moment);
            goto done;
        }
        Capture *c = moment == 0 ? &(*in)[(*n_in)++] : &(*out)[(*n_out)++];
        c->id = id;
        if (parse_path(path, c) < 0)
            goto done;
        if (moment == 0 && c->step[0].kind == STEP_RESULT) {
            PyErr_SetString(PyExc_ValueError, "the result ('ret',) is there only at moment 1 (out)");
            goto done;
        }
    }
    result = 0;
done:
    Py_DECREF(list);
    return result;
}

static PyObject *keyword(const Arguments *a, PyObject *name)
{
    if (!a->kwnames)
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(a->kwnames);
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyTuple_GET_ITEM(a->kwnames, i) == name)
            return a->args[a->nargs + i];
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(a->kwnames, i), name) == 0)
            return a->args[a->nargs + i];
    return NULL;
}

/* An item of a container, read from its own storage where it is a list, tuple or dict (a defaultdict must not grow). */
static PyObject *item_of(PyObject *o, const Step *step)
{
    if (step->kind == STEP_INDEX && (PyList_Check(o) || PyTuple_Check(o))) {
        Py_ssize_t n = Py_SIZE(o), i = step->index < 0 ? step->index + n : step->index;
        if (i < 0 || i >= n)
            return NULL;
        return Py_NewRef(PyList_Check(o) ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i));
    }
    if (type_info(Py_TYPE(o)).category == CATEGORY_TENSOR)
        return NULL; /* a view would be made, and an autograd node */
    PyObject *key = step->kind == STEP_KEY ? Py_NewRef(step->name) : PyLong_FromSsize_t(step->index);
    if (!key)
        return NULL;
    PyObject *found = PyDict_Check(o) ? Py_XNewRef(PyDict_GetItemWithError(o, key)) : PyObject_GetItem(o, key);
    Py_DECREF(key);
    return found;
}

/* New reference; NULL without an exception = missing, with one = could not be read. */
static PyObject *follow(const Capture *c, const Arguments *a)
{
    const Step *s = c->step;
    PyObject *o;
    if (s->kind == STEP_ARGUMENT)
        o = s->index < a->nargs ? a->args[s->index] : s->name ? keyword(a, s->name) : NULL;
    else if (s->kind == STEP_KEYWORD)
        o = keyword(a, s->name);
    else
        o = a->result;
    if (!o)
        return NULL;
    Py_INCREF(o);
    for (uint32_t i = 1; i < c->steps; i++) {
        s++;
        PyObject *next;
        if (s->kind != STEP_ATTRIBUTE)
            next = item_of(o, s);
        else if (type_info(Py_TYPE(o)).category == CATEGORY_TENSOR)
            next = tensor_attribute(o, s->name);
        else
            next = PyObject_GetAttr(o, s->name);
        Py_DECREF(o);
        if (!next)
            return NULL;
        o = next;
    }
    return o;
}

/* The exception of a read that failed, as a value: absent things are missing, anything else is an error. */
static void encode_failure(Value *v)
{
    v->kind = VALUE_MISSING;
    v->low = v->high = 0;
    if (!PyErr_Occurred())
        return;
    if (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_LookupError)) {
        PyErr_Clear();
        return;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        fault("capture", NULL);
        v->kind = VALUE_ERROR;
        return;
    }
    Raised raised;
    raised_fetch(&raised);
    v->kind = VALUE_ERROR;
    v->low = exception_symbol((PyTypeObject *)raised.type);
    raised_drop(&raised);
}

void captures_write(const Capture *c, Py_ssize_t n, const Arguments *a, Thread *t, uint64_t call)
{
    uint32_t epoch = t->epoch;
    for (; n > 0; n--, c++) {
        Value v;
        const Step *s = c->step;
        if (LIKELY(c->steps == 1 && s->kind == STEP_ARGUMENT && s->index < a->nargs)) {
            encode(a->args[s->index], &v);
        } else {
            t->muted += 1;
            PyObject *o = follow(c, a);
            if (o) {
                encode(o, &v);
                Py_DECREF(o);
            } else {
                encode_failure(&v);
            }
            t->muted -= 1;
        }
        if (UNLIKELY(epoch != recorder.epoch))
            return;
        put_value(t, c->id, call, &v);
    }
}

/* --- everything --------------------------------------------------------------------------------------------------- */

/* A capture's place: what (argument, keyword, result, location), which one, which element of it (0 = itself). */
enum { PLACE_ARGUMENT = 1, PLACE_KEYWORD, PLACE_RESULT, PLACE_LOCATION };
enum { ELEMENT_NONE, ELEMENT_INDEX, ELEMENT_KEY, ELEMENT_INT_KEY };

typedef struct {
    unsigned what;
    uint32_t which;
    PyObject *name; /* of a keyword */
    unsigned element;
    int64_t index;
    PyObject *key; /* str */
} Place;

static Table capture_ids;   /* function and place -> capture id */
static PyObject *name_numbers; /* dict: keyword or key -> small number */

void captures_clear(void)
{
    table_clear(&capture_ids);
    Py_CLEAR(name_numbers);
}

static uint32_t name_number(PyObject *name)
{
    if (!name_numbers && !(name_numbers = PyDict_New()))
        goto error;
    PyObject *known = PyDict_GetItemWithError(name_numbers, name);
    if (known)
        return (uint32_t)PyLong_AsLong(known);
    if (PyErr_Occurred())
        goto error;
    uint32_t next = (uint32_t)PyDict_GET_SIZE(name_numbers) + 1;
    PyObject *number = next < INTERN_LIMIT ? PyLong_FromLong(next) : NULL;
    if (!number || PyDict_SetItem(name_numbers, name, number) < 0) {
        Py_XDECREF(number);
        goto error;
    }
    Py_DECREF(number);
    return next;
error:
    PyErr_Clear();
    return 0;
}

static PyObject *path_of(const Place *p)
{
    PyObject *base = p->what == PLACE_ARGUMENT  ? PyUnicode_FromFormat("args[%u]", (unsigned)p->which)
                     : p->what == PLACE_KEYWORD ? PyUnicode_FromFormat("kwargs.%U", p->name)
                     : p->what == PLACE_RESULT  ? PyUnicode_FromString("ret")
                                                : PyUnicode_FromString("@location");
    if (!base || p->element == ELEMENT_NONE)
        return base;
    PyObject *path = p->element == ELEMENT_KEY ? PyUnicode_FromFormat("%U[\"%U\"]", base, p->key)
                                               : PyUnicode_FromFormat("%U[%lld]", base, (long long)p->index);
    Py_DECREF(base);
    return path;
}

static uint32_t capture_id(uint32_t function, const Place *p)
{
    uint64_t key[3] = {(uint64_t)p->what << 32 | function, (uint64_t)p->element << 32 | p->which, (uint64_t)p->index};
    if (p->element == ELEMENT_KEY && !(key[2] = name_number(p->key)))
        return 0;
    if (p->what == PLACE_KEYWORD) {
        uint32_t number = name_number(p->name);
        if (!number)
            return 0;
        key[1] |= number;
    }
    uint32_t id = table_get(&capture_ids, key, 3);
    if (id)
        return id;
    uint32_t epoch = recorder.epoch;
    PyObject *path = path_of(p);
    PyObject *asked = path ? Py_BuildValue("(IiO)", (unsigned)function, p->what == PLACE_RESULT, path) : NULL;
    id = asked ? miss(MISS_CAPTURE, asked) : 0;
    Py_XDECREF(asked);
    Py_XDECREF(path);
    if (PyErr_Occurred())
        fault("capture", NULL);
    return id && epoch == recorder.epoch ? table_put(&capture_ids, key, 3, id) : id;
}

static void write_place(uint32_t function, const Place *p, PyObject *o, Thread *t, uint64_t call, Value *v)
{
    uint32_t epoch = t->epoch;
    uint32_t id = capture_id(function, p);
    encode(o, v);
    if (id && epoch == recorder.epoch)
        put_value(t, id, call, v);
}

static void write_deep(uint32_t function, Place *p, PyObject *o, Thread *t, uint64_t call)
{
    Value v;
    write_place(function, p, o, t, call, &v);
    if (LIKELY(v.kind != VALUE_OBJECT))
        return; /* not a container, or a plain tuple recorded whole */
    if (PyList_Check(o) || PyTuple_Check(o)) {
        p->element = ELEMENT_INDEX;
        /* Its size is read anew each time: asking for a number may let another thread run. */
        for (Py_ssize_t i = 0; i < ELEMENT_LIMIT && i < Py_SIZE(o); i++) {
            PyObject *item = Py_NewRef(PyList_Check(o) ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i));
            p->index = i;
            write_place(function, p, item, t, call, &v);
            Py_DECREF(item);
        }
    } else if (PyDict_Check(o)) {
        PyObject *keys[ELEMENT_LIMIT], *values[ELEMENT_LIMIT], *key, *value;
        Py_ssize_t at = 0;
        int n = 0;
        while (n < ELEMENT_LIMIT && PyDict_Next(o, &at, &key, &value)) {
            keys[n] = Py_NewRef(key);
            values[n++] = Py_NewRef(value);
        }
        for (int i = 0; i < n; i++) {
            int overflow = 1;
            if (PyUnicode_CheckExact(keys[i]) && PyUnicode_GET_LENGTH(keys[i]) <= STRING_LIMIT) {
                p->element = ELEMENT_KEY;
                p->index = 0;
                p->key = keys[i];
                overflow = 0;
            } else if (PyLong_CheckExact(keys[i])) {
                p->element = ELEMENT_INT_KEY;
                p->index = PyLong_AsLongLongAndOverflow(keys[i], &overflow);
            }
            if (!overflow)
                write_place(function, p, values[i], t, call, &v);
            Py_DECREF(keys[i]);
            Py_DECREF(values[i]);
        }
    }
}

void capture_all_in(uint32_t function, const Arguments *a, Thread *t, uint64_t call)
{
    for (Py_ssize_t i = 0; i < a->nargs && i < ARGUMENT_LIMIT; i++) {
        Place p = {.what = PLACE_ARGUMENT, .which = (uint32_t)i};
        write_deep(function, &p, a->args[i], t, call);
    }
    Py_ssize_t n = a->kwnames ? PyTuple_GET_SIZE(a->kwnames) : 0;
    for (Py_ssize_t i = 0; i < n && i < ARGUMENT_LIMIT; i++) {
        Place p = {.what = PLACE_KEYWORD, .name = PyTuple_GET_ITEM(a->kwnames, i)};
        write_deep(function, &p, a->args[a->nargs + i], t, call);
    }
}

void capture_all_out(uint32_t function, PyObject *result, Thread *t, uint64_t call)
{
    Place p = {.what = PLACE_RESULT};
    write_deep(function, &p, result, t, call);
}

void capture_location(uint32_t function, Thread *t, uint64_t call)
{
    uint32_t epoch = t->epoch;
    uint32_t symbol = location_symbol_now();
    if (!symbol)
        return;
    Place p = {.what = PLACE_LOCATION};
    uint32_t id = capture_id(function, &p);
    Value v = {.kind = VALUE_LOCATION, .low = symbol};
    if (id && epoch == recorder.epoch)
        put_value(t, id, call, &v);
}
