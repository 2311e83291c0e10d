/* SPDX-License-Identifier: MIT */
/*
 * Plans by how much longer partial sums are than elements, and of algorithms that not every version has: tables have
 * them when all nodes and executors of a communicator know of them, and then all have the same. An executor that does
 * not never gets them.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/state.h"
#include "plan/cost.h"
#include "plan/nodes.h"
#include "ring/ring.h"
#include <unistd.h>

#define WORKERS 2u /* of the fixture's daemon */
#define FEW     ((uint32_t)PLAN_HIERARCHICAL_SCATTER)

static uint32_t wanted; /* plans.rail_phase as tables below have it */

static uint32_t table_of(bool plain, uint32_t algorithms, struct plan_choice ret_choices[PLAN_CHOICES_MAX]) {
        static const uint8_t node[RANKS] = {0, 0, 1, 1};
        struct plan_geometry geometry;
        struct plan_constants constants;
        struct plan_nodes nodes;
        struct plan_net net;
        const struct plan_over over = {.constants = &constants,
                                       .net = &net,
                                       .nodes = &nodes,
                                       .n_ranks = RANKS,
                                       .algorithm = wanted,
                                       .any_widening = plain,
                                       .algorithms = algorithms};

        plan_geometry_choose_nodes(RANKS, &geometry);
        plan_constants_host(&constants, WORKERS);
        plan_net_host(&net);
        net.n_rails = 1;
        net.any_rail = geometry.part_bytes >= 65536; /* peer.stripe */
        assert_int_equal(plan_nodes_init(&nodes, RANKS, node), 0);
        return plan_choose_nodes(&over, ret_choices);
}

static uint32_t table(bool plain, struct plan_choice ret_choices[PLAN_CHOICES_MAX]) {
        return table_of(plain, 0, ret_choices);
}

static void expect_wire_of(bool plain, uint32_t algorithms, size_t n, Railmux__Peer__Choice *const *choices) {
        struct plan_choice expected[PLAN_CHOICES_MAX];

        assert_int_equal(n, table_of(plain, algorithms, expected));
        for (size_t i = 0; i < n; i++) {
                assert_int_equal(choices[i]->operation, expected[i].operation);
                assert_int_equal(choices[i]->algorithm, expected[i].algorithm);
                assert_int_equal(choices[i]->max_bytes, expected[i].max_bytes);
                assert_int_equal(choices[i]->widening, expected[i].widening);
        }
}

static void expect_wire(bool plain, size_t n, Railmux__Peer__Choice *const *choices) {
        expect_wire_of(plain, 0, n, choices);
}

/* The executor has the same; of its n-th communicator. */
static void expect_attached(const struct both *b, uint32_t at, bool plain) {
        const struct fake_comm *comm = &b->f.executor.comms[at];
        struct plan_choice expected[PLAN_CHOICES_MAX];

        assert_true(at < b->f.executor.n_comms);
        assert_int_equal(comm->n_choices, table(plain, expected));
        for (uint32_t i = 0; i < comm->n_choices; i++) {
                assert_int_equal(comm->choices[i].operation, expected[i].operation);
                assert_int_equal(comm->choices[i].algorithm, expected[i].algorithm);
                assert_int_equal(comm->choices[i].max_bytes, expected[i].max_bytes);
                assert_int_equal(comm->choices[i].widening, expected[i].widening);
        }
}

/* Or else nothing below could fail. */
static void test_differ(void **unused) {
        struct plan_choice wide[PLAN_CHOICES_MAX], plain[PLAN_CHOICES_MAX];

        (void)unused;
        assert_true(table(false, wide) > table(true, plain));
        assert_true(plan_choice_find(wide, table(false, wide), RING_OP_ALL_REDUCE, 2, 1 << 20)->algorithm !=
                    plan_choice_find(plain, table(true, plain), RING_OP_ALL_REDUCE, 2, 1 << 20)->algorithm);
}

