/* SPDX-License-Identifier: MIT */
#pragma once
/* Two ranks on GPUs that are not there, one GPU each, to whose communicators the daemon grants exchange. */
#include <string.h>

#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

#define STREAM(n) ((void *)(uintptr_t)(0x1000 + (n)))
#define MIN       4096u
#define MAX       65536u

struct rig {
        struct crew crew;
        struct fake_gpu *gpu;
        struct rmx_comm *comm; /* of rank 0 */
        char *memory;          /* of GPU 0 */
        uint32_t first;        /* the first launch after the join */
        struct rmx_comm_options options;
};

static struct rig rig;

static int rig_join_rank(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = rig.options;

        options.gpu = (int32_t)rank;
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

/* All but the join. */
static inline void rig_open(uint32_t n) {
        static char memory[4 * MAX] __attribute__((aligned(256)));

        memset(&rig, 0, sizeof(rig));
        rig.options.size = sizeof(rig.options);
        rig.gpu = fake_gpu_load();
        rig.crew.n = n;
        fake_start(&rig.crew.fake);
        rig.crew.fake.backend = "hip";
        rig.crew.fake.exchange_min = MIN;
        rig.crew.fake.exchange_max = MAX;
        rig.memory = memory;
        fake_gpu_add(rig.gpu, memory, sizeof(memory), 1);
        rig.crew.session = fake_session(&rig.crew.fake);
        assert_int_equal(rmx_get_id(rig.crew.session, &rig.crew.id), RMX_OK);
}

static inline void rig_joined(void) {
        for (uint32_t i = 0; i < rig.crew.n; i++)
                assert_int_equal(rig.crew.result[i], RMX_OK);
        rig.comm = rig.crew.comm[0];
        rig.first = rig.gpu->n_launches;
}

static inline void rig_join(void) {
        crew_run(&rig.crew, rig_join_rank);
        rig_joined();
}

static inline void rig_start(void) {
        rig_open(2);
        rig_join();
}

/* Of how many launches since the join there is knowledge. */
static inline uint32_t launches(void) {
        return rig.gpu->n_launches - rig.first;
}

static inline const struct fake_gpu_launch *launched(uint32_t i, uint32_t kind, const void *stream) {
        const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);

        assert_int_equal(launch->kind, kind);
        assert_ptr_equal(launch->stream, stream);
        return launch;
}

/* Of so many bytes. */
static inline int reduce(size_t bytes, void *stream) {
        return rmx_all_reduce(rig.comm, rig.memory, rig.memory, bytes, RMX_UINT8, RMX_SUM, stream);
}
