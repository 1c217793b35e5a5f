/* Tensors: their descriptor (dtype, shape, device, ...) as one symbol, read without running anybody's Python code.
 *
 * torch is never imported here; it is found once the user's program has imported it. Attributes are read through the
 * getters of torch._C.TensorBase itself. A subclass's __torch_function__ and active function modes would be called even
 * by those, so where one could be, torch._C.DisableTorchFunction is held around the read.
 */
#include "_probe.h"

#define DIMENSION_LIMIT 32
#define KEY_WORDS (4 + DIMENSION_LIMIT + 2 + DIMENSION_LIMIT)

enum { FIELD_DTYPE, FIELD_SHAPE, FIELD_DEVICE, FIELD_REQUIRES_GRAD, FIELD_IS_LEAF, FIELD_LAYOUT, FIELD_RETAINS_GRAD, FIELDS };

static const char *const field_names[FIELDS] = {"dtype",   "shape",  "device",      "requires_grad",
                                                "is_leaf", "layout", "retains_grad"};

/* References to torch's own types are kept for good: they live as long as the process. */
static struct {
    bool known;
    PyTypeObject *base, *tensor, *parameter;
    PyTypeObject *dtype, *layout, *memory_format, *qscheme, *device, *size;
    PyObject *guard;
    PyObject *mode_active;
    PyGetSetDef *field[FIELDS];
    PyObject *enter, *exit, *grad;
    PyTypeObject *dtensor; /* NULL until torch.distributed.tensor is imported */
} torch;

static Table tensors;      /* type serial, dtype, layout, device and flags, dimensions -> id */
static PyObject *devices;  /* dict: torch.device -> small number */
static PyObject *layouts;  /* dict: placements of a DTensor (a tuple of torch's own immutable objects) -> small number */

static PyTypeObject *get_type(PyObject *module, const char *name)
{
    PyObject *o = PyObject_GetAttrString(module, name);
    if (o && PyType_Check(o))
        return (PyTypeObject *)o;
    Py_XDECREF(o);
    return NULL;
}

static PyObject *module_named(const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *module = key ? PyImport_GetModule(key) : NULL;
    Py_XDECREF(key);
    return module;
}

