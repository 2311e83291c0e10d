/* SPDX-License-Identifier: MIT */
/*
 * Numbers that wrap: ring sequences (which leave out 0), comm sequences, the counts of chunks and credits, with kernels
 * that end and start again on the way; and a rank whose last request is counted beyond the wrap.
 */
#include "tests/device/traffic.h"

#include <string.h>

#include "ring/line.h"

static void run(uint32_t n, uint32_t workers, uint32_t transport, uint32_t first, uint32_t sequence, uint32_t chunks,
                uint32_t requests, uint64_t seed) {
        struct emulator *e = emulator_new(n, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        struct traffic *t = (struct traffic *)calloc(1, sizeof(*t));
        uint32_t session[EMULATOR_RANKS_MAX], comm;

        CHECK(t, "no memory");
        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, first > 1 ? first - r : 1);
        comm = emulator_comm(e, n, session, transport, sequence, chunks);
        traffic_init(t, e, comm, n, session, 4, 6000, seed);
        for (uint32_t done = 0; done < requests; done += 10) {
                traffic_run(t, 10);
                emulator_restart(e, (uint32_t)(mix(seed + done) % n));
        }
        emulator_free(e);
        traffic_deinit(t);
        free(t);
}

/* Both ranks have `last` as their last request; the others are answered. */
static void leave(uint32_t sequence, uint32_t before, uint64_t seed) {
        struct emulator *e = emulator_new(2, 2, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        struct traffic *t = (struct traffic *)calloc(1, sizeof(*t));
        struct collective_case c = {};
        struct emulator_request q = {};
        uint32_t session[2], comm, status, rung;

        CHECK(t, "no memory");
        session[0] = emulator_session(e, 0, 1);
        session[1] = emulator_session(e, 1, 1);
        comm = emulator_comm(e, 2, session, STAGING_PACKET, sequence, 0);
        traffic_init(t, e, comm, 2, session, 4, 1000, seed);
        /* One rank is ahead when its peer leaves. */
        traffic_run(t, before - 3);
        for (uint32_t i = 0; i < 3; i++)
                CHECK(traffic_ring(t, 0), "no slot");
        emulator_leave(e, comm, 0, sequence + before, RMX_E_PEER_LOST | 2u << 16);
        emulator_leave(e, comm, 1, sequence + before, RMX_E_PEER_LOST | 2u << 16);
        traffic_drain(t);
        CHECK(t->finished == before, "finished %llu", (unsigned long long)t->finished);
        c.n = 2;
        c.operation = RING_OP_BARRIER;
        case_request(&c, 0, 1, &t->slot[0].b[0], &q);
        for (uint32_t i = 0; i < 3; i++) {
                rung = emulator_ring(e, comm, 0, &q);
                status = emulator_wait(e, comm, 0, rung, &q);
                CHECK(status == (RMX_E_PEER_LOST | 2u << 16), "after the last request: status %x", status);
        }
        emulator_free(e);
        traffic_deinit(t);
        free(t);
}

int main(void) {
        static const uint32_t firsts[] = {1, 0u - 1, 0u - 2, 0u - 40, 0u - 64, 0u - 65, 0u - 130, 0x7ffffff0u};
        static const uint32_t sequences[] = {0u - 1, 0u - 2, 0u - 15, 0x7ffffff0u};
        static const uint32_t counts[] = {0u - 1, 0u - 2, 0u - 3, 0u - 20, 0x7fffffffu, 0x7ffffff8u};
        const uint64_t seed = test_seed();
        uint32_t i = 0;

        for (uint32_t round = 0; round < (test_full() ? 20 : 1); round++)
                for (uint32_t first : firsts)
                        for (uint32_t chunks : counts) {
                                i++;
                                run(2 + i % 3, 1 + i % 2, i / 3 % 2, first, sequences[i % 4], chunks,
                                    first == 0u - 130 ? 160 : 80, mix(seed + i) | 1);
                        }
        for (uint32_t before = 3; before < 12; before++) {
                leave(0, before, seed + before);
                leave(0u - 4, before, seed + before);
                leave(0x7ffffffcu, before, seed + before);
        }
        return 0;
}