/* railmuxd decides: on the communicator, and on those of its splits. */
static void test_first(void **unused) {
        (void)unused;
        for (uint32_t knows = 0; knows < 4; knows++) {
                const bool plain = knows != 3;
                const Railmux__Peer__SplitForm *form;
                const Railmux__Peer__Assign *assign = NULL;
                Railmux__Peer__SplitJoin body;
                uint64_t calls[2];
                struct both b;

                fixture_executor_plain = !(knows & 1);
                both_widenings = knows & 2;
                setup_first(&b);
                for (uint32_t i = 0; i < b.n.n_heard; i++)
                        if (b.n.heard[i]->body_case == SAYS(ASSIGN))
                                assign = b.n.heard[i]->assign;
                assert_non_null(assign);
                expect_wire(plain, assign->n_choices, assign->choices);
                expect_attached(&b, 0, plain);
                /* All ranks' nodes have to know at a split, too: in the last round one has forgotten. */
                for (uint32_t number = 1; number <= 2; number++) {
                        client_splits(&b, number, 0, calls);
                        for (uint32_t r = 2; r < RANKS; r++) {
                                body = wish(&b, number, r, 0);
                                body.widenings = body.widenings && !(number == 2 && r == 2);
                                split_join(&b, &body);
                        }
                        form = take(&b, SAYS(SPLIT_FORM))->split_form;
                        assert_int_equal(form->n_children, 1);
                        expect_wire(plain || number == 2, form->children[0]->n_choices, form->children[0]->choices);
                        say_split_ready(&b, number);
                        (void)take(&b, SAYS(SPLIT_GO));
                        for (uint32_t i = 0; i < 2; i++)
                                assert_int_equal(take_split(&b, i, calls[i]).code, 0);
                        expect_attached(&b, number, plain || number == 2);
                }
                finish(&b);
        }
}

static void say_form(struct both *b, uint32_t number) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitForm body = RAILMUX__PEER__SPLIT_FORM__INIT;
        Railmux__Peer__SplitPlace place = RAILMUX__PEER__SPLIT_PLACE__INIT, *places[RANKS];
        Railmux__Peer__SplitChild child = RAILMUX__PEER__SPLIT_CHILD__INIT, *children[] = {&child};
        Railmux__Peer__Choice choice = RAILMUX__PEER__CHOICE__INIT, wide, *choices[] = {&wide, &choice};
        struct plan_geometry geometry;

        for (uint32_t r = 0; r < RANKS; r++)
                places[r] = &place;
        choice.operation = 1;
        choice.max_bytes = UINT64_MAX;
        wide = choice;
        wide.operation = 5;
        wide.widening = 8;
        plan_geometry_choose(RANKS, &geometry);
        child.key = KEY + number;
        child.choices = choices;
        child.n_choices = 2;
        child.part_bytes = geometry.part_bytes;
        child.slots = geometry.slots;
        body.key = b->key;
        body.number = number;
        body.places = places;
        body.n_places = RANKS;
        body.children = children;
        body.n_children = 1;
        message.body_case = SAYS(SPLIT_FORM);
        message.split_form = &body;
        say(b, &message);
}

/* The neighbour decides, and does not listen: an executor that does not know takes no choice for one of all types. */
static void test_follower(void **unused) {
        (void)unused;
        both_widenings = true;
        for (uint32_t plain = 0; plain < 2; plain++) {
                const struct fake_comm *comm;
                const Railmux__Peer__SplitJoin *joined;
                uint64_t calls[2];
                struct both b;

                fixture_executor_plain = plain;
                setup_follower(&b);
                for (uint32_t i = 0; i < b.n.n_heard; i++)
                        if (b.n.heard[i]->body_case == SAYS(JOIN))
                                assert_int_equal(b.n.heard[i]->join->widenings, !plain);
                comm = &b.f.executor.comms[0];
                assert_int_equal(comm->n_choices, plain ? 1 : 2);
                assert_true(comm->choices[0].operation == 1 && comm->choices[0].widening == 0);
                if (!plain)
                        assert_true(comm->choices[1].operation == 2 && comm->choices[1].widening == 4);
                client_splits(&b, 1, 0, calls);
                for (uint32_t i = 0; i < 2; i++) {
                        joined = take(&b, SAYS(SPLIT_JOIN))->split_join;
                        assert_int_equal(joined->widenings, !plain);
                }
                say_form(&b, 1);
                (void)take(&b, SAYS(SPLIT_READY));
                say_split_go(&b, 1);
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(take_split(&b, i, calls[i]).code, 0);
                comm = &b.f.executor.comms[1];
                assert_int_equal(comm->n_choices, plain ? 1 : 2);
                if (!plain)
                        assert_true(comm->choices[0].operation == 5 && comm->choices[0].widening == 8);
                assert_true(comm->choices[!plain].operation == 1 && comm->choices[!plain].widening == 0);
                finish(&b);
        }
        fixture_executor_plain = false;
}

