/* SPDX-License-Identifier: MIT */
/* Every plan as it is, executed by the oracle: no schedule does harm, alone or before and after other plans, wherever
 * counters start and however narrow they are. */
#include "oracle_util.h"
#include "plans.h"

static const uint32_t rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
#define N_RANK_COUNTS (sizeof(rank_counts) / sizeof(rank_counts[0]))

#define N_SCHEDULES 4u

static uint64_t seed;

/* A case with the geometry of the others in its sequence. Elements may differ. */
static struct plan_case case_draw(const struct plan *plan, uint32_t slots, uint64_t *random) {
        struct plan_case c = oracle_case(plan, (uint32_t)(oracle_random(random) % ORACLE_CASES));
        uint32_t n = plan->n_ranks;

        c.geometry.slots = slots;
        c.vector = (uint32_t)oracle_random(random);
        c.count = oracle_random(random) % 2 ? c.count : oracle_random(random) % 40;
        c.in_place = oracle_random(random) % 2 && plan_case_in_place(plan->operation);
        if (n > 6)
                c.count %= 24;
        if (plan_operation_rooted(plan->operation) || plan_operation_p2p(plan->operation))
                c.root = (uint32_t)(oracle_random(random) % n);
        if (plan_operation_p2p(plan->operation))
                c.peer = (uint32_t)(oracle_random(random) % n);
        return c;
}

/* Counters as narrow as the number of slots allows, or wide, starting just before they wrap. */
static struct verify_options counters_draw(uint32_t slots, uint32_t n, uint64_t *random) {
        uint32_t most = slots > n ? slots : n, bits = 1;

        while (1u << bits <= most)
                bits++;
        return (struct verify_options){
                .counter_bits = oracle_random(random) % 2 ? bits + (uint32_t)(oracle_random(random) % 3) : 32,
                .counter_first = oracle_random(random) % 2 ? UINT32_MAX - (uint32_t)(oracle_random(random) % 9) : 0,
        };
}

static void run(const struct oracle_request *requests, uint32_t n_requests, const struct verify_options *options,
                uint32_t n_schedules, uint64_t *random) {
        uint64_t from = oracle_random(random);
        enum oracle_harm found = oracle_search(requests, n_requests, options, from, n_schedules);

        for (uint32_t i = 0; found != ORACLE_FINE && i < n_requests; i++)
                print_message("%s %s, count %llu, %u/%u bytes, root %u, peer %u, %s, %u slots\n",
                              plan_operation_name(requests[i].plan->operation),
                              plan_algorithm_name(requests[i].plan->algorithm),
                              (unsigned long long)requests[i].pcase.count, requests[i].pcase.element_bytes,
                              requests[i].pcase.partial_bytes, requests[i].pcase.root, requests[i].pcase.peer,
                              requests[i].pcase.in_place ? "in place" : "not in place",
                              requests[i].pcase.geometry.slots);
        if (found != ORACLE_FINE)
                fail_msg("%s: %u ranks, schedules from %llu, counters of %u bits from %u", oracle_harm_names[found],
                         requests[0].plan->n_ranks, (unsigned long long)from, options->counter_bits,
                         options->counter_first);
}

static uint32_t repeat(uint32_t n, uint32_t n_small) {
        uint32_t times = n_small / ORACLE_SPARSE / (n <= 4 ? 1 : n <= 9 ? 3 : 6);

        return (times ? times : 1) * (oracle_full() ? 20 : 1);
}

/* One plan, several times, in all cases. */
static void test_alone(void **state) {
        uint64_t random = seed;
        uint32_t n_runs = 0;

        (void)state;
        for (uint32_t k = 0; k < N_RANK_COUNTS; k++)
                for (uint32_t i = 0; i < N_PLANS; i++) {
                        struct plan plan;

                        if (!plans_build(i, rank_counts[k], &plan))
                                continue;
                        for (uint32_t j = 0; j < repeat(rank_counts[k], 60); j++, n_runs++) {
                                uint32_t slots = plans_slots_min(i) + (uint32_t)(oracle_random(&random) % 3);
                                struct verify_options options = counters_draw(slots, rank_counts[k], &random);
                                struct oracle_request requests[3];

                                for (uint32_t r = 0; r < 3; r++)
                                        requests[r] = (struct oracle_request){&plan, case_draw(&plan, slots, &random)};
                                run(requests, 3, &options, N_SCHEDULES, &random);
                        }
                }
        print_message("%u runs of 3 requests, %u schedules each: no harm\n", n_runs, N_SCHEDULES);
}

