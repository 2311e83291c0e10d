/* SPDX-License-Identifier: MIT */
/*
 * The metrics of a manager that has everything there can be: an executor, a peer that is connected, one that never was,
 * two rails and a third that waits, and two routes. docs/metrics.md has exactly these, with their kinds and labels.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "tests/cmocka_all.h"

#include "daemon/cluster.h"
#include "daemon/cluster_rails.h"
#include "daemon/control_answer.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "tests/scratch.h"
#include "util/clock.h"
#include "util/log.h"

#define WAIT_NS  UINT64_C(20000000000)
#define TEXT_MAX 1024

struct fixture {
        char dir[64];
        struct manager *manager;
        struct config config;
        struct options options;
        struct cluster cluster;
        struct cluster_rail waiting;
        struct peers *other;
        struct peer *to_other;
        struct control_answer answer;
};

static void fabric_make(struct fixture *f) {
        const struct fabric_options options = {.self.id = {1}, .boot_epoch = 1, .cluster = "c"};
        const struct fabric_peer_rail rails[] = {{"r0", "127.0.0.1", 1}, {"r1", "127.0.0.1", 2}};
        struct fabric_peer_options peer = {.node.id = {2}, .boot_epoch = 1, .rails = rails, .n_rails = 2};

        assert_int_equal(fabric_new(&options, &f->cluster.fabric), 0);
        for (unsigned int i = 0; i < 2; i++) {
                const struct fabric_rail_options rail = {.name = rails[i].name, .kind = "tcp", .address = "127.0.0.1"};

                assert_int_equal(fabric_rail_add(f->cluster.fabric, &rail), 0);
        }
        assert_int_equal(fabric_peer_add(f->cluster.fabric, &peer), 0);
}

static void peers_make(struct fixture *f) {
        struct peers_options options = {
                .base = f->manager->base, .cluster = "c", .name = "here", .listen = "127.0.0.1:0", .node = {1}};
        uint64_t end_ns = clock_now_ns() + WAIT_NS;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Go go = RAILMUX__PEER__GO__INIT;
        struct peer *peer, *nobody;
        char error[PEER_TEXT_MAX];

        assert_int_equal(peers_new(&options, error, &f->cluster.peers), 0);
        options.name = "there";
        options.node[0] = 2;
        assert_int_equal(peers_new(&options, error, &f->other), 0);
        assert_int_equal(peers_dial(f->cluster.peers, "127.0.0.1:1", &nobody), 0);
        assert_int_equal(peers_dial(f->cluster.peers, peers_address(f->other), &peer), 0);
        while (peers_counters(f->cluster.peers)->connects == 0) {
                assert_true(clock_now_ns() < end_ns);
                event_base_loop(f->manager->base, EVLOOP_ONCE);
        }
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_GO;
        message.go = &go;
        assert_int_equal(peer_send(peer, &message), 0);
        f->to_other = peer;
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-metrics-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        config_init(&f->config);
        free(f->config.control_socket);
        assert_true(asprintf(&f->config.control_socket, "%s/control.sock", f->dir) > 0);
        free(f->config.client_socket);
        assert_true(asprintf(&f->config.client_socket, "%s/client.sock", f->dir) > 0);
        f->config.log_level = LOG_LEVEL_ERROR;
        assert_int_equal(manager_new(&f->config, &f->options, &f->manager), 0);
        assert_non_null(f->manager->links);
        f->manager->links->counters.at_ns = 1; /* as if it had told */
        fabric_make(f);
        peers_make(f);
        snprintf(f->waiting.spec.name, sizeof(f->waiting.spec.name), "r2");
        DL_APPEND(f->cluster.waiting, &f->waiting);
        f->manager->cluster = &f->cluster;
        metrics_rows(&f->answer, f->manager);
        assert_int_equal(f->answer.error, 0);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        control_answer_deinit(&f->answer);
        f->manager->cluster = NULL;
        fabric_free(f->cluster.fabric);
        peers_free(f->other);
        peers_free(f->cluster.peers);
        manager_free(f->manager);
        config_deinit(&f->config);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

/* The i-th row; NULL: there are no more. */
static const Railmux__Control__Metric *row_at(const struct fixture *f, size_t i) {
        for (size_t k = 0; k < f->answer.n_replies; k++) {
                if (i < f->answer.replies[k]->n_metrics)
                        return f->answer.replies[k]->metrics[i];
                i -= f->answer.replies[k]->n_metrics;
        }
        return NULL;
}

/* The row of that name whose labels have these values in this order; fails the test if there is not one. */
static double value_of(const struct fixture *f, const char *name, const char *const *values) {
        const Railmux__Control__Metric *row, *found = NULL;

        for (size_t i = 0; (row = row_at(f, i)); i++) {
                bool same = strcmp(row->name, name) == 0;

                for (size_t k = 0; same && k < row->n_labels; k++)
                        same = values[k] && strcmp(row->labels[k]->value, values[k]) == 0;
                if (!same)
                        continue;
                if (found)
                        fail_msg("%s is there twice with the same labels", name);
                found = row;
        }
        if (!found)
                fail_msg("there is no %s with these labels", name);
        return found->value;
}

#define VALUE(f, name, ...) value_of(f, name, (const char *const[]){__VA_ARGS__, NULL})

#define THERE "02000000000000000000000000000000"