/* A table has what the least of them knows. Not to say what one knows is to know the first ones. */
static void test_algorithms(void **unused) {
        static const uint32_t says[] = {0, FEW, PLAN_ALGORITHM_COUNT};
        struct plan_choice few[PLAN_CHOICES_MAX], all[PLAN_CHOICES_MAX];

        (void)unused;
        assert_true(plan_choice_find(few, table_of(false, FEW, few), RING_OP_ALL_REDUCE, 2, 1 << 20)->algorithm !=
                    plan_choice_find(all, table(false, all), RING_OP_ALL_REDUCE, 2, 1 << 20)->algorithm);
        both_widenings = true;
        for (uint32_t knows = 0; knows < 9; knows++) {
                const bool is_few = says[knows % 3] == FEW || says[knows / 3] == FEW;
                const Railmux__Peer__Assign *assign = NULL;
                const Railmux__Peer__SplitForm *form;
                uint64_t calls[2];
                struct both b;

                fixture_executor_algorithms = says[knows % 3];
                both_algorithms = says[knows / 3];
                setup_first(&b);
                for (uint32_t i = 0; i < b.n.n_heard; i++)
                        if (b.n.heard[i]->body_case == SAYS(ASSIGN))
                                assign = b.n.heard[i]->assign;
                assert_non_null(assign);
                expect_wire_of(false, is_few ? FEW : 0, assign->n_choices, assign->choices);
                assert_int_equal(b.f.executor.comms[0].n_choices, assign->n_choices);
                client_splits(&b, 1, 0, calls);
                for (uint32_t r = 2; r < RANKS; r++) {
                        const Railmux__Peer__SplitJoin body = wish(&b, 1, r, 0);

                        split_join(&b, &body);
                }
                form = take(&b, SAYS(SPLIT_FORM))->split_form;
                expect_wire_of(false, is_few ? FEW : 0, form->children[0]->n_choices, form->children[0]->choices);
                say_split_ready(&b, 1);
                (void)take(&b, SAYS(SPLIT_GO));
                for (uint32_t i = 0; i < 2; i++)
                        assert_int_equal(take_split(&b, i, calls[i]).code, 0);
                finish(&b);
        }
        fixture_executor_algorithms = both_algorithms = 0;
}

static void assigned_is_expected(const struct both *b, uint32_t algorithms) {
        for (uint32_t i = 0; i < b->n.n_heard; i++)
                if (b->n.heard[i]->body_case == SAYS(ASSIGN)) {
                        const Railmux__Peer__Assign *assign = b->n.heard[i]->assign;

                        expect_wire_of(false, algorithms, assign->n_choices, assign->choices);
                        return;
                }
        fail();
}

/* What the configuration of the root asks for goes to all nodes, if they know it. */
static void test_rail_phase(void **unused) {
        static const struct {
                const char *config;
                uint32_t says, wanted;
        } cases[] = {
                {"plans: {rail_phase: ring}\n", PLAN_ALGORITHM_COUNT, PLAN_HIERARCHICAL_RING},
                {"plans: {rail_phase: double_tree}\n", PLAN_ALGORITHM_COUNT, PLAN_HIERARCHICAL_DOUBLE_TREE},
                {"plans: {rail_phase: double_tree}\n", PLAN_HIERARCHICAL_DOUBLE_TREE, PLAN_ALGORITHM_NONE},
        };

        (void)unused;
        both_widenings = true;
        fixture_executor_algorithms = PLAN_ALGORITHM_COUNT;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const Railmux__Peer__SplitForm *form;
                struct plan_choice choices[PLAN_CHOICES_MAX];
                uint64_t calls[2];
                struct both b;
                uint32_t n;

                both_algorithms = cases[i].says;
                both_more = cases[i].config;
                wanted = cases[i].wanted;
                n = table_of(false, cases[i].says, choices);
                for (uint32_t k = 0; wanted && k < n; k++)
                        if (choices[k].operation == RING_OP_ALL_REDUCE)
                                assert_true(choices[k].algorithm == wanted && choices[k].max_bytes == UINT64_MAX);
                setup_first(&b);
                assigned_is_expected(&b, cases[i].says);
                client_splits(&b, 1, 0, calls);
                for (uint32_t r = 2; r < RANKS; r++) {
                        const Railmux__Peer__SplitJoin body = wish(&b, 1, r, 0);

                        split_join(&b, &body);
                }
                form = take(&b, SAYS(SPLIT_FORM))->split_form;
                expect_wire_of(false, cases[i].says, form->children[0]->n_choices, form->children[0]->choices);
                say_split_ready(&b, 1);
                (void)take(&b, SAYS(SPLIT_GO));
                for (uint32_t k = 0; k < 2; k++)
                        assert_int_equal(take_split(&b, k, calls[k]).code, 0);
                finish(&b);
        }
        wanted = PLAN_ALGORITHM_NONE;
        both_more = NULL;
        fixture_executor_algorithms = both_algorithms = 0;
}

