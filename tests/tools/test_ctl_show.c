/* SPDX-License-Identifier: MIT */
/* What people and programs get to see, to the letter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmocka_all.h"

#include "tools/ctl/ranks.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"

typedef Railmux__Control__Member Member;
typedef Railmux__Control__Comm Comm;

static void assert_shown(int (*show)(const struct answer *, const struct show_options *, FILE *),
                         const struct answer *answer, const struct show_options *options, const char *expected) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        assert_int_equal(show(answer, options, out), 0);
        fclose(out);
        assert_string_equal(text, expected);
        free(text);
}

static Member members[6];
static Member *member_rows[6];

static Comm make_comm(unsigned int n, const uint32_t *rung) {
        Comm comm = RAILMUX__CONTROL__COMM__INIT;

        for (unsigned int i = 0; i < n; i++) {
                members[i] = (Member)RAILMUX__CONTROL__MEMBER__INIT;
                members[i].rank = i;
                members[i].rung = rung[i];
                members[i].gpu = i;
                members[i].pid = 4000 + i;
                members[i].session = 10 + i;
                member_rows[i] = &members[i];
        }
        comm.comm = 3;
        comm.name = (char *)"tp";
        comm.tenant = (char *)"default";
        comm.state = (char *)"ready";
        comm.n_ranks = comm.joined = n;
        comm.n_members = n;
        comm.members = member_rows;
        return comm;
}

static void test_ranks(void **state) {
        const uint32_t even[] = {7, 7, 7}, mixed[] = {121, 121, 121, 120, 121, 119}, wrapped[] = {0xffffffff, 1, 0};
        char text[256];
        Comm comm;

        (void)state;
        comm = make_comm(3, even);
        assert_int_equal(ranks_highest(&comm), 7);
        assert_false(ranks_awaited(&comm, member_rows[0]));
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "7 by ranks 0-2");
        comm = make_comm(6, mixed);
        assert_true(ranks_awaited(&comm, member_rows[3]));
        assert_false(ranks_awaited(&comm, member_rows[4]));
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "121 by ranks 0-2, 4; 120 by rank 3; 119 by rank 5");
        members[5].left = true;
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "121 by ranks 0-2, 4; 120 by rank 3");
        assert_false(ranks_awaited(&comm, member_rows[5]));
        /* Sequences wrap. */
        comm = make_comm(3, wrapped);
        assert_int_equal(ranks_highest(&comm), 1);
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "1 by rank 1; 0 by rank 2; 4294967295 by rank 0");
        /* Cut, not overrun. */
        ranks_text(&comm, text, 8);
        assert_string_equal(text, "1 by ra");
        comm.n_members = 0;
        assert_string_equal(ranks_text(&comm, text, sizeof(text)), "");
}

static void test_table(void **state) {
        static const char *const headers[] = {"NAME", ">N", "REST", NULL};
        struct table table;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        (void)state;
        table_init(&table, headers);
        table_cell(&table, "%s", "a\033[31m\n");
        table_cell(&table, "%d", 12345);
        table_cell(&table, "%s", "");
        table_note(&table, "under it");
        table_cell(&table, "%s", "long name");
        table_size(&table, 1536);
        table_cell(&table, "x");
        assert_int_equal(table_print(&table, out), 0);
        fclose(out);
        assert_string_equal(text, "NAME             N  REST\n"
                                  "a?[31m?      12345  -\n"
                                  "    under it\n"
                                  "long name  1.5 KiB  x\n");
        table_deinit(&table);
        free(text);
}

static void test_comms(void **state) {
        const uint32_t rung[] = {17, 16, 17};
        Comm comm = make_comm(3, rung), broken = RAILMUX__CONTROL__COMM__INIT, *rows[] = {&comm, &broken};
        struct answer answer = {.comms = rows, .n_comms = 2};
        struct show_options options = {.ranks = false};
        json_t *json;

        (void)state;
        comm.final_sequence = 16;
        comm.operations = 16;
        comm.bytes = 4096;
        comm.waiting = (char *)"all_reduce 17 for rank 1 since 1.2 s";
        comm.staging_bytes = 1 << 20;
        broken.comm = 4;
        broken.tenant = (char *)"default";
        broken.state = (char *)"failed";
        broken.n_ranks = broken.joined = 2;
        broken.error = 10;
        broken.failed_rank = 1;
        assert_shown(show_comms, &answer, &options,
                     "COMM  NAME  TENANT   RANKS  STATE   EPOCH  FINAL  OPERATIONS  BYTES  LOST  STAGING  WAITING FOR\n"
                     "   3  tp    default    3/3  ready       0     16          16  4 KiB     0    1 MiB  "
                     "all_reduce 17 for rank 1 since 1.2 s\n"
                     "    last sequence 17 by ranks 0, 2; 16 by rank 1\n"
                     "   4  -     default    2/2  failed      0      0           0    0 B     0      0 B  -\n"
                     "    error: RMX_E_PEER_LOST, caused by rank 1\n");
        options.ranks = true;
        answer.n_comms = 1;
        assert_shown(show_comms, &answer, &options,
                     "COMM  NAME  TENANT   RANKS  STATE  EPOCH  FINAL  OPERATIONS  BYTES  LOST  STAGING  WAITING FOR\n"
                     "   3  tp    default    3/3  ready      0     16          16  4 KiB     0    1 MiB  "
                     "all_reduce 17 for rank 1 since 1.2 s\n"
                     "    rank 0   GPU 0   pid 4000     session 10     last 17\n"
                     "    rank 1   GPU 1   pid 4001     session 11     last 16  <- waited for\n"
                     "    rank 2   GPU 2   pid 4002     session 12     last 17\n");
        json = json_comms(&answer);
        assert_int_equal(json_array_size(json), 1);
        assert_true(json_is_null(json_object_get(json_array_get(json, 0), "error")));
        json_decref(json);
}

