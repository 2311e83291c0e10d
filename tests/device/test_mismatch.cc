/* SPDX-License-Identifier: MIT */
/*
 * Ranks that call different things. The caller of the emulator does what the control threads do: when a kernel reports
 * a mismatch, all ranks of the communicator are aborted with it.
 *
 * Who hears what: a rank tells those that it sends data to, and compares what those say that it has data from. Hence
 *   - where everybody sends to everybody, every rank finds the mismatch by itself;
 *   - with roots, a rank may be served by ranks that called the same, and be right to be content;
 *   - a rank may wait for one that sends nothing to it, as for one that never calls, until somebody else finds out.
 * Whatever happens, a request that ends with RMX_OK has been called by all the ranks that its output depends on, and
 * its output is right; and after a mismatch nothing succeeds any more.
 */
#include "tests/device/collective_cases.h"

extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <string.h>

#include "ring/line.h"

#define STEPS  3u
#define MEMORY 4096u

struct rank_state {
        struct collective_case c[STEPS];
        struct case_buffers b[STEPS];
        struct emulator_request q[STEPS];
        uint32_t sequence[STEPS], status[STEPS];
        bool harvested[STEPS];
};

static struct rank_state rank_of[EMULATOR_RANKS_MAX];
static unsigned char want[MEMORY];
static unsigned int n_found, n_content, n_waited;

static bool same(const struct collective_case *a, const struct collective_case *b) {
        return a->operation == b->operation && a->type == b->type && a->redop == b->redop && a->root == b->root &&
               a->count == b->count;
}

/* Does a rank with this call send to `to`? Without elements it says nothing, and hears nothing. */
static bool sends(const struct collective_case *c, uint32_t rank, uint32_t to) {
        if (!c->count && c->operation != RING_OP_BARRIER)
                return false;
        switch (c->operation) {
        case RING_OP_BROADCAST:
        case RING_OP_SCATTER:
                return rank == c->root && to != rank;
        case RING_OP_REDUCE:
        case RING_OP_GATHER:
                return to == c->root && rank != to;
        default:
                return rank != to;
        }
}

/* Does a rank with this call get something from `from`? */
static bool receives_from(const struct collective_case *c, uint32_t rank, uint32_t from) {
        return sends(c, from, rank);
}

/* For whoever looks for the reason of a failure. */
static void print_calls(uint32_t n, uint32_t steps) {
        for (uint32_t k = 0; k < steps; k++)
                for (uint32_t r = 0; r < n; r++) {
                        const struct collective_case *c = &rank_of[r].c[k];

                        fprintf(stderr,
                                "step %u rank %u: operation %u type %u redop %u root %u count %llu, status %x\n", k, r,
                                c->operation, c->type, c->redop, c->root, (unsigned long long)c->count,
                                rank_of[r].harvested[k] ? rank_of[r].status[k] : ~0u);
                }
}

/* A request that ended well. */
static void check_content(uint32_t n, uint32_t rank, uint32_t step, uint32_t steps) {
        struct rank_state *s = &rank_of[rank];
        unsigned char *copy[EMULATOR_RANKS_MAX];

        for (uint32_t r = 0; r < n; r++) {
                CHECK(!receives_from(&s->c[step], rank, r) || same(&s->c[step], &rank_of[r].c[step]),
                      "step %u: rank %u is content with what rank %u has called", step, rank, r);
                copy[r] = rank_of[r].b[step].copy;
        }
        if (!case_right(&s->c[step], rank, copy, &s->b[step], &s->q[step], want)) {
                print_calls(n, steps);
                CHECK(false, "step %u: rank %u", step, rank);
        }
        n_content++;
}

/* Must somebody notice at the first step? */
static bool must_be_found(uint32_t n) {
        for (uint32_t r = 0; r < n; r++) {
                const struct collective_case *c = &rank_of[r].c[0];
                bool told = true, differs = false;

                for (uint32_t p = 0; p < n; p++)
                        if (receives_from(c, r, p)) {
                                told = told && sends(&rank_of[p].c[0], p, r);
                                differs = differs || !same(c, &rank_of[p].c[0]);
                        }
                if (told && differs)
                        return true;
        }
        return false;
}

