/* SPDX-License-Identifier: MIT */
/*
 * Bursts (gpu/device/burst.h): which requests are, who waits for what, and what becomes of one that was posted when the
 * tables change, kernels end, memory goes or the communicator fails before it is launched; the same for those that
 * copy engines move (gpu/device/copies.h). (Bursts in the midst of everything else are in test_reach.cc.)
 */
#include "tests/device/one.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                      RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,      RING_OP_REDUCE};

/* Of these, those that copy engines can move; and whether they do. */
static const uint32_t moves[] = {RING_OP_ALL_GATHER, RING_OP_ALL_TO_ALL, RING_OP_BROADCAST};
static bool by_copies;

static void start(struct one *o, uint32_t n, uint32_t workers, uint32_t operation, bool in_place, uint64_t seed) {
        one_init(o, n, workers, operation, STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n, in_place, STAGING_PACKET,
                 seed);
        emulator_burst(o->e, o->comm, ONE_LEAST);
        if (by_copies)
                emulator_copies(o->e, ALL_GPUS, ONE_LEAST);
        for (uint32_t r = 0; r < n; r++)
                one_map(o, r, ALL_GPUS, false);
}

/* Some operation: what adds up cannot be copied. */
static uint32_t some(uint32_t adds, uint32_t copies) {
        return by_copies ? copies : adds;
}

static void hold(struct one *o, bool holds) {
        for (uint32_t g = 0; g < o->n; g++)
                emulator_burst_hold(o->e, g, holds);
}

/* So many have been posted on each GPU, and so many have moved something. */
static void expect(const struct one *o, uint32_t want_posted, uint32_t want_moved, const char *when) {
        for (uint32_t g = 0; g < o->n; g++) {
                uint32_t posted, moved = emulator_bursts(o->e, g, &posted);

                CHECK(posted == want_posted && moved == want_moved, "%s: GPU %u has posted %u and moved %u", when, g,
                      posted, moved);
        }
}

static void ring(struct one *o) {
        for (uint32_t r = 0; r < o->n; r++)
                CHECK(traffic_ring(&o->t, r), "no slot");
        rest(o->e);
}

/* Nothing was written to any output since it was poisoned. */
static void untouched(const struct one *o, const char *when) {
        for (uint32_t r = 0; r < o->n; r++)
                for (uint64_t i = 0; i < one_case.count * 4; i++)
                        CHECK(o->t.slot[0].b[r].out[i] == 0xa5, "%s: byte %llu of rank %u was written", when,
                              (unsigned long long)i, r);
}

static void decisions(uint32_t n, uint32_t workers, uint64_t seed) {
        for (uint32_t operation : operations)
                for (uint32_t in_place = 0; in_place < (operation == RING_OP_ALL_TO_ALL ? 1 : 2); in_place++) {
                        uint64_t chunks;
                        struct one o;

                        start(&o, n, workers, operation, in_place, mix(seed + operation));
                        chunks = emulator_chunks(o.e, o.comm, STAGING_PACKET, 1);
                        traffic_run(&o.t, 3);
                        expect(&o, 3, 3, "three requests");
                        /* One lane of each rank leaves. */
                        CHECK(emulator_chunks(o.e, o.comm, STAGING_PACKET, 1) - chunks == 3 * n * (n - 1),
                              "operation %u: more than one lane meets", operation);
                        emulator_burst(o.e, o.comm, UINT64_C(1) << 30);
                        traffic_run(&o.t, 1);
                        expect(&o, 3, 3, "a request that is too small");
                        emulator_burst(o.e, o.comm, ONE_LEAST);
                        for (uint32_t r = 0; r < n; r++)
                                one_map(&o, r, 0, false);
                        traffic_run(&o.t, 2);
                        expect(&o, 3, 3, "memory that is not mapped");
                        for (uint32_t r = 0; r < n; r++)
                                one_map(&o, r, ALL_GPUS, false);
                        traffic_run(&o.t, 1);
                        expect(&o, 4, 4, "memory that is mapped again");
                        one_deinit(&o);
                }
}