static void test_values(void **state) {
        struct fixture *f = *state;

        assert_true(VALUE(f, "railmux_peers_up", NULL) == 1);
        assert_true(VALUE(f, "railmux_peer_up", "there", THERE) == 1);
        assert_true(VALUE(f, "railmux_peer_sent_bytes_total", "there", THERE) > 0);
        assert_true(VALUE(f, "railmux_rail_up", "r0") == 1 && VALUE(f, "railmux_rail_up", "r1") == 1);
        assert_true(VALUE(f, "railmux_rail_up", "r2") == 0); /* it waits */
        assert_true(VALUE(f, "railmux_rail_bandwidth_bytes_per_second", "r1") > 0);
        assert_true(VALUE(f, "railmux_rail_connections", "r0") == 0);
        assert_true(VALUE(f, "railmux_routes", "up") == 2 && VALUE(f, "railmux_routes", "down") == 0);
        assert_true(VALUE(f, "railmux_route_up", "r1", "there", THERE) == 1);
        assert_true(VALUE(f, "railmux_fabric_taken_total", NULL) == 0);
}

/* Rows follow what happens to rails and routes. */
static void test_changes(void **state) {
        struct fixture *f = *state;

        assert_int_equal(fabric_rail_drain(f->cluster.fabric, "r0", true), 0);
        assert_int_equal(fabric_rail_enable(f->cluster.fabric, "r1", false), 0);
        control_answer_deinit(&f->answer);
        f->answer = (struct control_answer)CONTROL_ANSWER_INIT;
        metrics_rows(&f->answer, f->manager);
        assert_true(VALUE(f, "railmux_rail_up", "r0") == 0 && VALUE(f, "railmux_rail_up", "r1") == 0);
        assert_true(VALUE(f, "railmux_route_up", "r0", "there", THERE) == 1);
        assert_true(VALUE(f, "railmux_route_up", "r1", "there", THERE) == 0);
        assert_true(VALUE(f, "railmux_routes", "up") == 1);
}

/* A node that is lost is there as one that is down, also when nobody wants it any more. */
static void test_lost(void **state) {
        uint64_t end_ns = clock_now_ns() + WAIT_NS;
        struct fixture *f = *state;
        double sent;

        sent = VALUE(f, "railmux_peer_sent_bytes_total", "there", THERE);
        f->other = peers_free(f->other);
        peer_release(f->to_other);
        while (peers_counters(f->cluster.peers)->losses == 0 || peer_find(f->cluster.peers, (const uint8_t[16]){2})) {
                assert_true(clock_now_ns() < end_ns);
                event_base_loop(f->manager->base, EVLOOP_ONCE);
        }
        control_answer_deinit(&f->answer);
        f->answer = (struct control_answer)CONTROL_ANSWER_INIT;
        metrics_rows(&f->answer, f->manager);
        assert_true(VALUE(f, "railmux_peers_up", NULL) == 0);
        assert_true(VALUE(f, "railmux_peer_losses_total", NULL) == 1);
        assert_true(VALUE(f, "railmux_peer_up", "there", THERE) == 0);
        assert_true(VALUE(f, "railmux_peer_sent_bytes_total", "there", THERE) >= sent);
}

static void test_alone(void **state) {
        const Railmux__Control__Metric *row;
        struct fixture *f = *state;

        f->manager->cluster = NULL;
        control_answer_deinit(&f->answer);
        f->answer = (struct control_answer)CONTROL_ANSWER_INIT;
        metrics_rows(&f->answer, f->manager);
        for (size_t i = 0; (row = row_at(f, i)); i++)
                assert_true(strncmp(row->name, "railmux_rail_", 13) != 0 &&
                            strncmp(row->name, "railmux_peer", 12) != 0);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */
/* As a line of the table in docs/metrics.md. */
static void line_of(const Railmux__Control__Metric *row, char line[TEXT_MAX]) {
        int n = snprintf(line, TEXT_MAX, "| `%s` | %s | ", row->name, row->kind);

        for (size_t i = 0; i < row->n_labels; i++)
                n += snprintf(line + n, (size_t)(TEXT_MAX - n), "%s%s", i ? ", " : "", row->labels[i]->name);
        snprintf(line + n, (size_t)(TEXT_MAX - n), " | %s |", row->help);
}

static bool list_has(const char *text) {
        char line[TEXT_MAX];
        FILE *file = fopen(METRICS_DOC, "re");
        bool found = false;

        assert_non_null(file);
        while (!found && fgets(line, sizeof(line), file)) {
                line[strcspn(line, "\n")] = '\0';
                found = strcmp(line, text) == 0;
        }
        fclose(file);
        return found;
}

static void test_list(void **state) {
        const Railmux__Control__Metric *row, *last = NULL;
        uint32_t n_rows = 0, n_lines = 0, missing = 0;
        const struct fixture *f = *state;
        char line[TEXT_MAX];
        FILE *file;

        for (size_t i = 0; (row = row_at(f, i)); i++) {
                /* Counters end so, and rows of a name stand together. */
                assert_int_equal(strcmp(row->kind, "counter") == 0,
                                 strcmp(row->name + strlen(row->name) - 6, "_total") == 0);
                if (last && strcmp(last->name, row->name) == 0)
                        continue;
                for (size_t k = 0; k < i; k++)
                        assert_string_not_equal(row_at(f, k)->name, row->name);
                last = row;
                n_rows++;
                line_of(row, line);
                if (list_has(line))
                        continue;
                print_message("%s lacks:\n%s\n", METRICS_DOC, line);
                missing++;
        }
        assert_int_equal(missing, 0);
        file = fopen(METRICS_DOC, "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
                n_lines += strncmp(line, "| `railmux_", 11) == 0;
        fclose(file);
        assert_int_equal(n_lines, n_rows); /* and no others */
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_values, setup, teardown),
                cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
                cmocka_unit_test_setup_teardown(test_alone, setup, teardown),
                cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        };

        unsetenv("NOTIFY_SOCKET");
        setenv("RAILMUX_EXECUTOR", "/nonexistent", 1); /* none is to start */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
