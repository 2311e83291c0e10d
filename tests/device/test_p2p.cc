/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives in the device's interpreter. A random list of transfers between any two ranks (a rank and itself
 * included), with collectives among them, is rung by every rank in the list's order, each at its own pace; so the list
 * can always go on. Then what must not wait for what, mismatches, peers that have left, and lines that say nonsense.
 */
#include "tests/device/collective_cases.h"

extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <string.h>

#include "ring/line.h"

#define WINDOW 5u
#define PLACE  (160u << 10)
#define STEPS  160u

static uint64_t seed;
static unsigned int n_compared;

/* What happens in a step: a transfer, or an all_reduce of everybody (from == to == n). */
struct step {
        uint32_t from, to, type;
        uint64_t count;
        bool inlined[2];
        uint32_t shift[2];
};

/* A rank's place for one request under way. */
struct place {
        unsigned char *in, *out;
        struct emulator_request q;
        uint32_t sequence, step;
        bool used;
};

struct rig {
        struct emulator *e;
        uint32_t n, comm;
        uint32_t in_id[EMULATOR_RANKS_MAX], out_id[EMULATOR_RANKS_MAX];
        unsigned char *in[EMULATOR_RANKS_MAX], *out[EMULATOR_RANKS_MAX];
        struct place place[EMULATOR_RANKS_MAX][WINDOW];
        uint32_t next[EMULATOR_RANKS_MAX]; /* step that the rank comes to, 2 * step for its send, + 1 for its receive */
};

static void rig_init(struct rig *rig, uint32_t n, uint32_t workers, uint32_t flags) {
        uint32_t session[EMULATOR_RANKS_MAX];

        *rig = {};
        rig->n = n;
        rig->e = emulator_new(n < 4 ? n : 4, workers, flags | EMULATOR_WATCH, seed);
        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(rig->e, r % 4, r % 2 ? 1 : 0u - 5);
        rig->comm = emulator_comm(rig->e, n, session, STAGING_PACKET, 0, n % 3 ? 0u - 7 : 0);
        for (uint32_t r = 0; r < n; r++) {
                rig->in[r] = (unsigned char *)emulator_memory(rig->e, WINDOW * PLACE);
                rig->out[r] = (unsigned char *)emulator_memory(rig->e, WINDOW * PLACE);
                rig->in_id[r] = emulator_buffer(rig->e, session[r], rig->in[r], WINDOW * PLACE);
                rig->out_id[r] = emulator_buffer(rig->e, session[r], rig->out[r], WINDOW * PLACE);
                for (uint32_t i = 0; i < WINDOW; i++) {
                        rig->place[r][i].in = rig->in[r] + i * PLACE;
                        rig->place[r][i].out = rig->out[r] + i * PLACE;
                }
        }
}

static struct step step_random(uint32_t n, uint64_t random) {
        static const uint64_t most[] = {1, 40, 600, 5000, 30000, 150000};
        struct step s = {};
        uint64_t bytes;

        s.from = (uint32_t)(mix(random) % n);
        s.to = (uint32_t)(mix(random + 1) % n);
        s.type = (uint32_t)(mix(random + 2) % RMX_TYPE_COUNT);
        bytes = mix(random + 3) % (most[mix(random + 4) % 6] + 1);
        s.count = bytes / type_size(s.type);
        bytes = s.count * type_size(s.type);
        for (uint32_t side = 0; side < 2; side++) {
                s.inlined[side] = bytes <= BELL_INLINE_BYTES && mix(random + 5 + side) % 2;
                s.shift[side] = mix(random + 7 + side) % 3 == 0;
        }
        if (mix(random + 9) % 8 == 0) {
                s.from = s.to = n;
                s.type = RMX_INT32;
                s.count = s.count % 1000;
                s.shift[0] = s.shift[1] = 0;
                s.inlined[0] = s.inlined[1] = false;
        }
        return s;
}

static struct step step_of(const struct rig *rig, uint32_t step) {
        return step_random(rig->n, mix(seed * 7919 + rig->n) + step * 64);
}

