/* The segment writer: fixed-size records in shared mappings that survive a killed process. See docs/trace-format.md. */
#include "_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define RETRY_NS 1000000000u
#define LEAST_SEGMENT_BYTES 4096

__thread Thread this_thread TRAINCHECK_TLS;
Recorder recorder = {.epoch = 1};

#if defined(__x86_64__)
/* The kernel tests the counters of all processors against each other and strikes out those it cannot trust. */
static bool kernel_trusts_tsc(void)
{
    char clocks[256];
    int fd = open("/sys/devices/system/clocksource/clocksource0/available_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t n = read(fd, clocks, sizeof clocks - 1);
    close(fd);
    clocks[n > 0 ? n : 0] = 0;
    return n <= 0 || strstr(clocks, "tsc") != NULL;
}

/* Under some hypervisors reading it is a trap that costs microseconds. */
static bool tsc_is_fast(void)
{
    enum { READS = 64, NS_EACH = 100 };
    uint64_t start = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < READS; i++)
        (void)__rdtsc();
    return clock_ns(CLOCK_MONOTONIC) - start < READS * NS_EACH;
}

static bool tsc_is_best(void)
{
    unsigned a, b, c, d;
    bool steady = __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
    return steady && kernel_trusts_tsc() && (tsc_is_fast() || tsc_is_fast()); /* twice: we may have been interrupted */
}
#else
static bool tsc_is_best(void) { return false; }
#endif

static void store32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static void store64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static void segment_path(char *to, size_t size, const char *directory, uint32_t number)
{
    snprintf(to, size, "%s/events-%05u.tcev", directory, number);
}

static uint64_t records_in_segment(void)
{
    return recorder.map ? (uint64_t)(recorder.cursor - recorder.map - HEADER_BYTES) / RECORD_BYTES : 0;
}

/* Fill the file with zeros by large writes: the kernel then keeps it in large pieces, and touching its pages through the
 * mapping costs a fifth of what it costs when each page is made at its first store (measured on ext4: 0.5 us instead of
 * 2.9 us a page). 0 or errno. */
static int fill(int fd, size_t bytes)
{
    static const char zeros[1 << 18];
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;
        ssize_t written = pwrite(fd, zeros, piece, (off_t)at);
        if (written < 0 && errno != EINTR)
            return errno;
        at += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

/* Make every page writable now: where the file system cannot keep what it promised (copy-on-write, compression) this
 * fails here, and not as SIGBUS at a store. 0 or errno. */
static int populate(uint8_t *map, size_t bytes)
{
    return madvise(map, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL ? 0 : errno; /* EINVAL: an older kernel */
}

static void segment_close(void)
{
    if (!recorder.map)
        return;
    uint64_t count = records_in_segment();
    store64(recorder.map + 72, clock_read());
    store64(recorder.map + 80, clock_ns(CLOCK_MONOTONIC));
    store64(recorder.map + 64, count);
    munmap(recorder.map, (size_t)(recorder.end - recorder.map));
    char path[4096];
    segment_path(path, sizeof path, recorder.directory, recorder.segment);
    /* By path: no descriptor is kept, so a program that closes all of its descriptors cannot make us cut another file. */
    if (truncate(path, (off_t)(HEADER_BYTES + count * RECORD_BYTES)) != 0) { /* the space stays reserved: no harm */
    }
    recorder.base += count;
    recorder.segment += 1;
    recorder.map = recorder.end = recorder.cursor = NULL;
}

/* Reserve and map segment number recorder.segment. 0, or errno with nothing left behind. */
static int segment_open(void)
{
    char path[4096];
    segment_path(path, sizeof path, recorder.directory, recorder.segment);
    size_t bytes = recorder.segment_bytes;
    struct rlimit limit; /* reaching it would raise SIGXFSZ, by default the end of the program */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
        return EFBIG;
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    int error;
    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    if (!error)
        error = fill(fd, bytes);
    uint8_t *map = MAP_FAILED;
    if (!error) {
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            error = errno;
    }
    close(fd);
    if (!error) {
        error = populate(map, bytes);
        if (error)
            munmap(map, bytes);
    }
    if (error) {
        unlink(path);
        return error;
    }
    recorder.map = map;
    recorder.end = map + bytes;
    recorder.cursor = map + HEADER_BYTES;
    memcpy(map, "TCEVENT", 8);
    store32(map + 8, 1);
    store32(map + 12, RECORD_BYTES);
    store32(map + 16, (uint32_t)getpid());
    store32(map + 20, recorder.segment);
    store64(map + 24, recorder.base);
    store64(map + 32, recorder.tsc ? 1 : 0);
    store64(map + 40, clock_read());
    store64(map + 48, clock_ns(CLOCK_MONOTONIC));
    store64(map + 56, clock_ns(CLOCK_REALTIME));
    return 0;
}

void recorder_clock_mark(Thread *t)
{
    uint64_t time = clock_read();
    put(first_word(RECORD_MARK, MARK_CLOCK, t->thread, 0), time, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME));
}

/* The segment is full, or there is none: go on in the next one. Runs no Python code. */
bool recorder_make_room(void)
{
    if (!recorder.on)
        return false;
    bool gap = false;
    if (recorder.map) {
        segment_close();
    } else {
        if (clock_ns(CLOCK_MONOTONIC) < recorder.retry_at) {
            recorder.dropped += 1;
            return false;
        }
        gap = true;
    }
    int error = segment_open();
    if (error) {
        recorder.error = error;
        recorder.retry_at = clock_ns(CLOCK_MONOTONIC) + RETRY_NS;
        recorder.dropped += 1;
        return false;
    }
    Thread *t = &this_thread;
    recorder_clock_mark(t);
    if (gap)
        put(first_word(RECORD_MARK, MARK_GAP, t->thread, 0), clock_read(), recorder.dropped, 0);
    return true;
}

static void epoch_next(void)
{
    recorder.epoch += 1;
    if (recorder.epoch == 0) /* 0 is what a new thread has */
        recorder.epoch = 1;
}

static void forget_python(void)
{
    values_clear();
    captures_clear();
    location_clear();
    Py_CLEAR(recorder.miss);
    Py_CLEAR(recorder.waiting);
    recorder.stale = false;
}

int recorder_open(PyObject *directory, Py_ssize_t segment_bytes, PyObject *miss_function, int clock)
{
    if (recorder.on) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a recorder is open already in this process: one records at a time; close() it first");
        return -1;
    }
    if (!PyCallable_Check(miss_function)) {
        PyErr_Format(PyExc_TypeError, "miss must be callable, not %.200s", Py_TYPE(miss_function)->tp_name);
        return -1;
    }
    if (clock < -1 || clock > 1) {
        PyErr_Format(PyExc_ValueError, "clock must be -1 (choose), 0 (monotonic) or 1 (time-stamp counter), not %d", clock);
        return -1;
    }
#if !defined(__x86_64__)
    if (clock == 1) {
        PyErr_SetString(PyExc_ValueError, "clock 1 (time-stamp counter) needs x86-64: use -1 or 0 on this machine");
        return -1;
    }
#endif
    if (segment_bytes < LEAST_SEGMENT_BYTES) {
        PyErr_Format(PyExc_ValueError, "segment_bytes must be at least %d, not %zd", LEAST_SEGMENT_BYTES, segment_bytes);
        return -1;
    }
    PyObject *encoded;
    if (!PyUnicode_FSConverter(directory, &encoded))
        return -1;
    /* Absolute: the program may change its working directory between two segments. */
    char *absolute = realpath(PyBytes_AS_STRING(encoded), NULL);
    int saved = errno;
    Py_DECREF(encoded);
    if (!absolute) {
        errno = saved;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, directory);
        return -1;
    }
    if (strlen(absolute) > 4000) {
        free(absolute);
        errno = ENAMETOOLONG;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, directory);
        return -1;
    }
    forget_python();
    faults_clear();
    free(recorder.directory);
    recorder.directory = absolute;
    recorder.segment_bytes = HEADER_BYTES + ((size_t)segment_bytes - HEADER_BYTES) / RECORD_BYTES * RECORD_BYTES;
    recorder.segment = 0;
    recorder.base = recorder.calls = recorder.observations = recorder.dropped = recorder.retry_at = 0;
    recorder.error = 0;
    recorder.paused = false;
    recorder.tsc = clock == 1 || (clock == -1 && tsc_is_best());
    int error = segment_open();
    if (error) {
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, directory);
        return -1;
    }
    epoch_next();
    recorder.miss = Py_NewRef(miss_function);
    recorder.on = true;
    recorder_clock_mark(thread_now());
    return 0;
}

