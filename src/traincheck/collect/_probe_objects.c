/* The types Probe and Mute: to the program they are the function they stand for.
 *
 * Attributes, hash, equality, repr and descriptor behaviour are the wrapped one's. How it binds decides which of three
 * types an instance has, because CPython asks the type: one that never binds (builtins, callable objects), one that
 * binds as Python functions and method descriptors do (Py_TPFLAGS_METHOD_DESCRIPTOR lets the interpreter skip the bound
 * method altogether), and one that asks the wrapped's own __get__.
 */
#include "_probe.h"

#include <stddef.h>
#include <structmember.h>

enum { BIND_NEVER, BIND_METHOD, BIND_ASK, BINDINGS };

static PyTypeObject probe_types[BINDINGS];
static PyTypeObject mute_types[BINDINGS];
static PyObject *own_names; /* set: what is answered here and not by the wrapped */
static PyObject *name_class, *name_module, *name_qualname, *name_name;

static PyObject *stand_getattro(PyObject *self, PyObject *name);

bool is_stand(PyObject *o) { return Py_TYPE(o)->tp_getattro == stand_getattro; }

static int binding_of(PyObject *wrapped)
{
    PyTypeObject *type = Py_TYPE(wrapped);
    if (!type->tp_descr_get)
        return BIND_NEVER;
    return PyType_HasFeature(type, Py_TPFLAGS_METHOD_DESCRIPTOR) ? BIND_METHOD : BIND_ASK;
}

/* --- attributes --------------------------------------------------------------------------------------------------- */

static bool is_own(PyObject *self, PyObject *name)
{
    int own = PySet_Contains(own_names, name);
    if (own < 0)
        PyErr_Clear();
    /* __get__ exists only where the wrapped has one; enabled and record only on a Probe. */
    return own == 1 && _PyType_Lookup(Py_TYPE(self), name) != NULL;
}

static PyObject *stand_getattro(PyObject *self, PyObject *name)
{
    if (name == name_class)
        return Py_NewRef(Py_TYPE(((Stand *)self)->wrapped));
    if (is_own(self, name))
        return PyObject_GenericGetAttr(self, name);
    return PyObject_GetAttr(((Stand *)self)->wrapped, name);
}

static int stand_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    if (Py_TYPE(self)->tp_members && is_own(self, name)) {
        PyObject *member = _PyType_Lookup(Py_TYPE(self), name);
        if (member && Py_IS_TYPE(member, &PyMemberDescr_Type))
            return PyObject_GenericSetAttr(self, name, value);
    }
    return PyObject_SetAttr(((Stand *)self)->wrapped, name, value);
}

static PyObject *stand_class(PyObject *self, void *closure) { return Py_NewRef(Py_TYPE(((Stand *)self)->wrapped)); }
static PyObject *stand_wrapped(PyObject *self, void *closure) { return Py_NewRef(((Stand *)self)->wrapped); }
static PyObject *stand_repr(PyObject *self) { return PyObject_Repr(((Stand *)self)->wrapped); }
static PyObject *stand_str(PyObject *self) { return PyObject_Str(((Stand *)self)->wrapped); }
static Py_hash_t stand_hash(PyObject *self) { return PyObject_Hash(((Stand *)self)->wrapped); }

static PyObject *original_of(PyObject *o)
{
    while (is_stand(o))
        o = ((Stand *)o)->wrapped;
    return o;
}

static PyObject *stand_richcompare(PyObject *a, PyObject *b, int op)
{
    return PyObject_RichCompare(original_of(a), original_of(b), op);
}

/* --- binding ------------------------------------------------------------------------------------------------------ */

static PyObject *stand_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

static PyObject *stand_get_asking(PyObject *self, PyObject *instance, PyObject *owner)
{
    PyObject *wrapped = ((Stand *)self)->wrapped;
    PyObject *bound = Py_TYPE(wrapped)->tp_descr_get(wrapped, instance, owner);
    if (!bound)
        return NULL;
    if (bound == wrapped) {
        Py_DECREF(bound);
        return Py_NewRef(self);
    }
    if (PyMethod_Check(bound)) { /* the same binding, through us */
        PyObject *method = PyMethod_New(self, PyMethod_GET_SELF(bound));
        Py_DECREF(bound);
        return method;
    }
    return bound;
}

