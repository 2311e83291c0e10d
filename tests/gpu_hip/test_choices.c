/* SPDX-License-Identifier: MIT */
/* From railmuxd's choices to the kernels' tables. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/choices.h"
#include "gpu/plane.h"
#include "ring/line.h"

struct state {
        struct shadow shadow;
        struct choices choices;
        char error[PLANE_TEXT];
};

static int nothing_put(void *context, size_t offset, size_t bytes) {
        (void)context, (void)offset, (void)bytes;
        return 0;
}
static int nothing_settle(void *context) {
        (void)context;
        return 0;
}

static int setup(void **state) {
        struct state *s = calloc(1, sizeof(*s));

        shadow_init(&s->shadow, malloc(sizeof(struct table)));
        s->shadow.put = nothing_put;
        s->shadow.settle = nothing_settle;
        *state = s;
        return 0;
}

static int teardown(void **state) {
        struct state *s = *state;

        free(s->shadow.table);
        free(s);
        return 0;
}

static const struct table_choice *classes(const struct state *s, uint32_t index, uint32_t operation) {
        return s->shadow.table->choices[index].choice[operation];
}

static void assert_class(const struct state *s, const struct table_choice *c, uint64_t max_bytes, uint32_t operation,
                         uint32_t algorithm, uint32_t transport) {
        const struct plan *plan = &s->shadow.table->plans[c->plan];

        assert_int_not_equal(c->plan, 0);
        assert_int_equal(c->max_bytes, max_bytes);
        assert_int_equal(c->transport, transport);
        assert_int_equal(plan->operation, operation);
        assert_int_equal(plan->algorithm, algorithm);
}

static const struct plan_choice typical[] = {
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 32768},    {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX},
        {RING_OP_ALL_GATHER, PLAN_DIRECT, UINT64_MAX}, {RING_OP_SEND, PLAN_ZERO_COPY, UINT64_MAX},
        {RING_OP_BARRIER, PLAN_DIRECT, UINT64_MAX},
};

static void classes_are_split_by_transport(void **state) {
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index = 99;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 3, false, typical, 5, &index, s->error), 0);
        c = classes(s, index, RING_OP_ALL_REDUCE);
        assert_class(s, &c[0], 32768, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, STAGING_PACKET);
        assert_int_equal(c[2].plan, 0);
        c = classes(s, index, RING_OP_ALL_GATHER);
        assert_class(s, &c[0], 131072, RING_OP_ALL_GATHER, PLAN_DIRECT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_ALL_GATHER, PLAN_DIRECT, STAGING_BULK);
        assert_int_equal(c[2].plan, 0);
        assert_int_equal(c[0].plan, c[1].plan);
        /* No kernel reads other ranks' memory. */
        assert_int_equal(classes(s, index, RING_OP_SEND)[0].plan, 0);
        assert_int_equal(classes(s, index, RING_OP_BROADCAST)[0].plan, 0);
}

/* For these numbers of ranks the usual operations have code of their own, for packets. */
static void the_usual_ones_are_packets(void **state) {
        static const uint32_t ranks[] = {2, 4, 8};
        const struct plan_choice wanted[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, UINT64_MAX},
                                             {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX},
                                             {RING_OP_ALL_GATHER, PLAN_DIRECT, UINT64_MAX},
                                             {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, UINT64_MAX},
                                             {RING_OP_ALL_TO_ALL, PLAN_DIRECT, UINT64_MAX}};
        struct state *s = *state;
        uint32_t index;

        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(choices_take(&s->choices, &s->shadow, ranks[i], false, wanted, 5, &index, s->error),
                                 0);
                for (uint32_t k = 0; k < 5; k++) {
                        const struct table_choice *c = classes(s, index, wanted[k].operation);

                        if (wanted[k].operation == RING_OP_BROADCAST) {
                                assert_class(s, c++, 131072, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_PACKET);
                                assert_class(s, c++, UINT64_MAX, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_BULK);
                        } else {
                                assert_class(s, c++, UINT64_MAX, wanted[k].operation, wanted[k].algorithm,
                                             STAGING_PACKET);
                        }
                        assert_int_equal(c->plan, 0);
                }
        }
}

/* Nothing of that holds over several nodes; and whether there are others is part of what makes tables differ. */
static void between_nodes_packets_are_for_little(void **state) {
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t near, far, again;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, typical, 5, &near, s->error), 0);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, true, typical, 5, &far, s->error), 0);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, true, typical, 5, &again, s->error), 0);
        assert_int_not_equal(near, far);
        assert_int_equal(far, again);
        assert_class(s, classes(s, near, RING_OP_ALL_GATHER), UINT64_MAX, RING_OP_ALL_GATHER, PLAN_DIRECT,
                     STAGING_PACKET);
        c = classes(s, far, RING_OP_ALL_GATHER);
        assert_class(s, &c[0], 32768, RING_OP_ALL_GATHER, PLAN_DIRECT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_ALL_GATHER, PLAN_DIRECT, STAGING_BULK);
        c = classes(s, far, RING_OP_ALL_REDUCE);
        assert_class(s, &c[0], 32768, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, STAGING_PACKET); /* no bulk there */
}

static void a_class_above_the_limit_is_bulk_only(void **state) {
        const struct plan_choice high[] = {{RING_OP_BROADCAST, PLAN_DIRECT, 131072},
                                           {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX}};
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 2, false, high, 2, &index, s->error), 0);
        c = classes(s, index, RING_OP_BROADCAST);
        assert_class(s, &c[0], 131072, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_BULK);
        assert_int_equal(c[2].plan, 0);
}

