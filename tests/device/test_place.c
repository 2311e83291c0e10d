/* SPDX-License-Identifier: MIT */
/* Warps and workers: one of each for the other, and as many lanes on every chiplet. */
#include "tests/cmocka_all.h"

#include <string.h>

#include "gpu/device/place.h"
#include "gpu/device/staging.h"

#define BLOCKS_MAX 304u /* compute units of an MI300X */
#define WARPS_MAX  16u
#define CHIPLETS   8u

static uint8_t seen[BLOCKS_MAX * WARPS_MAX];

static void every_warp_is_one_worker(void **state) {
        (void)state;
        for (uint32_t warps = 1; warps <= WARPS_MAX; warps++)
                for (uint32_t n = 1; n <= BLOCKS_MAX; n++) {
                        memset(seen, 0, sizeof(seen));
                        for (uint32_t block = 0; block < n; block++)
                                for (uint32_t warp = 0; warp < warps; warp++) {
                                        uint32_t worker = place_worker(block, warp, n);

                                        assert_true(worker < n * warps);
                                        assert_int_equal(seen[worker]++, 0);
                                }
                }
}

/* The block of a worker, found by looking at all. */
static uint32_t block_of(uint32_t worker, uint32_t n, uint32_t warps) {
        for (uint32_t block = 0; block < n; block++)
                for (uint32_t warp = 0; warp < warps; warp++)
                        if (place_worker(block, warp, n) == worker)
                                return block;
        fail();
        return 0;
}

/* The first lanes, however many a request has, are in different blocks while there are blocks, and no chiplet has more
 * than one lane more than another. */
static void lanes_are_spread(void **state) {
        (void)state;
        for (uint32_t warps = 4; warps <= WARPS_MAX; warps *= 2)
                for (uint32_t n = CHIPLETS; n <= 64; n += CHIPLETS) {
                        uint32_t in_block[64] = {0}, on_chiplet[CHIPLETS] = {0};

                        for (uint32_t lane = 0; lane < STAGING_LANES; lane++) {
                                uint32_t block = block_of(lane % (n * warps), n, warps), least = ~0u, most = 0;

                                assert_true(in_block[block]++ == lane / n);
                                on_chiplet[block % CHIPLETS]++;
                                for (uint32_t c = 0; c < CHIPLETS; c++) {
                                        least = on_chiplet[c] < least ? on_chiplet[c] : least;
                                        most = on_chiplet[c] > most ? on_chiplet[c] : most;
                                }
                                assert_true(most - least <= 1);
                        }
                }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_warp_is_one_worker),
                cmocka_unit_test(lanes_are_spread),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