/* Posted, and not launched when the tables change, or kernels end and start: taken back, and posted again. */
static void again(uint32_t n, uint32_t workers, bool restarts, uint64_t seed) {
        struct one o;

        start(&o, n, workers, some(RING_OP_ALL_REDUCE, RING_OP_ALL_TO_ALL), false, seed);
        hold(&o, true);
        ring(&o);
        expect(&o, 1, 0, "held");
        for (uint32_t g = 0; g < n; g++) {
                if (restarts) {
                        emulator_stop(o.e, g);
                        emulator_burst_hold(o.e, g, false); /* nobody is there who would say what is in use */
                        rest(o.e);
                        CHECK(!emulator_bursts(o.e, g, NULL), "GPU %u has moved something without a kernel", g);
                        emulator_burst_hold(o.e, g, true);
                        emulator_start(o.e, g);
                } else {
                        emulator_retire(o.e, o.session[g],
                                        emulator_buffer(o.e, o.session[g], emulator_memory(o.e, 256), 256));
                }
        }
        rest(o.e);
        expect(&o, 2, 0, "posted again");
        hold(&o, false);
        traffic_drain(&o.t);
        expect(&o, 2, 1, "let");
        traffic_run(&o.t, 2 * TABLE_BURSTS + 1); /* all places are used again */
        expect(&o, 2 * TABLE_BURSTS + 3, 2 * TABLE_BURSTS + 2, "many more");
        one_deinit(&o);
}

/* One rank is late. The others' blocks wait for it, or have given up, and then are asked for again. */
static void late(uint32_t n, uint32_t workers, bool patient, uint64_t seed) {
        const uint32_t last = (uint32_t)(seed % n);
        struct one o;

        start(&o, n, workers, RING_OP_REDUCE_SCATTER, false, seed);
        for (uint32_t g = 0; g < n && !patient; g++)
                emulator_burst_patience(o.e, g, 1 + g);
        for (uint32_t r = 0; r < n; r++)
                if (r != last)
                        CHECK(traffic_ring(&o.t, r), "no slot");
        rest(o.e);
        for (uint32_t g = 0; g < n; g++)
                emulator_burst_patience(o.e, g, UINT32_MAX);
        traffic_run(&o.t, 1);
        for (uint32_t g = 0; g < n; g++) {
                uint32_t posted, moved = emulator_bursts(o.e, g, &posted);

                CHECK(moved == 1 && posted == (patient || g == last ? 1 : 2), "GPU %u has posted %u and moved %u", g,
                      posted, moved);
        }
        one_deinit(&o);
}

/* The others have entered and asked for their bursts; the last one cannot be reached. */
static void unreachable(uint32_t n, uint32_t workers, uint64_t seed) {
        struct one o;

        start(&o, n, workers, RING_OP_ALL_REDUCE, false, seed);
        one_map(&o, n - 1, 0, false);
        traffic_run(&o.t, 2 * TABLE_BURSTS + 20); /* places do not run out */
        for (uint32_t g = 0; g < n; g++) {
                uint32_t posted, moved = emulator_bursts(o.e, g, &posted);

                CHECK(!moved && (g == n - 1 ? !posted : posted), "GPU %u has posted %u and moved %u", g, posted, moved);
        }
        one_map(&o, n - 1, ALL_GPUS, false);
        traffic_run(&o.t, 1);
        for (uint32_t g = 0; g < n; g++)
                CHECK(emulator_bursts(o.e, g, NULL) == 1, "GPU %u has moved %u", g, emulator_bursts(o.e, g, NULL));
        for (uint32_t k = 0; n == 2 && k < 2; k++) { /* verdicts lie where those of long ago have lain */
                one_map(&o, 0, k ? 0 : ALL_GPUS, false);
                traffic_run(&o.t, k ? 3 : STAGING_LANES);
        }
        one_deinit(&o);
}

static void settle(struct one *o, uint32_t status) {
        uint32_t got;

        for (uint32_t r = 0; r < o->n; r++)
                emulator_settle(o->e, o->comm, r);
        for (uint32_t r = 0; r < o->n; r++) {
                while (!answered(o, r, &got))
                        emulator_turn(o->e, "no answer after all have stopped");
                CHECK(got == status, "rank %u got %x", r, got);
        }
}

/* Posted when the communicator fails; or, first, somebody's memory has gone, which is found when it would be posted
 * again. Nothing is moved afterwards, although the host launches what it was told. */
