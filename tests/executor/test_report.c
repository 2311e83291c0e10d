/* SPDX-License-Identifier: MIT */
/* Rows of statistics: each goes out once, in messages of so many, and the last one alone has the counters. */
#include <stdbool.h>

#include "tests/cmocka_all.h"

#include "executor/report.h"

#define QUESTION 7u

struct heard {
        uint32_t n_messages, n_rows, fails_at; /* fails_at: the message that cannot be sent, 0: all can */
        bool ended;
};

static int hear(void *userdata, const Railmux__Executor__Message *message) {
        const Railmux__Executor__Statistics *statistics = message->statistics;
        struct heard *heard = userdata;

        if (++heard->n_messages == heard->fails_at)
                return -1;
        assert_int_equal(message->id, QUESTION);
        assert_int_equal(message->body_case, RAILMUX__EXECUTOR__MESSAGE__BODY_STATISTICS);
        assert_false(heard->ended);
        heard->ended = !statistics->more;
        assert_int_equal(statistics->counters != NULL, heard->ended);
        assert_true(statistics->n_comms <= REPORT_ROWS);
        assert_true(heard->ended || statistics->n_comms == REPORT_ROWS);
        for (size_t i = 0; i < statistics->n_comms; i++) {
                assert_int_equal(statistics->comms[i]->comm, heard->n_rows++);
                assert_int_equal(statistics->comms[i]->epoch, 0); /* nothing of an earlier message */
        }
        return 0;
}

/* How it ends. */
static int report(struct heard *heard, uint32_t n_rows) {
        struct report_rows rows = {.send = hear, .userdata = heard, .id = QUESTION};
        Railmux__Executor__Counters counters = RAILMUX__EXECUTOR__COUNTERS__INIT;

        for (uint32_t i = 0; i < n_rows; i++) {
                Railmux__Executor__CommStatistics *row = report_row(&rows);

                if (!row)
                        return rows.r;
                assert_ptr_equal(row, &rows.row[rows.n - 1]);
                assert_int_equal(row->epoch, 0);
                row->comm = i;
        }
        return report_rows_end(&rows, &counters);
}

static void test_rows(void **unused) {
        (void)unused;
        for (uint32_t n = 0; n <= 3 * REPORT_ROWS + 1; n++) {
                struct heard heard = {0};

                assert_int_equal(report(&heard, n), 0);
                assert_true(heard.ended);
                assert_int_equal(heard.n_rows, n);
                assert_int_equal(heard.n_messages, n == 0 ? 1 : (n + REPORT_ROWS - 1) / REPORT_ROWS);
        }
}

static void test_stop(void **unused) {
        (void)unused;
        for (uint32_t at = 1; at <= 3; at++) {
                struct heard heard = {.fails_at = at};

                assert_int_equal(report(&heard, 2 * REPORT_ROWS + 1), -1);
                assert_int_equal(heard.n_messages, at);
                assert_int_equal(heard.n_rows, (at - 1) * REPORT_ROWS);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows),
                cmocka_unit_test(test_stop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
