/* SPDX-License-Identifier: MIT */
#pragma once
/* Started exchanges: what comes after what, as the stand-in GPU has seen it. One program includes it once. */
#include "client/comm.h"
#include "client/device.h"
#include "tests/client/exchange_rig.h"

static inline int start(size_t bytes, void *stream, struct rmx_request *request) {
        return rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, bytes, RMX_UINT8, RMX_SUM, stream, request);
}

static inline void *own(void) {
        return rig.comm->aside.stream;
}

/* ---- what comes after what --------------------------------------------------------------------------------------- */
/* Is what was put `k`-th on a stream behind what was put `i`-th? Counted from the join. */
static inline bool behind(uint32_t i, uint32_t k) {
        bool is[FAKE_GPU_LAUNCHES] = {false};
        uint32_t flag[CLIENT_GPU_FLAGS] = {0};

        is[rig.first + i] = true;
        for (uint32_t n = rig.first; n <= rig.first + k; n++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, n);

                if (launch->kind == FAKE_GPU_SET)
                        flag[launch->flag] = n;
                if (launch->kind == FAKE_GPU_AWAIT && n > rig.first + i)
                        is[n] |= is[flag[launch->flag]];
                for (uint32_t p = rig.first + i; p < n; p++) {
                        const struct fake_gpu_launch *before = fake_gpu_launched(rig.gpu, p);

                        is[n] |= is[p] && (before->stream == launch->stream ||
                                           (launch->kind == FAKE_GPU_ORDER && before->stream == launch->from) ||
                                           (launch->bell.after && launch->bell.after == before->bell.number &&
                                            launch->bell.slot == before->bell.slot));
                }
        }
        return is[rig.first + k];
}

/* The last one. */
static inline uint32_t last(void) {
        return launches() - 1;
}

static inline uint32_t exchange_or_call(void) {
        uint32_t i = last();

        while (fake_gpu_launched(rig.gpu, rig.first + i)->kind != FAKE_GPU_EXCHANGE &&
               fake_gpu_launched(rig.gpu, rig.first + i)->kind != FAKE_GPU_CALL)
                i--;
        return i;
}

static inline bool is_number(const struct fake_gpu_launch *launch) {
        return (launch->kind == FAKE_GPU_EXCHANGE || launch->kind == FAKE_GPU_CALL || launch->kind == FAKE_GPU_START) &&
               launch->bell.number;
}

/* Each launch with a number is behind the one with the number before, and on no stream that is captured. */
static inline void check_order(void) {
        uint32_t before[2] = {0}, number[2] = {2, 2};

        for (uint32_t i = 0; i < launches(); i++) {
                const struct fake_gpu_launch *launch = fake_gpu_launched(rig.gpu, rig.first + i);
                const uint32_t slot = launch->bell.slot;

                if (!is_number(launch))
                        continue;
                assert_true(slot < 2);
                assert_int_equal(launch->bell.number, number[slot] + 1);
                if (number[slot] > 2)
                        assert_true(behind(before[slot], i));
                number[slot]++;
                before[slot] = i;
        }
}

static inline int split(struct crew *crew, uint32_t rank) {
        const struct rmx_comm_options options = {.size = sizeof(options), .gpu = (int32_t)rank};

        return rmx_comm_split(crew->comm[rank], 0, (int32_t)rank, &options, &crew->comm[rank + 2]);
}

/* A second communicator of the same ranks. */
static inline void rig_split(void) {
        rig_start();
        crew_run(&rig.crew, split);
        rig_joined();
}

static inline void split_stop(void) {
        for (uint32_t i = 2; i < 4; i++) {
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[i]), RMX_OK);
                rig.crew.comm[i] = NULL;
        }
        crew_stop(&rig.crew);
}
