/* SPDX-License-Identifier: MIT */
/*
 * A GPU runtime without a GPU
 *
 * Device memory is the process's own. A stream is a queue of copies, of which each look at the stream executes one: so
 * code that changes the source of a copy before it has waited is found out. The kernel (gpu/hip/kernel.h) is a thread
 * that does what every resident kernel does about its tables: it acknowledges versions, and ends when it is told to.
 * Calls that wait for all kernels of a context are counted as violations while it runs, and so is opening an IPC handle
 * that is open. Opening the handle of an allocation that lies where one is mapped that was there before is an error, as
 * with NVIDIA's driver.
 *
 * The clock goes forward when the control thread pauses and when the test says so (the linker wraps clock_gettime and
 * nanosleep, and prctl, to see what is asked for). So what a test sees does not depend on how busy the machine is.
 */
#include "tests/cmocka_all.h"

#include "fake.h"

#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu/device/bell.h"
#include "gpu/device/tables.h"
#include "gpu/hip/kernel.h"

#define BLOCKS_MAX 64u

struct fake fake;
static _Atomic uint64_t clock_ns = 1000000000u; /* the proxy reads it, too */
static pthread_t control;                       /* the test's thread */

/* ---- time -------------------------------------------------------------------------------------------------------- */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
        const uint64_t now_ns = clock_ns;

        (void)clock;
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u), .tv_nsec = (long)(now_ns % 1000000000u)};
        return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest) {
        if (pthread_equal(pthread_self(), control)) {
                clock_ns += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
                if (fake.at_pause)
                        fake.at_pause();
        }
        return __real_nanosleep(time, rest);
}

int __wrap_prctl(int option, ...);

int __wrap_prctl(int option, ...) {
        va_list arguments;

        va_start(arguments, option);
        if (option == PR_SET_TIMERSLACK)
                atomic_store(&fake.slack_ns, va_arg(arguments, unsigned long));
        va_end(arguments);
        return 0;
}

void fake_clock_advance_us(uint64_t us) {
        clock_ns += us * 1000u;
}

void fake_clock_advance_ms(uint64_t ms) {
        fake_clock_advance_us(1000 * ms);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
struct allocation {
        struct allocation *next;
        char *base;
        size_t bytes;
        uint64_t number; /* of all that have lain here: this one's */
        uint64_t mapped; /* ... the one that is open; what is mapped may be gone */
        uint32_t opened; /* as an IPC handle */
        bool client;
};
static struct allocation *allocations;
static uint64_t last_number;

static struct allocation *allocation_at(const void *address, const struct allocation *unless) {
        for (struct allocation *a = allocations; a; a = a->next)
                if (a != unless && (const char *)address >= a->base && (const char *)address < a->base + a->bytes)
                        return a;
        return NULL;
}

static void *allocate(size_t bytes, bool client) {
        struct allocation *a = calloc(1, sizeof(*a));

        assert_non_null(a);
        a->base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        assert_non_null(a->base);
        a->bytes = bytes;
        a->number = ++last_number;
        a->client = client;
        a->next = allocations;
        allocations = a;
        memset(a->base, client ? 0 : 0xa5, bytes);
        fake.n_allocations += !client;
        return a->base;
}

static hipError_t release(void *address, bool client) {
        for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
                struct allocation *a = *at;

                if (a->base != address || a->client != client)
                        continue;
                *at = a->next;
                fake.n_allocations -= !client;
                fake.violations += a->opened != 0;
                free(a->base);
                free(a);
                return hipSuccess;
        }
        fake.violations++;
        return hipErrorInvalidValue;
}

static void must_be_parked(void) {
        if (atomic_load(&fake.running) || atomic_load(&fake.queued))
                fake.violations++;
}

static hipError_t context(hipError_t otherwise) {
        return fake.lost ? hipErrorIllegalAddress : otherwise;
}

hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned int flags) {
        (void)flags;
        if (fake.refuse_above && bytes > fake.refuse_above)
                return hipErrorOutOfMemory;
        *address = allocate(bytes, false);
        return hipSuccess;
}

hipError_t hipFree(void *address) {
        if (!address)
                return hipSuccess;
        must_be_parked();
        return release(address, false);
}

hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags) {
        (void)flags;
        must_be_parked();
        if (fake.refuse_host)
                return hipErrorOutOfMemory;
        *address = allocate(bytes, false);
        return hipSuccess;
}

