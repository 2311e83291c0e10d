/* SPDX-License-Identifier: MIT */
/* From railmuxd's choices to the kernels' tables. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/hip/choices.h"
#include "gpu/plane.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "ring/line.h"

struct state {
        struct shadow shadow;
        struct choices choices;
        int told_fd;
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
        s->told_fd = eventfd(0, EFD_CLOEXEC);
        assert_true(s->told_fd >= 0);
        choices_init(&s->choices, s->told_fd);
        *state = s;
        return 0;
}

static int teardown(void **state) {
        struct state *s = *state;

        choices_deinit(&s->choices);
        close(s->told_fd);
        free(s->shadow.table);
        free(s);
        return 0;
}

/* far: the second half of the ranks is on another node. Here is rank 0. */
static int take(struct state *s, uint32_t n_ranks, bool far, const struct plan_choice *wanted, uint32_t n_wanted,
                uint32_t *ret_index) {
        struct choices_where where = {.n_ranks = n_ranks, .here = 1};
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;

        for (uint32_t r = 0; r < n_ranks; r++)
                node[r] = far && r >= n_ranks / 2;
        assert_int_equal(plan_nodes_init(&nodes, n_ranks, node), 0);
        where.nodes = far ? &nodes : NULL;
        return choices_take(&s->choices, &s->shadow, &where, wanted, n_wanted, ret_index, s->error);
}

static const struct table_choice *classes(const struct state *s, uint32_t index, uint32_t operation) {
        return s->shadow.table->choices[index].choice[operation];
}

/* The class that such requests are in. */
static const struct table_choice *class_of(const struct table_choice *c, uint64_t bytes) {
        while (c->plan && bytes > c->max_bytes)
                c++;
        assert_int_not_equal(c->plan, 0);
        return c;
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
        {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 32768, 0},    {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 0},
        {RING_OP_ALL_GATHER, PLAN_DIRECT, UINT64_MAX, 0}, {RING_OP_SEND, PLAN_ZERO_COPY, UINT64_MAX, 0},
        {RING_OP_BARRIER, PLAN_DIRECT, UINT64_MAX, 0},
};