/* Rings the rank's half (0: what sends) of a step. */
static void half_ring(struct rig *rig, uint32_t rank, const struct step *s, uint32_t step, uint32_t half,
                      struct place *p) {
        const uint32_t size = (uint32_t)type_size(s->type);
        const bool all = s->from == rig->n;
        const uint64_t at = (uint64_t)(p - rig->place[rank]) * PLACE + 64 + s->shift[half] * size;

        p->q = {};
        p->q.operation = all ? RING_OP_ALL_REDUCE : half ? RING_OP_RECV : RING_OP_SEND;
        p->q.type = s->type;
        p->q.root = all ? 0 : half ? s->from : s->to;
        p->q.count = s->count;
        p->q.inlined = s->inlined[half];
        p->q.in_bytes = all || !half ? s->count * size : 0;
        p->q.out_bytes = all || half ? s->count * size : 0;
        p->q.in_buffer = p->q.in_bytes ? rig->in_id[rank] : 0;
        p->q.out_buffer = p->q.out_bytes ? rig->out_id[rank] : 0;
        p->q.in_offset = p->q.in_bytes ? at : 0;
        p->q.out_offset = p->q.out_bytes ? at : 0;
        p->q.in = rig->in[rank] + at;
        p->q.out = rig->out[rank] + at;
        memset(p->in, 0x77, PLACE);
        memset(p->out, 0xa5, PLACE);
        if (p->q.in_bytes)
                for (uint64_t i = 0; i < s->count; i++)
                        case_put(s->type, rig->in[rank] + at, i, step * 64 + rank);
        p->step = step;
        p->sequence = emulator_ring(rig->e, rig->comm, rank, &p->q);
        p->used = true;
        CHECK(p->sequence, "a slot is not free");
}

static void place_check(const struct rig *rig, uint32_t rank, const struct step *s, const struct place *p) {
        static unsigned char want[PLACE];
        const unsigned char *out = (const unsigned char *)p->q.out;

        for (uint64_t i = 0; i < s->count && p->q.out_bytes; i++) {
                if (s->from != rig->n) {
                        case_put(s->type, want, i, p->step * 64 + s->from);
                        continue;
                }
                ((int32_t *)want)[i] = 0;
                for (uint32_t r = 0; r < rig->n; r++) {
                        int32_t one[1000];

                        case_put(s->type, one, i, p->step * 64 + r);
                        ((int32_t *)want)[i] += one[i];
                }
        }
        CHECK(!p->q.out_bytes || !memcmp(out, want, p->q.out_bytes), "step %u: rank %u got something else", p->step,
              rank);
        for (const unsigned char *b = p->out; b < p->out + PLACE; b++)
                CHECK((p->q.out_bytes && b >= out && b < out + p->q.out_bytes) || *b == 0xa5,
                      "step %u: rank %u: written outside", p->step, rank);
        n_compared++;
}

/* The next request of the rank, if it has a place. */
static bool rank_ring(struct rig *rig, uint32_t rank, uint32_t n_steps) {
        for (; rig->next[rank] < 2 * n_steps; rig->next[rank]++) {
                const uint32_t step = rig->next[rank] / 2, half = rig->next[rank] % 2;
                const struct step s = step_of(rig, step);
                const bool all = s.from == rig->n;

                if (all ? half : (half ? s.to : s.from) != rank)
                        continue;
                for (struct place &p : rig->place[rank])
                        if (!p.used) {
                                half_ring(rig, rank, &s, step, half, &p);
                                rig->next[rank]++;
                                return true;
                        }
                return false;
        }
        return false;
}

static bool rank_harvest(struct rig *rig, uint32_t rank) {
        bool any = false;

        for (struct place &p : rig->place[rank]) {
                uint32_t status;

                if (p.used && emulator_poll(rig->e, rig->comm, rank, p.sequence, &p.q, &status)) {
                        const struct step s = step_of(rig, p.step);

                        CHECK(status == RMX_OK, "step %u: rank %u got status %x", p.step, rank, status);
                        place_check(rig, rank, &s, &p);
                        p.used = false;
                }
                any = any || p.used;
        }
        return any;
}

static void sweep(uint32_t n, uint32_t workers, uint32_t flags) {
        uint64_t random = mix(seed + n);
        uint32_t turns = 0;
        struct rig rig;
        bool busy;

        rig_init(&rig, n, workers, flags);
        do {
                busy = false;
                for (uint32_t r = 0; r < n; r++) {
                        random = mix(random + r + 1);
                        if (random % 3 && rank_ring(&rig, r, STEPS))
                                busy = true;
                        busy = rank_harvest(&rig, r) || rig.next[r] < 2 * STEPS || busy;
                }
                if (++turns % 400 == 0 && turns < 20000) /* so that what is stuck is found out */
                        emulator_restart(rig.e, turns / 400 % (n < 4 ? n : 4));
                emulator_turn(rig.e, "a transfer is not finished");
        } while (busy);
        emulator_free(rig.e);
}