hipError_t hipHostFree(void *address) {
        return hipFree(address);
}

/* Is all of it mapped? */
static bool is_mapped(void *address, size_t bytes) {
        unsigned char *there = malloc(bytes / 4096 + 1);
        bool mapped;

        assert_non_null(there);
        mapped = !mincore(address, bytes, there);
        free(there);
        return mapped;
}

bool fake_pins_running;

hipError_t hipHostRegister(void *address, size_t bytes, unsigned int flags) {
        (void)flags;
        if (!fake_pins_running)
                must_be_parked();
        if (fake.refuse_host)
                return hipErrorOutOfMemory;
        assert_true(fake.n_pinned < FAKE_PINNED);
        fake.violations += !is_mapped(address, bytes);
        fake.pinned[fake.n_pinned].address = address;
        fake.pinned[fake.n_pinned++].bytes = bytes;
        return hipSuccess;
}

hipError_t hipHostUnregister(void *address) {
        must_be_parked();
        for (uint32_t i = 0; i < fake.n_pinned; i++) {
                if (fake.pinned[i].address != address)
                        continue;
                fake.violations += !is_mapped(address, fake.pinned[i].bytes);
                fake.pinned[i] = fake.pinned[--fake.n_pinned];
                return hipSuccess;
        }
        fake.violations++;
        return hipErrorInvalidValue;
}

static bool is_pinned(const void *at) {
        if (fake.elsewhere && (size_t)((const char *)at - (const char *)fake.elsewhere) < BELL_LATCH_BYTES)
                return true;
        for (uint32_t i = 0; i < fake.n_pinned; i++)
                if ((size_t)((const char *)at - (const char *)fake.pinned[i].address) < fake.pinned[i].bytes)
                        return true;
        return false;
}

hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned int flags) {
        (void)flags;
        *device = fake.elsewhere && is_pinned(host) ? fake.elsewhere : host;
        return hipSuccess;
}

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
        *free_bytes = fake.free_bytes;
        *total = fake.free_bytes;
        return hipSuccess;
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t at) {
        struct allocation *a = allocation_at(at, NULL);

        if (!a)
                return hipErrorInvalidValue;
        *base = a->base;
        *bytes = a->bytes;
        return hipSuccess;
}

static void client_export(void *address, size_t bytes, struct plane_memory *ret_memory) {
        hipIpcMemHandle_t handle;

        assert_int_equal(hipIpcGetMemHandle(&handle, address), hipSuccess);
        *ret_memory =
                (struct plane_memory){.kind = PLANE_MEMORY_IPC, .n_handle = sizeof(handle), .bytes = bytes, .fd = -1};
        memcpy(ret_memory->handle, &handle, sizeof(handle));
}

void *fake_client_alloc(size_t bytes, struct plane_memory *ret_memory) {
        void *address = allocate(bytes, true);

        client_export(address, bytes, ret_memory);
        return address;
}

void fake_client_replace(void *address, size_t bytes, struct plane_memory *ret_memory) {
        struct allocation *a = allocation_at(address, NULL);

        assert_true(a && a->client && bytes <= a->bytes);
        a->bytes = bytes;
        a->number = ++last_number;
        memset(a->base, 0, bytes);
        client_export(address, bytes, ret_memory);
}

void fake_client_free(void *address) {
        assert_int_equal(release(address, true), hipSuccess);
}

/* ---- IPC handles: address and number behind a word that garbage does not have ------------------------------------ */
static const uint64_t handle_magic = 0x6b7a6c4e21903f5du;

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address) {
        memset(handle, 0, sizeof(*handle));
        memcpy(handle->reserved, &handle_magic, sizeof(handle_magic));
        memcpy(handle->reserved + 8, &address, sizeof(address));
        memcpy(handle->reserved + 16, &allocation_at(address, NULL)->number, sizeof(uint64_t));
        return hipSuccess;
}

hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags) {
        struct allocation *a;
        uint64_t number;
        void *base;

        (void)flags;
        if (memcmp(handle.reserved, &handle_magic, sizeof(handle_magic)) != 0)
                return hipErrorInvalidValue;
        memcpy(&base, handle.reserved + 8, sizeof(base));
        memcpy(&number, handle.reserved + 16, sizeof(number));
        a = allocation_at(base, NULL);
        assert_non_null(a);
        if (number != a->number)
                return hipErrorInvalidValue; /* the memory is gone */
        if (a->opened && a->mapped != number) {
                fake.collisions++;
                if (fake.at_collision)
                        fake.at_collision();
                return hipErrorAlreadyMapped;
        }
        if (a->opened || !a->client) {
                fake.violations++;
                return hipErrorInvalidHandle;
        }
        *address = base;
        a->mapped = number;
        a->opened++;
        fake.opens++;
        fake.n_open++;
        return hipSuccess;
}

hipError_t hipIpcCloseMemHandle(void *address) {
        struct allocation *a = allocation_at(address, NULL);

        must_be_parked();
        assert_non_null(a);
        if (!a->opened) {
                fake.violations++;
                return hipErrorInvalidHandle;
        }
        a->opened--;
        fake.closes++;
        fake.n_open--;
        return hipSuccess;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *handle, void *os_handle,
                                           hipMemAllocationHandleType type) {
        (void)type;
        *handle = dup((int)(intptr_t)os_handle);
        return *handle < 0 ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
        return close(handle) ? hipErrorInvalidValue : hipSuccess;
}

/* Only memfds are memory. */
hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *ret, hipMemGenericAllocationHandle_t handle) {
        *ret = (hipMemAllocationProp){.type = fcntl(handle, F_GET_SEALS) < 0 ? 0 : hipMemAllocationTypePinned,
                                      .location.type = hipMemLocationTypeDevice};
        return hipSuccess;
}

hipError_t hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *wanted,
                                unsigned long long flags) {
        (void)alignment, (void)wanted, (void)flags;
        *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return *address == MAP_FAILED ? hipErrorOutOfMemory : hipSuccess;
}

hipError_t hipMemAddressFree(void *address, size_t bytes) {
        return munmap(address, bytes) ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags) {
        struct stat st;

        (void)flags;
        if (fstat(handle, &st) || (size_t)st.st_size != bytes || offset)
                return hipErrorInvalidValue;
        if (mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle, 0) == MAP_FAILED)
                return hipErrorMapFailed;
        fake.opens++;
        fake.n_open++;
        return hipSuccess;
}

hipError_t hipMemSetAccess(void *address, size_t bytes, const hipMemAccessDesc *access, size_t n) {
        assert_int_equal(n, 1);
        assert_int_equal(access->flags, hipMemAccessFlagsProtReadWrite);
        return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? hipErrorInvalidValue : hipSuccess;
}