static void classes_are_split_by_transport(void **state) {
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index = 99;

        assert_int_equal(take(s, 3, false, typical, 5, &index), 0);
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
        static const uint64_t rooted[] = {1572864, 524288, 224694}; /* the root's links carry 3 MiB of packets */
        const struct plan_choice wanted[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, UINT64_MAX, 0},
                                             {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX, 0},
                                             {RING_OP_ALL_GATHER, PLAN_DIRECT, UINT64_MAX, 0},
                                             {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, UINT64_MAX, 0},
                                             {RING_OP_ALL_TO_ALL, PLAN_DIRECT, UINT64_MAX, 0},
                                             {RING_OP_REDUCE, PLAN_DIRECT, UINT64_MAX, 0}};
        struct state *s = *state;
        uint32_t index;

        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(take(s, ranks[i], false, wanted, 6, &index), 0);
                for (uint32_t k = 0; k < 6; k++) {
                        const struct table_choice *c = classes(s, index, wanted[k].operation);

                        if (wanted[k].operation == RING_OP_BROADCAST || wanted[k].operation == RING_OP_REDUCE) {
                                assert_class(s, c++, rooted[i], wanted[k].operation, PLAN_DIRECT, STAGING_PACKET);
                                assert_class(s, c++, UINT64_MAX, wanted[k].operation, PLAN_DIRECT, STAGING_BULK);
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

        assert_int_equal(take(s, 8, false, typical, 5, &near), 0);
        assert_int_equal(take(s, 8, true, typical, 5, &far), 0);
        assert_int_equal(take(s, 8, true, typical, 5, &again), 0);
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

/* ---- over nodes -------------------------------------------------------------------------------------------------- */
static const struct plan_choice staged[] = {
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED, 262144, 0},
        {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL_STAGED_SCATTER, UINT64_MAX, 0},
        {RING_OP_REDUCE, PLAN_HIERARCHICAL_STAGED, UINT64_MAX, 0},
        {RING_OP_BROADCAST, PLAN_DIRECT, 2048, 0},
        {RING_OP_BROADCAST, PLAN_HIERARCHICAL_STAGED, UINT64_MAX, 0},
        {RING_OP_ALL_GATHER, PLAN_HIERARCHICAL_STAGED, UINT64_MAX, 0},
        {RING_OP_REDUCE_SCATTER, PLAN_HIERARCHICAL_STAGED, UINT64_MAX, 0},
        {RING_OP_BARRIER, PLAN_DIRECT, UINT64_MAX, 0},
};
#define N_STAGED ((uint32_t)(sizeof(staged) / sizeof(staged[0])))

#define LARGEST "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffgggggggghhhhhhhh"

static int take_nodes(struct state *s, const char *letters, uint64_t here, const struct plan_choice *wanted,
                      uint32_t n_wanted, struct plan_nodes *ret_nodes, uint32_t *ret_index) {
        struct choices_where where = {.n_ranks = (uint32_t)strlen(letters), .here = here, .nodes = ret_nodes};
        uint8_t node[PLAN_RANKS_MAX];

        for (uint32_t r = 0; r < where.n_ranks; r++)
                node[r] = (uint8_t)(letters[r] - 'a');
        assert_int_equal(plan_nodes_init(ret_nodes, where.n_ranks, node), 0);
        return choices_take(&s->choices, &s->shadow, &where, wanted, n_wanted, ret_index, s->error);
}

static uint64_t bits(const uint8_t *ranks, uint32_t n) {
        uint64_t mask = 0;

        for (uint32_t i = 0; i < n; i++)
                mask |= UINT64_C(1) << ranks[i];
        return mask;
}

static void assert_step(const struct program_step *is, const struct plan_step *step, uint32_t me) {
        uint64_t chunks = 0;
        uint32_t input = 0;
        bool listed = false;

        for (uint32_t i = 0; i < step->n_sources; i++) {
                if (step->source[i].kind == PLAN_SOURCE_CHUNK)
                        chunks |= UINT64_C(1) << step->source[i].rank;
                else
                        input = PROGRAM_INPUT;
                listed = listed || (i > 0 && step->source[i].rank < step->source[i - 1].rank);
                assert_int_equal(is->source[i],
                                 step->source[i].kind == PLAN_SOURCE_CHUNK ? step->source[i].rank : PROGRAM_OWN);
                assert_true(step->source[i].kind == PLAN_SOURCE_CHUNK || step->source[i].rank == me);
        }
        assert_int_equal(is->work.chunks, chunks);
        assert_int_equal(is->work.targets, bits(step->target, step->n_targets));
        assert_int_equal(is->work.index, step->index);
        assert_int_equal(is->work.flags, input | (step->n_outputs ? PROGRAM_OUTPUT : 0) |
                                                 (step->partial_in ? PROGRAM_PARTIAL_IN : 0) |
                                                 (step->partial_out ? PROGRAM_PARTIAL_OUT : 0) |
                                                 (step->finish ? PROGRAM_FINISH : 0) | (listed ? PROGRAM_LISTED : 0));
}

/* What kernels are told is what plan_step says, for each rank here and each root. */
static uint32_t assert_programs(const struct state *s, const struct table_choice *c, uint64_t here,
                                const struct plan_nodes *nodes) {
        const struct plan_geometry geometry = {.part_bytes = 1024, .slots = 2};
        const struct table *table = s->shadow.table;
        const struct program_row *row = &table->rows[c->plan];
        struct plan plan = table->plans[c->plan];
        uint32_t place = 0, n = 0;

        assert_null(plan.nodes); /* it would mean nothing to a kernel */
        assert_int_equal(c->transport, STAGING_PACKET);
        plan.nodes = nodes;
        assert_int_not_equal(row->first, 0);
        assert_int_equal(row->here, here);
        assert_int_equal(row->roots, plan_operation_rooted(plan.operation) ? plan.n_ranks : 1);
        for (uint32_t me = 0; me < plan.n_ranks; me++)
                for (uint32_t root = 0; (here >> me & 1) && root < row->roots; root++, place++) {
                        const struct plan_shape shape = {
                                .count = 77, .element_bytes = 2, .partial_bytes = 4, .root = root};
                        const struct program *program = &table->programs[row->first + place].program;

                        for (uint32_t f = 0; f < PROGRAM_PHASES; f++) {
                                uint32_t steps =
                                        f < plan.n_phases ? plan_phase_steps(&plan, &plan.phases[f], &shape, me) : 0;

                                assert_int_equal(program->phases.n[f], steps);
                                for (uint32_t k = 0; k < steps; k++, n++) {
                                        const struct program_step *is =
                                                &table->programs[row->first + program->phases.first[f] + k].step;
                                        struct plan_step step;

                                        assert_true(
                                                plan_step(&plan, &plan.phases[f], &geometry, &shape, me, 0, k, &step));
                                        assert_step(is, &step, me);
                                        assert_int_equal(is->work.chunks & ~program->hear[f] & ~(UINT64_C(1) << me), 0);
                                        assert_int_equal(is->work.targets & ~program->tell[f] & ~(UINT64_C(1) << me),
                                                         0);
                                }
                                assert_int_equal((program->tell[f] | program->hear[f]) >> me & 1, 0);
                        }
                }
        return n;
}

/* The staged plans of these nodes, for the ranks here. Returns how many steps were looked at. */
static uint32_t assert_world(struct state *s, const char *letters, uint64_t here) {
        const struct table_choice *c;
        struct plan_nodes nodes;
        uint32_t index, again, n_steps = 0;

        if (take_nodes(s, letters, here, staged, N_STAGED, &nodes, &index))
                fail_msg("%s", s->error);
        c = classes(s, index, RING_OP_ALL_REDUCE);
        assert_int_equal(c[0].max_bytes, 262144);
        assert_int_equal(c[1].max_bytes, UINT64_MAX);
        assert_int_equal(c[2].plan, 0);
        for (uint32_t i = 0; i < N_STAGED; i++) {
                c = class_of(classes(s, index, staged[i].operation), staged[i].max_bytes);
                if (staged[i].algorithm >= PLAN_HIERARCHICAL_STAGED)
                        n_steps += assert_programs(s, c, here, &nodes);
                else
                        assert_int_equal(s->shadow.table->rows[c->plan].first, 0);
        }
        assert_int_equal(take_nodes(s, letters, here, staged, N_STAGED, &nodes, &again), 0);
        assert_int_equal(index, again);
        choices_drop(&s->choices, &s->shadow, again);
        return n_steps;
}

static void over_nodes_there_are_programs(void **state) {
        static const struct {
                const char *letters;
                uint64_t here;
        } worlds[] = {{"aabb", 1}, {"aaaabbbb", 0xa}, {"aabbccdd", 0x8}, {"bacccca", 0x14}, {"abba", 0x9}};
        uint32_t n_steps = 0;

        for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
                n_steps += assert_world(*state, worlds[w].letters, worlds[w].here);
        assert_true(n_steps > 300);
}

/* All that would be chosen for eight nodes of eight has room, with eight ranks on this GPU, too. */
static void eight_nodes_of_eight_fit(void **state) {
        struct plan_choice wanted[PLAN_CHOICES_MAX];
        uint8_t node[64];
        struct plan_nodes nodes;
        struct plan_net net;
        struct state *s = *state;
        uint32_t index, n;

        for (uint32_t r = 0; r < 64; r++)
                node[r] = (uint8_t)(r / 8);
        assert_int_equal(plan_nodes_init(&nodes, 64, node), 0);
        plan_net_device(&net);
        n = plan_choose_device_nodes(&nodes, 64, &net, wanted);
        assert_in_range(n, 8, PLAN_CHOICES_MAX);
        if (take_nodes(s, LARGEST, UINT64_C(0xff) << 40, wanted, n, &nodes, &index))
                fail_msg("%s", s->error);
        for (uint32_t i = 0; i < n; i++)
                assert_int_not_equal(class_of(classes(s, index, wanted[i].operation), wanted[i].max_bytes)->plan, 0);
        assert_in_range(assert_world(s, LARGEST, UINT64_C(0xff) << 40), 300, UINT32_MAX); /* most are verified by now */
        choices_drop(&s->choices, &s->shadow, index);
}

/* Which ranks are where, and which are here, is part of a plan. */
static void other_nodes_have_other_plans(void **state) {
        struct plan_nodes nodes;
        struct state *s = *state;
        uint32_t index[3], plan[3];

        assert_int_equal(take_nodes(s, "aabb", 1, &staged[5], 1, &nodes, &index[0]), 0);
        assert_int_equal(take_nodes(s, "abab", 1, &staged[5], 1, &nodes, &index[1]), 0);
        assert_int_equal(take_nodes(s, "aabb", 2, &staged[5], 1, &nodes, &index[2]), 0);
        for (uint32_t i = 0; i < 3; i++)
                plan[i] = classes(s, index[i], RING_OP_ALL_GATHER)[0].plan;
        assert_true(plan[0] != plan[1] && plan[1] != plan[2] && plan[0] != plan[2]);
        choices_drop(&s->choices, &s->shadow, index[1]);
        assert_int_equal(take_nodes(s, "abab", 1, &staged[5], 1, &nodes, &index[1]), 0);
        assert_int_equal(classes(s, index[1], RING_OP_ALL_GATHER)[0].plan, plan[1]); /* verified once */
}

static void plans_over_nodes_must_exist(void **state) {
        const struct plan_choice none = {RING_OP_BARRIER, PLAN_HIERARCHICAL_STAGED, UINT64_MAX, 0};
        const struct plan_choice in_place = {RING_OP_ALL_REDUCE, PLAN_HIERARCHICAL, UINT64_MAX, 0};
        struct state *s = *state;
        struct plan_nodes nodes;
        uint32_t index = 99;

        assert_int_equal(take(s, 4, false, staged, N_STAGED, &index), -EINVAL);
        assert_non_null(strstr(s->error, "hierarchical_staged of all_reduce"));
        assert_int_equal(take_nodes(s, "aabb", 1, &none, 1, &nodes, &index), -EINVAL);
        assert_int_equal(take_nodes(s, "aaaa", 1, staged, N_STAGED, &nodes, &index), -EINVAL);
        assert_int_equal(index, 99);
        /* In others' memory kernels read nothing: that one is left out, as on one node. */
        assert_int_equal(take_nodes(s, "aabb", 1, &in_place, 1, &nodes, &index), 0);
        assert_int_equal(classes(s, index, RING_OP_ALL_REDUCE)[0].plan, 0);
        choices_drop(&s->choices, &s->shadow, index);
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(s->choices.plans[i].references, 0);
}

/* No two plans share entries, and those of plans that nobody uses are taken when there are no others. */
static void programs_run_out_and_come_back(void **state) {
        static const char *const letters[] = {"aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb", "babaaaaaaaaaaaaaabbbbbbbbbbbbbbb",
                                              "bbaaaaaaaaaaaaaaaabbbbbbbbbbbbbb", "bbbaaaaaaaaaaaaaaaabbbbbbbbbbbbb"};
        const struct plan_choice *broadcast = &staged[4];
        struct state *s = *state;
        struct plan_nodes nodes;
        uint32_t index[4], n = 0;
        int r = 0;

        while (n < 4 && !r) {
                r = take_nodes(s, letters[n], 0xffff, broadcast, 1, &nodes, &index[n]);
                if (!r)
                        assert_programs(s, &classes(s, index[n], RING_OP_BROADCAST)[0], 0xffff, &nodes);
                n += !r;
        }
        assert_int_equal(r, -ENOSPC);
        assert_true(n > 1);
        choices_drop(&s->choices, &s->shadow, index[0]);
        assert_int_equal(take_nodes(s, letters[n], 0xffff, broadcast, 1, &nodes, &index[0]), 0);
        assert_programs(s, &classes(s, index[0], RING_OP_BROADCAST)[0], 0xffff, &nodes);
        for (uint32_t i = 1; i < n; i++) { /* nobody else's have been touched */
                assert_int_equal(take_nodes(s, letters[i], 0xffff, broadcast, 1, &nodes, &index[i]), 0);
                assert_programs(s, &classes(s, index[i], RING_OP_BROADCAST)[0], 0xffff, &nodes);
        }
        /* A plan without programs may stand where one with them was. */
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                if (!s->choices.plans[i].operation)
                        s->choices.plans[i] =
                                (struct choices_plan){.operation = RING_OP_GATHER, .n_ranks = 60, .references = 1};
        choices_drop(&s->choices, &s->shadow, index[0]);
        assert_int_equal(take(s, 3, false, &typical[4], 1, &index[0]), 0);
        assert_int_equal(s->shadow.table->rows[classes(s, index[0], RING_OP_BARRIER)[0].plan].first, 0);
}

static void a_class_above_the_limit_is_bulk_only(void **state) {
        const struct plan_choice high[] = {{RING_OP_BROADCAST, PLAN_DIRECT, 1572864, 0},
                                           {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX, 0}};
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index;

        assert_int_equal(take(s, 2, false, high, 2, &index), 0);
        c = classes(s, index, RING_OP_BROADCAST);
        assert_class(s, &c[0], 1572864, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_PACKET);
        assert_class(s, &c[1], UINT64_MAX, RING_OP_BROADCAST, PLAN_DIRECT, STAGING_BULK);
        assert_int_equal(c[2].plan, 0);
}

static void a_class_that_no_kernel_runs_goes_to_the_next(void **state) {
        const struct plan_choice mixed[] = {{RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, 1024, 0},
                                            {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4096, 0},
                                            {RING_OP_ALL_REDUCE, PLAN_RING, UINT64_MAX, 0}};
        struct state *s = *state;
        const struct table_choice *c;
        uint32_t index;

        assert_int_equal(take(s, 4, false, mixed, 3, &index), 0);
        c = classes(s, index, RING_OP_ALL_REDUCE);
        assert_class(s, &c[0], 4096, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, STAGING_PACKET);
        assert_int_equal(c[1].plan, 0);
}

static void equal_choices_share_a_table(void **state) {
        struct state *s = *state;
        uint32_t first, second, other, plan;

        assert_int_equal(take(s, 8, false, typical, 5, &first), 0);
        assert_int_equal(take(s, 8, false, typical, 5, &second), 0);
        assert_int_equal(take(s, 4, false, typical, 5, &other), 0);
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
        assert_int_equal(take(s, 8, false, typical, 5, &first), 0);
        assert_int_equal(classes(s, first, RING_OP_BARRIER)[0].plan, plan);
}

/* Turns of whoever waits, until there is nothing left to wait for. */
static uint32_t turns_until_ready(struct state *s, const struct choices_where *where, const struct plan_choice *wanted,
                                  uint32_t n_wanted) {
        uint32_t turns = 0;
        uint64_t value;

        while (!choices_ready(&s->choices, where, wanted, n_wanted)) {
                assert_int_equal(read(s->told_fd, &value, sizeof(value)), sizeof(value));
                choices_round(&s->choices);
                turns++;
        }
        return turns;
}

static void what_takes_long_is_made_beforehand(void **state) {
        const struct plan_choice falling[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4096, 0},
                                              {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4096, 0}};
        const struct plan_choice none[] = {{RING_OP_ALL_REDUCE, PLAN_TREE, UINT64_MAX, 0}};
        const uint8_t node[6] = {0, 0, 0, 1, 1, 2};
        const struct choices_where here = {.n_ranks = 8, .here = 1};
        struct choices_where where = {.n_ranks = 6, .here = 3};
        struct plan_nodes nodes, again;
        struct state *s = *state;
        uint64_t n_verified;
        uint32_t index;

        assert_true(turns_until_ready(s, &here, typical, 5) > 0);
        n_verified = plans_verified(&s->choices.verified);
        assert_true(n_verified >= 5);
        assert_int_equal(take(s, 8, false, typical, 5, &index), 0);
        assert_int_equal(plans_verified(&s->choices.verified), n_verified);
        assert_int_equal(turns_until_ready(s, &here, typical, 5), 0);

        assert_int_equal(plan_nodes_init(&nodes, 6, node), 0);
        where.nodes = &nodes;
        assert_true(turns_until_ready(s, &where, staged, N_STAGED) > 0);
        n_verified = plans_verified(&s->choices.verified);
        assert_int_equal(take_nodes(s, "aaabbc", 3, staged, N_STAGED, &again, &index), 0);
        assert_int_equal(plans_verified(&s->choices.verified), n_verified);
        assert_int_equal(turns_until_ready(s, &where, staged, N_STAGED), 0);

        /* What is wrong is found when it is taken. */
        assert_in_range(turns_until_ready(s, &here, falling, 2), 0, 2); /* of the first */
        assert_int_equal(turns_until_ready(s, &here, none, 1), 0);
        (void)turns_until_ready(s, &here, staged, N_STAGED); /* of the others that there are */
}