/* --- copy and pickle ---------------------------------------------------------------------------------------------- */

static PyObject *stand_copy(PyObject *self, PyObject *memo) { return Py_NewRef(self); }

/* What module and dotted name lead to; NULL without an exception when nothing. */
static PyObject *lookup(PyObject *module, PyObject *dotted)
{
    PyObject *found = PyImport_GetModule(module);
    PyObject *dot = found ? PyUnicode_FromString(".") : NULL;
    PyObject *parts = dot ? PyUnicode_Split(dotted, dot, -1) : NULL;
    for (Py_ssize_t i = 0; parts && found && i < PyList_GET_SIZE(parts); i++)
        Py_SETREF(found, PyObject_GetAttr(found, PyList_GET_ITEM(parts, i)));
    if (!parts)
        Py_CLEAR(found);
    Py_XDECREF(parts);
    Py_XDECREF(dot);
    PyErr_Clear();
    return found;
}

static PyObject *string_attribute(PyObject *o, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(o, name);
    if (value && PyUnicode_Check(value))
        return value;
    PyErr_Clear();
    Py_XDECREF(value);
    return NULL;
}

static PyObject *call_of(const char *module_name, const char *function, PyObject *argument)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *f = module ? PyObject_GetAttrString(module, function) : NULL;
    PyObject *reduced = f ? Py_BuildValue("(O(O))", f, argument) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(f);
    return reduced;
}

/* Pickled by name, as functions are, so that reading it back needs no traincheck: as itself where its name leads to it;
 * where the name leads to the original or to another probe of it, by that name; else as the original. */
static PyObject *stand_reduce(PyObject *self, PyObject *protocol)
{
    PyObject *wrapped = ((Stand *)self)->wrapped, *reduced = NULL;
    PyObject *module = string_attribute(wrapped, name_module);
    PyObject *names[2] = {name_qualname, name_name};
    for (int i = 0; module && !reduced && i < 2; i++) {
        PyObject *name = string_attribute(wrapped, names[i]);
        PyObject *found = name ? lookup(module, name) : NULL;
        if (found == self) {
            reduced = Py_NewRef(name);
        } else if (found && original_of(found) == original_of(self)) {
            PyObject *full = PyUnicode_FromFormat("%U:%U", module, name);
            reduced = full ? call_of("pkgutil", "resolve_name", full) : NULL;
            Py_XDECREF(full);
        }
        Py_XDECREF(found);
        Py_XDECREF(name);
        if (PyErr_Occurred()) {
            Py_DECREF(module);
            return NULL;
        }
    }
    Py_XDECREF(module);
    return reduced ? reduced : call_of("copy", "copy", wrapped);
}

static PyObject *stand_reduce_plain(PyObject *self, PyObject *unused) { return stand_reduce(self, NULL); }

/* --- life --------------------------------------------------------------------------------------------------------- */

static Py_ssize_t direct_offset(PyObject *wrapped)
{
    PyTypeObject *type = Py_TYPE(wrapped);
    /* A static type's way of being called cannot change. */
    if (PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL) && !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE))
        return type->tp_vectorcall_offset;
    return 0;
}

static PyObject *stand_new(PyTypeObject *types, PyObject *function, vectorcallfunc call)
{
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "a probe stands for a callable, and a %.200s is none", Py_TYPE(function)->tp_name);
        return NULL;
    }
    PyTypeObject *type = &types[binding_of(function)];
    Stand *s = (Stand *)type->tp_alloc(type, 0);
    if (!s)
        return NULL;
    s->vectorcall = call;
    s->wrapped = Py_NewRef(function);
    s->direct = direct_offset(function);
    return (PyObject *)s;
}

static PyObject *mute_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", NULL};
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Mute", names, &function))
        return NULL;
    return stand_new(mute_types, function, mute_vectorcall);
}

