/* SPDX-License-Identifier: MIT */
/*
 * A rail that cannot be opened when railmuxd comes back: nobody's session ends of it, it is shown as what it is, and
 * when it can be opened peers use it as any other. At the first start of a node it is an error.
 *
 * What keeps it from being opened is the test, which listens on its port.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/load.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"
#include "tests/scratch.h"

#define NODES   2u
#define RANKS   4u
#define BACK_MS 15000u
#define RAIL_MS 30000u
#define ADDRESS "127.0.0.9" /* nobody else has ports there */

struct fixture {
        struct node node[NODES];
        struct load load; /* on node 0 alone */
        struct team team; /* over both */
        struct sockaddr_in address;
        int listen_fd; /* in the rail's place; -1: none */
        char rail[64], dir[64];
        const char *with_port[5];
};

static const char *const without_port[] = {"--rail", "r0=127.0.0.1", "--rail", "r1=" ADDRESS, NULL};

static void hold_port(struct fixture *f) {
        socklen_t size = sizeof(f->address);
        int one = 1;

        f->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(f->listen_fd >= 0);
        assert_int_equal(setsockopt(f->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
        assert_int_equal(bind(f->listen_fd, (const struct sockaddr *)&f->address, sizeof(f->address)), 0);
        assert_int_equal(listen(f->listen_fd, 1), 0);
        assert_int_equal(getsockname(f->listen_fd, (struct sockaddr *)&f->address, &size), 0);
}

static void release_port(struct fixture *f) {
        close(f->listen_fd);
        f->listen_fd = -1;
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->address.sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, ADDRESS, &f->address.sin_addr), 1);
        hold_port(f); /* finds a free one */
        snprintf(f->rail, sizeof(f->rail), "r1=" ADDRESS ",port=%u", ntohs(f->address.sin_port));
        memcpy(f->with_port, (const char *[]){"--rail", "r0=127.0.0.1", "--rail", f->rail, NULL}, sizeof(f->with_port));
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        team_cleanup(&f->team);
        load_cleanup(&f->load);
        nodes_cleanup(f->node, NODES);
        if (f->listen_fd >= 0)
                close(f->listen_fd);
        if (f->dir[0])
                assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

/* ---- what operators see ------------------------------------------------------------------------------------------ */
/* A row of that rail; the caller decrefs the answer. */
static json_t *find_rail(const struct node *node, const char *what, const char *key, const char *rail,
                         json_t **ret_answer) {
        json_t *row;
        size_t i;

        *ret_answer = node_query(node, what);
        assert_non_null(*ret_answer);
        json_array_foreach(json_object_get(*ret_answer, what), i, row) {
                if (strcmp(json_string_value(json_object_get(row, key)), rail) == 0)
                        return row;
        }
        return NULL;
}

static bool rail_is(const struct node *node, const char *rail, const char *state, const char *error) {
        json_t *answer, *row = find_rail(node, "rails", "name", rail, &answer);
        bool is;

        assert_non_null(row);
        is = strcmp(json_string_value(json_object_get(row, "state")), state) == 0;
        if (is)
                assert_non_null(strstr(json_string_value(json_object_get(row, "error")), error));
        json_decref(answer);
        return is;
}

static bool has_route(const struct node *node, const char *rail) {
        json_t *answer;
        bool has = find_rail(node, "routes", "rail", rail, &answer) != NULL;

        json_decref(answer);
        return has;
}

static bool route_is_up(const struct node *node, const char *rail) {
        json_t *answer, *row = find_rail(node, "routes", "rail", rail, &answer);
        bool is = row && strcmp(json_string_value(json_object_get(row, "state")), "up") == 0;

        json_decref(answer);
        return is;
}

static uint64_t data_sent(const struct node *node, const char *rail) {
        json_t *answer, *row = find_rail(node, "rails", "name", rail, &answer);
        uint64_t bytes;

        assert_non_null(row);
        bytes = (uint64_t)json_integer_value(json_object_get(json_object_get(row, "carried"), "data_sent"));
        json_decref(answer);
        return bytes;
}

static void drain(const struct node *node, const char *command, const char *rail) {
        const char *argv[] = {node_program("railmuxctl"), "--control", node->control, command, rail, NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        if (proc_run(argv, 20000, output) != 0)
                fail_msg("%s %s: %s", command, rail, output);
        free(output);
}

static bool rail_has_come(void *argument) {
        const struct fixture *f = argument;

        return rail_is(&f->node[0], "r1", "drained", "") && route_is_up(&f->node[0], "r1") &&
               route_is_up(&f->node[1], "r1");
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */
static void serve(struct team_rank *rank) {
        struct rmx_comm *comm = team_join(rank, 0);

        for (uint32_t i = 0; i < 4; i++)
                team_use(rank, comm, i);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

/* The next one does not come before the port is held. */
static void restart_without_rail(struct fixture *f) {
        struct node_pids pids = node_await_ready(&f->node[0], 0, 0, BACK_MS);

        assert_int_equal(kill(f->node[0].pid, SIGSTOP), 0);
        assert_int_equal(kill(pids.daemon, SIGKILL), 0);
        assert_int_equal(proc_wait_dead(pids.daemon, 5000), 0);
        if (f->listen_fd < 0)
                hold_port(f);
        assert_int_equal(kill(f->node[0].pid, SIGCONT), 0);
        assert_int_equal(node_await_ready(&f->node[0], pids.daemon, 0, BACK_MS).executor, pids.executor);
        assert_true(rail_is(&f->node[0], "r0", "up", ""));
        assert_true(rail_is(&f->node[0], "r1", "waiting", "Address already in use"));
        load_create_begin(&f->load);
        load_create_end(&f->load, BACK_MS);
        load_await_progress(&f->load, 100, 20000);
        load_assert_alive(&f->load);
        team_run(&f->team, serve, 0, "without the rail");
        assert_false(has_route(&f->node[0], "r1"));
        assert_false(has_route(&f->node[1], "r1"));
}

static void comes_late(void **state) {
        struct fixture *f = *state;

        release_port(f);
        f->node[0].more = f->with_port;
        f->node[1].more = without_port;
        nodes_start(f->node, NODES, "nodes-late", 1);
        team_init(&f->team, f->node, NODES, RANKS);
        team_run(&f->team, serve, 0, "with both rails");
        assert_true(has_route(&f->node[0], "r1") && has_route(&f->node[1], "r1"));
        load_start(&f->load, f->node[0].socket, RANKS);
        load_await_progress(&f->load, 100, 20000);

        restart_without_rail(f);
        drain(&f->node[0], "drain-rail", "r1"); /* holds for when it comes, and for the next railmuxd */
        restart_without_rail(f);
        release_port(f);
        if (!proc_await(rail_has_come, f, RAIL_MS))
                fail_msg("the rail does not come back");
        drain(&f->node[0], "undrain-rail", "r1");
        assert_true(rail_is(&f->node[0], "r1", "up", ""));
        for (uint32_t i = 0; i < NODES; i++) {
                drain(&f->node[i], "drain-rail", "r0");
                assert_int_equal(data_sent(&f->node[i], "r1") > 0, i == 1); /* by node 1 before all this */
        }
        team_run(&f->team, serve, 0, "over the rail that came");
        assert_true(data_sent(&f->node[0], "r1") > 0);
        load_stop(&f->load);
        nodes_stop(f->node, NODES);
}

/* An address that is mistyped is more likely than one that is on its way. */
static void first_start_fails(void **state) {
        struct fixture *f = *state;
        char socket[80], control[80];
        const char *argv[] = {node_program("railmuxd"),
                              "--keep",
                              "--gpu",
                              "host:1",
                              "--socket",
                              socket,
                              "--control",
                              control,
                              "--listen",
                              "127.0.0.1:0",
                              "--rail",
                              f->rail,
                              NULL};
        char *output = malloc(PROC_OUTPUT_MAX);

        assert_non_null(output);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-late-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(socket, sizeof(socket), "%s/client.sock", f->dir);
        snprintf(control, sizeof(control), "%s/control.sock", f->dir);
        assert_int_equal(proc_run_quiet(argv, 20000, output), 1);
        if (!strstr(output, "rail r1: cannot listen on " ADDRESS) || !strstr(output, "Address already in use"))
                fail_msg("%s", output);
        free(output);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(first_start_fails, setup, teardown),
                cmocka_unit_test_setup_teardown(comes_late, setup, teardown),
        };

        return cmocka_run_group_tests_name("nodes_late", tests, NULL, NULL);
}
