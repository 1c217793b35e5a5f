/* What the files of the compiled core share: thread state, the recorder with its inline append, values, probes.
 *
 * Every function here needs the GIL unless it says otherwise: the GIL is the lock that orders the stream of records.
 * None of them leaves a Python exception set; faults of ours are counted (fault()), never raised into the user's call.
 */
#ifndef TRAINCHECK_PROBE_H
#define TRAINCHECK_PROBE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#if PY_VERSION_HEX < 0x030A0000
#error "traincheck needs CPython 3.10 or newer"
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#pragma GCC visibility push(hidden)

/* --- numbers of the format: docs/trace-format.md ------------------------------------------------------------------ */

enum { RECORD_BEGIN = 1, RECORD_END, RECORD_CAPTURE, RECORD_OBSERVE, RECORD_STATE, RECORD_MARK };

enum {
    VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_FLOAT, VALUE_SYMBOL, VALUE_IDENTITY, VALUE_DIGEST, VALUE_MISSING,
    VALUE_ERROR, VALUE_LOCATION, VALUE_OBJECT, VALUE_TENSOR
};

enum { MARK_STEP_BEGIN = 1, MARK_CLOCK = 5, MARK_GAP = 6 };

/* What miss(kind, obj) is asked for. */
enum {
    MISS_VALUE = 4, MISS_EXCEPTION = 8, MISS_LOCATION = 9, MISS_TYPE = 10, MISS_TENSOR = 11, MISS_THREAD = 100,
    MISS_CAPTURE = 101
};

#define HEADER_BYTES 128
#define RECORD_BYTES 32
#define STRING_LIMIT 200      /* longer strings are recorded as objects */
#define STACK_RESERVE (128u << 10)
#define INTERN_LIMIT 1000000  /* distinct interned values; then objects */

/* --- thread state ------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t call;   /* innermost open recorded call, 0 = none */
    uint32_t epoch;  /* recorder epoch that call and thread belong to */
    uint32_t muted;
    uint16_t thread; /* thread symbol */
    uint16_t groups; /* bit per group: a call of one of its probes is open */
    uintptr_t stack; /* lowest address of the thread's stack, 0 = not known */
} Thread;

/* Small and in the static TLS block where the C library lets a loaded module have it: one instruction to reach. */
#if defined(__GLIBC__)
#define TRAINCHECK_TLS __attribute__((tls_model("initial-exec")))
#else
#define TRAINCHECK_TLS
#endif
extern __thread Thread this_thread TRAINCHECK_TLS;

void thread_enter(Thread *t);

/* --- recorder ----------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *cursor; /* where the next record goes */
    uint8_t *end;    /* of the segment */
    uint64_t calls;  /* number of the last call */
    uint32_t epoch;  /* grows at open, close and fork: what belongs to another epoch is not written */
    bool on, paused, tsc;

    uint8_t *map;
    size_t segment_bytes;
    uint64_t base; /* sequence number of the segment's first record */
    uint64_t observations;
    uint64_t dropped;
    uint64_t retry_at; /* CLOCK_MONOTONIC ns; 0 = not waiting */
    uint32_t segment;
    bool stale; /* a fork left Python references of the parent's recorder behind */
    char *directory;
    PyObject *miss;
    PyObject *waiting; /* called at the first call while nothing is recorded: see on_first_call */
    int error; /* errno of the last failed reservation */
} Recorder;

extern Recorder recorder;

int recorder_init(void);
bool recorder_make_room(void);
int recorder_open(PyObject *directory, Py_ssize_t segment_bytes, PyObject *miss, int clock);
void recorder_close(void);
void recorder_abandon(void);
bool recorder_wake(void);
int exit_note(const char *path, long long offset);
void recorder_clock_mark(Thread *t);