hipError_t hipMemUnmap(void *address, size_t bytes) {
        must_be_parked();
        fake.closes++;
        fake.n_open--;
        return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
                       ? hipErrorInvalidValue
                       : hipSuccess;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */
struct operation {
        struct operation *next;
        char *to;
        const char *from; /* NULL: set to value */
        size_t bytes;
        int value;
};

struct fake_stream {
        struct fake_stream *next; /* what a plane leaves behind after a fault can be found here */
        struct operation *first, **last;
        pthread_t kernel;
        bool launched;
        _Atomic bool ended;
        const uint32_t *word; /* that the next kernel waits for, NULL: none */
        uint32_t value;
};

static struct fake_stream *streams;

/* Tables by words, as the kernel's thread looks at them meanwhile. */
static void operation_run(const struct operation *o) {
        size_t i = 0;

        if (o->bytes <= sizeof(struct table) && ((uintptr_t)o->to | (uintptr_t)o->from | o->bytes) % 4 == 0)
                for (; i < o->bytes; i += 4) {
                        uint32_t word = (uint32_t)(uint8_t)o->value * 0x01010101u;

                        if (o->from)
                                memcpy(&word, o->from + i, 4);
                        __atomic_store_n((uint32_t *)(void *)(o->to + i), word, __ATOMIC_RELEASE);
                }
        else if (o->from)
                memcpy(o->to, o->from, o->bytes);
        else
                memset(o->to, o->value, o->bytes);
}

static hipError_t enqueue(hipStream_t stream, void *to, const void *from, int value, size_t bytes) {
        struct operation *o = calloc(1, sizeof(*o));

        assert_non_null(o);
        *o = (struct operation){.to = to, .from = from, .value = value, .bytes = bytes};
        *stream->last = o;
        stream->last = &o->next;
        return context(hipSuccess);
}

static hipError_t enqueue_copy(struct fake_copy copy) {
        const uint32_t n = atomic_load(&fake.copies.n);

        if (atomic_fetch_add(&fake.copies.asked, 1) + 1 == atomic_load(&fake.copies.refuse))
                return hipErrorIllegalAddress;
        assert_in_range(n, 0, FAKE_COPIES - 1);
        fake.copies.copy[n] = copy;
        atomic_store(&fake.copies.n, n + 1);
        return context(hipSuccess);
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void *to, uint32_t value, unsigned int flags) {
        assert_int_equal(flags, 0);
        assert_int_equal((uintptr_t)to % 4, 0);
        if (is_pinned(to)) { /* whoever waits for it waits long enough */
                __atomic_store_n((uint32_t *)to, value, __ATOMIC_RELEASE);
                return hipSuccess;
        }
        assert_non_null(allocation_at(to, NULL));
        if (atomic_load(&fake.copies.no_words))
                return hipErrorNotSupported;
        return enqueue_copy((struct fake_copy){.stream = stream, .to = to, .value = value});
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void *at, uint32_t value, unsigned int flags, uint32_t mask) {
        assert_int_equal(flags, hipStreamWaitValueEq);
        assert_int_equal(mask, UINT32_MAX);
        assert_true(is_pinned(at));
        assert_false(stream->launched || stream->word);
        if (atomic_load(&fake.no_waits))
                return hipErrorNotSupported;
        stream->word = at;
        stream->value = value;
        return context(hipSuccess);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
        assert_non_null(allocation_at(kind == hipMemcpyHostToDevice ? to : from, NULL));
        if (kind == hipMemcpyDeviceToDevice) {
                assert_non_null(allocation_at(to, NULL));
                assert_int_not_equal(bytes, 0);
                return enqueue_copy((struct fake_copy){stream, to, from, bytes, 0});
        }
        return enqueue(stream, to, from, 0, bytes);
}

hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream) {
        struct allocation *a = allocation_at(to, NULL);

        assert_non_null(a);
        assert_true(bytes <= (size_t)(a->base + a->bytes - (char *)to));
        return enqueue(stream, to, NULL, value, bytes);
}

hipError_t hipMemset(void *to, int value, size_t bytes) {
        memset(to, value, bytes);
        return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags) {
        struct fake_stream *s = calloc(1, sizeof(*s));

        assert_non_null(s);
        assert_int_equal(flags, hipStreamNonBlocking);
        s->last = &s->first;
        s->next = streams;
        streams = s;
        *stream = s;
        fake.n_allocations++;
        return hipSuccess;
}

hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority) {
        assert_int_equal(priority, -1);
        return hipStreamCreateWithFlags(stream, flags);
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
        *least = 0;
        *greatest = -1;
        return hipSuccess;
}

hipError_t hipStreamQuery(hipStream_t stream) {
        struct operation *o = stream->first;

        if (fake.at_look)
                fake.at_look();
        if (fake.lost)
                return hipErrorIllegalAddress;
        if (o) {
                operation_run(o);
                stream->first = o->next;
                if (!stream->first)
                        stream->last = &stream->first;
                free(o);
                return hipErrorNotReady;
        }
        if (stream->launched) {
                if (!atomic_load(&stream->ended)) {
                        sched_yield();
                        return hipErrorNotReady;
                }
                pthread_join(stream->kernel, NULL);
                stream->launched = false;
                atomic_store(&fake.running, false);
        }
        return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
        struct fake_stream **at = &streams;

        fake.violations += stream->launched || stream->first;
        if (stream->word) /* without a kernel behind it */
                fake.violations += __atomic_load_n(stream->word, __ATOMIC_ACQUIRE) != stream->value;
        while (*at != stream)
                at = &(*at)->next;
        *at = stream->next;
        free(stream);
        fake.n_allocations--;
        return hipSuccess;
}

