/* SPDX-License-Identifier: MIT */
#include "tests/device/traffic.h"

extern "C" {
#include "util/type.h"
}
#include <stdlib.h>

void traffic_init(struct traffic *t, struct emulator *e, uint32_t comm, uint32_t n, const uint32_t *session,
                  uint32_t window, uint64_t max_bytes, uint64_t seed) {
        const uint64_t bytes = max_bytes + 256;

        *t = {};
        t->e = e;
        t->comm = comm;
        t->n = n;
        t->window = window;
        t->seed = seed;
        t->max_bytes = max_bytes;
        t->choose = case_random;
        t->alike = 1;
        t->form_seed = seed;
        t->forms = UINT64_MAX;
        t->want = (unsigned char *)malloc(bytes);
        for (uint32_t r = 0; r < n; r++)
                t->session[r] = session[r];
        for (uint32_t i = 0; i < window; i++)
                for (uint32_t r = 0; r < n; r++) {
                        struct case_buffers *b = &t->slot[i].b[r];

                        b->in = (unsigned char *)emulator_memory(e, bytes);
                        b->out = (unsigned char *)emulator_memory(e, bytes);
                        b->copy = t->slot[i].copy[r] = (unsigned char *)malloc(bytes);
                        b->in_id = emulator_buffer(e, session[r], b->in, bytes);
                        b->out_id = emulator_buffer(e, session[r], b->out, bytes);
                        CHECK(t->want && b->copy, "no memory");
                }
}

void traffic_deinit(struct traffic *t) {
        for (uint32_t i = 0; i < t->window; i++)
                for (uint32_t r = 0; r < t->n; r++)
                        free(t->slot[i].copy[r]);
        free(t->want);
}

static void prepare(struct traffic *t) {
        struct traffic_slot *s = &t->slot[t->prepared % t->window];

        s->c = t->choose(t->n, mix(t->form_seed + t->prepared / t->alike % t->forms), t->max_bytes);
        s->n_harvested = 0;
        for (uint32_t r = 0; r < t->n; r++) {
                s->rung[r] = s->harvested[r] = false;
                s->b[r].bytes = (s->c.count * t->n + s->c.shift + 8) * type_size(s->c.type) + 64;
                case_request(&s->c, r, t->seed + t->prepared, &s->b[r], &s->q[r]);
        }
        t->prepared++;
}

bool traffic_ring(struct traffic *t, uint32_t rank) {
        const uint64_t i = t->rung[rank];
        struct traffic_slot *s = &t->slot[i % t->window];

        if (i >= t->finished + t->window)
                return false;
        if (i == t->prepared)
                prepare(t);
        do
                s->sequence[rank] = emulator_ring(t->e, t->comm, rank, &s->q[rank]);
        while (!s->sequence[rank] && emulator_pass(t->e, t->session[rank]));
        if (!s->sequence[rank])
                return false;
        s->rung[rank] = true;
        t->rung[rank]++;
        return true;
}

void traffic_harvest(struct traffic *t) {
        for (uint64_t i = t->finished; i < t->prepared; i++) {
                struct traffic_slot *s = &t->slot[i % t->window];

                for (uint32_t r = 0; r < t->n; r++) {
                        uint32_t status;

                        if (!s->rung[r] || s->harvested[r] ||
                            !emulator_poll(t->e, t->comm, r, s->sequence[r], &s->q[r], &status))
                                continue;
                        CHECK(status == RMX_OK, "communicator %u: request %llu, operation %u: rank %u got status %x",
                              t->comm, (unsigned long long)i, s->c.operation, r, status);
                        s->harvested[r] = true;
                        s->n_harvested++;
                }
        }
        for (; t->finished < t->prepared && t->slot[t->finished % t->window].n_harvested == t->n; t->finished++) {
                struct traffic_slot *s = &t->slot[t->finished % t->window];

                for (uint32_t r = 0; r < t->n; r++)
                        CHECK(case_right(&s->c, r, s->copy, &s->b[r], &s->q[r], t->want),
                              "communicator %u: request %llu", t->comm, (unsigned long long)t->finished);
        }
}

void traffic_run(struct traffic *t, uint64_t requests) {
        const uint64_t until = t->finished + requests;

        while (t->finished < until) {
                for (uint32_t r = 0; r < t->n; r++)
                        if (t->rung[r] < until)
                                traffic_ring(t, r);
                traffic_harvest(t);
                emulator_turn(t->e, "traffic does not go on");
        }
        traffic_drain(t);
}

void traffic_drain(struct traffic *t) {
        while (t->finished < t->prepared) {
                for (uint32_t r = 0; r < t->n; r++)
                        if (t->rung[r] < t->prepared)
                                traffic_ring(t, r);
                traffic_harvest(t);
                emulator_turn(t->e, "traffic does not end");
        }
}
