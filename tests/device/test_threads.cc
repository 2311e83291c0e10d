/* SPDX-License-Identifier: MIT */
/*
 * Ranks that are threads of one process: several of a communicator are on one GPU and ring in one area, one behind the
 * other. Each waits for those behind it, so whoever looks at the lines must go on to the next while the first is not
 * finished.
 */
#include "tests/device/traffic.h"

static void run(uint32_t n, uint32_t gpus, uint32_t workers, uint32_t window, uint64_t bytes, uint64_t seed) {
        struct emulator *e = emulator_new(gpus, workers, EMULATOR_WATCH | EMULATOR_JITTER, seed);
        struct traffic *t = (struct traffic *)calloc(1, sizeof(*t));
        uint32_t area[EMULATOR_RANKS_MAX], session[EMULATOR_RANKS_MAX];

        CHECK(t, "no memory");
        for (uint32_t g = 0; g < gpus; g++)
                area[g] = emulator_session(e, g, 1 + (uint32_t)(mix(seed + g) % 200));
        for (uint32_t r = 0; r < n; r++)
                session[r] = area[r % gpus];
        traffic_init(t, e, emulator_comm(e, n, session, seed % 2 ? STAGING_PACKET : STAGING_BULK, 0, 0), n, session,
                     window, bytes, seed);
        traffic_run(t, 100);
        emulator_free(e);
        traffic_deinit(t);
        free(t);
}

int main(void) {
        static const uint32_t workers[] = {1, 2, 4, 8, 17};
        const uint64_t seed = test_seed();
        const uint32_t runs = test_full() ? 400 : 40;

        for (uint32_t i = 0; i < runs; i++) {
                const uint64_t random = mix(seed + i);

                run(3 + (uint32_t)(random % 6), 1 + i % 2, workers[i % 5], random >> 8 & 1 ? 1 : 4,
                    random >> 9 & 1 ? 2100 : 20000, random);
        }
        return 0;
}