/* All ranks make the calls that rank_of says. */
static void run(uint32_t n, uint32_t workers, uint32_t transport, uint32_t steps, uint64_t seed, bool every) {
        struct emulator *e = emulator_new(n, workers, EMULATOR_JITTER, seed);
        uint32_t session[EMULATOR_RANKS_MAX], comm, ended = 0, status = 0;
        bool found, wanted = must_be_found(n);

        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, 1);
        comm = emulator_comm(e, n, session, transport, 0, 0);
        for (uint32_t r = 0; r < n; r++)
                for (uint32_t k = 0; k < steps; k++) {
                        struct rank_state *s = &rank_of[r];
                        struct case_buffers *b = &s->b[k];

                        *b = {};
                        b->in = (unsigned char *)emulator_memory(e, MEMORY);
                        b->out = (unsigned char *)emulator_memory(e, MEMORY);
                        b->copy = (unsigned char *)emulator_memory(e, MEMORY);
                        b->in_id = emulator_buffer(e, session[r], b->in, MEMORY);
                        b->out_id = emulator_buffer(e, session[r], b->out, MEMORY);
                        b->bytes = MEMORY;
                        case_request(&s->c[k], r, seed + k, b, &s->q[k]);
                        s->sequence[k] = emulator_ring(e, comm, r, &s->q[k]);
                        s->harvested[k] = false;
                        CHECK(s->sequence[k], "no slot");
                }
        while (ended < n * steps) {
                for (uint32_t r = 0; r < n; r++)
                        for (uint32_t k = 0; k < steps; k++) {
                                struct rank_state *s = &rank_of[r];

                                if (!s->harvested[k] &&
                                    emulator_poll(e, comm, r, s->sequence[k], &s->q[k], &s->status[k])) {
                                        s->harvested[k] = true;
                                        ended++;
                                }
                        }
                for (uint32_t r = 0; !status && r < n; r++) {
                        status = emulator_reported(e, comm, r);
                        if (status)
                                CHECK(ring_status_code(status) == RMX_E_MISMATCH, "reported %x", status);
                }
                if (!status && !emulator_rests(e))
                        continue;
                if (!status && ended < n * steps) {
                        status = RMX_E_ABORTED;
                        n_waited++;
                }
                for (uint32_t r = 0; r < n; r++)
                        emulator_abort(e, comm, r, status);
                emulator_turn(e, "an aborted request does not end");
        }
        found = ring_status_code(status) == RMX_E_MISMATCH;
        n_found += found;
        if (wanted && !found)
                print_calls(n, steps);
        CHECK(!wanted || found, "nobody finds that the ranks call different things");
        for (uint32_t r = 0; r < n; r++)
                for (uint32_t k = 0; k < steps; k++) {
                        uint32_t code = ring_status_code(rank_of[r].status[k]);

                        if (code == RMX_OK)
                                check_content(n, r, k, steps);
                        else
                                CHECK(code == RMX_E_MISMATCH || (code == RMX_E_ABORTED && !found),
                                      "step %u: rank %u got status %x", k, r, rank_of[r].status[k]);
                        CHECK(!every || code == RMX_E_MISMATCH, "step %u: rank %u got status %x", k, r,
                              rank_of[r].status[k]);
                }
        emulator_free(e);
}

/* One call, and a change of one thing in it; c.count elements are there in any case. */
static void change(struct collective_case *c, uint32_t what, uint64_t random) {
        switch (what % 5) {
        case 0: {
                uint32_t before = c->operation;

                while (c->operation == before)
                        c->operation = collective_operations[random++ % N_COLLECTIVE_OPERATIONS];
                break;
        }
        case 1:
                c->type = (c->type + 1 + (uint32_t)random % (RMX_TYPE_COUNT - 1)) % RMX_TYPE_COUNT;
                break;
        case 2:
                c->count += 1 + random % 3;
                break;
        case 3:
                c->redop = (c->redop + 1 + (uint32_t)random % (RMX_REDOP_COUNT - 1)) % RMX_REDOP_COUNT;
                break;
        default:
                c->root = (c->root + 1 + (uint32_t)(random % (c->n - 1))) % c->n;
                break;
        }
        if (!operation_has_redop(c->operation))
                c->redop = 0;
        if (!operation_has_root(c->operation))
                c->root = 0;
        if (c->operation == RING_OP_BARRIER)
                c->count = 0;
}

static struct collective_case base_case(uint32_t n, uint32_t operation, uint64_t random) {
        struct collective_case c = {};

