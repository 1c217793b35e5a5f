/* The module traincheck.collect._probe: its functions. The contract is in _probe.pyi. */
#include "_probe.h"

#define ABI 1

static PyObject *probe_open(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"directory", "segment_bytes", "miss", "clock", NULL};
    PyObject *directory, *miss_function;
    Py_ssize_t segment_bytes;
    int clock = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnO|i:open", names, &directory, &segment_bytes, &miss_function, &clock))
        return NULL;
    if (recorder_open(directory, segment_bytes, miss_function, clock) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *probe_close(PyObject *module, PyObject *unused)
{
    recorder_close();
    Py_RETURN_NONE;
}

static PyObject *probe_abandon(PyObject *module, PyObject *unused)
{
    recorder_abandon();
    Py_RETURN_NONE;
}

static PyObject *probe_recording(PyObject *module, PyObject *unused) { return PyBool_FromLong(recorder.on); }

static PyObject *probe_pause(PyObject *module, PyObject *unused)
{
    recorder.paused = true;
    Py_RETURN_NONE;
}

static PyObject *probe_resume(PyObject *module, PyObject *unused)
{
    recorder.paused = false;
    Py_RETURN_NONE;
}

static PyObject *probe_records(PyObject *module, PyObject *unused)
{
    uint64_t here = recorder.map ? (uint64_t)(recorder.cursor - recorder.map - HEADER_BYTES) / RECORD_BYTES : 0;
    return PyLong_FromUnsignedLongLong(recorder.base + here);
}

static PyObject *probe_dropped(PyObject *module, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(recorder.dropped);
}

static PyObject *probe_last_error(PyObject *module, PyObject *unused)
{
    if (!recorder.error)
        Py_RETURN_NONE;
    return PyUnicode_FromString(strerror(recorder.error));
}

static PyObject *probe_faults(PyObject *module, PyObject *unused) { return faults_list(); }
static PyObject *probe_location(PyObject *module, PyObject *unused) { return location_now(); }

static PyObject *probe_set_library_prefixes(PyObject *module, PyObject *prefixes)
{
    if (location_set_prefixes(prefixes) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Any int, by its low 64 bits. */
static int take_word(PyObject *o, uint64_t *word)
{
    *word = PyLong_AsUnsignedLongLongMask(o);
    return *word == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *wrong_count(const char *function, Py_ssize_t expected, Py_ssize_t found)
{
    return PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd were given", function, expected, found);
}

static PyObject *probe_mark(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    uint64_t w[4];
    if (n != 4)
        return wrong_count("mark", 4, n);
    for (int i = 0; i < 4; i++)
        if (take_word(args[i], &w[i]) < 0)
            return NULL;
    if (recorder.on) {
        Thread *t = thread_now();
        if (recorder.on)
            put(first_word(RECORD_MARK, w[0] & 0xFF, t->thread, (uint32_t)w[1]), clock_read(), w[2], w[3]);
        if (recorder.on && w[0] == MARK_STEP_BEGIN)
            recorder_clock_mark(t);
    }
    Py_RETURN_NONE;
}

static PyObject *probe_observe(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    uint64_t w[3];
    if (n != 3)
        return wrong_count("observe", 3, n);
    for (int i = 0; i < 3; i++)
        if (take_word(args[i], &w[i]) < 0)
            return NULL;
    if (!recorder.on)
        return PyLong_FromLong(0);
    Thread *t = thread_now();
    uint64_t observation = ++recorder.observations;
    put(first_word(RECORD_OBSERVE, w[0] & 0xFF, t->thread, (uint32_t)w[1]), clock_read(), w[2], observation);
    return PyLong_FromUnsignedLongLong(observation);
}

/* variable, attribute, kind, low, high */
static void put_state(uint64_t observation, const uint64_t w[5])
{
    put(first_word(RECORD_STATE, w[2] & 0xFF, w[1] & 0xFFFF, (uint32_t)w[0]), observation, w[3], w[4]);
}

static PyObject *probe_state(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    uint64_t w[6];
    if (n != 6)
        return wrong_count("state", 6, n);
    for (int i = 0; i < 6; i++)
        if (take_word(args[i], &w[i]) < 0)
            return NULL;
    if (recorder.on)
        put_state(w[0], w + 1);
    Py_RETURN_NONE;
}

static PyObject *probe_states(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    uint64_t observation;
    if (n != 2)
        return wrong_count("states", 2, n);
    if (take_word(args[0], &observation) < 0)
        return NULL;
    PyObject *rows = PySequence_Fast(args[1], "rows must be a sequence of (variable, attribute, kind, low, high)");
    if (!rows)
        return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(rows); i++) {
        PyObject *row = PySequence_Fast_GET_ITEM(rows, i);
        uint64_t w[5];
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 5) {
            PyErr_Format(PyExc_TypeError, "row %zd must be a tuple (variable, attribute, kind, low, high), not %R", i, row);
            Py_DECREF(rows);
            return NULL;
        }
        for (int j = 0; j < 5; j++) {
            if (take_word(PyTuple_GET_ITEM(row, j), &w[j]) < 0) {
                Py_DECREF(rows);
                return NULL;
            }
        }
        if (recorder.on)
            put_state(observation, w);
    }
    Py_DECREF(rows);
    Py_RETURN_NONE;
}

static PyObject *probe_encode(PyObject *module, PyObject *o)
{
    Value v;
    encode(o, &v);
    return Py_BuildValue("(IKK)", v.kind, (unsigned long long)v.low, (unsigned long long)v.high);
}

static PyObject *probe_symbol(PyObject *module, PyObject *o) { return PyLong_FromUnsignedLong(symbol_of(o)); }

static PyObject *probe_current_call(PyObject *module, PyObject *unused)
{
    Thread *t = &this_thread;
    return PyLong_FromUnsignedLongLong(t->epoch == recorder.epoch ? t->call : 0);
}

static PyObject *probe_view(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    static char nothing[1];
    if (n != 2)
        return wrong_count("view", 2, n);
    void *address = PyLong_AsVoidPtr(args[0]);
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t bytes = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (bytes < 0 || (bytes > 0 && !address)) {
        PyErr_Format(PyExc_ValueError, "view() needs an address and a size of 0 or more bytes, not %p and %zd", address, bytes);
        return NULL;
    }
    return PyMemoryView_FromMemory(bytes ? address : nothing, bytes, PyBUF_READ);
}

static PyObject *probe_mute(PyObject *module, PyObject *unused)
{
    this_thread.muted += 1;
    Py_RETURN_NONE;
}

static PyObject *probe_unmute(PyObject *module, PyObject *unused)
{
    if (this_thread.muted == 0) {
        PyErr_SetString(PyExc_RuntimeError, "unmute() without mute() on this thread");
        return NULL;
    }
    this_thread.muted -= 1;
    Py_RETURN_NONE;
}

static PyObject *probe_muted(PyObject *module, PyObject *unused) { return PyLong_FromUnsignedLong(this_thread.muted); }
static PyObject *probe_is_probe(PyObject *module, PyObject *o) { return PyBool_FromLong(is_stand(o)); }

/* Put a value in a type's namespace where setattr() refuses to: a static type of an extension module. */
static PyObject *probe_replace(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "O!UO:replace", &PyType_Type, &type, &name, &value))
        return NULL;
    PyObject *old = type->tp_dict ? PyDict_GetItemWithError(type->tp_dict, name) : NULL;
    if (!old)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_AttributeError, "%s has no attribute %R of its own", type->tp_name, name);
    Py_INCREF(old);
    if (PyDict_SetItem(type->tp_dict, name, value) < 0)
        Py_CLEAR(old);
    PyType_Modified(type);
    return old;
}

