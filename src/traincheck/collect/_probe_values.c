/* Values as records hold them: small things by value, plain immutable things as numbered symbols, the rest by identity.
 *
 * Only keys made of plain immutable values are kept (strings, ints, words), and types by weak reference: no object of
 * the user's lives longer because it was seen. Classifying runs no user code.
 */
#include "_probe.h"

#define TYPE_LIMIT 65536
#define TUPLE_LIMIT 16

typedef struct {
    PyTypeObject *type;
    PyObject *weak; /* NULL for a static type, which cannot die */
    uint32_t serial;
    uint32_t symbol;
    Category category;
} TypeEntry;

static struct {
    TypeEntry *entries;
    size_t mask, used;
    uint32_t serials;
} types;

static PyObject *numbers; /* dict: str, big int, (serial, name) of an enum member, or singleton -> id */
static Table tuples;      /* tag, then kind and payload of each element -> id */
static PyTypeObject *enum_type;
uint64_t interned_count;

enum { TAG_SIZE = 1, TAG_TUPLE, TAG_DEVICE };

/* --- asking for a number ------------------------------------------------------------------------------------------ */

uint32_t miss(int kind, PyObject *obj)
{
    if (!recorder.on || !recorder.miss || finalizing())
        return 0;
    Thread *t = &this_thread;
    uint32_t epoch = recorder.epoch;
    PyObject *function = Py_NewRef(recorder.miss);
    PyObject *number = PyLong_FromLong(kind);
    PyObject *result = NULL;
    if (number) {
        PyObject *args[3] = {NULL, number, obj};
        t->muted += 1;
        result = PyObject_Vectorcall(function, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        t->muted -= 1;
        Py_DECREF(number);
    }
    Py_DECREF(function);
    uint32_t id = 0;
    if (result) {
        long long value = PyLong_AsLongLong(result);
        Py_DECREF(result);
        if (value >= 0 && value <= UINT32_MAX)
            id = (uint32_t)value;
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "miss(%d, ...) must return an id from 0 to 2**32-1, not %lld", kind, value);
    }
    if (PyErr_Occurred())
        fault("miss", NULL);
    return epoch == recorder.epoch ? id : 0;
}

bool interned_room(void) { return interned_count < INTERN_LIMIT; }

/* --- types -------------------------------------------------------------------------------------------------------- */

static void types_clear(void)
{
    TypeEntry *old = types.entries;
    size_t n = old ? types.mask + 1 : 0;
    types.entries = NULL;
    types.mask = types.used = 0;
    for (size_t i = 0; i < n; i++)
        Py_XDECREF(old[i].weak);
    free(old);
}

static bool still(const TypeEntry *e)
{
    if (!e->weak)
        return true;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *alive;
    if (PyWeakref_GetRef(e->weak, &alive) != 1)
        return false;
    Py_DECREF(alive);
    return true;
#else
    return PyWeakref_GetObject(e->weak) != Py_None;
#endif
}

static TypeEntry *type_slot(TypeEntry *entries, size_t mask, PyTypeObject *type)
{
    size_t at = ((uintptr_t)type >> 4) * 0x9E3779B97F4A7C15u >> 20 & mask;
    while (entries[at].type && entries[at].type != type)
        at = (at + 1) & mask;
    return &entries[at];
}

static bool types_grow(void)
{
    size_t size = types.entries ? (types.mask + 1) * 2 : 512;
    TypeEntry *entries = calloc(size, sizeof *entries);
    if (!entries)
        return false;
    for (size_t i = 0; types.entries && i <= types.mask; i++)
        if (types.entries[i].type)
            *type_slot(entries, size - 1, types.entries[i].type) = types.entries[i];
    free(types.entries);
    types.entries = entries;
    types.mask = size - 1;
    return true;
}

static Category classify(PyTypeObject *type)
{
    if (!enum_type) {
        PyObject *name = PyUnicode_FromString("enum");
        PyObject *module = name ? PyImport_GetModule(name) : NULL;
        Py_XDECREF(name);
        if (module) {
            PyObject *found = PyObject_GetAttrString(module, "EnumMeta");
            if (found && PyType_Check(found))
                enum_type = (PyTypeObject *)Py_NewRef(found);
            Py_XDECREF(found);
            Py_DECREF(module);
        }
        PyErr_Clear();
    }
    if (enum_type && PyType_IsSubtype(Py_TYPE(type), enum_type))
        return CATEGORY_ENUM;
    if (PyType_FastSubclass(type, Py_TPFLAGS_LONG_SUBCLASS))
        return CATEGORY_INT;
    if (PyType_IsSubtype(type, &PyFloat_Type))
        return CATEGORY_FLOAT;
    if (PyType_FastSubclass(type, Py_TPFLAGS_UNICODE_SUBCLASS))
        return CATEGORY_STRING;
    if (type == &PyTuple_Type)
        return CATEGORY_TUPLE;
    if (PyType_FastSubclass(type, Py_TPFLAGS_TYPE_SUBCLASS))
        return CATEGORY_TYPE;
    return torch_category(type);
}

