/* SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

#define POISON           INT64_MIN
#define ORACLE_PARTS_MAX 4096u

struct slot {
        uint32_t flag;
        uint64_t length;
        int64_t *data;
};

struct fifo {
        struct slot *slots;
        uint32_t sent, taken;
};

struct body { /* one rank */
        int64_t *area;
        uint64_t n_area, in_at, out_at, n_in, n_out;
        uint64_t at[PLAN_PHASES_MAX]; /* cursor: step number */
        uint32_t lap;
        int64_t *pending; /* ORACLE_EARLY_FLAG: data still to be written */
};

struct world {
        const struct plan *plan;
        const struct plan_case *c;
        enum oracle_mutation mutation;
        uint32_t laps;
        uint64_t part;
        struct body bodies[PLAN_RANKS_MAX];
        struct fifo *fifos;
        struct { /* a write that is delayed behind its flag */
                struct slot *slot;
                int64_t *data;
                uint64_t length;
        } late[16];
        bool wrong;
        unsigned int seed;
};

static uint32_t dice(struct world *w, uint32_t n) {
        return (uint32_t)rand_r(&w->seed) % n;
}

static int64_t input(uint32_t lap, uint32_t rank, uint64_t i) {
        return (int64_t)(1000003u * (lap + 1) + 7919u * (rank + 1) * (rank + 1) + 31u * i * (rank + 3));
}

static struct fifo *fifo(struct world *w, uint32_t region, uint32_t from, uint32_t to) {
        return &w->fifos[(region * w->plan->n_ranks + from) * w->plan->n_ranks + to];
}

static void body_begin(struct world *w, uint32_t me) {
        struct body *b = &w->bodies[me];

        for (uint64_t i = 0; i < b->n_area; i++)
                b->area[i] = POISON;
        for (uint64_t i = 0; i < b->n_in; i++)
                b->area[b->in_at + i] = input(b->lap, me, i);
        memset(b->at, 0, sizeof(b->at));
}

static bool body_init(struct world *w, uint32_t me) {
        struct body *b = &w->bodies[me];
        const struct plan_case *c = w->c;

        if (plan_request_elements(w->plan->operation, w->plan->n_ranks, c->count, me == c->root, &b->n_in, &b->n_out))
                return false;
        b->out_at = b->n_in;
        if (c->in_place) {
                b->out_at = w->plan->operation == RING_OP_REDUCE_SCATTER ? c->count * me : 0;
                b->in_at = w->plan->operation == RING_OP_ALL_GATHER ? c->count * me : 0;
        }
        b->n_area = b->n_in + b->n_out + 1;
        b->area = calloc(b->n_area, sizeof(*b->area));
        body_begin(w, me);
        return true;
}

static int64_t right_value(struct world *w, uint32_t lap, uint32_t me, uint64_t i) {
        uint64_t count = w->c->count, from = i;
        int64_t sum = 0;

        switch (w->plan->operation) {
        case RING_OP_ALL_GATHER:
                return input(lap, (uint32_t)(i / count), i % count);
        case RING_OP_BROADCAST:
                return input(lap, w->c->root, i);
        case RING_OP_REDUCE_SCATTER:
                from = count * me + i;
                break;
        default:
                break;
        }
        for (uint32_t r = 0; r < w->plan->n_ranks; r++)
                sum += input(lap, r, from);
        return sum;
}

static void body_end(struct world *w, uint32_t me) {
        struct body *b = &w->bodies[me];

        for (uint64_t i = 0; i < b->n_out; i++)
                if (b->area[b->out_at + i] != right_value(w, b->lap, me, i))
                        w->wrong = true;
        if (w->plan->operation == RING_OP_BARRIER) /* nobody passes before all have come to this lap */
                for (uint32_t r = 0; r < w->plan->n_ranks; r++) {
                        bool come = w->bodies[r].lap > b->lap;

                        for (uint32_t p = 0; p < w->plan->n_phases; p++)
                                come = come || (w->bodies[r].lap == b->lap && w->bodies[r].at[p]);
                        if (!come && w->plan->n_ranks > 1)
                                w->wrong = true;
                }
        b->lap++;
        if (b->lap < w->laps)
                body_begin(w, me);
}

static bool room(struct world *w, const struct fifo *f) {
        return w->mutation == ORACLE_NO_CREDIT || f->sent - f->taken < w->c->geometry.slots;
}

static bool filled(struct world *w, const struct fifo *f) {
        return w->mutation == ORACLE_NO_FLAG || f->slots[f->taken % w->c->geometry.slots].flag == f->taken + 1;
}