static void wrong_choices_are_refused(void **state) {
        const struct plan_choice falling[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, 4096, 0},
                                              {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 4096, 0}};
        const struct plan_choice unknown[] = {{TABLE_OPERATIONS, PLAN_ONE_SHOT, 4096, 0}};
        struct plan_choice many[TABLE_CHOICES + 1];
        struct state *s = *state;
        uint32_t index = 99;

        assert_int_equal(take(s, 8, false, falling, 2, &index), -EINVAL);
        assert_int_equal(take(s, 8, false, unknown, 1, &index), -EINVAL);
        for (uint32_t i = 0; i < TABLE_CHOICES + 1; i++)
                many[i] = (struct plan_choice){RING_OP_ALL_GATHER, PLAN_DIRECT, 64 << i, 0};
        assert_int_equal(take(s, 8, false, many, TABLE_CHOICES + 1, &index), -ENOSPC);
        assert_int_equal(index, 99);
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                assert_int_equal(s->choices.plans[i].references, 0);
}

static void every_number_of_ranks(void **state) {
        struct state *s = *state;
        uint32_t index;

        for (uint32_t n = 1; n <= STAGING_RANKS_MAX; n += n < 34 ? 1 : 10) { /* the largest take seconds to verify */
                assert_int_equal(take(s, n, false, typical, 5, &index), 0);
                assert_int_equal(s->shadow.table->plans[classes(s, index, RING_OP_BARRIER)[0].plan].n_ranks, n);
                choices_drop(&s->choices, &s->shadow, index);
        }
}