/* ---- single requests -----------------------------------------------------------------------------------------------
 */
static struct step transfer(uint32_t from, uint32_t to, uint64_t count) {
        struct step s = {};

        s.from = from;
        s.to = to;
        s.type = RMX_INT32;
        s.count = count;
        return s;
}

static uint32_t finish(struct rig *rig, uint32_t rank, struct place *p) {
        p->used = false;
        return emulator_wait(rig->e, rig->comm, rank, p->sequence, &p->q);
}

static void finish_well(struct rig *rig, uint32_t rank, const struct step *s, struct place *p) {
        const uint32_t status = finish(rig, rank, p);

        CHECK(status == RMX_OK, "rank %u got status %x", rank, status);
        place_check(rig, rank, s, p);
}

static bool pending(struct rig *rig, uint32_t rank, struct place *p) {
        uint32_t status;

        return !emulator_poll(rig->e, rig->comm, rank, p->sequence, &p->q, &status);
}

/* What is reported of a pair comes to this. */
static void pair_comes_to(struct rig *rig, uint32_t rank, uint32_t peer, bool sends, uint32_t rung, uint32_t finished) {
        uint32_t now[2];

        for (uint32_t turns = 0;; turns++) {
                emulator_pair(rig->e, rig->comm, rank, peer, sends, &now[0], &now[1]);
                if (now[0] == rung && now[1] == finished)
                        return;
                CHECK(turns < 10000, "rank %u, peer %u, sends %u: %u rung and %u finished instead of %u and %u", rank,
                      peer, sends, now[0], now[1], rung, finished);
                emulator_turn(rig->e, "a report of a pair");
        }
}

/* Neither a collective nor another pair, nor the other direction of the same pair, holds a transfer up. */
static void independence(uint32_t workers) {
        const struct step all = transfer(3, 3, 700), there = transfer(0, 1, 30000), back = transfer(1, 0, 5),
                          other = transfer(2, 0, 20000), second = transfer(0, 1, 3);
        struct rig rig;

        rig_init(&rig, 3, workers, EMULATOR_JITTER);
        half_ring(&rig, 0, &all, 1, 0, &rig.place[0][0]);
        half_ring(&rig, 0, &other, 2, 1, &rig.place[0][1]);
        half_ring(&rig, 0, &there, 3, 0, &rig.place[0][2]);
        half_ring(&rig, 0, &second, 4, 0, &rig.place[0][3]);
        half_ring(&rig, 0, &back, 5, 1, &rig.place[0][4]);
        half_ring(&rig, 1, &back, 5, 0, &rig.place[1][0]);
        finish_well(&rig, 1, &back, &rig.place[1][0]);
        finish_well(&rig, 0, &back, &rig.place[0][4]);
        CHECK(pending(&rig, 0, &rig.place[0][3]), "a send is done before its receive was rung");
        pair_comes_to(&rig, 0, 1, true, 2, 0);
        pair_comes_to(&rig, 0, 1, false, 1, 1);
        pair_comes_to(&rig, 1, 0, true, 1, 1);
        pair_comes_to(&rig, 0, 2, false, 1, 0);
        pair_comes_to(&rig, 2, 0, true, 0, 0);
        half_ring(&rig, 1, &there, 3, 1, &rig.place[1][0]);
        half_ring(&rig, 1, &second, 4, 1, &rig.place[1][1]);
        finish_well(&rig, 1, &second, &rig.place[1][1]);
        finish_well(&rig, 1, &there, &rig.place[1][0]);
        finish_well(&rig, 0, &there, &rig.place[0][2]);
        finish_well(&rig, 0, &second, &rig.place[0][3]);
        CHECK(pending(&rig, 0, &rig.place[0][0]) && pending(&rig, 0, &rig.place[0][1]), "who has finished that?");
        half_ring(&rig, 2, &other, 2, 0, &rig.place[2][0]);
        finish_well(&rig, 2, &other, &rig.place[2][0]);
        finish_well(&rig, 0, &other, &rig.place[0][1]);
        half_ring(&rig, 1, &all, 1, 0, &rig.place[1][0]);
        half_ring(&rig, 2, &all, 1, 0, &rig.place[2][0]);
        for (uint32_t r = 0; r < 3; r++)
                finish_well(&rig, r, &all, &rig.place[r][0]);
        pair_comes_to(&rig, 0, 1, true, 2, 2);
        pair_comes_to(&rig, 1, 0, false, 2, 2);
        pair_comes_to(&rig, 0, 2, false, 1, 1);
        pair_comes_to(&rig, 2, 0, true, 1, 1);
        emulator_free(rig.e);
}