static void land(struct world *w, unsigned int i) {
        if (w->late[i].slot)
                memcpy(w->late[i].slot->data, w->late[i].data, w->late[i].length * sizeof(int64_t));
        free(w->late[i].data);
        w->late[i].slot = NULL;
        w->late[i].data = NULL;
}

static void put(struct world *w, struct fifo *f, const int64_t *data, uint64_t length, bool skip) {
        struct slot *slot = &f->slots[f->sent % w->c->geometry.slots];

        f->sent++;
        slot->flag = f->sent;
        slot->length = length;
        if (skip)
                return;
        if (w->mutation == ORACLE_TAIL_OFF_BY_ONE && length)
                length--;
        if (w->mutation == ORACLE_EARLY_FLAG && length) {
                unsigned int i = dice(w, 16);

                land(w, i);
                w->late[i].slot = slot;
                w->late[i].length = length;
                w->late[i].data = malloc(length * sizeof(*data));
                memcpy(w->late[i].data, data, length * sizeof(*data));
                return;
        }
        memcpy(slot->data, data, length * sizeof(*data));
}

static struct plan_span span(struct world *w, uint32_t range, uint32_t me, uint32_t peer, uint64_t part) {
        return plan_span(range, w->plan, &w->c->geometry, w->c->count, w->c->element_bytes, me, peer, part);
}

static bool fits(struct world *w, struct plan_span s, uint64_t n) {
        if (s.length <= w->part && s.offset <= n && s.length <= n - s.offset)
                return true;
        w->wrong = true;
        return false;
}

/* One step of one phase; false: not ready. */
static bool advance(struct world *w, uint32_t me, uint32_t p) {
        const struct plan *plan = w->plan;
        const struct plan_phase *phase = &plan->phases[p];
        struct body *b = &w->bodies[me];
        uint32_t peers = phase->kind == PLAN_REDUCE ? 1 : plan_phase_peers(plan, phase, me, w->c->root), peer;
        uint64_t parts = plan_phase_parts(plan, phase, &w->c->geometry, w->c->count, w->c->element_bytes), part;
        struct plan_span in, out;
        int64_t chunk[256];
        struct fifo *f;

        if (!plan_phase_mine(phase, me, w->c->root) || b->at[p] >= parts * peers)
                return false;
        part = b->at[p] / peers;
        peer = phase->kind == PLAN_REDUCE ? me
                                          : plan_phase_peer(plan, phase, me, w->c->root, (uint32_t)(b->at[p] % peers));
        if (phase->after >= 0) {
                const struct plan_phase *before = &plan->phases[phase->after];
                uint32_t n = before->kind == PLAN_REDUCE ? 1 : plan_phase_peers(plan, before, me, w->c->root);
                uint64_t all = plan_phase_parts(plan, before, &w->c->geometry, w->c->count, w->c->element_bytes) * n;
                uint64_t need = (part + 1) * n < all ? (part + 1) * n : all;

                if (plan_phase_mine(before, me, w->c->root) && b->at[phase->after] < need)
                        return false;
        }
        in = span(w, phase->in_range, me, peer, part);
        out = span(w, phase->out_range, me, peer, part);
        switch (phase->kind) {
        case PLAN_PUSH:
        case PLAN_SIGNAL:
                f = fifo(w, phase->region_out, me, peer);
                if (!room(w, f))
                        return false;
                if (phase->kind == PLAN_SIGNAL)
                        in.length = 0;
                if (!fits(w, in, b->n_in))
                        return true;
                put(w, f, b->area + b->in_at + in.offset, in.length,
                    w->mutation == ORACLE_SKIP_PEER && b->at[p] % peers == peers - 1);
                break;
        case PLAN_COPY:
        case PLAN_WAIT:
                if (phase->peers == PLAN_PEERS_SELF) {
                        if (!fits(w, in, b->n_in) || !fits(w, out, b->n_out) || in.length != out.length) {
                                w->wrong = true;
                                return true;
                        }
                        memmove(b->area + b->out_at + out.offset, b->area + b->in_at + in.offset,
                                in.length * sizeof(int64_t));
                        break;
                }
                f = fifo(w, phase->region_in, peer, me);
                if (!filled(w, f))
                        return false;
                if (phase->kind == PLAN_COPY) {
                        if (!fits(w, out, b->n_out))
                                return true;
                        memcpy(b->area + b->out_at + out.offset, f->slots[f->taken % w->c->geometry.slots].data,
                               out.length * sizeof(int64_t));
                }
                f->taken++;
                break;
        case PLAN_REDUCE:
                for (uint32_t s = 0; s < plan->n_ranks; s++)
                        if (s != me && (!filled(w, fifo(w, phase->region_in, s, me)) ||
                                        (phase->forward && !room(w, fifo(w, phase->region_out, me, s)))))
                                return false;
                if (!fits(w, in, b->n_in) || !fits(w, out, b->n_out) || in.length != out.length || in.length > 256) {
                        w->wrong = true;
                        return true;
                }
                memcpy(chunk, b->area + b->in_at + in.offset, in.length * sizeof(int64_t));
                for (uint32_t s = 0; s < plan->n_ranks; s++) {
                        if (s == me)
                                continue;
                        f = fifo(w, phase->region_in, s, me);
                        for (uint64_t i = 0; i < in.length; i++)
                                chunk[i] = (int64_t)((uint64_t)chunk[i] +
                                                     (uint64_t)f->slots[f->taken % w->c->geometry.slots].data[i]);
                        f->taken++;
                }
                memcpy(b->area + b->out_at + out.offset, chunk, in.length * sizeof(int64_t));
                for (uint32_t s = 0; phase->forward && s < plan->n_ranks; s++)
                        if (s != me)
                                put(w, fifo(w, phase->region_out, me, s), chunk, in.length, false);
                break;
        default:
                w->wrong = true;
                return true;
        }
        b->at[p]++;
        return true;
}

