/* The calls themselves: what happens when the program calls a probed or muted function. */
#include "_probe.h"

/* Whether `call`, begun in `epoch`, is still the recorder's to end. */
static inline bool same_epoch(uint32_t epoch) { return LIKELY(recorder.epoch == epoch); }

static inline Arguments arguments_of(PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return (Arguments){.args = args, .nargs = PyVectorcall_NARGS(nargsf), .kwnames = kwnames};
}

/* BEGIN and what is read at entry. The call's number, 0 when it could not be recorded. */
static inline uint64_t begin(Probe *p, Thread *t, const Arguments *a)
{
    uint64_t call = ++recorder.calls;
    if (UNLIKELY(!put(first_word(RECORD_BEGIN, 0, t->thread, p->id), clock_read(), call, t->call)))
        return 0;
    if (UNLIKELY(p->n_in))
        captures_write(p->in, p->n_in, a, t, call);
    return call;
}

static inline void end(Probe *p, Thread *t, uint64_t call, uint64_t time, bool raised, uint32_t exception)
{
    put(first_word(RECORD_END, raised, t->thread, p->id), time, call, exception);
}

/* The end of a call that raised: its type is named, the exception itself is put back untouched. */
static void end_raised(Probe *p, Thread *t, uint64_t call, uint64_t time, Arguments *a, uint32_t epoch)
{
    Raised raised;
    raised_fetch(&raised);
    if (p->n_out)
        captures_write(p->out, p->n_out, a, t, call);
    uint32_t symbol = raised.type ? exception_symbol((PyTypeObject *)raised.type) : 0;
    if (same_epoch(epoch))
        end(p, t, call, time, true, symbol);
    raised_restore(&raised);
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static PyObject *args_tuple(const Arguments *a)
{
    PyObject *tuple = PyTuple_New(a->nargs);
    for (Py_ssize_t i = 0; tuple && i < a->nargs; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(a->args[i]));
    return tuple;
}

static PyObject *kwargs_dict(const Arguments *a)
{
    if (!a->kwnames || PyTuple_GET_SIZE(a->kwnames) == 0)
        return Py_NewRef(Py_None);
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; dict && i < PyTuple_GET_SIZE(a->kwnames); i++)
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(a->kwnames, i), a->args[a->nargs + i]) < 0)
            Py_CLEAR(dict);
    return dict;
}

typedef struct {
    PyObject *args, *kwargs, *token;
    bool ran; /* entered: it must be left */
} Hooks;

