/* SPDX-License-Identifier: MIT */
/* Placement on this host, and on one with four NUMA nodes that hwloc is told of. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "topology/place.h"

static void this_host(void **state) {
        struct topology_place *place;
        cpu_set_t before, after;

        (void)state;
        assert_int_equal(topology_place_new(&place), 0);
        assert_true(topology_place_count(place) >= 1);
        assert_int_equal(topology_place_of_gpu(place, 0), 0);
        assert_int_equal(topology_place_thread(place, topology_place_count(place)), -ERANGE);

        assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
        if (topology_place_thread(place, 0) == 0) { /* a subset, and never nothing */
                assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
                assert_true(CPU_COUNT(&after) > 0);
                CPU_AND(&before, &before, &after);
                assert_true(CPU_EQUAL(&before, &after));
        }
        assert_null(topology_place_free(place));
}

static void four_nodes(void **state) {
        struct topology_place *place;

        (void)state;
        assert_int_equal(setenv("HWLOC_SYNTHETIC", "numa:4 l2:2(size=2097152) core:1 pu:2", 1), 0);
        assert_int_equal(topology_place_new(&place), 0);
        unsetenv("HWLOC_SYNTHETIC");
        assert_int_equal(topology_place_count(place), 4);
        for (uint32_t gpu = 0; gpu < 16; gpu++)
                assert_int_equal(topology_place_of_gpu(place, gpu), gpu % 4);
        assert_int_equal(topology_place_thread(place, 4), -ERANGE);
        topology_place_free(place);
}

static void nothing_known(void **state) {
        (void)state;
        assert_int_equal(topology_place_count(NULL), 1);
        assert_int_equal(topology_place_of_gpu(NULL, 7), 0);
        assert_null(topology_place_free(NULL));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(this_host),
                cmocka_unit_test(four_nodes),
                cmocka_unit_test(nothing_known),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
