/* SPDX-License-Identifier: MIT */
/* Marks after a death: one outcome per sequence, whatever instruction the executor died at. */
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "executor/takeover.h"
#include "ring/ring.h"

static struct takeover read_ok(struct marks *marks, uint32_t n) {
        struct takeover t;

        assert_true(takeover_read(marks, n, 1, &t));
        return t;
}

static void fresh_marks(void **state) {
        struct marks marks = {0};
        struct takeover t = read_ok(&marks, 4);

        (void)state;
        assert_false(t.used);
        assert_int_equal(t.epoch, 1);
        assert_int_equal(t.n_lost, 0);
        t = read_ok(&marks, 4);
        assert_true(t.used);
        assert_int_equal(t.epoch, 1); /* nothing was in flight: the epoch stays */
        assert_int_equal(t.n_lost, 0);
        marks.version = 99;
        assert_false(takeover_read(&marks, 4, 1, &t));
}

static void outcome_of_each(uint32_t base) {
        struct marks marks = {.version = MARKS_VERSION, .epoch = 5, .final = base, .lost = (uint64_t)base << 32 | base};
        struct takeover t;

        marks.rung[0] = base + 3;
        marks.rung[1] = base + 1;
        marks.rung[2] = base;
        t = read_ok(&marks, 3);
        assert_int_equal(t.n_lost, 3);
        assert_int_equal(t.epoch, 6);
        assert_int_equal(t.settled, base + 3);
        assert_int_equal(takeover_outcome(base, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
        assert_int_equal(takeover_outcome(base - 2, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
        for (uint32_t s = base + 1; s != base + 4; s++)
                assert_int_equal(takeover_outcome(s, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
        assert_int_equal(takeover_outcome(base + 4, t.settled, t.lost_after, t.lost_until), TAKEOVER_RUN);
        /* A second death before anything else rang: the same answer, no new epoch. */
        t = read_ok(&marks, 3);
        assert_int_equal(t.n_lost, 0);
        assert_int_equal(t.epoch, 6);
        assert_int_equal(takeover_outcome(base + 2, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
        /* One more was rung, then a third death: the range grows and keeps its start. */
        marks.rung[2] = base + 4;
        t = read_ok(&marks, 3);
        assert_int_equal(t.n_lost, 1);
        assert_int_equal(takeover_outcome(base + 1, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
        assert_int_equal(takeover_outcome(base + 4, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
        assert_int_equal(takeover_outcome(base, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
}

static void outcomes(void **state) {
        (void)state;
        outcome_of_each(10);
        outcome_of_each(0);
        outcome_of_each(UINT32_MAX - 1); /* across the wrap */
        outcome_of_each(UINT32_MAX / 2 - 1);
}

/* A comm had failed and some ranks were told so when the executor died: the others hear the same, not that it was lost.
 */
static void failed_comm(void **state) {
        struct marks marks = {.version = MARKS_VERSION, .epoch = 3, .final = 5, .lost = 5ull << 32 | 5};
        struct takeover t;

        (void)state;
        marks.error = ring_status(10, 1);
        marks.rung[0] = marks.rung[1] = 6;
        marks.published[0] = 6;
        t = read_ok(&marks, 2);
        assert_int_equal(t.n_lost, 0);
        assert_int_equal(t.error, ring_status(10, 1));
        assert_int_equal(takeover_outcome(6, t.settled, t.lost_after, t.lost_until),
                         TAKEOVER_RUN); /* then the error answers */
        assert_int_equal(takeover_outcome(5, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
}

/* A pair's `final` has passed the lost range, of which not everybody was told yet, and the next executor dies, too. */
static void passed_range(uint32_t base) {
        struct marks_pair marks = {.final = base + 3, .rung = {base + 4, base + 3}};
        struct takeover_range t;

        marks.lost = (uint64_t)base << 32 | (base + 2);
        for (int deaths = 0; deaths < 2; deaths++) {
                t = takeover_read_pair(&marks, false);
                assert_int_equal(t.n_lost, !deaths);
                for (uint32_t s = base + 1; s != base + 3; s++)
                        assert_int_equal(takeover_outcome(s, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
                assert_int_equal(takeover_outcome(base, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
                assert_int_equal(takeover_outcome(base + 4, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
                assert_int_equal(takeover_outcome(base + 5, t.settled, t.lost_after, t.lost_until), TAKEOVER_RUN);
        }
        /* Nothing new was rung: what is final stays so. */
        marks = (struct marks_pair){.final = base + 3, .rung = {base + 3, base + 3}};
        marks.lost = (uint64_t)base << 32 | (base + 2);
        t = takeover_read_pair(&marks, false);
        assert_int_equal(t.n_lost, 0);
        assert_int_equal(takeover_outcome(base + 2, t.settled, t.lost_after, t.lost_until), TAKEOVER_LOST);
        assert_int_equal(takeover_outcome(base + 3, t.settled, t.lost_after, t.lost_until), TAKEOVER_FINAL);
}

static void passed_ranges(void **state) {
        (void)state;
        passed_range(10);
        passed_range(0);
        passed_range(UINT32_MAX - 2); /* across the wrap */
        passed_range(UINT32_MAX / 2 - 2);
}

/* Random histories with deaths: what any rank was told never contradicts what another is told for the same sequence. */
static void random_histories(void **state) {
        (void)state;
        srand(7);
        for (int round = 0; round < 20000; round++) {
                enum { N = 3, S = 40 };
                struct marks marks = {0};
                uint32_t base = (uint32_t)(rand() % 4 ? (uint32_t)rand() : UINT32_MAX - 20), rang[N], told[N];
                int outcome[S];
                struct takeover t;

                memset(outcome, -1, sizeof(outcome));
                marks.version = MARKS_VERSION;
                marks.final = base;
                marks.lost = (uint64_t)base << 32 | base;
                for (int i = 0; i < N; i++)
                        marks.rung[i] = marks.published[i] = rang[i] = told[i] = base;
                t = read_ok(&marks, N);
                for (int step = 0; step < 60; step++) {
                        int r = rand() % N, what = rand() % 8;

                        if (what == 0) { /* death, also right after the decision was written */
                                t = read_ok(&marks, N);
                                if (rand() % 3 == 0)
                                        t = read_ok(&marks, N);
                        } else if (what < 5) { /* a rank rings its next sequence, if it was told about the former */
                                if (rang[r] == told[r] && rang[r] != base + S - 1) {
                                        rang[r]++;
                                        if (takeover_outcome(rang[r], t.settled, t.lost_after, t.lost_until) ==
                                                    TAKEOVER_RUN &&
                                            rand() % 4) /* the line may stay unlatched */
                                                marks.rung[r] = rang[r];
                                }
                        } else { /* answers */
                                enum takeover_outcome o;
                                uint32_t s = told[r] + 1;
                                bool all = true;

                                if (rang[r] == told[r])
                                        continue;
                                o = takeover_outcome(s, t.settled, t.lost_after, t.lost_until);
                                if (o == TAKEOVER_RUN) {
                                        for (int i = 0; i < N; i++)
                                                all = all && marks.rung[i] == s;
                                        if (!all) {
                                                marks.rung[r] = s;
                                                continue;
                                        }
                                        /* settled, as comm.c does it */
                                        if (t.lost_after != t.lost_until)
                                                marks.lost = (uint64_t)s << 32 | s;
                                        if (rand() % 5) { /* else: died between the two stores */
                                                marks.final = s;
                                                t.lost_after = t.lost_until = s;
                                                t.settled = s;
                                        } else {
                                                t = read_ok(&marks, N);
                                        }
                                        o = takeover_outcome(s, t.settled, t.lost_after, t.lost_until);
                                        assert_int_equal(o, marks.final == s ? TAKEOVER_FINAL : TAKEOVER_LOST);
                                }
                                told[r] = s;
                                if (outcome[s - base] < 0)
                                        outcome[s - base] = (int)o;
                                assert_int_equal(outcome[s - base], (int)o);
                        }
                }
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(fresh_marks),   cmocka_unit_test(outcomes),         cmocka_unit_test(failed_comm),
                cmocka_unit_test(passed_ranges), cmocka_unit_test(random_histories),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
