/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/client/fake.h"
#include "tests/client/fake_gpu.h"

struct fake_gpu *fake_gpu_load(void) {
        const char *path = getenv("RAILMUX_CLIENT_PLUGIN");
        void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        struct fake_gpu *gpu = plugin ? dlsym(plugin, FAKE_GPU_SYMBOL) : NULL;

        must(gpu);
        *gpu = (struct fake_gpu){.mutex = PTHREAD_MUTEX_INITIALIZER, .hidden_device = UINT32_MAX};
        return gpu;
}

struct fake_gpu_block *fake_gpu_add(struct fake_gpu *gpu, const void *base, size_t bytes, uint64_t id) {
        struct fake_gpu_block *block = &gpu->block[gpu->n_blocks++];

        must(gpu->n_blocks <= FAKE_GPU_BLOCKS);
        *block = (struct fake_gpu_block){.base = (uintptr_t)base,
                                         .bytes = bytes,
                                         .id = id,
                                         .residence = CLIENT_GPU_DEVICE,
                                         .device = FAKE_GPU_DEVICES - 1}; /* GPU 0 */
        return block;
}

void fake_gpu_capture(struct fake_gpu *gpu, void *stream, void *too) {
        pthread_mutex_lock(&gpu->mutex);
        gpu->capturing = stream;
        gpu->capturing_too = too;
        gpu->n_pulled = 0;
        gpu->captures++;
        pthread_mutex_unlock(&gpu->mutex);
}

void fake_gpu_stream_destroy(struct fake_gpu *gpu, void *stream) {
        pthread_mutex_lock(&gpu->mutex);
        must(gpu->n_gone < FAKE_GPU_GONE);
        gpu->gone[gpu->n_gone++] = stream;
        pthread_mutex_unlock(&gpu->mutex);
}

const struct fake_gpu_launch *fake_gpu_launched(struct fake_gpu *gpu, uint32_t i) {
        must(i < gpu->n_launches && gpu->n_launches <= FAKE_GPU_LAUNCHES);
        return &gpu->launch[i];
}