/* Both sides hear of it; whoever finds it tells the control threads, which abort all ranks. */
static void mismatch(uint32_t sent, uint32_t received, uint32_t type) {
        struct step send = transfer(0, 1, sent), receive = transfer(0, 1, received);
        uint32_t reported = 0, status[2];
        struct rig rig;

        receive.type = type;
        rig_init(&rig, 2, 2, EMULATOR_JITTER);
        half_ring(&rig, 0, &send, 1, 0, &rig.place[0][0]);
        half_ring(&rig, 1, &receive, 1, 1, &rig.place[1][0]);
        for (bool done[2] = {}; !done[0] || !done[1];) {
                for (uint32_t r = 0; r < 2; r++) {
                        const struct place *p = &rig.place[r][0];

                        done[r] = done[r] || emulator_poll(rig.e, rig.comm, r, p->sequence, &p->q, &status[r]);
                        if (!reported && (reported = emulator_reported(rig.e, rig.comm, r)))
                                for (uint32_t k = 0; k < 2; k++)
                                        emulator_abort(rig.e, rig.comm, k, reported);
                }
                emulator_turn(rig.e, "a mismatch is not found");
        }
        for (uint32_t r = 0; r < 2; r++)
                CHECK(ring_status_code(status[r]) == RMX_E_MISMATCH && ring_status_rank(status[r]) >= 0,
                      "%u sent, %u received: rank %u got status %x", sent, received, r, status[r]);
        CHECK(ring_status_code(reported) == RMX_E_MISMATCH, "reported: %x", reported);
        pair_comes_to(&rig, 0, 1, true, 1, 1);
        pair_comes_to(&rig, 1, 0, false, 1, 1);
        emulator_free(rig.e);
}

/* Nobody has aborted the ranks yet: what is left of a send that its receive did not take must not pass for the next
 * one, and that is told to both sides. */
static void out_of_step(uint32_t sent, uint32_t received, uint32_t workers) {
        const struct step send = transfer(0, 1, sent), receive = transfer(0, 1, received), more = transfer(0, 1, 250),
                          back = transfer(1, 0, 9);
        const struct step *steps[2][3] = {{&send, &more, &back}, {&receive, &more, &back}};
        struct rig rig;

        rig_init(&rig, 2, workers, EMULATOR_JITTER);
        for (uint32_t r = 0; r < 2; r++)
                for (uint32_t i = 0; i < 3; i++)
                        half_ring(&rig, r, steps[r][i], 1 + i, r != steps[r][i]->from, &rig.place[r][i]);
        for (uint32_t i = 0; i < 2; i++)
                for (uint32_t r = 0; r < 2; r++) {
                        const uint32_t status = finish(&rig, r, &rig.place[r][i]);

                        CHECK(status == ring_status(RMX_E_MISMATCH, !r), "request %u: rank %u got status %x", i, r,
                              status);
                }
        for (uint32_t r = 0; r < 2; r++) { /* another direction may have been through before that */
                const uint32_t status = finish(&rig, r, &rig.place[r][2]);

                CHECK(status == RMX_OK || ring_status_code(status) == RMX_E_MISMATCH, "rank %u got status %x", r,
                      status);
        }
        half_ring(&rig, 0, &back, 4, 1, &rig.place[0][0]);
        half_ring(&rig, 1, &back, 4, 0, &rig.place[1][0]);
        for (uint32_t r = 0; r < 2; r++)
                CHECK(ring_status_code(finish(&rig, r, &rig.place[r][0])) == RMX_E_MISMATCH, "rank %u goes on", r);
        emulator_free(rig.e);
}