static bool find(PyObject *package, PyObject *core, PyObject *nn)
{
    if (!(torch.base = get_type(core, "TensorBase")) || !(torch.tensor = get_type(package, "Tensor")) ||
        !(torch.dtype = get_type(package, "dtype")) || !(torch.layout = get_type(package, "layout")) ||
        !(torch.memory_format = get_type(package, "memory_format")) || !(torch.qscheme = get_type(package, "qscheme")) ||
        !(torch.device = get_type(package, "device")) || !(torch.size = get_type(package, "Size")) ||
        !(torch.parameter = get_type(nn, "Parameter")))
        return false;
    if (!(torch.guard = PyObject_GetAttrString(core, "DisableTorchFunction")) ||
        !(torch.mode_active = PyObject_GetAttrString(core, "_is_torch_function_mode_enabled")))
        return false;
    for (int i = 0; i < FIELDS; i++) {
        PyObject *descriptor = PyDict_GetItemString(torch.base->tp_dict, field_names[i]);
        if (!descriptor || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
            return false;
        torch.field[i] = ((PyGetSetDescrObject *)descriptor)->d_getset;
    }
    return (torch.enter = PyUnicode_InternFromString("__enter__")) && (torch.exit = PyUnicode_InternFromString("__exit__")) &&
           (torch.grad = PyUnicode_InternFromString("grad"));
}

bool torch_find(void)
{
    if (torch.known)
        return false;
    PyObject *package = module_named("torch");
    PyObject *core = package ? module_named("torch._C") : NULL;
    PyObject *nn = core ? module_named("torch.nn.parameter") : NULL;
    torch.known = nn && find(package, core, nn); /* half imported: the next unknown type tries again */
    PyErr_Clear();
    Py_XDECREF(package);
    Py_XDECREF(core);
    Py_XDECREF(nn);
    return torch.known;
}

Category torch_category(PyTypeObject *type)
{
    if (!torch.known)
        return CATEGORY_OTHER;
    if (PyType_IsSubtype(type, torch.base))
        return CATEGORY_TENSOR;
    if (type == torch.dtype || type == torch.layout || type == torch.memory_format || type == torch.qscheme)
        return CATEGORY_SINGLETON;
    if (type == torch.device)
        return CATEGORY_DEVICE;
    if (type == torch.size)
        return CATEGORY_SIZE;
    return CATEGORY_OTHER;
}

/* --- reading past __torch_function__ ------------------------------------------------------------------------------ */

typedef struct {
    PyObject *guard; /* NULL: none was needed */
    bool failed;
} Plain;

static bool mode_active(void)
{
    PyObject *answer;
    if (PyCFunction_CheckExact(torch.mode_active) && PyCFunction_GET_FLAGS(torch.mode_active) == METH_NOARGS)
        answer = PyCFunction_GET_FUNCTION(torch.mode_active)(PyCFunction_GET_SELF(torch.mode_active), NULL);
    else
        answer = PyObject_CallNoArgs(torch.mode_active);
    bool active = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return active;
}

static Plain plain_enter(PyObject *tensor)
{
    PyTypeObject *type = Py_TYPE(tensor);
    Plain p = {NULL, false};
    if (LIKELY((type == torch.tensor || type == torch.parameter) && !mode_active()))
        return p;
    p.guard = PyObject_CallNoArgs(torch.guard);
    PyObject *entered = p.guard ? PyObject_CallMethodNoArgs(p.guard, torch.enter) : NULL;
    if (!entered) {
        Py_CLEAR(p.guard);
        p.failed = true;
    }
    Py_XDECREF(entered);
    return p;
}

static void plain_exit(Plain *p)
{
    if (LIKELY(!p->guard))
        return;
    Raised raised;
    raised_fetch(&raised);
    PyObject *left = PyObject_CallMethodObjArgs(p->guard, torch.exit, Py_None, Py_None, Py_None, NULL);
    if (!left)
        fault("torch function guard", NULL);
    Py_XDECREF(left);
    Py_DECREF(p->guard);
    raised_restore(&raised);
}

static PyObject *field(PyObject *tensor, int which)
{
    return torch.field[which]->get(tensor, torch.field[which]->closure);
}

/* Reading .grad of a tensor that keeps none warns the user; the answer is None either way. */
static bool has_no_grad(PyObject *tensor)
{
    PyObject *leaf = field(tensor, FIELD_IS_LEAF);
    PyObject *retains = leaf == Py_False ? field(tensor, FIELD_RETAINS_GRAD) : NULL;
    bool none = leaf == Py_False && retains == Py_False;
    Py_XDECREF(leaf);
    Py_XDECREF(retains);
    PyErr_Clear();
    return none;
}

PyObject *tensor_attribute(PyObject *tensor, PyObject *name)
{
    Plain plain = plain_enter(tensor);
    if (plain.failed)
        return NULL;
    PyObject *found;
    PyObject *descriptor = PyDict_GetItemWithError(torch.base->tp_dict, name);
    if (PyUnicode_Compare(name, torch.grad) == 0 && has_no_grad(tensor))
        found = Py_NewRef(Py_None);
    else if (descriptor && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) &&
             ((PyGetSetDescrObject *)descriptor)->d_getset->get) {
        PyGetSetDef *getter = ((PyGetSetDescrObject *)descriptor)->d_getset;
        found = getter->get(tensor, getter->closure);
    } else {
        found = PyObject_GetAttr(tensor, name);
    }
    plain_exit(&plain);
    return found;
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

/* A small number for a hashable object, 0 with an exception. */
static uint32_t number_in(PyObject **dict, PyObject *o)
{
    if (!*dict && !(*dict = PyDict_New()))
        return 0;
    PyObject *known = PyDict_GetItemWithError(*dict, o);
    if (known)
        return (uint32_t)PyLong_AsLong(known);
    if (PyErr_Occurred())
        return 0;
    PyObject *number = PyLong_FromSsize_t(PyDict_GET_SIZE(*dict) + 1);
    int failed = !number || PyDict_SetItem(*dict, o, number) < 0;
    Py_XDECREF(number);
    return failed ? 0 : (uint32_t)PyDict_GET_SIZE(*dict);
}

uint32_t device_number(PyObject *device)
{
    uint32_t number = number_in(&devices, device);
    if (!number)
        fault("device", NULL);
    return number;
}

/* Sizes of a shape as words; how many, or -1 when they are not plain numbers (symbolic sizes, while tracing). */
static Py_ssize_t shape_words(PyObject *shape, uint64_t *words)
{
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > DIMENSION_LIMIT)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        PyObject *size = PyTuple_GET_ITEM(shape, i);
        if (!PyLong_CheckExact(size))
            return -1;
        words[i] = (uint64_t)PyLong_AsLongLong(size);
    }
    return PyTuple_GET_SIZE(shape);
}

static bool is_dtensor(PyTypeObject *type)
{
    if (LIKELY(type == torch.tensor || type == torch.parameter))
        return false;
    if (!torch.dtensor) {
        PyObject *module = module_named("torch.distributed.tensor");
        if (module)
            torch.dtensor = get_type(module, "DTensor");
        Py_XDECREF(module);
        PyErr_Clear();
    }
    return torch.dtensor && PyType_IsSubtype(type, torch.dtensor);
}

