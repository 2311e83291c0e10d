/* SPDX-License-Identifier: MIT */
/* Which communicators have requests that the ranks' own kernels exchange: all ranks are told the same, and the same
 * again whenever they ask, whatever is configured by then. */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/exchange.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define GPUS    9u /* one more than there may be ranks */
#define MOST    (UINT64_C(1) << 30)
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED

_Static_assert(GPUS == EXCHANGE_RANKS_MAX + 1 && GPUS <= FIXTURE_PLANES, "with a GPU for each rank");

struct set {
        struct fixture fixture;
        uint32_t n_gpus;
        struct client *clients[GPUS]; /* client i will be rank i */
};

/* A communicator of the first clients, and how to ask for it again. */
struct made {
        uint8_t id[COMM_ID_BYTES];
        uint32_t n_ranks;
        uint32_t handles[GPUS];
};

static int setup_with(void **state, uint32_t n, const char *config) {
        struct set *set = calloc(1, sizeof(*set));

        assert_non_null(set);
        fixture_planes_config = config;
        fixture_setup_planes(&set->fixture, n, true);
        fixture_planes_config = NULL;
        set->n_gpus = n;
        for (uint32_t i = 0; i < n; i++)
                set->clients[i] = client_open(&set->fixture);
        *state = set;
        return 0;
}

static int setup_all(void **state) {
        return setup_with(state, GPUS, "gpu: {exchange: 64K}\n");
}

static int setup_two(void **state) {
        return setup_with(state, 2, "gpu: {exchange: 64K}\n");
}

static int setup_default(void **state) {
        return setup_with(state, 2, NULL);
}

static int setup_off(void **state) {
        return setup_with(state, 2, "gpu: {exchange: off}\n");
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        free(set);
        return 0;
}

static void assert_told(const struct comm_answer *answer, uint64_t min, uint64_t max) {
        assert_int_equal(answer->code, 0);
        assert_int_equal(answer->exchange_min, min);
        assert_int_equal(answer->exchange_max, max);
}

/* min 0: of none. gpus: by rank, NULL: as many as there are ranks. */
static struct made join_on(struct client **clients, uint32_t n, const int32_t *gpus, uint64_t min) {
        struct made made = {.n_ranks = n};
        uint64_t calls[GPUS];

        call_id_create(clients[0], made.id);
        for (uint32_t r = 0; r < n; r++)
                calls[r] = send_comm_create_on(clients[r], made.id, n, r, gpus ? gpus[r] : -1);
        for (uint32_t r = 0; r < n; r++) {
                struct comm_answer answer = take_comm(clients[r], calls[r]);

                assert_told(&answer, min, min ? MOST : 0);
                made.handles[r] = answer.handle;
        }
        return made;
}

static struct made join(struct set *set, uint32_t n, uint64_t min) {
        return join_on(set->clients, n, NULL, min);
}

/* Each of its ranks asks once more, as after a restart of railmuxd whose answer was lost. */
static void assert_still(struct set *set, const struct made *made, uint64_t min) {
        for (uint32_t r = 0; r < made->n_ranks; r++) {
                const struct comm_answer answer =
                        take_comm(set->clients[r], send_comm_create(set->clients[r], made->id, made->n_ranks, r));

                assert_int_equal(answer.handle, made->handles[r]);
                assert_told(&answer, min, min ? MOST : 0);
        }
}

/* Splits of the communicator by colours; asked again, the answer is the same. mins: by rank. */
static void split(struct set *set, const struct made *made, uint32_t number, const int32_t *colours,
                  const uint64_t *mins) {
        uint64_t calls[GPUS];

        for (uint32_t r = 0; r < made->n_ranks; r++)
                calls[r] = send_comm_split_on(set->clients[r], made->handles[r], number, colours[r], 0, (int32_t)r);
        for (uint32_t r = 0; r < made->n_ranks; r++) {
                const struct comm_answer answer = take_comm(set->clients[r], calls[r]);

                assert_told(&answer, mins[r], mins[r] ? MOST : 0);
        }
}

static void configure(struct set *set, const char *text) {
        fixture_configure(&set->fixture, text, true);
}