/* Every plan before every other, and triples. */
static void test_sequences(void **state) {
        uint64_t random = seed + 1;
        uint32_t n_runs = 0;

        (void)state;
        for (uint32_t k = 0; k < N_RANK_COUNTS; k++)
                for (uint32_t i = 0; i < N_PLANS; i++)
                        for (uint32_t j = 0; j < N_PLANS; j++) {
                                uint32_t slots = 1 + (uint32_t)(oracle_random(&random) % 3), n = rank_counts[k];
                                struct oracle_request requests[3];
                                struct verify_options options;
                                struct plan sequence[3];
                                uint32_t third;

                                if (n * ORACLE_SPARSE > 4 && !oracle_full() &&
                                    oracle_random(&random) % (n * ORACLE_SPARSE) != 0)
                                        continue;
                                do
                                        third = (uint32_t)(oracle_random(&random) % N_PLANS);
                                while (!plans_build(third, n, &sequence[2]));
                                if (!plans_build(i, n, &sequence[0]) || !plans_build(j, n, &sequence[1]))
                                        continue;
                                if (slots < 2 && plans_slots_min(i) + plans_slots_min(j) + plans_slots_min(third) > 3)
                                        slots++;
                                options = counters_draw(slots, n, &random);
                                for (uint32_t r = 0; r < 3; r++)
                                        requests[r] = (struct oracle_request){&sequence[r],
                                                                              case_draw(&sequence[r], slots, &random)};
                                run(requests, 3, &options, N_SCHEDULES, &random);
                                n_runs++;
                        }
        print_message("%u sequences of 3 plans, %u schedules each: no harm\n", n_runs, N_SCHEDULES);
}

/* With one slot a ring stands still at once. */
static void test_ring_slots(void **state) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;

        (void)state;
        for (uint32_t n = 3; n <= 8; n++)
                for (uint32_t i = 0; i < N_PLANS; i++) {
                        struct plan plan;
                        struct oracle_request request = {&plan, {.geometry = {64, 1}, .count = 30, .element_bytes = 4}};

                        if (plans_slots_min(i) == 1)
                                continue;
                        assert_true(plans_build(i, n, &plan));
                        assert_int_equal(oracle_run(&request, 1, &options, n), ORACLE_STUCK);
                        request.pcase.geometry.slots = 2;
                        assert_int_equal(oracle_run(&request, 1, &options, n), ORACLE_FINE);
                }
}

/* What the counters' width is for: with as many slots as they have values, full is taken for empty. */
static void test_too_narrow(void **state) {
        struct plan plan;

        (void)state;
        for (uint32_t bits = 1; bits <= 3; bits++) {
                struct verify_options options = {.counter_bits = bits, .counter_first = UINT32_MAX};
                struct oracle_request request = {&plan,
                                                 {.geometry = {64, 1u << bits}, .count = 200, .element_bytes = 4}};

                assert_int_equal(plan_build(RING_OP_BROADCAST, PLAN_DIRECT, 2, &plan), 0);
                assert_int_not_equal(oracle_search(&request, 1, &options, seed, 50), ORACLE_FINE);
                request.pcase.geometry.slots--;
                assert_int_equal(oracle_search(&request, 1, &options, seed, 50), ORACLE_FINE);
        }
}

static int setup(void **state) {
        (void)state;
        seed = oracle_seed();
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_alone),
                cmocka_unit_test(test_sequences),
                cmocka_unit_test(test_ring_slots),
                cmocka_unit_test(test_too_narrow),
        };

        return cmocka_run_group_tests(tests, setup, NULL);
}