hipError_t hipDeviceSynchronize(void) {
        must_be_parked();
        return context(hipSuccess);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

const char *hipGetErrorName(hipError_t error) {
        return error == hipErrorIllegalAddress ? "hipErrorIllegalAddress" : "hipError";
}

const char *hipGetErrorString(hipError_t error) {
        return error == hipErrorIllegalAddress ? "an illegal address" : "something else";
}

hipError_t hipRuntimeGetVersion(int *version) {
        *version = 60241133;
        return hipSuccess;
}

hipError_t hipGetDeviceCount(int *count) {
        *count = fake.n_devices;
        return fake.n_devices < 0 ? hipErrorInsufficientDriver : fake.n_devices ? hipSuccess : hipErrorNoDevice;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device) {
        memset(properties, 0, sizeof(*properties));
        memset(properties->name, 'x', sizeof(properties->name)); /* no end */
        properties->totalGlobalMem = fake.free_bytes;
        properties->multiProcessorCount = 100 + device;
        properties->pciBusID = 0x1a + device;
        return device < fake.n_devices ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipSetDevice(int device) {
        return device < fake.n_devices ? hipSuccess : hipErrorInvalidDevice;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */
struct kernel_run {
        struct kernel_arguments arguments;
        uint32_t n_blocks;
        struct fake_stream *stream;
        const uint32_t *word; /* it waits for this value there; NULL: it does not */
        uint32_t value;
};

int kernel_threads(uint32_t device, uint32_t n_blocks, uint32_t *ret_threads_per_block, uint32_t *ret_shared_bytes) {
        (void)device;
        (void)n_blocks;
        *ret_threads_per_block = FAKE_WORKERS * 32;
        *ret_shared_bytes = 1024;
        return 0;
}

size_t kernel_scratch_bytes(uint32_t n_blocks) {
        return (size_t)n_blocks * 4096;
}

int kernel_workers(uint32_t n_blocks) {
        return (int)(n_blocks * FAKE_WORKERS);
}

int kernel_preload(uint32_t n_blocks) {
        (void)n_blocks;
        must_be_parked();
        return 0;
}

static void acknowledge(const struct kernel_run *run, uint32_t version) {
        const struct table *table = run->arguments.table;
        uint32_t n = atomic_load(&fake.not_begun) ? FAKE_WORKERS : run->n_blocks * FAKE_WORKERS;
        /* Of the others one has work, and the first has ended. */
        const bool ended = __atomic_load_n(&table->stop, __ATOMIC_RELAXED) == TABLE_STOP_SERVED;

        for (uint32_t i = ended; i < n; i++) {
                if (fake.at_level)
                        for (uint32_t ring = 0; ring < TABLE_RINGS; ring++)
                                if (__atomic_load_n(&table->rings[ring].limited, __ATOMIC_RELAXED))
                                        __atomic_store_n(&run->arguments.report->level[i][ring],
                                                         fake.at_level(i, ring,
                                                                       __atomic_load_n(&table->rings[ring].limit,
                                                                                       __ATOMIC_RELAXED)),
                                                         __ATOMIC_RELAXED);
                __atomic_store_n(&run->arguments.report->acknowledged[i], version, __ATOMIC_RELEASE);
        }
}

/* What ends it when it has nothing to do has seen all lines that there are. */
static void tell_seen(const struct kernel_run *run) {
        const struct table *table = run->arguments.table;
        const uint32_t n_rings = __atomic_load_n(&table->n_rings, __ATOMIC_RELAXED);

        for (uint32_t ring = 0; ring < n_rings; ring++) {
                const char *area = (const char *)(uintptr_t)__atomic_load_n(&table->rings[ring].area, __ATOMIC_RELAXED);
                const struct bell_header *header = (const void *)(area + BELL_OFFSET_HEADER);

                if (!__atomic_load_n(&table->rings[ring].key, __ATOMIC_RELAXED))
                        continue;
                for (uint32_t i = 0; i < run->n_blocks * FAKE_WORKERS; i++)
                        __atomic_store_n(&run->arguments.report->next[i][ring],
                                         bell_sequence_next(__atomic_load_n(&header->counter, __ATOMIC_RELAXED)),
                                         __ATOMIC_RELAXED);
        }
}

static bool stops(uint32_t stop) {
        return stop && !atomic_load(&fake.deaf_to_stop) && !(stop == TABLE_STOP_SERVED && atomic_load(&fake.has_work));
}

static void kernel_begins(void) {
        atomic_fetch_add(&fake.launches, 1);
        atomic_store(&fake.running, true); /* last: tests wait for it */
}

/* What the GPU's front end does. */
static void kernel_wait(const struct kernel_run *run) {
        if (!run->word)
                return;
        while (__atomic_load_n(run->word, __ATOMIC_ACQUIRE) != run->value)
                sched_yield();
        while (atomic_load(&fake.no_room))
                sched_yield();
        kernel_begins();
        atomic_store(&fake.queued, false);
}

static void *kernel_main(void *argument) {
        struct kernel_run *run = argument;
        const struct table *table = run->arguments.table;
        const uint32_t last = run->n_blocks * FAKE_WORKERS - 1;
        uint32_t kept_rings;
        void (*at_stop)(void);

        kernel_wait(run);
        while (!atomic_load(&fake.dies)) {
                uint32_t version = __atomic_load_n(&table->version, __ATOMIC_ACQUIRE);

                atomic_store(&fake.version, version);
                if (!atomic_load(&fake.deaf))
                        acknowledge(run, version);
                if (stops(__atomic_load_n(&table->stop, __ATOMIC_ACQUIRE)))
                        break;
                sched_yield();
        }
        if (!atomic_load(&fake.dies))
                tell_seen(run);
        at_stop = atomic_load(&fake.at_stop);
        if (at_stop)
                at_stop();
        kept_rings = atomic_load(&fake.kept_rings);
        __atomic_store_n(&run->arguments.report->kept[last], atomic_load(&fake.kept), __ATOMIC_RELAXED);
        __atomic_store_n(&run->arguments.report->kept_rings[last], kept_rings ? kept_rings : UINT32_MAX,
                         __ATOMIC_RELAXED);
        atomic_store(&run->stream->ended, true);
        atomic_store(&fake.ended, true);
        free(run);
        return NULL;
}

int kernel_launch(hipStream_t stream, uint32_t n_blocks, const struct kernel_arguments *arguments) {
        struct kernel_run *run;

        if (atomic_load(&fake.refuse_launch))
                return hipErrorIllegalAddress;
        run = calloc(1, sizeof(*run));
        assert_non_null(run);
        assert_in_range(n_blocks, 1, BLOCKS_MAX);
        assert_int_equal(arguments->n_workers_expected, n_blocks * FAKE_WORKERS);
        assert_false(stream->launched);
        *run = (struct kernel_run){*arguments, n_blocks, stream, stream->word, stream->value};
        atomic_store(&stream->ended, false);
        atomic_store(&fake.ended, false);
        stream->launched = true;
        if (stream->word)
                atomic_store(&fake.queued, true);
        else
                kernel_begins();
        stream->word = NULL;
        return pthread_create(&stream->kernel, NULL, kernel_main, run) ? hipErrorOutOfMemory : 0;
}

/* Launched by a thread of the plane's, beside the kernel. */
size_t kernel_burst_bytes(void) {
        return 4096;
}

uint32_t kernel_burst_blocks(uint32_t slices) {
        return slices * FAKE_BURST_BLOCKS;
}

void *kernel_burst_state(void *queue, uint32_t number) {
        return (char *)queue + number % TABLE_BURSTS * 64;
}

uint32_t kernel_burst_done(uint32_t number) {
        return number * 8 + 5;
}

int kernel_burst_preload(void) {
        must_be_parked();
        return 0;
}

int kernel_burst_launch(hipStream_t stream, void *queue, uint32_t number, uint32_t n_blocks) {
        const uint32_t n = atomic_load(&fake.bursts.n);

        assert_non_null(allocation_at(queue, NULL));
        assert_false(pthread_equal(pthread_self(), control));
        if (atomic_load(&fake.bursts.refuse))
                return hipErrorIllegalAddress;
        assert_in_range(n, 0, FAKE_BURSTS - 1);
        fake.bursts.launch[n] = (struct fake_burst){number, n_blocks, stream};
        atomic_store(&fake.bursts.n, n + 1);
        return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
void fake_reset(void) {
        fake = (struct fake){.n_devices = 1, .free_bytes = (size_t)1 << 30};
        control = pthread_self();
}

void fake_reap(void) {
        while (atomic_load(&fake.running))
                for (struct fake_stream *s = streams; s; s = s->next)
                        (void)hipStreamQuery(s);
}

void fake_assert_clean(void) {
        assert_int_equal(fake.violations, 0);
        assert_int_equal(fake.n_open, 0);
        assert_int_equal(fake.n_allocations, 0);
        assert_int_equal(fake.n_pinned, 0);
        assert_false(atomic_load(&fake.running));
        assert_false(atomic_load(&fake.queued));
}