static void restart(struct set *set) {
        fixture_kill(&set->fixture);
        fixture_start(&set->fixture);
        for (uint32_t i = 0; i < set->n_gpus; i++)
                client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
        plane_wait_ready(&set->fixture, set->n_gpus);
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */
static void test_rule(void **state) {
        static const int32_t same[] = {0, 1, 1}, turned[] = {2, 0, 1};
        struct set *set = *state;

        for (uint32_t n = 2; n <= EXCHANGE_RANKS_MAX; n += 3)
                join(set, n, 64 << 10);
        join_on(set->clients, 3, turned, 64 << 10);
        join(set, 1, 0);
        join(set, EXCHANGE_RANKS_MAX + 1, 0);
        join_on(set->clients, 3, same, 0);
}

/* Ranks whose libraries have it in different versions, or not at all; a split is asked for it anew. */
static void test_versions(void **state) {
        static const int32_t colours[GPUS] = {0, 0, 1, 1, 1};
        static const uint64_t mins[GPUS] = {0, 0, 64 << 10, 64 << 10, 64 << 10};
        struct set *set = *state;
        struct made made;

        set->clients[1]->exchange++;
        made = join(set, 5, 0);
        split(set, &made, 1, colours, mins);
        set->clients[0]->exchange = 0;
        join(set, 2, 0);
        set->clients[1]->exchange = 0; /* alike, but there is none */
        join(set, 2, 0);
        set->clients[0]->exchange = set->clients[1]->exchange = UINT32_MAX;
        join(set, 2, 64 << 10);
        join(set, 3, 0);
        set->clients[0]->exchange = set->clients[1]->exchange = 0;
        split(set, &made, 2, (const int32_t[GPUS]){0}, (const uint64_t[GPUS]){0});
}

/* Nine ranks have none, their splits are decided upon by themselves. */
static void test_split(void **state) {
        static const int32_t colours[GPUS] = {0, 0, 0, 0, 1, 1, 1, 2, -1}, all[GPUS] = {0};
        static const uint64_t mins[GPUS] = {64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10},
                              none[GPUS] = {0};
        struct set *set = *state;
        const struct made made = join(set, GPUS, 0);

        split(set, &made, 1, colours, mins);
        split(set, &made, 2, all, none);
        split(set, &made, 1, colours, mins); /* again */
}

static void test_default(void **state) {
        struct set *set = *state;
        const struct made made = join(set, 2, 1);

        join(set, 1, 0);
        configure(set, "gpu: {exchange: off}\n");
        assert_still(set, &made, 1);
        join(set, 2, 0);
}

static void test_off(void **state) {
        struct set *set = *state;
        const struct made made = join(set, 2, 0);

        configure(set, "gpu: {exchange: 4M}\n");
        assert_still(set, &made, 0);
        join(set, 2, 4 << 20);
        restart(set);
        assert_still(set, &made, 0);
}

/* Emulated GPUs have no kernels. */
static void test_emulated(void **state) {
        struct client *clients[2];
        struct fixture f;

        (void)state;
        fixture_setup(&f, "gpu: {exchange: 64K}\n", false);
        for (uint32_t i = 0; i < 2; i++)
                clients[i] = client_open(&f);
        join_on(clients, 2, NULL, 0);
        for (uint32_t i = 0; i < 2; i++)
                client_close(clients[i]);
        fixture_teardown(&f);
}

/* ---- over several nodes ------------------------------------------------------------------------------------------ */
/* The neighbour's ranks are in none; those here are alone with each other. */
static void say_form_here(struct both *b) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitForm body = RAILMUX__PEER__SPLIT_FORM__INIT;
        Railmux__Peer__SplitPlace places[RANKS], *place_list[RANKS];

        for (uint32_t r = 0; r < RANKS; r++) {
                railmux__peer__split_place__init(&places[r]);
                places[r].colour = r < b->first ? -1 : 0;
                place_list[r] = &places[r];
        }
        body.key = b->key;
        body.number = 1;
        body.places = place_list;
        body.n_places = RANKS;
        message.body_case = SAYS(SPLIT_FORM);
        message.split_form = &body;
        say(b, &message);
}