/* Valid until the next call into Python. NULL without memory. */
static TypeEntry *type_entry(PyTypeObject *type)
{
    if (LIKELY(types.entries != NULL)) {
        TypeEntry *e = type_slot(types.entries, types.mask, type);
        if (LIKELY(e->type && still(e)))
            return e;
    }
    if (torch_find() || types.used >= TYPE_LIMIT)
        types_clear();
    Category category = classify(type);
    PyObject *weak = NULL;
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        weak = PyWeakref_NewRef((PyObject *)type, NULL);
        if (!weak) {
            PyErr_Clear();
            return NULL;
        }
    }
    if ((!types.entries || 2 * (types.used + 1) > types.mask) && !types_grow()) {
        Py_XDECREF(weak);
        return NULL;
    }
    TypeEntry *e = type_slot(types.entries, types.mask, type);
    if (!e->type)
        types.used += 1;
    PyObject *old = e->weak;
    *e = (TypeEntry){.type = type, .weak = weak, .serial = ++types.serials, .category = category};
    Py_XDECREF(old); /* a dead weak reference without callback: runs nothing */
    return e;
}

TypeInfo type_info(PyTypeObject *type)
{
    TypeEntry *e = type_entry(type);
    return e ? (TypeInfo){e->category, e->serial} : (TypeInfo){CATEGORY_OTHER, 0};
}

static uint32_t symbol_of_type(PyTypeObject *type, int kind)
{
    TypeEntry *e = type_entry(type);
    if (e && LIKELY(e->symbol))
        return e->symbol;
    uint32_t id = miss(kind, (PyObject *)type);
    if (id && (e = type_entry(type))) {
        if (e->symbol) /* another thread was first */
            return e->symbol;
        e->symbol = id;
    }
    return id;
}

uint32_t type_symbol(PyTypeObject *type) { return symbol_of_type(type, MISS_TYPE); }
uint32_t exception_symbol(PyTypeObject *type) { return symbol_of_type(type, MISS_EXCEPTION); }

/* --- interning ---------------------------------------------------------------------------------------------------- */

/* The id of obj, remembered under key (plain and immutable). 0 when there is none. */
static uint32_t intern(PyObject *key, PyObject *obj)
{
    if (!recorder.on)
        return 0;
    if (!numbers && !(numbers = PyDict_New())) {
        fault("intern", NULL);
        return 0;
    }
    PyObject *known = PyDict_GetItemWithError(numbers, key);
    if (known)
        return (uint32_t)PyLong_AsUnsignedLong(known);
    if (PyErr_Occurred()) {
        fault("intern", NULL);
        return 0;
    }
    if (!interned_room())
        return 0;
    uint32_t epoch = recorder.epoch;
    uint32_t id = miss(MISS_VALUE, obj);
    if (id && numbers && epoch == recorder.epoch) {
        known = PyDict_GetItemWithError(numbers, key); /* another thread may have been first while miss() ran */
        if (known)
            return (uint32_t)PyLong_AsUnsignedLong(known);
        PyObject *number = PyLong_FromUnsignedLong(id);
        if (!number || PyDict_SetItem(numbers, key, number) < 0)
            fault("intern", NULL);
        else
            interned_count += 1;
        Py_XDECREF(number);
    }
    return id;
}

static bool as_symbol(uint32_t id, Value *v)
{
    v->kind = VALUE_SYMBOL;
    v->low = id;
    v->high = 0;
    return id != 0;
}

void encode_object(PyObject *o, Value *v)
{
    v->kind = VALUE_OBJECT;
    v->low = type_symbol(Py_TYPE(o));
    v->high = (uint64_t)(uintptr_t)o;
}

static void symbol_or_object(uint32_t id, PyObject *o, Value *v)
{
    if (!as_symbol(id, v))
        encode_object(o, v);
}

static void encode_int(PyObject *o, Value *v)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (LIKELY(!overflow)) {
        v->kind = VALUE_INT;
        v->low = (uint64_t)value;
        v->high = 0;
        return;
    }
    if (PyLong_AsDouble(o) == -1.0 && PyErr_Occurred()) { /* over 1024 bits: its digits would cost more than they tell */
        PyErr_Clear();
        encode_object(o, v);
        return;
    }
    PyObject *plain = PyLong_Type.tp_as_number->nb_int(o); /* int's own: no override of a subclass runs */
    if (!plain)
        PyErr_Clear();
    symbol_or_object(plain ? intern(plain, plain) : 0, o, v);
    Py_XDECREF(plain);
}

