/* SPDX-License-Identifier: MIT */
/*
 * The library links no GPU runtime: the program brings its own, CUDA's or HIP's, and its calls are looked up where it
 * is: first among what our own caller sees (dlsym), then in a runtime that was loaded privately, by the names that its
 * library can have. Last in NVIDIA's driver, since a program may have the runtime inside itself, invisibly. But the
 * driver can be there before a runtime is, and lacks calls; so it is used only until one has come.
 *
 * The calls that are used have the same shape in all three.
 */
#include "client/nccl/device.h"
#include "client/nccl/session.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

#include "client/nccl/error.h"
#include "client/nccl/log.h"
#include "railmux/railmux.h"

#define PCI_BYTES    32
#define COPY_DEFAULT 4 /* the kind of copy that finds out itself: cudaMemcpyDefault, hipMemcpyDefault */

struct runtime {
        const char *name;
        int (*count)(int *ret_count);
        int (*get)(int *ret_device);
        int (*set)(int device);
        int (*pci)(char *pci, int size, int device);
        int (*alloc)(void **ret_ptr, size_t size);
        int (*free)(void *ptr);
        int (*copy)(void *to, const void *from, size_t size, int kind, void *stream);
        int (*wait)(void *stream);
};

/* Of each runtime, in the order of the struct; a call that is missing is not used. */
static const struct {
        const char *name;
        const char *library[4];
        const char *call[8];
} kinds[] = {
        {"CUDA",
         {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
         {"cudaGetDeviceCount", "cudaGetDevice", "cudaSetDevice", "cudaDeviceGetPCIBusId", "cudaMalloc", "cudaFree",
          "cudaMemcpyAsync", "cudaStreamSynchronize"}},
        {"HIP",
         {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
         {"hipGetDeviceCount", "hipGetDevice", "hipSetDevice", "hipDeviceGetPCIBusId", "hipMalloc", "hipFree",
          "hipMemcpyAsync", "hipStreamSynchronize"}},
        {"the CUDA driver",
         {"libcuda.so.1", "libcuda.so.1", "libcuda.so.1", "libcuda.so.1"},
         {"cuDeviceGetCount", "cuCtxGetDevice", "", "cuDeviceGetPCIBusId", "cuMemAlloc_v2", "cuMemFree_v2", "",
          "cuStreamSynchronize"}},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

#define DRIVER (KINDS - 1)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct runtime found[KINDS]; /* each under mutex until its name is set, which is last */
static const struct runtime *chosen;

FORKED void device_forked(void) {
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void *find_call(void *library, const char *name) {
        return name[0] ? dlsym(library ? library : RTLD_DEFAULT, name) : NULL;
}

static bool runtime_fill(struct runtime *runtime, unsigned int kind, void *library) {
        void *call[8];

        for (unsigned int i = 0; i < 8; i++)
                call[i] = find_call(library, kinds[kind].call[i]);
        if (!call[0] || !call[1] || !call[3])
                return false;
        runtime->count = (int (*)(int *))call[0];
        runtime->get = (int (*)(int *))call[1];
        runtime->set = (int (*)(int))call[2];
        runtime->pci = (int (*)(char *, int, int))call[3];
        runtime->alloc = (int (*)(void **, size_t))call[4];
        runtime->free = (int (*)(void *))call[5];
        runtime->copy = (int (*)(void *, const void *, size_t, int, void *))call[6];
        runtime->wait = (int (*)(void *))call[7];
        runtime->name = kinds[kind].name;
        return true;
}

/* A library that the process has loaded already, wherever it may be seen. */
static void *library_loaded(unsigned int kind) {
        void *library = NULL;

        for (unsigned int i = 0; i < 4 && !library; i++)
                library = dlopen(kinds[kind].library[i], RTLD_NOW | RTLD_NOLOAD);
        return library;
}

/* Three, with the mutex: one that our caller sees, one that was loaded privately, either of them. */
static const struct runtime *runtime_seen(unsigned int kind) {
        return found[kind].name || runtime_fill(&found[kind], kind, NULL) ? &found[kind] : NULL;
}

static const struct runtime *runtime_private(unsigned int kind) {
        void *library = library_loaded(kind);

        if (library && runtime_fill(&found[kind], kind, library))
                return &found[kind];
        if (library)
                dlclose(library);
        return NULL;
}

static const struct runtime *runtime_either(unsigned int kind) {
        const struct runtime *runtime = runtime_seen(kind);

        return runtime ? runtime : runtime_private(kind);
}

/* NULL: there is none (yet; a program may load one later). all: the driver is not enough, so what is loaded is looked
 * through again, in files as well; else that is done only while there is not even the driver. */
static const struct runtime *runtime_get(bool all) {
        const struct runtime *runtime;

        pthread_mutex_lock(&mutex);
        for (unsigned int kind = 0; kind < DRIVER && !chosen; kind++)
                chosen = runtime_seen(kind);
        for (unsigned int kind = 0; kind < DRIVER && !chosen && (all || !found[DRIVER].name); kind++)
                chosen = runtime_private(kind);
        runtime = chosen ? chosen : runtime_either(DRIVER);
        pthread_mutex_unlock(&mutex);
        return runtime;
}

int device_count(void) {
        const struct runtime *runtime = runtime_get(false);
        int count;

        return runtime && !runtime->count(&count) ? count : -1;
}

int device_present(void) {
        return device_count() > 0;
}

int device_current(void) {
        const struct runtime *runtime = runtime_get(false);
        int device;

        return runtime && !runtime->get(&device) ? device : -1;
}

ncclResult_t device_select(const char *what, int device) {
        const struct runtime *runtime = runtime_get(true);
        int r;

        if (!runtime || !runtime->set)
                return error_raise(ncclUnhandledCudaError, "%s: this process has no GPU runtime to select devices with",
                                   what);
        r = runtime->set(device);
        return r ? error_raise(ncclUnhandledCudaError, "%s: %s cannot select device %d (error %d)", what, runtime->name,
                               device, r)
                 : ncclSuccess;
}

/* Domain, bus, device and function; runtimes differ in case and in the width of the domain. */
static bool pci_equal(const char *a, const char *b) {
        unsigned int x[4] = {0}, y[4] = {1};

        return sscanf(a, "%x:%x:%x.%x", &x[0], &x[1], &x[2], &x[3]) == 4 &&
               sscanf(b, "%x:%x:%x.%x", &y[0], &y[1], &y[2], &y[3]) == 4 && x[0] == y[0] && x[1] == y[1] &&
               x[2] == y[2] && x[3] == y[3];
}

ncclResult_t device_match(const char *what, struct rmx_session *session, int device, int32_t *ret_gpu) {
        const struct runtime *runtime = runtime_get(false);
        char pci[PCI_BYTES] = "";
        int r;

        if (!runtime)
                return error_raise(ncclUnhandledCudaError,
                                   "%s: the daemon serves GPUs (%s), but this process has loaded no runtime for them",
                                   what, rmx_session_backend(session));
        r = runtime->pci(pci, (int)sizeof(pci), device);
        if (r)
                return error_raise(ncclUnhandledCudaError, "%s: %s gives no PCI address of device %d (error %d)", what,
                                   runtime->name, device, r);
        for (uint32_t gpu = 0; gpu < rmx_session_gpu_count(session); gpu++) {
                if (!pci_equal(pci, rmx_session_gpu_pci(session, gpu)))
                        continue;
                *ret_gpu = (int32_t)gpu;
                return ncclSuccess;
        }
        return error_raise(ncclInvalidUsage, "%s: device %d (%s) is not among the %u GPUs that the daemon serves", what,
                           device, pci, rmx_session_gpu_count(session));
}

ncclResult_t device_alloc(const char *what, size_t size, void **ret_ptr) {
        const struct runtime *runtime = runtime_get(false);
        int r;

        if (!runtime || !runtime->alloc)
                return error_raise(ncclUnhandledCudaError, "%s: this process has no GPU runtime to allocate with",
                                   what);
        r = runtime->alloc(ret_ptr, size);
        return r ? error_raise(ncclUnhandledCudaError, "%s: %s cannot allocate %zu bytes (error %d)", what,
                               runtime->name, size, r)
                 : ncclSuccess;
}

ncclResult_t device_release(const char *what, void *ptr) {
        const struct runtime *runtime = runtime_get(false);
        int r = runtime && runtime->free ? runtime->free(ptr) : -1;

        return r ? error_raise(ncclUnhandledCudaError, "%s: cannot free %p (error %d)", what, ptr, r) : ncclSuccess;
}

/* Streams that name no device: NULL, the runtime's legacy one, and that of each thread. */
static bool is_default_stream(const void *stream) {
        return (uintptr_t)stream <= 2;
}

static int read_here(const struct runtime *runtime, void *to, const void *from, size_t size, void *stream) {
        int r = runtime->copy(to, from, size, COPY_DEFAULT, stream);

        return r ? r : runtime->wait(stream);
}

ncclResult_t device_read(const char *what, int device, void *to, const void *from, size_t size, void *stream) {
        const struct runtime *runtime = runtime_get(true);
        int before = device, r = 0;

        if (!runtime || !runtime->copy || !runtime->wait)
                return error_raise(ncclUnhandledCudaError, "%s: this process has no GPU runtime to read %p with", what,
                                   from);
        if (is_default_stream(stream) && runtime->set)
                r = runtime->get(&before);
        if (!r && before != device)
                r = runtime->set(device);
        if (!r) {
                r = read_here(runtime, to, from, size, stream);
                if (before != device)
                        (void)runtime->set(before);
        }
        return r ? error_raise(ncclUnhandledCudaError,
                               "%s: cannot read the factor at %p (error %d); it cannot be captured in a graph", what,
                               from, r)
                 : ncclSuccess;
}
