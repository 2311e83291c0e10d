/* SPDX-License-Identifier: MIT */
/*
 * Memory of three kinds.
 *
 * The GPU runtime is found by name at run time, CUDA's or else HIP's, so that this program links neither and is built
 * everywhere. The few calls that it needs have the same arguments in both; so have the numbers. Streams are
 * made without the implicit order with the default stream: a library that silently worked on that one would be seen.
 *
 * A GPU's memory is not given back to the runtime while ranks run, but kept and used again, as frameworks' allocators
 * do: to free it waits for all that runs on the GPU, and where two ranks of a process share one, that may be the call
 * of the other, which waits for this one.
 */
#include "tests/nccl/memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NON_BLOCKING 1u
#define TO_DEVICE    1
#define FROM_DEVICE  2
#define NOT_READY    600

struct runtime {
        int (*GetDeviceCount)(int *);
        int (*SetDevice)(int);
        int (*Malloc)(void **, size_t);
        int (*Memcpy)(void *, const void *, size_t, int);
        int (*StreamCreateWithFlags)(void **, unsigned int);
        int (*StreamDestroy)(void *);
        int (*StreamQuery)(void *);
        int (*StreamSynchronize)(void *);
};

/* Of a GPU, in one list with all others. */
struct block {
        struct block *next;
        void *address;
        size_t bytes;
        uint32_t device;
        int is_used;
};

/* One for the process: the runtime itself is. */
static struct {
        enum memory_kind kind;
        const struct nccl_api *api;
        struct runtime runtime;
        int devices;
        pthread_mutex_t mutex; /* of the list */
        struct block *blocks;
} memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local uint32_t device_in_use; /* what memory_use said */

static const char *const names[MEMORY_KINDS] = {"host", "alloc", "device"};

int memory_kind_of(const char *name) {
        for (int i = 0; i < MEMORY_KINDS; i++)
                if (!strcmp(names[i], name))
                        return i;
        return -1;
}

const char *memory_kind_name(enum memory_kind kind) {
        return names[kind];
}

static int check(int result, const char *call) {
        if (result == 0)
                return 0;
        fprintf(stderr, "nccl_conformance: %s: error %d\n", call, result);
        return -1;
}

static int find(void *library, const char *prefix, const char *name, void *ret_function) {
        char symbol[64];
        void *found;

        snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
        found = dlsym(library, symbol);
        memcpy(ret_function, &found, sizeof(found));
        return found ? 0 : check(-1, symbol);
}

static int runtime_load(void) {
        static const char *const libraries[][2] = {{"libcudart.so", "cuda"},    {"libcudart.so.13", "cuda"},
                                                   {"libcudart.so.12", "cuda"}, {"libcudart.so.11", "cuda"},
                                                   {"libamdhip64.so", "hip"},   {"libamdhip64.so.7", "hip"},
                                                   {"libamdhip64.so.6", "hip"}};
        struct runtime *r = &memory.runtime;
        const char *prefix = NULL;
        void *library = NULL;

        for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]) && !library; i++) {
                library = dlopen(libraries[i][0], RTLD_NOW | RTLD_GLOBAL);
                prefix = libraries[i][1];
        }
        if (!library)
                return check(-1, "no GPU runtime (libcudart.so, libamdhip64.so)");