static void tables_and_plans_run_out_and_come_back(void **state) {
        struct plan_choice choice = {RING_OP_BROADCAST, PLAN_DIRECT, UINT64_MAX, 0};
        struct state *s = *state;
        uint32_t index[CHOICES_TABLES], more;

        for (uint32_t i = 0; i < CHOICES_TABLES; i++) {
                const struct plan_choice both[] = {{RING_OP_BARRIER, PLAN_DIRECT, UINT64_MAX, 0}, choice};

                assert_in_range(i / 28, 0, 2);
                if (i / 28 == 2)
                        assert_int_equal(take(s, 2 + i % 28, false, both, 2, &index[i]), 0);
                else
                        assert_int_equal(take(s, 2 + i % 28, false, both + 1 - i / 28, 1, &index[i]), 0);
        }
        assert_int_equal(take(s, 30, false, &choice, 1, &more), -ENOSPC);
        assert_true(s->error[0]);
        choices_drop(&s->choices, &s->shadow, index[5]);
        assert_int_equal(take(s, 30, false, &choice, 1, &more), 0);
        assert_int_equal(more, index[5]);
        assert_int_equal(s->shadow.table->plans[classes(s, more, RING_OP_BROADCAST)[0].plan].n_ranks, 30);
        /* All entries of plans have been used once: unused ones are taken again. */
        for (uint32_t i = 1; i < TABLE_PLANS; i++)
                if (!s->choices.plans[i].operation)
                        s->choices.plans[i] = (struct choices_plan){.operation = RING_OP_GATHER, .n_ranks = 60};
        choices_drop(&s->choices, &s->shadow, more);
        assert_int_equal(take(s, 31, false, &choice, 1, &more), 0);
        assert_int_equal(s->shadow.table->plans[classes(s, more, RING_OP_BROADCAST)[0].plan].n_ranks, 31);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(classes_are_split_by_transport, setup, teardown),
                cmocka_unit_test_setup_teardown(the_usual_ones_are_packets, setup, teardown),
                cmocka_unit_test_setup_teardown(between_nodes_packets_are_for_little, setup, teardown),
                cmocka_unit_test_setup_teardown(over_nodes_there_are_programs, setup, teardown),
                cmocka_unit_test_setup_teardown(eight_nodes_of_eight_fit, setup, teardown),
                cmocka_unit_test_setup_teardown(other_nodes_have_other_plans, setup, teardown),
                cmocka_unit_test_setup_teardown(plans_over_nodes_must_exist, setup, teardown),
                cmocka_unit_test_setup_teardown(programs_run_out_and_come_back, setup, teardown),
                cmocka_unit_test_setup_teardown(a_class_above_the_limit_is_bulk_only, setup, teardown),
                cmocka_unit_test_setup_teardown(a_class_that_no_kernel_runs_goes_to_the_next, setup, teardown),
                cmocka_unit_test_setup_teardown(equal_choices_share_a_table, setup, teardown),
                cmocka_unit_test_setup_teardown(what_takes_long_is_made_beforehand, setup, teardown),
                cmocka_unit_test_setup_teardown(wrong_choices_are_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(every_number_of_ranks, setup, teardown),
                cmocka_unit_test_setup_teardown(tables_and_plans_run_out_and_come_back, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