void recorder_close(void)
{
    if (recorder.on) {
        recorder.on = false;
        epoch_next();
        segment_close();
    }
    forget_python();
}

/* Child side of a fork, in C: the mapping is the parent's. May run without the GIL, so no Python object is touched. */
static void forked(void)
{
    if (recorder.map)
        munmap(recorder.map, (size_t)(recorder.end - recorder.map));
    recorder.map = recorder.end = recorder.cursor = NULL;
    recorder.on = recorder.paused = false;
    recorder.stale = true;
    recorder.base = recorder.dropped = 0;
    epoch_next();
    this_thread.call = 0;
    this_thread.thread = 0;
}

void recorder_abandon(void)
{
    forked();
    forget_python();
}

/* A probed call while nothing is recorded, and someone waits for it: whether it is recorded now. */
bool recorder_wake(void)
{
    PyObject *waiting = recorder.waiting;
    recorder.waiting = NULL;
    this_thread.muted += 1;
    PyObject *answer = PyObject_CallNoArgs(waiting);
    if (!answer)
        fault("first call", waiting);
    this_thread.muted -= 1;
    Py_XDECREF(answer);
    Py_DECREF(waiting);
    return recorder.on;
}

static uintptr_t stack_of_this_thread(void)
{
    uintptr_t low = 0;
#if defined(__linux__)
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *address;
        size_t size, guard = 0;
        if (pthread_attr_getstack(&attributes, &address, &size) == 0 &&
            pthread_attr_getguardsize(&attributes, &guard) == 0)
            low = (uintptr_t)address + guard;
        pthread_attr_destroy(&attributes);
    }
#endif
    return low;
}

void thread_enter(Thread *t)
{
    if (!t->stack)
        t->stack = stack_of_this_thread();
    t->epoch = recorder.epoch;
    t->call = 0;
    t->thread = 0;
    if (!recorder.on)
        return;
    Raised raised;
    raised_fetch(&raised);
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    if (ident) {
        uint32_t epoch = recorder.epoch;
        uint32_t id = miss(MISS_THREAD, ident);
        if (recorder.epoch == epoch)
            t->thread = (uint16_t)id;
        Py_DECREF(ident);
    } else {
        fault("thread", NULL);
    }
    raised_restore(&raised);
}

int recorder_init(void)
{
    static bool done = false;
    if (!done && pthread_atfork(NULL, NULL, forked) != 0) {
        PyErr_SetString(PyExc_ImportError, "traincheck: the fork handler could not be registered (out of memory)");
        return -1;
    }
    done = true;
    return 0;
}