#define FAST(f) (PyCFunction)(void (*)(void))(f)

static PyObject *probe_on_first_call(PyObject *module, PyObject *function)
{
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "on_first_call() takes a callable, not %.200s", Py_TYPE(function)->tp_name);
    if (recorder.on) {
        PyErr_SetString(PyExc_RuntimeError, "on_first_call() is for when nothing is recorded: close() or abandon() first");
        return NULL;
    }
    Py_XSETREF(recorder.waiting, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyObject *probe_hand_on(PyObject *module, PyObject *exception)
{
    if (!PyExceptionInstance_Check(exception))
        return PyErr_Format(PyExc_TypeError, "hand_on() takes an exception, not %.200s", Py_TYPE(exception)->tp_name);
    return PyBool_FromLong(hand_on(exception));
}

static PyObject *probe_at_exit(PyObject *module, PyObject *args)
{
    PyObject *path;
    long long offset;
    if (!PyArg_ParseTuple(args, "O&L:at_exit", PyUnicode_FSConverter, &path, &offset))
        return NULL;
    int failed = exit_note(PyBytes_AS_STRING(path), offset);
    Py_DECREF(path);
    return failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"open", FAST(probe_open), METH_VARARGS | METH_KEYWORDS, "open(directory, segment_bytes, miss, clock=-1)"},
    {"close", probe_close, METH_NOARGS, NULL},
    {"abandon", probe_abandon, METH_NOARGS, NULL},
    {"on_first_call", probe_on_first_call, METH_O, NULL},
    {"hand_on", probe_hand_on, METH_O, NULL},
    {"at_exit", probe_at_exit, METH_VARARGS, "at_exit(path, offset)"},
    {"recording", probe_recording, METH_NOARGS, NULL},
    {"pause", probe_pause, METH_NOARGS, NULL},
    {"resume", probe_resume, METH_NOARGS, NULL},
    {"records", probe_records, METH_NOARGS, NULL},
    {"dropped", probe_dropped, METH_NOARGS, NULL},
    {"last_error", probe_last_error, METH_NOARGS, NULL},
    {"faults", probe_faults, METH_NOARGS, NULL},
    {"location", probe_location, METH_NOARGS, NULL},
    {"set_library_prefixes", probe_set_library_prefixes, METH_O, NULL},
    {"mark", FAST(probe_mark), METH_FASTCALL, "mark(kind, symbol, a, b)"},
    {"observe", FAST(probe_observe), METH_FASTCALL, "observe(moment, reason, call) -> observation"},
    {"state", FAST(probe_state), METH_FASTCALL, "state(observation, variable, attribute, kind, low, high)"},
    {"states", FAST(probe_states), METH_FASTCALL, "states(observation, rows)"},
    {"encode", probe_encode, METH_O, NULL},
    {"symbol", probe_symbol, METH_O, NULL},
    {"current_call", probe_current_call, METH_NOARGS, NULL},
    {"view", FAST(probe_view), METH_FASTCALL, "view(address, nbytes) -> memoryview"},
    {"mute", probe_mute, METH_NOARGS, NULL},
    {"unmute", probe_unmute, METH_NOARGS, NULL},
    {"muted", probe_muted, METH_NOARGS, NULL},
    {"replace", probe_replace, METH_VARARGS, "replace(type, name, value) -> what stood there"},
    {"is_probe", probe_is_probe, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "traincheck.collect._probe records for a whole process and cannot be loaded in a sub-interpreter: "
                        "import traincheck in the main interpreter only");
        return -1;
    }
    if (recorder_init() < 0 || stand_init_types(module) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "ABI", ABI);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "traincheck.collect._probe",
    .m_doc = "The compiled core: probes and the segment writer.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__probe(void) { return PyModuleDef_Init(&definition); }