static inline uint64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_read(void)
{
#if defined(__x86_64__)
    if (LIKELY(recorder.tsc))
        return __rdtsc();
#endif
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t first_word(unsigned kind, unsigned detail, unsigned small, uint32_t id)
{
    return (uint64_t)kind | (uint64_t)detail << 8 | (uint64_t)small << 16 | (uint64_t)id << 32;
}

/* Append one record; false when there is no room (counted as dropped). The word with the kind goes last: a reader of
 * the shared mapping never sees half a record. */
static inline bool put(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
    if (UNLIKELY(recorder.cursor == recorder.end) && !recorder_make_room())
        return false;
    uint64_t *r = (uint64_t *)recorder.cursor;
    r[1] = w1;
    r[2] = w2;
    r[3] = w3;
    atomic_store_explicit((_Atomic uint64_t *)r, w0, memory_order_release);
    recorder.cursor += RECORD_BYTES;
    return true;
}

static inline Thread *thread_now(void)
{
    Thread *t = &this_thread;
    if (UNLIKELY(t->epoch != recorder.epoch))
        thread_enter(t);
    return t;
}

/* --- faults and calls into Python --------------------------------------------------------------------------------- */

/* Count the current exception as a fault of ours and clear it. What a signal handler raised while our Python code ran
 * on the main thread (KeyboardInterrupt, SystemExit) is handed on to the user's code instead. */
void fault(const char *where, PyObject *what);
bool hand_on(PyObject *exception); /* raise it in the main thread, soon */
PyObject *faults_list(void);
void faults_clear(void);

/* The exception in flight, put aside while we work. */
typedef struct {
    PyObject *type, *value, *traceback;
} Raised;

static inline void raised_fetch(Raised *e)
{
#if PY_VERSION_HEX >= 0x030C0000
    e->value = PyErr_GetRaisedException();
    e->type = e->value ? (PyObject *)Py_TYPE(e->value) : NULL;
    e->traceback = NULL;
#else
    PyErr_Fetch(&e->type, &e->value, &e->traceback);
#endif
}

static inline void raised_restore(Raised *e)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(e->value);
#else
    PyErr_Restore(e->type, e->value, e->traceback);
#endif
}

static inline void raised_drop(Raised *e)
{
#if PY_VERSION_HEX < 0x030C0000
    Py_CLEAR(e->type);
#endif
    Py_CLEAR(e->value);
    Py_CLEAR(e->traceback);
}

static inline bool finalizing(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* --- tables: words -> number -------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t *slots; /* pairs: hash | offset into words */
    uint64_t *words; /* entries: length, number, key words */
    size_t mask, used, words_used, words_size;
} Table;

uint32_t table_get(const Table *t, const uint64_t *key, size_t n); /* 0 = absent */
/* The number under the key from now on: the one given, or the one another thread put there first. */
uint32_t table_put(Table *t, const uint64_t *key, size_t n, uint32_t number);
void table_clear(Table *t);

/* --- values ------------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned kind;
    uint64_t low, high;
} Value;

typedef enum {
    CATEGORY_OTHER, CATEGORY_INT, CATEGORY_FLOAT, CATEGORY_STRING, CATEGORY_TUPLE, CATEGORY_TYPE, CATEGORY_ENUM,
    CATEGORY_TENSOR, CATEGORY_SIZE, CATEGORY_DEVICE, CATEGORY_SINGLETON
} Category;

typedef struct {
    Category category;
    uint32_t serial; /* distinguishes types for as long as they live */
} TypeInfo;

int values_init(void);
void values_clear(void); /* forget every number: they belong to one recorder epoch */
uint32_t miss(int kind, PyObject *obj);
uint32_t exception_symbol(PyTypeObject *type);
uint32_t type_symbol(PyTypeObject *type);
TypeInfo type_info(PyTypeObject *type);
void encode_slow(PyObject *o, Value *v);
void encode_object(PyObject *o, Value *v);
uint32_t symbol_of(PyObject *o);
bool interned_room(void);
extern uint64_t interned_count;