static void test_status(void **state) {
        Railmux__Control__Executor executor = RAILMUX__CONTROL__EXECUTOR__INIT, *executors[] = {&executor};
        Railmux__Control__Status status = RAILMUX__CONTROL__STATUS__INIT;
        struct answer answer = {.status = &status};
        struct show_options options = {.ranks = false};
        char *notes[] = {(char *)"look\there"};

        (void)state;
        status.state = (char *)"running";
        status.version = (char *)"0.1.0";
        status.pid = 77;
        status.uptime_ns = UINT64_C(7200) * 1000000000;
        status.client_socket = (char *)"/run/railmux/client.sock";
        status.sessions = 8;
        status.comms = 1;
        status.tenants = 1;
        status.executors = executors;
        status.n_executors = 1;
        status.notes = notes;
        status.n_notes = 1;
        executor.name = executor.backend = (char *)"host";
        executor.state = (char *)"ready";
        executor.pid = 78;
        executor.gpus = 8;
        executor.workers = 2;
        executor.uptime_ns = UINT64_C(500000000);
        assert_shown(show_status, &answer, &options,
                     "state          running\n"
                     "railmuxd       0.1.0, pid 77, up 2.0 h, 0 restarts survived\n"
                     "socket         /run/railmux/client.sock\n"
                     "configuration  defaults (no file)\n"
                     "serving        8 sessions, 1 communicators, 1 tenants\n"
                     "\n"
                     "EXECUTOR  BACKEND  STATE  PID  GPUS  WORKERS  LOSSES     UP\n"
                     "host      host     ready   78     8        2       0  0.5 s\n"
                     "\n"
                     "note           look?here\n");
        answer.status = NULL;
        assert_true(show_status(&answer, &options, stdout) < 0);
}

static void test_metrics(void **state) {
        Railmux__Control__Metric a = RAILMUX__CONTROL__METRIC__INIT, b = a, c = a, *rows[] = {&a, &b, &c};
        Railmux__Control__Label label = RAILMUX__CONTROL__LABEL__INIT, other = label, *one[] = {&label},
                                *two[] = {&label, &other};
        struct answer answer = {.metrics = rows, .n_metrics = 3};

        (void)state;
        label.name = (char *)"tenant";
        label.value = (char *)"a\"b\\c\nd";
        other.name = (char *)"resource";
        other.value = (char *)"bytes";
        a.name = b.name = (char *)"railmux_used";
        a.help = b.help = (char *)"What is \"used\" \\ held";
        a.kind = b.kind = (char *)"gauge";
        a.labels = one;
        a.n_labels = 1;
        a.value = 0.1;
        b.labels = two;
        b.n_labels = 2;
        b.value = 9007199254740991.0;
        c.name = (char *)"railmux_calls_total";
        c.help = (char *)"Calls";
        c.kind = (char *)"counter";
        c.value = 12;
        assert_shown(show_metrics, &answer, NULL,
                     "# HELP railmux_used What is \"used\" \\\\ held\n"
                     "# TYPE railmux_used gauge\n"
                     "railmux_used{tenant=\"a\\\"b\\\\c\\nd\"} 0.1\n"
                     "railmux_used{tenant=\"a\\\"b\\\\c\\nd\",resource=\"bytes\"} 9007199254740991\n"
                     "# HELP railmux_calls_total Calls\n"
                     "# TYPE railmux_calls_total counter\n"
                     "railmux_calls_total 12\n");
}

/* A name that is no UTF-8 must not cost the document. */
static void test_json_text(void **state) {
        Railmux__Control__Session session = RAILMUX__CONTROL__SESSION__INIT, *rows[] = {&session};
        struct answer answer = {.sessions = rows, .n_sessions = 1};
        json_t *json;

        (void)state;
        session.name = (char *)"a\xff\"b";
        session.bytes = UINT64_MAX;
        json = json_sessions(&answer);
        assert_non_null(json);
        assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "name")), "a?\"b");
        assert_true(json_integer_value(json_object_get(json_array_get(json, 0), "bytes")) == INT64_MAX);
        json_decref(json);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ranks),  cmocka_unit_test(test_table),   cmocka_unit_test(test_comms),
                cmocka_unit_test(test_status), cmocka_unit_test(test_metrics), cmocka_unit_test(test_json_text),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
