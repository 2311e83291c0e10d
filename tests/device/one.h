/* SPDX-License-Identifier: MIT */
#pragma once
/* One communicator whose requests reach (gpu/device/reach.h), one of them at a time, all of one form. */
#include "gpu/device/staging.h"
#include "tests/device/traffic.h"
extern "C" {
#include "util/type.h"
}
#include "ring/line.h"

#define ONE_LEAST UINT64_C(20000) /* bytes from which ranks try: above those of inline requests */
#define ALL_GPUS  0xffu

struct one {
        struct emulator *e;
        struct traffic t;
        struct collective_case c;
        uint32_t session[EMULATOR_RANKS_MAX], comm, n;
        uint64_t least; /* from which ranks try */
};

static struct collective_case one_case;

static struct collective_case choose_one(uint32_t, uint64_t, uint64_t) {
        return one_case;
}

[[maybe_unused]] static void one_init(struct one *o, uint32_t n, uint32_t workers, uint32_t operation, uint64_t bytes,
                                      bool in_place, uint32_t transport, uint64_t seed) {
        const bool whole = operation == RING_OP_ALL_REDUCE || operation_has_root(operation);

        *o = {};
        o->n = n;
        o->e = emulator_new(n, workers, EMULATOR_WATCH, seed);
        for (uint32_t r = 0; r < n; r++)
                o->session[r] = emulator_session(o->e, r, 1);
        o->comm = emulator_comm(o->e, n, o->session, transport, 0, 0);
        emulator_choose(o->e, o->comm, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, STAGING_PACKET);
        emulator_spread(o->e, o->comm, 0);
        emulator_reach(o->e, o->comm, ONE_LEAST);
        one_case = {};
        one_case.n = n;
        one_case.operation = operation;
        one_case.type = RMX_FLOAT32;
        one_case.redop = operation_has_redop(operation) ? RMX_SUM : 0;
        one_case.root = operation_has_root(operation) ? (uint32_t)(seed >> 8) % n : 0;
        one_case.count = bytes / (whole ? 4 : 4 * n);
        one_case.in_place = in_place;
        traffic_init(&o->t, o->e, o->comm, n, o->session, 1, n * bytes + 256, seed);
        o->t.choose = choose_one;
}

[[maybe_unused]] static void one_deinit(struct one *o) {
        emulator_free(o->e);
        traffic_deinit(&o->t);
}

[[maybe_unused]] static void one_map(struct one *o, uint32_t rank, uint32_t gpus, bool lie) {
        emulator_map(o->e, o->session[rank], o->t.slot[0].b[rank].in_id, gpus, lie);
        emulator_map(o->e, o->session[rank], o->t.slot[0].b[rank].out_id, gpus, lie);
}

[[maybe_unused]] static void rest(struct emulator *e) {
        while (!emulator_rests(e))
                continue;
}

[[maybe_unused]] static bool answered(struct one *o, uint32_t r, uint32_t *ret_status) {
        struct traffic_slot *s = &o->t.slot[0];

        return emulator_poll(o->e, o->comm, r, s->sequence[r], &s->q[r], ret_status);
}