#define FIND(name)                                                                                                     \
        if (find(library, prefix, #name, &r->name))                                                                    \
                return -1;
        FIND(GetDeviceCount)
        FIND(SetDevice)
        FIND(Malloc)
        FIND(Memcpy)
        FIND(StreamCreateWithFlags)
        FIND(StreamDestroy)
        FIND(StreamQuery)
        FIND(StreamSynchronize)
#undef FIND
        if (check(r->GetDeviceCount(&memory.devices), "GetDeviceCount"))
                return -1;
        return memory.devices > 0 ? 0 : check(-1, "no GPU");
}

int memory_init(enum memory_kind kind, const struct nccl_api *api) {
        memory.kind = kind;
        memory.api = api;
        memory.devices = 0;
        if (kind == MEMORY_ALLOC && (!api->MemAlloc || !api->MemFree))
                return check(-1, "the library has no ncclMemAlloc");
        return kind == MEMORY_DEVICE ? runtime_load() : 0;
}

int memory_devices(void) {
        return memory.devices;
}

int memory_use(uint32_t device) {
        if (memory.kind != MEMORY_DEVICE)
                return 0;
        device_in_use = device % (uint32_t)memory.devices;
        return check(memory.runtime.SetDevice((int)device_in_use), "SetDevice");
}

/* One that nobody uses and is not much too large, or a new one. */
static int block_take(size_t bytes, void **ret_address) {
        struct block *block;
        int r = 0;

        pthread_mutex_lock(&memory.mutex);
        for (block = memory.blocks; block; block = block->next)
                if (!block->is_used && block->device == device_in_use && block->bytes >= bytes &&
                    block->bytes / 2 <= bytes)
                        break;
        if (block)
                block->is_used = 1;
        pthread_mutex_unlock(&memory.mutex);
        if (!block) {
                block = calloc(1, sizeof(*block));
                if (!block)
                        return check(-1, "out of memory");
                *block = (struct block){.bytes = bytes, .device = device_in_use, .is_used = 1};
                r = check(memory.runtime.Malloc(&block->address, bytes), "Malloc");
                if (r) {
                        free(block);
                        return r;
                }
                pthread_mutex_lock(&memory.mutex);
                block->next = memory.blocks;
                memory.blocks = block;
                pthread_mutex_unlock(&memory.mutex);
        }
        *ret_address = block->address;
        return 0;
}

static int block_give(const void *address) {
        struct block *block;

        pthread_mutex_lock(&memory.mutex);
        for (block = memory.blocks; block && (block->address != address || !block->is_used);)
                block = block->next;
        if (block)
                block->is_used = 0;
        pthread_mutex_unlock(&memory.mutex);
        return block ? 0 : check(-1, "memory that is not in use");
}

int memory_new(size_t bytes, void **ret_address) {
        switch (memory.kind) {
        case MEMORY_ALLOC:
                return check(memory.api->MemAlloc(ret_address, bytes), "ncclMemAlloc");
        case MEMORY_DEVICE:
                return block_take(bytes, ret_address);
        default:
                return check(posix_memalign(ret_address, 4096, bytes), "posix_memalign");
        }
}

int memory_free(void *address) {
        switch (memory.kind) {
        case MEMORY_ALLOC:
                return check(memory.api->MemFree(address), "ncclMemFree");
        case MEMORY_DEVICE:
                return block_give(address);
        default:
                free(address);
                return 0;
        }
}

int memory_write(void *to, const void *from, size_t bytes) {
        if (memory.kind == MEMORY_DEVICE) /* small copies return before they are there */
                return check(memory.runtime.Memcpy(to, from, bytes, TO_DEVICE), "Memcpy") ||
                                       check(memory.runtime.StreamSynchronize(NULL), "StreamSynchronize")
                               ? -1
                               : 0;
        memcpy(to, from, bytes);
        return 0;
}

int memory_read(void *to, const void *from, size_t bytes) {
        if (memory.kind == MEMORY_DEVICE)
                return check(memory.runtime.Memcpy(to, from, bytes, FROM_DEVICE), "Memcpy");
        memcpy(to, from, bytes);
        return 0;
}

int memory_stream_new(void **ret_stream) {
        *ret_stream = NULL;
        if (memory.kind != MEMORY_DEVICE)
                return 0;
        return check(memory.runtime.StreamCreateWithFlags(ret_stream, NON_BLOCKING), "StreamCreateWithFlags");
}

int memory_stream_free(void *stream) {
        return stream ? check(memory.runtime.StreamDestroy(stream), "StreamDestroy") : 0;
}

int memory_stream_idle(void *stream) {
        int result;

        if (memory.kind != MEMORY_DEVICE)
                return 1;
        result = memory.runtime.StreamQuery(stream);
        return result == NOT_READY ? 0 : check(result, "StreamQuery") ? -1 : 1;
}