static void hooks_enter(Probe *p, Thread *t, const Arguments *a, uint64_t call, Hooks *h)
{
    memset(h, 0, sizeof *h);
    if (finalizing())
        return;
    t->muted += 1;
    h->args = args_tuple(a);
    h->kwargs = h->args ? kwargs_dict(a) : NULL;
    PyObject *number = h->kwargs ? PyLong_FromUnsignedLongLong(call) : NULL;
    PyObject *hook = Py_XNewRef(p->enter);
    if (number) {
        h->ran = true;
        if (hook) {
            PyObject *args[5] = {NULL, (PyObject *)p, h->args, h->kwargs, number};
            h->token = PyObject_Vectorcall(hook, args + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        }
    }
    if (PyErr_Occurred())
        fault("enter hook", p->stand.wrapped);
    Py_XDECREF(hook);
    Py_XDECREF(number);
    if (!h->token)
        h->token = Py_NewRef(Py_None);
    t->muted -= 1;
}

static void hooks_exit(Probe *p, Thread *t, uint64_t call, PyObject *result, Hooks *h)
{
    Raised raised;
    raised_fetch(&raised);
    t->muted += 1;
    PyObject *hook = h->ran && !finalizing() ? Py_XNewRef(p->exit) : NULL;
    if (hook) {
#if PY_VERSION_HEX < 0x030C0000
        if (raised.type)
            PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
#endif
        PyObject *number = PyLong_FromUnsignedLongLong(call);
        if (number) {
            PyObject *args[8] = {NULL,
                                 (PyObject *)p,
                                 h->token,
                                 h->args,
                                 h->kwargs,
                                 result ? result : Py_None,
                                 raised.value ? raised.value : Py_None,
                                 number};
            PyObject *answer = PyObject_Vectorcall(hook, args + 1, 7 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
            Py_XDECREF(answer);
            Py_DECREF(number);
        }
        if (PyErr_Occurred())
            fault("exit hook", p->stand.wrapped);
        Py_DECREF(hook);
    }
    Py_XDECREF(h->args);
    Py_XDECREF(h->kwargs);
    Py_XDECREF(h->token);
    t->muted -= 1;
    raised_restore(&raised);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Everything a probe can be asked for, in order: BEGIN, location, in-captures, enter, the call, out-captures, END, exit.
 * END closes what is known of a call, so a reader who has it has all of it. */
static PyObject *call_fully(Probe *p, Thread *t, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_INCREF(p);
    uint16_t group = (uint16_t)(1u << p->group);
    bool opens = (p->outermost || p->group) && !(t->groups & group);
    if (opens)
        t->groups |= group;
    Arguments a = arguments_of(args, nargsf, kwnames);
    uint32_t epoch = t->epoch;
    uint64_t parent = t->call, call = 0;
    if (p->record && !recorder.paused && (call = begin(p, t, &a))) {
        t->muted += 1;
        if (p->everything && same_epoch(epoch))
            capture_all_in(p->id, &a, t, call);
        if ((p->location == 2 || (p->location == 1 && parent == 0)) && same_epoch(epoch))
            capture_location(p->id, t, call);
        t->muted -= 1;
        if (same_epoch(epoch))
            t->call = call;
        else
            call = 0;
    }
    bool hooked = p->enter || p->exit;
    Hooks hooks;
    if (hooked)
        hooks_enter(p, t, &a, call, &hooks);

    PyObject *result = forward(&p->stand, args, nargsf, kwnames);

    uint64_t time = call ? clock_read() : 0;
    if (opens)
        t->groups &= (uint16_t)~group;
    if (call && !same_epoch(epoch))
        call = 0;
    if (call) {
        t->call = parent;
        a.result = result;
        if (result) {
            if (p->n_out)
                captures_write(p->out, p->n_out, &a, t, call);
            if (p->everything && same_epoch(epoch)) {
                t->muted += 1;
                capture_all_out(p->id, result, t, call);
                t->muted -= 1;
            }
            if (same_epoch(epoch))
                end(p, t, call, time, false, 0);
            else
                call = 0;
        } else {
            end_raised(p, t, call, time, &a, epoch);
        }
    }
    if (hooked)
        hooks_exit(p, t, call, result, &hooks);
    Py_DECREF(p);
    return result;
}

/* A call through us takes C stack, as a plain call from Python to Python does not: a program that raised its recursion
 * limit far enough would crash where it did not before. It gets a RecursionError instead. */
static inline bool stack_is_low(const Thread *t)
{
    return UNLIKELY((uintptr_t)__builtin_frame_address(0) - t->stack < STACK_RESERVE);
}

static PyObject *refuse_stack(void)
{
    PyErr_SetString(PyExc_RecursionError,
                    "the thread's C stack is nearly used up by calls of functions that traincheck watches: "
                    "raise the stack limit (ulimit -s) or lower sys.setrecursionlimit()");
    return NULL;
}

PyObject *probe_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Probe *p = (Probe *)self;
    Thread *t = &this_thread;
    if (UNLIKELY(!recorder.on || !p->enabled || t->muted)) {
        if (LIKELY(!recorder.waiting || recorder.on || !p->enabled || t->muted) || finalizing() || !recorder_wake())
            return forward(&p->stand, args, nargsf, kwnames);
    }
    if (UNLIKELY(t->epoch != recorder.epoch))
        thread_enter(t);
    if (stack_is_low(t))
        return refuse_stack();
    if (UNLIKELY(!p->simple || !p->record || recorder.paused)) {
        if (finalizing() || (p->outermost && t->groups >> p->group & 1))
            return forward(&p->stand, args, nargsf, kwnames);
        return call_fully(p, t, args, nargsf, kwnames);
    }

    Arguments a = arguments_of(args, nargsf, kwnames);
    uint32_t epoch = t->epoch;
    uint64_t parent = t->call;
    uint64_t call = begin(p, t, &a);
    if (UNLIKELY(!call || !same_epoch(epoch)))
        return forward(&p->stand, args, nargsf, kwnames);
    t->call = call;
    Py_INCREF(p); /* the call may drop the last reference to its own probe */

    PyObject *result = forward(&p->stand, args, nargsf, kwnames);

    if (same_epoch(epoch)) {
        uint64_t time = clock_read();
        t->call = parent;
        a.result = result;
        if (UNLIKELY(!result)) {
            end_raised(p, t, call, time, &a, epoch);
        } else {
            if (UNLIKELY(p->n_out)) {
                captures_write(p->out, p->n_out, &a, t, call);
                if (same_epoch(epoch))
                    end(p, t, call, time, false, 0);
            } else {
                end(p, t, call, time, false, 0);
            }
        }
    }
    Py_DECREF(p);
    return result;
}

PyObject *mute_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *t = &this_thread;
    Py_INCREF(self);
    t->muted += 1;
    PyObject *result = forward((Stand *)self, args, nargsf, kwnames);
    t->muted -= 1;
    Py_DECREF(self);
    return result;
}