/* The neighbour decides, and does not listen. */
static void test_algorithms_follower(void **unused) {
        static const uint32_t says[] = {0, PLAN_ALGORITHM_COUNT - 1, PLAN_ALGORITHM_COUNT, PLAN_ALGORITHM_COUNT + 1};

        (void)unused;
        both_widenings = false;
        both_algorithms = PLAN_ALGORITHM_COUNT;
        for (uint32_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
                const uint32_t knows = says[i] ? says[i] : PLAN_HIERARCHICAL_DOUBLE_TREE;
                const struct fake_comm *comm;
                uint64_t calls[2];
                struct both b;

                fixture_executor_algorithms = says[i];
                setup_follower(&b);
                for (uint32_t k = 0; k < b.n.n_heard; k++)
                        if (b.n.heard[k]->body_case == SAYS(JOIN))
                                assert_int_equal(b.n.heard[k]->join->algorithms,
                                                 knows < PLAN_ALGORITHM_COUNT ? knows : PLAN_ALGORITHM_COUNT);
                comm = &b.f.executor.comms[0];
                /* and of an operation with one that it does not know it gets no other class either */
                assert_int_equal(comm->n_choices, knows < PLAN_ALGORITHM_COUNT ? 1 : 3);
                assert_int_equal(comm->choices[0].operation, 1);
                if (comm->n_choices > 1)
                        assert_true(comm->choices[1].operation == 3 &&
                                    comm->choices[1].algorithm == PLAN_ALGORITHM_COUNT - 1);
                client_splits(&b, 1, 0, calls);
                for (uint32_t k = 0; k < 2; k++)
                        assert_int_equal(take(&b, SAYS(SPLIT_JOIN))->split_join->algorithms,
                                         knows < PLAN_ALGORITHM_COUNT ? knows : PLAN_ALGORITHM_COUNT);
                say_form(&b, 1);
                (void)take(&b, SAYS(SPLIT_READY));
                say_split_go(&b, 1);
                for (uint32_t k = 0; k < 2; k++)
                        assert_int_equal(take_split(&b, k, calls[k]).code, 0);
                finish(&b);
        }
        fixture_executor_algorithms = both_algorithms = 0;
}

/* What a successor would be told. */
static void test_recorded(void **unused) {
        struct state_record record;
        uint32_t n_found = 0;
        struct both b;
        off_t at;
        int i;

        (void)unused;
        both_managed = both_widenings = true;
        setup_follower(&b);
        i = fixture_stored(&b.f, "state");
        assert_true(i >= 0);
        for (at = STATE_HEADER_BYTES; pread(b.f.store[i].fd, &record, sizeof(record), at) == (ssize_t)sizeof(record);
             at += STATE_RECORD_BYTES) {
                if (record.valid != STATE_VALID || record.kind != STATE_CHOICE)
                        continue;
                assert_int_equal(record.choice.n, 2);
                assert_int_equal(record.choice.choice[0].operation, 1);
                assert_int_equal(record.choice.choice[1].operation, 2 | 4u << 16);
                n_found++;
        }
        assert_int_equal(n_found, 1);
        both_managed = false;
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_differ),     cmocka_unit_test(test_first),
                cmocka_unit_test(test_follower),   cmocka_unit_test(test_algorithms),
                cmocka_unit_test(test_rail_phase), cmocka_unit_test(test_algorithms_follower),
                cmocka_unit_test(test_recorded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