        c.n = n;
        c.operation = operation;
        c.type = (uint32_t)(mix(random) % RMX_TYPE_COUNT);
        c.redop = operation_has_redop(operation) ? (uint32_t)(mix(random + 1) % RMX_REDOP_COUNT) : 0;
        c.root = operation_has_root(operation) ? (uint32_t)(mix(random + 2) % n) : 0;
        c.count = operation == RING_OP_BARRIER ? 0 : 1 + mix(random + 3) % 50;
        return c;
}

/* Everybody says something to everybody. */
static bool symmetric(const struct collective_case *c) {
        return !operation_has_root(c->operation) && sends(c, 0, 1);
}

/* One rank differs in one thing. */
static void one_differs(uint64_t seed) {
        for (uint32_t operation : collective_operations)
                for (uint32_t what = 0; what < 5; what++) {
                        const uint64_t random = mix(seed + operation * 8 + what);
                        const uint32_t n = 2 + (uint32_t)(random >> 8) % 3, who = (uint32_t)(random >> 16) % n;
                        const struct collective_case c = base_case(n, operation, random);

                        for (uint32_t r = 0; r < n; r++)
                                rank_of[r].c[0] = c;
                        change(&rank_of[who].c[0], what, random >> 24);
                        if (same(&c, &rank_of[who].c[0]) ||
                            (c.count == 0 && rank_of[who].c[0].count == 0 && operation != RING_OP_BARRIER))
                                continue;
                        run(n, 1 + (uint32_t)(random >> 40) % 3, (uint32_t)(random >> 44) % 2, 1, random | 1,
                            symmetric(&c) && symmetric(&rank_of[who].c[0]));
                }
}

/* Any rank may call anything, several times: what is left over from one call must not pass for the next. */
static void any_differ(uint64_t seed) {
        const uint32_t n = 2 + (uint32_t)(seed >> 8) % 3;
        const struct collective_case c =
                base_case(n, collective_operations[(seed >> 16) % N_COLLECTIVE_OPERATIONS], seed);

        for (uint32_t k = 0; k < STEPS; k++)
                for (uint32_t r = 0; r < n; r++) {
                        const uint64_t random = mix(seed + 64 * k + r);

                        rank_of[r].c[k] = c;
                        if (random % 3 == 0)
                                change(&rank_of[r].c[k], 4, random >> 8); /* roots above all */
                        else if (random % 3 == 1 && (random >> 4) % 4 == 0)
                                change(&rank_of[r].c[k], (uint32_t)(random >> 12), random >> 20);
                }
        run(n, 1 + (uint32_t)(seed >> 24) % 3, (uint32_t)(seed >> 28) % 2, STEPS, seed | 1, false);
}

/* Rank 2 is served by nobody and serves nobody who asks for it; then everybody calls what it called. */
static void left_over(uint32_t transport) {
        struct collective_case c = base_case(3, RING_OP_BROADCAST, 1);

        c.count = 40;
        for (uint32_t r = 0; r < 3; r++)
                for (uint32_t k = 0; k < 2; k++) {
                        rank_of[r].c[k] = c;
                        rank_of[r].c[k].root = k || r == 2 ? 2 : 0;
                }
        run(3, 2, transport, 2, 1, false);
}

/* Rank 1 has found a mismatch, and chunks of another size are left over; nobody has aborted it yet. */
static void out_of_step(uint64_t seed) {
        for (uint32_t r = 0; r < 2; r++)
                for (uint32_t k = 0; k < 3; k++) {
                        struct collective_case *c = &rank_of[r].c[k];

                        *c = base_case(2, RING_OP_REDUCE, 1);
                        c->type = k == 0 && r == 1 ? RMX_BFLOAT16 : RMX_INT64;
                        c->redop = RMX_SUM;
                        c->root = k != 1;
                        c->count = 48;
                }
        run(2, 1 + seed % 3, (uint32_t)(seed >> 8) % 2, 3, seed | 1, false);
}

int main(void) {
        const uint64_t seed = test_seed();
        const uint32_t rounds = test_full() ? 100 : 20;

        for (uint32_t i = 0; i < rounds; i++)
                one_differs(mix(seed * 4096 + i));
        left_over(STAGING_PACKET);
        left_over(STAGING_BULK);
        for (uint32_t i = 0; i < rounds * 5; i++)
                out_of_step(mix(seed * 4096 + 1024 + i));
        for (uint32_t i = 0; i < rounds * 40; i++)
                any_differ(mix(seed * 4096 + 2048 + i));
        printf("%u found, %u content, %u waited for ever\n", n_found, n_content, n_waited);
        return n_found < 100;
}