/* What the rank that leaves has finished can be finished; what else is asked of it cannot. */
static void left(uint32_t count) {
        const struct step mine = transfer(0, 1, count), late = transfer(1, 0, count), other = transfer(1, 2, count);
        struct rig rig;

        rig_init(&rig, 3, 2, EMULATOR_JITTER);
        emulator_hold(rig.e, 1, 1, true); /* half of the receiver's lanes sleep */
        half_ring(&rig, 1, &mine, 1, 1, &rig.place[1][0]);
        half_ring(&rig, 0, &mine, 1, 0, &rig.place[0][0]);
        if (count * 4 < 2 * 512) /* all of it has room */
                finish_well(&rig, 0, &mine, &rig.place[0][0]);
        emulator_hold(rig.e, 1, 1, false);
        if (rig.place[0][0].used)
                finish_well(&rig, 0, &mine, &rig.place[0][0]);
        half_ring(&rig, 1, &late, 2, 0, &rig.place[1][1]);
        half_ring(&rig, 1, &mine, 3, 1, &rig.place[1][2]);
        half_ring(&rig, 1, &other, 4, 0, &rig.place[1][3]);
        emulator_left(rig.e, rig.comm, 1, 1);
        emulator_leave(rig.e, rig.comm, 1, 0, ring_status(RMX_E_PEER_LOST, 0));
        finish_well(&rig, 1, &mine, &rig.place[1][0]);
        for (uint32_t i = 1; i < 3; i++) {
                uint32_t status = finish(&rig, 1, &rig.place[1][i]);

                CHECK(status == ring_status(RMX_E_PEER_LOST, 0), "request %u got status %x", i, status);
        }
        half_ring(&rig, 1, &late, 5, 0, &rig.place[1][1]);
        CHECK(finish(&rig, 1, &rig.place[1][1]) == ring_status(RMX_E_PEER_LOST, 0), "a send to nobody");
        half_ring(&rig, 2, &other, 4, 1, &rig.place[2][0]);
        finish_well(&rig, 2, &other, &rig.place[2][0]);
        finish_well(&rig, 1, &other, &rig.place[1][3]);
        emulator_free(rig.e);
}

static void nonsense(void) {
        struct step s = transfer(0, 1, 9);
        struct rig rig;

        rig_init(&rig, 2, 2, 0);
        for (uint32_t kind = 0; kind < 5; kind++) {
                struct place *p = &rig.place[0][0];
                uint32_t status;

                half_ring(&rig, 1, &s, 1, 1, &rig.place[1][kind]);
                p->q.operation = RING_OP_SEND;
                p->q.type = kind == 0 ? RMX_TYPE_COUNT : RMX_INT32;
                p->q.redop = kind == 1 ? RMX_MAX : 0;
                p->q.root = kind == 2 ? 2 : 1;
                p->q.count = 9;
                p->q.in_buffer = rig.in_id[0];
                p->q.in_offset = kind == 3 ? WINDOW * PLACE - 35 : kind == 4 ? 2 : 0;
                p->q.in_bytes = 36;
                p->q.out_bytes = 0;
                p->sequence = emulator_ring(rig.e, rig.comm, 0, &p->q);
                status = finish(&rig, 0, p);
                CHECK(status == ring_status(RMX_E_INVALID, 0), "kind %u got status %x", kind, status);
        }
        emulator_free(rig.e);
}

int main(void) {
        seed = test_seed();
        /* A worker has places for the lanes of two sessions' windows: what one of them has begun must not keep the
         * other one out. */
        for (uint32_t n = 1; n <= 8; n++)
                sweep(n, n > 4 ? 3 + n % 2 : 1 + n % 3, n % 2 ? EMULATOR_JITTER : 0);
        sweep(3, 5, EMULATOR_JITTER);
        for (uint32_t workers = 1; workers < 4; workers++)
                independence(workers);
        mismatch(5, 6, RMX_INT32);
        mismatch(6, 5, RMX_FLOAT32);
        mismatch(30000, 20, RMX_INT32);
        mismatch(20, 30000, RMX_INT32);
        mismatch(0, 1, RMX_INT32);
        mismatch(8, 4, RMX_INT64);
        for (uint32_t workers = 1; workers < 4; workers++) {
                out_of_step(250, 64, workers);
                out_of_step(500, 250, workers);
        }
        left(9);
        left(40000);
        nonsense();
        printf("%u requests compared\n", n_compared);
        return n_compared < 500;
}