static inline void encode(PyObject *o, Value *v)
{
    v->high = 0;
    if (o == Py_None) {
        v->kind = VALUE_NONE;
        v->low = 0;
    } else if (PyBool_Check(o)) {
        v->kind = VALUE_BOOL;
        v->low = o == Py_True;
    } else if (PyFloat_CheckExact(o)) {
        double d = PyFloat_AS_DOUBLE(o);
        v->kind = VALUE_FLOAT;
        memcpy(&v->low, &d, sizeof d);
    } else {
        encode_slow(o, v);
    }
}

/* --- torch: known only when the user has imported it --------------------------------------------------------------- */

bool torch_find(void);      /* true when it became known just now */
Category torch_category(PyTypeObject *type);
void encode_tensor(PyObject *o, TypeInfo info, Value *v);
/* New reference, NULL with an exception. Never runs a subclass's __torch_function__. */
PyObject *tensor_attribute(PyObject *tensor, PyObject *name);
void torch_clear(void);
uint32_t device_number(PyObject *device);

/* --- locations ---------------------------------------------------------------------------------------------------- */

int location_set_prefixes(PyObject *prefixes);
PyObject *location_now(void);       /* (file, line, function) or None */
uint32_t location_symbol_now(void); /* 0 = no user frame */
void location_clear(void);

/* --- captures ----------------------------------------------------------------------------------------------------- */

typedef enum { STEP_ARGUMENT, STEP_KEYWORD, STEP_RESULT, STEP_ATTRIBUTE, STEP_INDEX, STEP_KEY } StepKind;

typedef struct {
    StepKind kind;
    Py_ssize_t index;
    PyObject *name; /* str, or NULL */
} Step;

typedef struct {
    uint32_t id;
    uint32_t steps;
    Step *step;
} Capture;

typedef struct {
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *kwnames;
    PyObject *result; /* NULL before, and when it raised */
} Arguments;

int captures_parse(PyObject *spec, Capture **in, Py_ssize_t *n_in, Capture **out, Py_ssize_t *n_out);
void captures_free(Capture *c, Py_ssize_t n);
void captures_write(const Capture *c, Py_ssize_t n, const Arguments *a, Thread *t, uint64_t call);
void capture_all_in(uint32_t function, const Arguments *a, Thread *t, uint64_t call);
void capture_all_out(uint32_t function, PyObject *result, Thread *t, uint64_t call);
void capture_location(uint32_t function, Thread *t, uint64_t call);
void captures_clear(void);

static inline bool put_value(Thread *t, uint32_t capture, uint64_t call, const Value *v)
{
    return put(first_word(RECORD_CAPTURE, v->kind, t->thread, capture), call, v->low, v->high);
}

/* --- probes ------------------------------------------------------------------------------------------------------- */

/* What Probe and Mute share: to stand where a callable stood. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *wrapped;
    PyObject *weakrefs;
    Py_ssize_t direct; /* offset of the wrapped's vectorcall pointer, 0 = ask CPython at each call */
} Stand;

typedef struct {
    Stand stand;
    bool enabled;
    bool record;
    bool simple; /* a bare record or plain captures: the short way */
    bool everything;
    uint8_t location;
    uint8_t outermost;
    uint8_t group;
    uint32_t id;
    Capture *in, *out;
    Py_ssize_t n_in, n_out;
    PyObject *enter, *exit;
} Probe;

PyObject *probe_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *mute_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
int stand_init_types(PyObject *module);
bool is_stand(PyObject *o);

static inline PyObject *forward(Stand *s, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *wrapped = s->wrapped;
    if (LIKELY(s->direct)) {
        vectorcallfunc f;
        memcpy(&f, (char *)wrapped + s->direct, sizeof f);
        if (LIKELY(f != NULL))
            return f(wrapped, args, nargsf, kwnames);
    }
    return PyObject_Vectorcall(wrapped, args, nargsf, kwnames);
}

#pragma GCC visibility pop
#endif