static void a_class_that_no_kernel_runs_goes_to_the_next(void **state) {
        const struct plan_choice mixed[] = {{RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, 1024},
                                            {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4096},
                                            {RING_OP_ALL_REDUCE, PLAN_RING, UINT64_MAX}};
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 4, false, mixed, 3, &index, s->error), 0);
        c = classes(s, index, RING_OP_ALL_REDUCE);
        assert_class(s, &c[0], 4096, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, STAGING_PACKET);
        assert_int_equal(c[1].plan, 0);
}

static void equal_choices_share_a_table(void **state) {
        struct state *s = *state;
        uint32_t first, second, other, plan;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, typical, 5, &first, s->error), 0);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, typical, 5, &second, s->error), 0);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 4, false, typical, 5, &other, s->error), 0);
        assert_int_equal(first, second);
        assert_int_not_equal(first, other);
        plan = classes(s, first, RING_OP_BARRIER)[0].plan;
        assert_int_not_equal(plan, classes(s, other, RING_OP_BARRIER)[0].plan);
        choices_drop(&s->choices, &s->shadow, first);
        assert_int_not_equal(s->choices.plans[plan].references, 0);
        choices_drop(&s->choices, &s->shadow, second);
        assert_int_equal(s->choices.plans[plan].references, 0);
        choices_drop(&s->choices, &s->shadow, other);
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(s->choices.plans[i].references, 0);
        /* Verified once; the plan is still where it was. */
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, typical, 5, &first, s->error), 0);
        assert_int_equal(classes(s, first, RING_OP_BARRIER)[0].plan, plan);
}

static void wrong_choices_are_refused(void **state) {
        const struct plan_choice falling[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4096},
                                              {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4096}};
        const struct plan_choice unknown[] = {{TABLE_OPERATIONS, PLAN_ONE_SHOT, 4096}};
        struct plan_choice many[TABLE_CHOICES + 1];
        struct state *s = *state;
        uint32_t index = 99;

        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, falling, 2, &index, s->error), -EINVAL);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, unknown, 1, &index, s->error), -EINVAL);
        for (uint32_t i = 0; i < TABLE_CHOICES + 1; i++)
                many[i] = (struct plan_choice){RING_OP_ALL_GATHER, PLAN_DIRECT, 64 << i};
        assert_int_equal(choices_take(&s->choices, &s->shadow, 8, false, many, TABLE_CHOICES + 1, &index, s->error),
                         -ENOSPC);
        assert_int_equal(index, 99);
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(s->choices.plans[i].references, 0);
}

static void every_number_of_ranks(void **state) {
        struct state *s = *state;
        uint32_t index;

        for (uint32_t n = 1; n <= STAGING_RANKS_MAX; n++) {
                assert_int_equal(choices_take(&s->choices, &s->shadow, n, false, typical, 5, &index, s->error), 0);
                assert_int_equal(s->shadow.table->plans[classes(s, index, RING_OP_BARRIER)[0].plan].n_ranks, n);
                choices_drop(&s->choices, &s->shadow, index);
        }
}

static void tables_and_plans_run_out_and_come_back(void **state) {
        struct plan_choice choice = {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX};
        struct state *s = *state;
        uint32_t index[CHOICES_TABLES], more;

        for (uint32_t i = 0; i < CHOICES_TABLES; i++)
                assert_int_equal(choices_take(&s->choices, &s->shadow, 2 + i, false, &choice, 1, &index[i], s->error),
                                 0);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 30, false, &choice, 1, &more, s->error), -ENOSPC);
        assert_true(s->error[0]);
        choices_drop(&s->choices, &s->shadow, index[5]);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 30, false, &choice, 1, &more, s->error), 0);
        assert_int_equal(more, index[5]);
        assert_int_equal(s->shadow.table->plans[classes(s, more, RING_OP_BROADCAST)[0].plan].n_ranks, 30);
        /* All entries of plans have been used once: unused ones are taken again. */
        for (uint32_t i = 1; i < TABLE_PLANS; i++)
                if (!s->choices.plans[i].operation)
                        s->choices.plans[i] = (struct choices_plan){.operation = RING_OP_GATHER, .n_ranks = 60};
        choices_drop(&s->choices, &s->shadow, more);
        assert_int_equal(choices_take(&s->choices, &s->shadow, 31, false, &choice, 1, &more, s->error), 0);
        assert_int_equal(s->shadow.table->plans[classes(s, more, RING_OP_BROADCAST)[0].plan].n_ranks, 31);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(classes_are_split_by_transport, setup, teardown),
                cmocka_unit_test_setup_teardown(the_usual_ones_are_packets, setup, teardown),
                cmocka_unit_test_setup_teardown(between_nodes_packets_are_for_little, setup, teardown),
                cmocka_unit_test_setup_teardown(a_class_above_the_limit_is_bulk_only, setup, teardown),
                cmocka_unit_test_setup_teardown(a_class_that_no_kernel_runs_goes_to_the_next, setup, teardown),
                cmocka_unit_test_setup_teardown(equal_choices_share_a_table, setup, teardown),
                cmocka_unit_test_setup_teardown(wrong_choices_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(every_number_of_ranks, setup, teardown),
                cmocka_unit_test_setup_teardown(tables_and_plans_run_out_and_come_back, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