static void failure(uint32_t n, uint32_t workers, bool gone, uint64_t seed) {
        const uint32_t liar = (uint32_t)(seed % n), finder = (liar + 1) % n;
        const uint32_t status = gone ? ring_status(RMX_E_INVALID, (int32_t)liar) : ring_status(RMX_E_PEER_LOST, 0);
        uint32_t got;
        struct one o;

        start(&o, n, workers, some(RING_OP_ALL_REDUCE, RING_OP_ALL_GATHER), false, seed);
        hold(&o, true);
        ring(&o);
        if (gone) {
                /* (Of the input nobody but its own rank wants anything where nothing is added up.) */
                emulator_map(o.e, o.session[liar], o.t.slot[0].b[liar].out_id, ALL_GPUS & ~(1u << finder), true);
                rest(o.e);
                CHECK(emulator_reported(o.e, o.comm, finder) == status, "reported: %x",
                      emulator_reported(o.e, o.comm, finder));
        }
        for (uint32_t r = 0; r < n; r++)
                emulator_freeze(o.e, o.comm, r, status);
        rest(o.e);
        for (uint32_t r = 0; r < n; r++)
                CHECK(!answered(&o, r, &got), "rank %u is told %x", r, got);
        expect(&o, 1, 0, "aborted");
        settle(&o, status);
        hold(&o, false);
        rest(o.e);
        expect(&o, 1, 0, "answered");
        untouched(&o, "answered");
        one_deinit(&o);
}