/* All four ranks are on GPUs of different numbers, so that it is only for the nodes that they have none. */
static void test_nodes(void **state) {
        uint64_t calls[2];
        struct both b;

        (void)state;
        both_gpus = 4;
        setup_follower(&b);
        for (uint32_t i = 0; i < 2; i++) {
                const struct comm_answer answer =
                        take_split(&b, i, send_comm_create(b.clients[i], b.id, RANKS, b.first + i));

                assert_int_equal(answer.handle, b.handles[i]);
                assert_int_equal(answer.gpu, 2 + i);
                assert_told(&answer, 0, 0);
        }
        client_splits(&b, 1, 0, calls);
        for (uint32_t i = 0; i < 2; i++)
                (void)take(&b, SAYS(SPLIT_JOIN));
        say_form_here(&b);
        (void)take(&b, SAYS(SPLIT_READY));
        say_split_go(&b, 1);
        for (uint32_t i = 0; i < 2; i++) {
                const struct comm_answer answer = take_split(&b, i, calls[i]);

                assert_told(&answer, 64 << 10, MOST);
        }
        finish(&b);
        both_gpus = 0;
}

/* ---- it does not change ------------------------------------------------------------------------------------------ */
static void test_reload(void **state) {
        struct set *set = *state;
        const struct made made = join(set, 2, 64 << 10);
        static const int32_t colours[] = {0, 0};
        static const uint64_t before[] = {64 << 10, 64 << 10}, after[] = {256 << 10, 256 << 10}, none[2];
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[2];

        split(set, &made, 1, colours, before);
        call_id_create(set->clients[0], id);
        calls[0] = send_comm_create(set->clients[0], id, 2, 0);
        configure(set, "gpu: {exchange: 256K}\n");
        calls[1] = send_comm_create(set->clients[1], id, 2, 1);
        for (uint32_t r = 0; r < 2; r++) { /* when the last one has joined */
                const struct comm_answer answer = take_comm(set->clients[r], calls[r]);

                assert_told(&answer, 256 << 10, MOST);
        }
        assert_still(set, &made, 64 << 10);
        split(set, &made, 2, colours, after);
        split(set, &made, 1, colours, before);
        configure(set, "gpu: {exchange: off}\n");
        assert_still(set, &made, 64 << 10);
        split(set, &made, 3, colours, none);
        join(set, 2, 0);
        configure(set, "gpu: {exchange: 5M}\n"); /* cannot be */
        join(set, 2, 0);
}

/* Successors of railmuxd say what it said, which they find in its records. */
static void test_restart(void **state) {
        struct set *set = *state;
        const struct made made = join(set, 2, 64 << 10);
        static const int32_t colours[] = {0, 0};
        static const uint64_t mins[] = {64 << 10, 64 << 10};

        split(set, &made, 1, colours, mins);
        fixture_configure(&set->fixture, "gpu: {exchange: 1M}\n", false);
        for (unsigned int i = 0; i < 2; i++) {
                restart(set);
                assert_still(set, &made, 64 << 10);
                split(set, &made, 1, colours, mins);
                join(set, 2, 1 << 20);
        }
}

/* An executor that begins anew has no part in it. */
static void test_executor_replaced(void **state) {
        struct set *set = *state;
        const struct made made = join(set, 2, 64 << 10);

        configure(set, "gpu: {exchange: off}\n");
        assert_int_equal(plane_stop(&set->fixture, 1), 0);
        plane_start(&set->fixture, 1);
        plane_wait_ready(&set->fixture, 2);
        assert_still(set, &made, 64 << 10);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_rule, setup_all, teardown),
                cmocka_unit_test_setup_teardown(test_versions, setup_all, teardown),
                cmocka_unit_test_setup_teardown(test_split, setup_all, teardown),
                cmocka_unit_test_setup_teardown(test_default, setup_default, teardown),
                cmocka_unit_test_setup_teardown(test_off, setup_off, teardown),
                cmocka_unit_test(test_emulated),
                cmocka_unit_test(test_nodes),
                cmocka_unit_test_setup_teardown(test_reload, setup_two, teardown),
                cmocka_unit_test_setup_teardown(test_restart, setup_two, teardown),
                cmocka_unit_test_setup_teardown(test_executor_replaced, setup_two, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