static bool body_finished(struct world *w, uint32_t me) {
        for (uint32_t p = 0; p < w->plan->n_phases; p++) {
                const struct plan_phase *phase = &w->plan->phases[p];
                uint32_t peers = phase->kind == PLAN_REDUCE ? 1 : plan_phase_peers(w->plan, phase, me, w->c->root);

                if (plan_phase_mine(phase, me, w->c->root) &&
                    w->bodies[me].at[p] <
                            peers * plan_phase_parts(w->plan, phase, &w->c->geometry, w->c->count, w->c->element_bytes))
                        return false;
        }
        return true;
}

static void run(struct world *w) {
        uint32_t n = w->plan->n_ranks, idle = 0, starved = dice(w, n), favoured = dice(w, n), mode = dice(w, 4);

        while (idle < 200 * n && !w->wrong) {
                uint32_t me = dice(w, n), p = dice(w, w->plan->n_phases), burst = mode == 3 ? dice(w, 20) + 1 : 1;

                if (mode == 1 && me == starved && idle < 40)
                        me = (me + 1) % n;
                if (mode == 2 && dice(w, 3))
                        me = favoured;
                if (w->mutation == ORACLE_EARLY_FLAG && dice(w, 3) == 0)
                        land(w, dice(w, 16));
                idle++;
                for (; burst && w->bodies[me].lap < w->laps && !w->wrong; burst--) {
                        if (body_finished(w, me)) {
                                body_end(w, me);
                                idle = 0;
                        } else if (advance(w, me, p)) {
                                idle = 0;
                        } else {
                                break;
                        }
                }
        }
        for (uint32_t me = 0; me < n; me++)
                if (w->bodies[me].lap < w->laps)
                        w->wrong = true; /* stuck */
}

bool oracle_run(const struct plan *plan, const struct plan_case *pcase, uint32_t laps, enum oracle_mutation mutation,
                unsigned int seed) {
        struct world w = {.plan = plan,
                          .c = pcase,
                          .mutation = mutation,
                          .laps = laps,
                          .seed = seed,
                          .part = pcase->geometry.part_bytes / pcase->element_bytes};
        size_t n = (size_t)PLAN_REGIONS_MAX * plan->n_ranks * plan->n_ranks;
        bool ok = true;

        w.fifos = calloc(n, sizeof(*w.fifos));
        for (size_t i = 0; i < n; i++) {
                w.fifos[i].slots = calloc(pcase->geometry.slots, sizeof(struct slot));
                for (uint32_t s = 0; s < pcase->geometry.slots; s++)
                        w.fifos[i].slots[s].data = calloc(w.part, sizeof(int64_t));
        }
        for (uint32_t me = 0; me < plan->n_ranks; me++)
                ok = body_init(&w, me) && ok;
        if (ok)
                run(&w);
        for (unsigned int i = 0; i < 16; i++)
                free(w.late[i].data);
        for (uint32_t me = 0; me < plan->n_ranks; me++)
                free(w.bodies[me].area);
        for (size_t i = 0; i < n; i++) {
                for (uint32_t s = 0; s < pcase->geometry.slots; s++)
                        free(w.fifos[i].slots[s].data);
                free(w.fifos[i].slots);
        }
        free(w.fifos);
        return ok && !w.wrong;
}