static int take_hook(PyObject *given, PyObject **hook, const char *name)
{
    if (given && given != Py_None) {
        if (!PyCallable_Check(given)) {
            PyErr_Format(PyExc_TypeError, "%s must be callable or None, not %.200s", name, Py_TYPE(given)->tp_name);
            return -1;
        }
        *hook = Py_NewRef(given);
    }
    return 0;
}

static PyObject *probe_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "id",    "captures", "capture_all", "location",
                            "outermost", "group", "enter",    "exit",        NULL};
    PyObject *function, *captures = NULL, *enter = NULL, *exit = NULL;
    unsigned int id;
    int everything = 0, location = 0, outermost = 0, group = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OI|$OpiiiOO:Probe", names, &function, &id, &captures, &everything,
                                     &location, &outermost, &group, &enter, &exit))
        return NULL;
    if (location < 0 || location > 2 || outermost < 0 || outermost > 1 || group < 0 || group > 15) {
        PyErr_Format(PyExc_ValueError, "location must be 0, 1 or 2, outermost 0 or 1, group 0 to 15: not %d, %d, %d",
                     location, outermost, group);
        return NULL;
    }
    Probe *p = (Probe *)stand_new(probe_types, function, probe_vectorcall);
    if (!p)
        return NULL;
    p->id = id;
    p->enabled = p->record = true;
    p->everything = everything;
    p->location = (uint8_t)location;
    p->outermost = (uint8_t)outermost;
    p->group = (uint8_t)group;
    if ((captures && captures != Py_None && captures_parse(captures, &p->in, &p->n_in, &p->out, &p->n_out) < 0) ||
        take_hook(enter, &p->enter, "enter") < 0 || take_hook(exit, &p->exit, "exit") < 0) {
        Py_DECREF(p);
        return NULL;
    }
    p->simple = !everything && !location && !outermost && !group && !p->enter && !p->exit;
    return (PyObject *)p;
}

static int stand_init(PyObject *self, PyObject *args, PyObject *kwargs) { return 0; }

static int mute_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Stand *)self)->wrapped);
    return 0;
}

static int probe_traverse(PyObject *self, visitproc visit, void *arg)
{
    Probe *p = (Probe *)self;
    Py_VISIT(p->stand.wrapped);
    Py_VISIT(p->enter);
    Py_VISIT(p->exit);
    return 0;
}

/* The wrapped stays until the end: a probe must be callable as long as anything can reach it. A cycle through it is
 * broken elsewhere (a function's dict and closure, a hook). */
static int probe_clear(PyObject *self)
{
    Probe *p = (Probe *)self;
    Py_CLEAR(p->enter);
    Py_CLEAR(p->exit);
    return 0;
}

static void mute_dealloc(PyObject *self)
{
    Stand *s = (Stand *)self;
    PyObject_GC_UnTrack(self);
    if (s->weakrefs)
        PyObject_ClearWeakRefs(self);
    Py_CLEAR(s->wrapped);
    Py_TYPE(self)->tp_free(self);
}

static void probe_dealloc(PyObject *self)
{
    Probe *p = (Probe *)self;
    PyObject_GC_UnTrack(self);
    if (p->stand.weakrefs)
        PyObject_ClearWeakRefs(self);
    captures_free(p->in, p->n_in);
    captures_free(p->out, p->n_out);
    Py_CLEAR(p->enter);
    Py_CLEAR(p->exit);
    Py_CLEAR(p->stand.wrapped);
    Py_TYPE(self)->tp_free(self);
}

/* --- types -------------------------------------------------------------------------------------------------------- */

