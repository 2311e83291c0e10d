/* SPDX-License-Identifier: MIT */
/* Rails that peers say they have. */
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/rig.h"

static const struct rig_options two_rails = {
        .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 4096, .key = 1, .chunks = 100};

/* Rails of a peer that nobody here could connect to. The others reach it, and it is said once which one is left out. */
static void test_unfit_rails(void **state) {
        static const struct fabric_peer_rail unfit[] = {
                {.name = "blue", .address = "fe80::1%none0", .port = 9}, /* an interface that there is not */
                {.name = "a-name-that-a-later-version-may-take", .address = "127.0.0.1", .port = 9},
                {.name = "", .address = "name.example", .port = 9},
                {.name = "red", .address = "127.0.0.1", .port = 0},
        };
        struct rig_options options = two_rails;
        struct fabric_route_row *rows;
        static struct rig rig;
        size_t n;

        (void)state;
        options.more = unfit;
        options.n_more = sizeof(unfit) / sizeof(unfit[0]);
        rig_new(&rig, &options);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(fabric_peer_routes(rig.nodes[i].fabric, &rig.nodes[1 - i].id), 2);
                assert_int_equal(fabric_routes(rig.nodes[i].fabric, &rows, &n), 0);
                assert_int_equal(n, 2 * FABRIC_N_CLASSES);
                for (size_t k = 0; k < n; k++) {
                        assert_null(strchr(rows[k].address, ':'));
                        assert_int_not_equal(rows[k].port, 9);
                }
                free(rows);
        }
        rig_run(&rig, 20);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(rig.nodes[i].violations, 1);
                assert_non_null(strstr(rig.nodes[i].text, "rail blue"));
                assert_non_null(strstr(rig.nodes[i].text, "fe80::1%none0 port 9"));
                assert_non_null(strstr(rig.nodes[i].text, "others, too"));
        }
        rig_free(&rig);
}

/* All of them: it is a peer without routes. */
static void test_no_rail_fits(void **state) {
        static const struct fabric_peer_rail unfit = {.name = "blue", .address = "fe80::1%none0", .port = 9};
        static const struct fabric_node other = {{9}};
        const struct fabric_peer_options peer = {.node = other, .boot_epoch = 1, .rails = &unfit, .n_rails = 1};
        static struct rig rig;

        (void)state;
        rig_new(&rig, &two_rails);
        assert_int_equal(fabric_peer_add(rig.nodes[0].fabric, &peer), 0);
        assert_int_equal(fabric_peer_routes(rig.nodes[0].fabric, &other), 0);
        rig_run(&rig, 20);
        assert_int_equal(rig.nodes[0].violations, 1);
        assert_int_equal(fabric_peer_remove(rig.nodes[0].fabric, &other), 0);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_unfit_rails),
                cmocka_unit_test(test_no_rail_fits),
        };

        return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