/* What else tells a DTensor's descriptor from another's: placements, mesh, local shape. 0 when it cannot be read. */
static size_t dtensor_words(PyObject *o, uint64_t *words)
{
    size_t n = 0;
    PyObject *spec = PyObject_GetAttrString(o, "_spec");
    PyObject *local = PyObject_GetAttrString(o, "_local_tensor");
    PyObject *placements = spec ? PyObject_GetAttrString(spec, "placements") : NULL;
    PyObject *mesh = spec ? PyObject_GetAttrString(spec, "mesh") : NULL;
    PyObject *shape = NULL;
    if (placements && mesh && local && PyType_IsSubtype(Py_TYPE(local), torch.base) && (shape = field(local, FIELD_SHAPE))) {
        words[0] = number_in(&layouts, placements);
        words[1] = (uint64_t)PyObject_Hash(mesh);
        Py_ssize_t dimensions = shape_words(shape, words + 2);
        n = words[0] && dimensions >= 0 ? 2 + (size_t)dimensions : 0;
    }
    Py_XDECREF(spec);
    Py_XDECREF(local);
    Py_XDECREF(placements);
    Py_XDECREF(mesh);
    Py_XDECREF(shape);
    return n;
}

/* The key of a tensor's descriptor; its length in words, 0 when it has none (symbolic sizes, an attribute that cannot be read). */
static size_t descriptor_key(PyObject *o, uint32_t serial, uint64_t *key)
{
    size_t n = 0;
    PyObject *read[6] = {NULL};
    for (int i = 0; i < 6; i++)
        if (!(read[i] = field(o, i)))
            goto done;
    if (Py_TYPE(read[FIELD_DEVICE]) != torch.device || Py_TYPE(read[FIELD_DTYPE]) != torch.dtype ||
        Py_TYPE(read[FIELD_LAYOUT]) != torch.layout)
        goto done;
    uint32_t device = device_number(read[FIELD_DEVICE]);
    if (!device)
        goto done;
    Py_ssize_t dimensions = shape_words(read[FIELD_SHAPE], key + 4);
    if (dimensions < 0)
        goto done;
    key[0] = serial;
    key[1] = (uint64_t)(uintptr_t)read[FIELD_DTYPE];
    key[2] = (uint64_t)(uintptr_t)read[FIELD_LAYOUT];
    key[3] = (uint64_t)device << 2 | (read[FIELD_REQUIRES_GRAD] == Py_True) << 1 | (read[FIELD_IS_LEAF] == Py_True);
    n = 4 + (size_t)dimensions;
    if (UNLIKELY(is_dtensor(Py_TYPE(o)))) {
        size_t more = dtensor_words(o, key + n);
        n = more ? n + more : 0;
    }
done:
    for (int i = 0; i < 6; i++)
        Py_XDECREF(read[i]);
    return n;
}

static uint32_t descriptor_symbol(PyObject *o, const uint64_t *key, size_t n)
{
    uint32_t id = table_get(&tensors, key, n);
    if (LIKELY(id) || !recorder.on || !interned_room())
        return id;
    uint32_t epoch = recorder.epoch;
    id = miss(MISS_TENSOR, o);
    if (id && epoch == recorder.epoch) {
        id = table_put(&tensors, key, n, id);
        interned_count += 1;
    }
    return id;
}

void encode_tensor(PyObject *o, TypeInfo info, Value *v)
{
    uint64_t key[KEY_WORDS];
    uint32_t id = 0;
    Thread *t = &this_thread;
    t->muted += 1; /* a wrapper subclass may answer for its sizes through __torch_dispatch__ */
    Plain plain = plain_enter(o);
    if (!plain.failed) {
        size_t n = descriptor_key(o, info.serial, key);
        if (PyErr_Occurred())
            fault("tensor descriptor", (PyObject *)Py_TYPE(o));
        id = n ? descriptor_symbol(o, key, n) : 0; /* asked inside the guard: the answer reads the same attributes */
    }
    plain_exit(&plain);
    t->muted -= 1;
    if (PyErr_Occurred())
        fault("tensor descriptor", (PyObject *)Py_TYPE(o));
    if (!id) {
        encode_object(o, v);
        return;
    }
    v->kind = VALUE_TENSOR;
    v->low = id;
    v->high = (uint64_t)(uintptr_t)o;
}

void torch_clear(void)
{
    table_clear(&tensors);
    Py_CLEAR(devices);
    Py_CLEAR(layouts);
}