static void encode_string(PyObject *o, Value *v)
{
    if (PyUnicode_GET_LENGTH(o) > STRING_LIMIT) {
        encode_object(o, v);
        return;
    }
    PyObject *plain = PyUnicode_FromObject(o);
    if (!plain)
        PyErr_Clear();
    symbol_or_object(plain ? intern(plain, plain) : 0, o, v);
    Py_XDECREF(plain);
}

/* A member is known by its class and its name (or value, for unnamed combinations of flags), read past any override. */
static void encode_enum(PyObject *o, TypeInfo info, Value *v)
{
    static PyObject *attributes[2];
    static const char *const spelled[2] = {"_name_", "_value_"};
    uint32_t id = 0;
    for (int i = 0; i < 2 && !id; i++) {
        if (!attributes[i] && !(attributes[i] = PyUnicode_InternFromString(spelled[i])))
            break;
        PyObject *name = PyObject_GenericGetAttr(o, attributes[i]);
        if (name && (PyUnicode_CheckExact(name) || PyLong_CheckExact(name))) {
            PyObject *key = Py_BuildValue("(IO)", (unsigned)info.serial, name);
            if (key) {
                id = intern(key, o);
                Py_DECREF(key);
            }
            Py_DECREF(name);
            break;
        }
        PyErr_Clear();
        Py_XDECREF(name);
    }
    PyErr_Clear();
    symbol_or_object(id, o, v);
}

/* Elements of a tuple as key words; false when one of them is not plain. */
static bool tuple_key(PyObject *o, uint64_t tag, uint64_t *key, size_t *n)
{
    Py_ssize_t size = PyTuple_GET_SIZE(o);
    if (size > TUPLE_LIMIT)
        return false;
    key[0] = tag;
    *n = 1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyTuple_GET_ITEM(o, i);
        Value v;
        if (item != Py_None && !PyBool_Check(item) && !PyLong_CheckExact(item) && !PyFloat_CheckExact(item) &&
            !PyUnicode_CheckExact(item))
            return false;
        encode(item, &v);
        if (v.kind == VALUE_OBJECT)
            return false;
        key[(*n)++] = v.kind;
        key[(*n)++] = v.low;
    }
    return true;
}

static uint32_t intern_words(Table *table, const uint64_t *key, size_t n, PyObject *obj)
{
    uint32_t id = table_get(table, key, n);
    if (id || !recorder.on || !interned_room())
        return id;
    uint32_t epoch = recorder.epoch;
    id = miss(MISS_VALUE, obj);
    if (id && epoch == recorder.epoch) {
        id = table_put(table, key, n, id);
        interned_count += 1;
    }
    return id;
}

void encode_slow(PyObject *o, Value *v)
{
    v->high = 0;
    if (PyLong_CheckExact(o)) {
        encode_int(o, v);
        return;
    }
    if (PyUnicode_CheckExact(o)) {
        encode_string(o, v);
        return;
    }
    TypeInfo info = type_info(Py_TYPE(o));
    uint64_t key[1 + 2 * TUPLE_LIMIT];
    size_t n;
    switch (info.category) {
    case CATEGORY_INT:
        encode_int(o, v);
        return;
    case CATEGORY_FLOAT: {
        double d = PyFloat_AS_DOUBLE(o);
        v->kind = VALUE_FLOAT;
        memcpy(&v->low, &d, sizeof d);
        return;
    }
    case CATEGORY_STRING:
        encode_string(o, v);
        return;
    case CATEGORY_TUPLE:
    case CATEGORY_SIZE:
        if (tuple_key(o, info.category == CATEGORY_SIZE ? TAG_SIZE : TAG_TUPLE, key, &n))
            symbol_or_object(intern_words(&tuples, key, n, o), o, v);
        else
            encode_object(o, v);
        return;
    case CATEGORY_TYPE:
        as_symbol(type_symbol((PyTypeObject *)o), v);
        return;
    case CATEGORY_ENUM:
        encode_enum(o, info, v);
        return;
    case CATEGORY_TENSOR:
        encode_tensor(o, info, v);
        return;
    case CATEGORY_DEVICE:
        key[0] = TAG_DEVICE;
        key[1] = device_number(o);
        symbol_or_object(key[1] ? intern_words(&tuples, key, 2, o) : 0, o, v);
        return;
    case CATEGORY_SINGLETON:
        symbol_or_object(intern(o, o), o, v);
        return;
    case CATEGORY_OTHER:
        break;
    }
    encode_object(o, v);
}

/* As encode(), for callers who want a symbol of whatever they pass: what is not interned is asked for each time. */
uint32_t symbol_of(PyObject *o)
{
    Value v;
    encode(o, &v);
    return v.kind == VALUE_SYMBOL ? (uint32_t)v.low : miss(MISS_VALUE, o);
}

void values_clear(void)
{
    types_clear();
    Py_CLEAR(numbers);
    table_clear(&tuples);
    torch_clear();
    interned_count = 0;
}

int values_init(void) { return 0; }