static PyMethodDef stand_methods[] = {
    {"__copy__", stand_copy, METH_NOARGS, NULL},
    {"__deepcopy__", stand_copy, METH_O, NULL},
    {"__reduce__", stand_reduce_plain, METH_NOARGS, NULL},
    {"__reduce_ex__", stand_reduce, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stand_getset[] = {
    {"__class__", stand_class, NULL, "The class of the wrapped function.", NULL},
    {"__wrapped__", stand_wrapped, NULL, "The function this stands for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef probe_members[] = {
    {"enabled", T_BOOL, offsetof(Probe, enabled), 0, "False: calls go straight through, no record, no hooks."},
    {"record", T_BOOL, offsetof(Probe, record), 0, "False: hooks only."},
    {NULL, 0, 0, 0, NULL},
};

static const PyTypeObject stand_template = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Stand, vectorcall),
    .tp_weaklistoffset = offsetof(Stand, weakrefs),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = stand_getattro,
    .tp_setattro = stand_setattro,
    .tp_repr = stand_repr,
    .tp_str = stand_str,
    .tp_hash = stand_hash,
    .tp_richcompare = stand_richcompare,
    .tp_methods = stand_methods,
    .tp_getset = stand_getset,
    .tp_init = stand_init,
    .tp_alloc = PyType_GenericAlloc,
    .tp_free = PyObject_GC_Del,
};

static int ready(PyTypeObject *types, const char *const names[BINDINGS], PyTypeObject like)
{
    for (int i = 0; i < BINDINGS; i++) {
        types[i] = like;
        types[i].tp_name = names[i];
        if (i != BIND_NEVER) {
            types[i].tp_base = &types[BIND_NEVER];
            types[i].tp_new = NULL;
            types[i].tp_descr_get = i == BIND_METHOD ? stand_get : stand_get_asking;
            if (i == BIND_METHOD)
                types[i].tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
            types[i].tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
        }
        if (PyType_Ready(&types[i]) < 0)
            return -1;
    }
    return 0;
}

int stand_init_types(PyObject *module)
{
    static const char *const probe_names[BINDINGS] = {"traincheck.collect._probe.Probe",
                                                      "traincheck.collect._probe.MethodProbe",
                                                      "traincheck.collect._probe.DescriptorProbe"};
    static const char *const mute_names[BINDINGS] = {"traincheck.collect._probe.Mute",
                                                     "traincheck.collect._probe.MethodMute",
                                                     "traincheck.collect._probe.DescriptorMute"};
    static const char *const own[] = {"__call__",    "__get__",    "__class__",     "__wrapped__", "__copy__",
                                      "__deepcopy__", "__reduce__", "__reduce_ex__", "enabled",     "record"};
    if (!own_names) {
        own_names = PySet_New(NULL);
        for (size_t i = 0; own_names && i < sizeof own / sizeof *own; i++) {
            PyObject *name = PyUnicode_InternFromString(own[i]);
            if (!name || PySet_Add(own_names, name) < 0)
                return -1;
            Py_DECREF(name);
        }
        if (!own_names || !(name_class = PyUnicode_InternFromString("__class__")) ||
            !(name_module = PyUnicode_InternFromString("__module__")) ||
            !(name_qualname = PyUnicode_InternFromString("__qualname__")) ||
            !(name_name = PyUnicode_InternFromString("__name__")))
            return -1;
        PyTypeObject probe = stand_template, mute = stand_template;
        probe.tp_doc = "Stands where a function stood and records its calls.";
        probe.tp_basicsize = sizeof(Probe);
        probe.tp_members = probe_members;
        probe.tp_new = probe_new;
        probe.tp_traverse = probe_traverse;
        probe.tp_clear = probe_clear;
        probe.tp_dealloc = probe_dealloc;
        mute.tp_doc = "Runs a function with nothing recorded on its thread.";
        mute.tp_basicsize = sizeof(Stand);
        mute.tp_new = mute_new;
        mute.tp_traverse = mute_traverse;
        mute.tp_dealloc = mute_dealloc;
        if (ready(probe_types, probe_names, probe) < 0 || ready(mute_types, mute_names, mute) < 0)
            return -1;
    }
    return PyModule_AddObjectRef(module, "Probe", (PyObject *)&probe_types[BIND_NEVER]) < 0 ||
                   PyModule_AddObjectRef(module, "Mute", (PyObject *)&mute_types[BIND_NEVER]) < 0
               ? -1
               : 0;
}