/* The communicator fails while one GPU's burst is running: what it moves is over before the worker says that it is. */
static void failure_running(uint32_t n, uint32_t workers, uint64_t seed) {
        const uint32_t status = ring_status(RMX_E_PEER_LOST, 0);
        struct one o;

        start(&o, n, workers, RING_OP_ALL_GATHER, false, seed);
        hold(&o, true);
        ring(&o);
        emulator_burst_hold(o.e, 0, false);
        while (!emulator_burst_runs(o.e, 0))
                emulator_turn(o.e, "the burst does not begin");
        for (uint32_t r = 0; r < n; r++)
                emulator_freeze(o.e, o.comm, r, status);
        CHECK(emulator_bursts(o.e, 0, NULL) == 1, "acknowledged while a burst is running");
        settle(&o, status);
        one_deinit(&o);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */
static void expect_copied(const struct one *o, uint32_t want, const char *when) {
        for (uint32_t g = 0; g < o->n; g++)
                CHECK(emulator_copied(o->e, g) == want, "%s: GPU %u has copied %u", when, g, emulator_copied(o->e, g));
}

/* One request of so many bytes, whose bursts are moved by copies or by blocks; all that rank r has afterwards is put at
 * ret[r]. */
static void same_run(uint32_t n, uint32_t operation, uint64_t bytes, bool in_place, bool copies, uint64_t seed,
                     unsigned char *const *ret) {
        struct one o;

        one_init(&o, n, 5, operation, bytes, in_place, STAGING_PACKET, seed);
        emulator_burst(o.e, o.comm, ONE_LEAST);
        if (copies)
                emulator_copies(o.e, ALL_GPUS, ONE_LEAST);
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        traffic_run(&o.t, 1);
        expect(&o, 1, 1, "a request");
        expect_copied(&o, copies, "a request");
        for (uint32_t r = 0; r < n; r++) {
                memcpy(ret[r], o.t.slot[0].b[r].in, n * bytes);
                memcpy(ret[r] + n * bytes, o.t.slot[0].b[r].out, n * bytes + 256);
        }
        one_deinit(&o);
}

/* It is the same whoever moves it, to the last bit, and so is what lies beside it. */
static void same(uint32_t n, uint32_t operation, uint64_t unit, bool in_place, uint64_t seed) {
        const bool whole = operation_has_root(operation);
        const uint64_t bytes = 16 * unit * (whole ? 1 : n), all = 2 * n * bytes + 256;
        unsigned char *memory[2][EMULATOR_RANKS_MAX];

        for (uint32_t copies = 0; copies < 2; copies++) {
                for (uint32_t r = 0; r < n; r++)
                        memory[copies][r] = (unsigned char *)calloc(1, all);
                same_run(n, operation, bytes, in_place, copies, seed, memory[copies]);
        }
        for (uint32_t r = 0; r < n; r++) {
                CHECK(memcmp(memory[0][r], memory[1][r], all) == 0, "operation %u, %llu units: rank %u has others",
                      operation, (unsigned long long)unit, r);
                free(memory[0][r]);
                free(memory[1][r]);
        }
}

static void same_all(uint32_t n, uint64_t seed) {
        static const uint64_t units[] = {1250, 1251, 2049};

        for (uint32_t operation : moves)
                for (uint64_t unit : units)
                        for (uint32_t in_place = 0; in_place < (operation == RING_OP_ALL_TO_ALL ? 1 : 2); in_place++)
                                same(n, operation, unit, in_place, mix(seed + 256 * unit));
}

/* Which are copies: what adds nothing up, from so many bytes on. They are not asked for before all have met. */
static void which(uint32_t n, uint32_t workers, uint64_t seed) {
        for (uint32_t operation : operations) {
                bool copies = false;
                struct one o;

                for (uint32_t one : moves)
                        copies = copies || one == operation;
                start(&o, n, workers, operation, false, mix(seed + operation));
                emulator_copies(o.e, ALL_GPUS, UINT64_C(1) << 30);
                traffic_run(&o.t, 1);
                expect_copied(&o, 0, "too small");
                emulator_copies(o.e, ALL_GPUS, ONE_LEAST);
                for (uint32_t r = 1; r < n; r++)
                        CHECK(traffic_ring(&o.t, r), "no slot");
                rest(o.e);
                for (uint32_t g = 1; g < n; g++) {
                        uint32_t posted;

                        (void)emulator_bursts(o.e, g, &posted);
                        CHECK(posted == (copies ? 1 : 2), "GPU %u has posted %u before all are there", g, posted);
                }
                traffic_drain(&o.t);
                expect(&o, 2, 2, "large enough");
                expect_copied(&o, copies, "large enough");
                emulator_copies(o.e, ALL_GPUS, 0);
                traffic_run(&o.t, 1);
                expect(&o, 3, 3, "no copies");
                expect_copied(&o, copies, "no copies");
                one_deinit(&o);
        }
}

/* Not all ranks' executors are told to copy. A broadcast is nobody's copies then; what needs no agreement is theirs who
 * do. */
static void some_copy(uint32_t n, uint32_t workers, uint64_t seed) {
        const uint32_t without = (uint32_t)mix(seed) % n;

        for (uint32_t operation : moves) {
                struct one o;

                start(&o, n, workers, operation, mix(seed + operation) % 2 && operation != RING_OP_ALL_TO_ALL,
                      mix(seed + operation));
                emulator_copies(o.e, 1u << without, 0);
                traffic_run(&o.t, 2);
                expect(&o, 2, 2, "one does not copy");
                for (uint32_t g = 0; g < n; g++)
                        CHECK(emulator_copied(o.e, g) == (operation == RING_OP_BROADCAST || g == without ? 0 : 2),
                              "operation %u: GPU %u has copied %u", operation, g, emulator_copied(o.e, g));
                emulator_copies(o.e, 1u << without, ONE_LEAST); /* what is remembered of the others says the same */
                traffic_run(&o.t, 2);
                expect(&o, 4, 4, "all copy");
                CHECK(emulator_copied(o.e, without) == 2, "GPU %u has copied %u", without,
                      emulator_copied(o.e, without));
                one_deinit(&o);
        }
}

/* Taken back while the host is at this moment: by a version of the tables, or because the kernel ends. If the host has
 * looked, the worker waits for it; else it is asked for again. */
static void taken_back(uint32_t n, uint32_t workers, uint32_t moment, bool ends, uint64_t seed) {
        const uint32_t operation = moves[mix(seed) % 3], who = (uint32_t)mix(seed + 1) % n;
        const bool looked = moment >= EMULATOR_BEGUN;
        struct one o;

        start(&o, n, workers, operation, false, seed);
        for (uint32_t g = 0; g < n; g++)
                emulator_copies_linger(o.e, g, moment, false);
        ring(&o);
        expect(&o, 1, 0, "it lingers");
        for (uint32_t g = 0; g < n; g++)
                CHECK(emulator_copies_lingers(o.e, g), "GPU %u's host is somewhere else", g);
        if (!looked)
                untouched(&o, "before any host has looked");
        if (ends)
                emulator_stop(o.e, who);
        else
                emulator_retire(o.e, o.session[who],
                                emulator_buffer(o.e, o.session[who], emulator_memory(o.e, 256), 256));
        CHECK(emulator_copied(o.e, who) == looked && !(ends && emulator_copies_lingers(o.e, who)),
              "it has copied %u, and says that it does nothing", emulator_copied(o.e, who));
        for (uint32_t g = 0; g < n; g++)
                emulator_copies_linger(o.e, g, EMULATOR_NEVER, false);
        if (ends) {
                rest(o.e);
                CHECK(emulator_copied(o.e, who) == looked, "copies without a kernel");
                emulator_start(o.e, who);
        }
        traffic_drain(&o.t);
        for (uint32_t g = 0; g < n; g++) {
                uint32_t posted, moved = emulator_bursts(o.e, g, &posted);

                CHECK(moved == 1 && posted == (g == who && !looked ? 2 : 1), "GPU %u has posted %u and moved %u", g,
                      posted, moved);
        }
        traffic_run(&o.t, 2 * TABLE_BURSTS + 1);
        one_deinit(&o);
}

/* The host has read a number, and stands still while that is taken back and its place used again, once or twice. What
 * it has read is none of its business any more. */
static void place_used_again(uint32_t n, uint32_t workers, uint32_t times, uint64_t seed) {
        const uint32_t who = (uint32_t)mix(seed + 1) % n;
        uint32_t posted;
        struct one o;

        start(&o, n, workers, RING_OP_ALL_GATHER, false, seed);
        emulator_copies_linger(o.e, who, EMULATOR_SEEN, true);
        ring(&o);
        for (uint32_t k = 0; k < times * TABLE_BURSTS; k++) {
                emulator_retire(o.e, o.session[who],
                                emulator_buffer(o.e, o.session[who], emulator_memory(o.e, 256), 256));
                rest(o.e);
        }
        CHECK(emulator_copies_lingers(o.e, who) && !emulator_copied(o.e, who), "the host does not stand still");
        emulator_copies_linger(o.e, who, EMULATOR_NEVER, false);
        traffic_drain(&o.t);
        CHECK(emulator_bursts(o.e, who, &posted) == 1 && posted == times * TABLE_BURSTS + 1, "posted %u", posted);
        traffic_run(&o.t, 2 * TABLE_BURSTS + 1);
        one_deinit(&o);
}

static void copies(uint32_t n, uint64_t seed) {
        const uint32_t workers = n == 4 ? 5 : 16;

        same_all(n, mix(seed));
        by_copies = true;
        which(n, workers, mix(seed + 1));
        some_copy(n, workers, mix(seed + 9));
        again(n, n == 2 ? 5 : 16, false, mix(seed + 2));
        again(n, n == 4 ? 3 : 16, true, mix(seed + 3));
        for (uint32_t moment = EMULATOR_SEEN; moment <= EMULATOR_BEGUN + n;
             moment += n == 8 && moment > EMULATOR_BEGUN && moment < EMULATOR_BEGUN + n ? n - 1 : 1)
                for (uint32_t ends = 0; ends < 2; ends++)
                        taken_back(n, moment % 2 ? 5 : 16, moment, ends, mix(seed + 10 * moment + ends));
        place_used_again(n, workers, 1, mix(seed + 4));
        place_used_again(n, workers, 2, mix(seed + 5));
        failure(n, n == 2 ? 16 : 5, false, mix(seed + 6));
        failure(n, n == 2 ? 5 : 16, true, mix(seed + 7));
        failure_running(n, 5, mix(seed + 8));
        by_copies = false;
}

int main(void) {
        static const uint32_t ranks[] = {2, 4, 8};
        const uint64_t seed = test_seed();
        uint32_t i = 0;

        for (uint32_t n : ranks) {
                if (!test_takes(seed, i++, 3))
                        continue;
                decisions(n, n == 4 ? 5 : 16, mix(seed + n));
                again(n, n == 2 ? 5 : 16, false, mix(seed + n + 1));
                again(n, n == 4 ? 3 : 16, true, mix(seed + n + 2));
                late(n, n == 4 ? 5 : 16, true, mix(seed + n + 6));
                late(n, n == 2 ? 5 : 16, false, mix(seed + n + 7));
                unreachable(n, n == 8 ? 5 : 16, mix(seed + n + 8));
                failure(n, n == 2 ? 16 : 5, false, mix(seed + n + 3));
                failure(n, n == 2 ? 5 : 16, true, mix(seed + n + 4));
                failure_running(n, 5, mix(seed + n + 5));
                copies(n, mix(seed + n + 9));
        }
        return 0;
}
