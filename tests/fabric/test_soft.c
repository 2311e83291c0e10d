/* SPDX-License-Identifier: MIT */
/*
 * Fabrics over real libibverbs, in a machine of tests/vm with soft RoCE devices: what is pushed arrives, bit for bit,
 * whatever is done to the links meanwhile. The machine has two nodes and two rails, and a command that cuts them.
 * Skipped elsewhere, unless RAILMUX_TEST_KIND says that this is such a machine; RAILMUX_TEST_KIND=tcp does the same
 * over TCP rails.
 */
#include <net/if.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fabric/rig.h"
#include "util/clock.h"

static const char *kind(void) {
        const char *text = getenv("RAILMUX_TEST_KIND");

        return text ? text : "verbs";
}

static unsigned int n_skipped;

static void require_devices(void) {
        if (if_nametoindex("a0") && if_nametoindex("b1"))
                return;
        if (getenv("RAILMUX_TEST_KIND"))
                fail_msg("there are no devices a0 and b1");
        n_skipped++;
        skip();
}

static void command(const char *text) {
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)text, NULL};
        int status;
        pid_t pid;

        assert_int_equal(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static struct rig_options soft_options(uint32_t slot_bytes, uint32_t chunks) {
        struct rig_options options = {.n_nodes = 2,
                                      .n_rails = 2,
                                      .ranks = {2, 1},
                                      .slot_bytes = slot_bytes,
                                      .key = 70,
                                      .class = FABRIC_NORMAL,
                                      .chunks = chunks,
                                      .where = RIG_SOFT,
                                      .kind = kind()};

        return options;
}

static void test_small(void **state) {
        struct rig_options options = soft_options(2000, 500);
        struct fabric_counters counters;
        static struct rig rig;

        (void)state;
        require_devices();
        options.n_rails = 1;
        rig_new(&rig, &options);
        rig_run(&rig, 25);
        fabric_counters(rig.nodes[0].fabric, &counters);
        assert_int_equal(counters.retransmitted + counters.corrupted + counters.malformed + counters.dropped, 0);
        assert_int_equal(rig.nodes[0].violations + rig.nodes[1].violations, 0);
        rig_free(&rig);
}

static void test_large(void **state) {
        struct rig_options options = soft_options(200001, 40);
        struct fabric_rail_row *rows;
        static struct rig rig;
        size_t n;

        (void)state;
        require_devices();
        rig_new(&rig, &options);
        rig_run(&rig, 25);
        assert_int_equal(fabric_rails(rig.nodes[0].fabric, &rows, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(rows[0].kind, kind());
        assert_true(rows[0].bytes_sent > 500000 && rows[1].bytes_sent > 500000);
        free(rows);
        rig_free(&rig);
}

/* Until a part is through, then something happens, then the rest. */
static void run_with(const char *first, const char *then) {
        struct rig_options options = soft_options(100001, 150);
        static struct rig rig;
        uint64_t end_ns;

        require_devices();
        rig_new(&rig, &options);
        end_ns = clock_now_ns() + UINT64_C(90000000000);
        while (rig.channels[0].received < 30) {
                if (!rig_step(&rig))
                        rig_wait(&rig, 30);
                assert_true(clock_now_ns() < end_ns);
        }
        command(first);
        while (rig.channels[0].received < 90) {
                if (!rig_step(&rig))
                        rig_wait(&rig, 30);
                rig_dispatch(&rig);
                assert_true(clock_now_ns() < end_ns);
        }
        command(then);
        rig_run(&rig, 25);
        rig_free(&rig);
}

static void test_link_down(void **state) {
        (void)state;
        run_with("vm-link a0 down", "vm-link a0 up");
}

static void test_link_drop(void **state) {
        (void)state;
        run_with("vm-link b1 drop", "vm-link b1 ok");
}

static void test_link_flap(void **state) {
        (void)state;
        run_with("vm-link a1 down; vm-link a1 up; vm-link a1 down; vm-link a1 up", "true");
}

static void test_loss(void **state) {
        (void)state;
        run_with("vm-link a0 loss 1", "vm-link a0 ok");
}

static void test_delay(void **state) {
        (void)state;
        run_with("vm-link b0 delay 5ms", "vm-link b0 ok");
}

/* With an argument: only the tests of that pattern. */
int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_small),     cmocka_unit_test(test_large),     cmocka_unit_test(test_link_down),
                cmocka_unit_test(test_link_drop), cmocka_unit_test(test_link_flap), cmocka_unit_test(test_loss),
                cmocka_unit_test(test_delay),
        };
        int failed;

        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        return tests_status(sizeof(tests) / sizeof(tests[0]), n_skipped, failed);
}
