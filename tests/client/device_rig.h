/* SPDX-License-Identifier: MIT */
#pragma once
/* A session on GPUs that are not there, with two allocations of GPU 0. */
#include <string.h>

#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

#define BLOCK (1u << 20)

struct rig {
        struct crew crew;
        struct fake_gpu *gpu;
        struct rmx_comm *comm; /* of rank 0 */
        char *a, *b;           /* two allocations */
};

static inline void rig_start(struct rig *rig, uint32_t n) {
        static char memory[3 * BLOCK] __attribute__((aligned(256)));

        rig->gpu = fake_gpu_load();
        crew_start_gpus(&rig->crew, n);
        rig->comm = rig->crew.comm[0];
        rig->a = memory;
        rig->b = memory + 2 * BLOCK;
        fake_gpu_add(rig->gpu, rig->a, BLOCK, 11);
        fake_gpu_add(rig->gpu, rig->b, BLOCK, 22);
}

static inline void rig_stop(struct rig *rig) {
        crew_stop(&rig->crew);
}

static inline const struct fake_gpu_launch *last(struct rig *rig) {
        assert_true(rig->gpu->n_launches > 0);
        return fake_gpu_launched(rig->gpu, rig->gpu->n_launches - 1);
}

static inline const struct fake_gpu_launch *at(struct rig *rig, uint32_t i, uint32_t kind) {
        const struct fake_gpu_launch *launch = fake_gpu_launched(rig->gpu, i);

        assert_int_equal(launch->kind, kind);
        return launch;
}

static inline uint32_t creations(struct rig *rig) {
        return fake_calls(&rig->crew.fake, BODY(BUFFER_CREATE));
}

/* What the daemon knows of a buffer. */
static inline const struct fake_device_buffer *buffer_of(struct rig *rig, uint32_t id) {
        for (uint32_t i = 0; id && i < FAKE_BUFFERS; i++)
                if (rig->crew.fake.device_buffers[i].id == id)
                        return &rig->crew.fake.device_buffers[i];
        return NULL;
}

/* A reduction of floats that executors carry out, also for a rank that is alone. */
static inline uint32_t rung(struct rmx_comm *comm) {
        const float one = 1;
        uint32_t redop;

        assert_int_equal(rmx_redop_create_premul_sum(comm, &one, RMX_FLOAT32, RMX_SCALAR_IMMEDIATE, &redop), RMX_OK);
        return redop;
}

static inline void check_buffer(struct rig *rig, uint32_t id, const void *base, size_t bytes, uint64_t runtime_id) {
        const struct fake_device_buffer *buffer = buffer_of(rig, id);
        struct fake_gpu_handle handle;

        assert_non_null(buffer);
        memcpy(&handle, buffer->handle, sizeof(handle));
        assert_int_equal(handle.base, (uintptr_t)base);
        assert_int_equal(handle.id, runtime_id);
        assert_int_equal(buffer->bytes, bytes);
        assert_int_equal(buffer->gpu, 0);
}

static inline uint64_t offset_of(const struct client_gpu_bell *bell, uint32_t word) {
        return (uint64_t)bell->word[word + 2] << 32 | bell->word[word + 1];
}
