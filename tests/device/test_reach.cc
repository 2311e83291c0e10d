/* SPDX-License-Identifier: MIT */
/*
 * Requests whose ranks read and write each other's memory (gpu/device/reach.h): all that can go that way beside all
 * that cannot, while buffers are mapped on other GPUs and taken away again, kernels end and start, workers stand still;
 * and what happens to them when a communicator fails, or memory is gone that was promised.
 */
#include "tests/device/one.h"

#include "gpu/device/staging.h"
extern "C" {
#include "util/type.h"
}
#include "ring/line.h"

#define LEAST     ONE_LEAST
#define COMMS_MAX 2u

static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                      RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,      RING_OP_REDUCE};

/* Most of them whole units of memory that begins at a whole unit; ragged ends of parts and pieces are usual. */
static struct collective_case choose(uint32_t n, uint64_t random, uint64_t max_bytes) {
        static const uint32_t types[] = {RMX_BFLOAT16, RMX_FLOAT16, RMX_FLOAT32, RMX_INT64};
        struct collective_case c = {};
        uint64_t bytes;

        if (mix(random) % 8 == 0)
                return case_random(n, random, max_bytes);
        c.n = n;
        c.operation = operations[mix(random + 1) % 6];
        c.type = types[mix(random + 2) % 4];
        c.redop = operation_has_redop(c.operation) ? RMX_SUM : 0;
        c.root = operation_has_root(c.operation) ? (uint32_t)(mix(random + 7) % n) : 0;
        bytes = 16 + mix(random + 3) % (max_bytes / n - 128);
        bytes &= mix(random + 4) % 8 ? ~UINT64_C(15) : ~UINT64_C(7);
        c.count = bytes / type_size(c.type);
        c.shift = mix(random + 5) % 16 == 0;
        c.in_place = c.operation != RING_OP_ALL_TO_ALL && mix(random + 6) % 2 == 0;
        return c;
}

/* A request of so many bytes; did the ranks reach? What a lane leaves is counted in region 1, one chunk for each. */
static bool reaches(struct one *o) {
        const uint64_t before = emulator_chunks(o->e, o->comm, STAGING_PACKET, 1);
        uint64_t chunks;

        traffic_run(&o->t, 1);
        chunks = emulator_chunks(o->e, o->comm, STAGING_PACKET, 1) - before;
        CHECK(chunks == 0 || chunks % (o->n * (o->n - 1)) == 0, "%llu chunks", (unsigned long long)chunks);
        chunks /= o->n * (o->n - 1);
        /* Staging: none, or two for each lane (the requests below have so many parts). */
        CHECK(chunks == 0 || chunks == STAGING_DATA_LANES || chunks == 2 * STAGING_DATA_LANES, "%llu chunks of a pair",
              (unsigned long long)chunks);
        return chunks == STAGING_DATA_LANES;
}

static void decisions_of(uint32_t n, uint32_t workers, uint32_t operation, bool in_place, uint32_t transport,
                         uint64_t seed) {
        /* Through staging two parts of a share for each lane, or one. */
        const uint64_t bytes =
                (operation == RING_OP_ALL_REDUCE ? 2 : 1) * STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n;
        const bool adds = operation_has_redop(operation);
        struct one o;

        one_init(&o, n, workers, operation, bytes, in_place, transport, seed);
        CHECK(!reaches(&o), "operation %u: nothing is mapped", operation);
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        CHECK(reaches(&o), "operation %u: all is mapped", operation);
        CHECK(reaches(&o), "operation %u: all is mapped, and remembered", operation);
        for (uint32_t r = (uint32_t)(seed % 2); r < n; r += n / 2 + 1) {
                const bool root = r == one_case.root, reads = adds || (operation == RING_OP_BROADCAST && root);
                const bool writes = operation == RING_OP_REDUCE      ? root
                                    : operation == RING_OP_BROADCAST ? !root
                                                                     : operation != RING_OP_REDUCE_SCATTER;
                const struct case_buffers *b = &o.t.slot[0].b[r];
                const uint32_t without = ALL_GPUS & ~(1u << (r + 1) % n);

                emulator_map(o.e, o.session[r], b->in_id, without, false);
                CHECK(reaches(&o) == !(reads && !in_place), "operation %u: input of %u is missing", operation, r);
                emulator_map(o.e, o.session[r], b->out_id, without, false);
                CHECK(reaches(&o) == !(reads || writes), "operation %u: memory of %u is missing", operation, r);
                emulator_map(o.e, o.session[r], b->in_id, ALL_GPUS, false);
                CHECK(reaches(&o) == !(writes || (reads && in_place)), "operation %u: output of %u is missing",
                      operation, r);
                emulator_map(o.e, o.session[r], b->out_id, ALL_GPUS, false);
                CHECK(reaches(&o), "operation %u: all of %u is back", operation, r);
        }
        emulator_reach(o.e, o.comm, bytes + 1);
        CHECK(!reaches(&o), "operation %u: it is too small", operation);
        emulator_reach(o.e, o.comm, bytes);
        CHECK(reaches(&o), "operation %u: it is large enough", operation);
        emulator_reach(o.e, o.comm, 0);
        CHECK(!reaches(&o), "operation %u: the communicator does not", operation);
        one_deinit(&o);
}

/* Who reaches: only if all memory that is touched is mapped everywhere (in place that is the output's), and large
 * enough requests. */
static void decisions(uint32_t n, uint32_t workers, uint64_t seed) {
        for (uint32_t operation : operations)
                for (uint32_t in_place = n == 8 && operation != RING_OP_ALL_TO_ALL ? operation % 2 : 0;
                     in_place < (operation == RING_OP_ALL_TO_ALL ? 1 : 2); in_place += n == 8 ? 2 : 1)
                        decisions_of(n, workers, operation, in_place,
                                     mix(seed + operation) % 2 ? STAGING_PACKET : STAGING_BULK, seed);
}

/* What workers remember of where memory is: a rank's input lies elsewhere by turns, in another buffer, and then in a
 * buffer that has moved. Inputs are others every time, so that what is found at the old place is wrong. */
static void remembered(uint32_t n, uint32_t workers, uint32_t operation, uint64_t seed) {
        const uint64_t bytes = STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n;
        const uint32_t who = (uint32_t)(seed >> 16) % n;
        unsigned char *place[2], *moved;
        struct case_buffers *b;
        uint32_t id[2];
        struct one o;

        one_init(&o, n, workers, operation, bytes, false, STAGING_PACKET, seed);
        b = &o.t.slot[0].b[who];
        place[0] = b->in;
        id[0] = b->in_id;
        place[1] = (unsigned char *)emulator_memory(o.e, o.t.max_bytes);
        id[1] = emulator_buffer(o.e, o.session[who], place[1], o.t.max_bytes);
        moved = (unsigned char *)emulator_memory(o.e, o.t.max_bytes);
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        emulator_map(o.e, o.session[who], id[1], ALL_GPUS, false);
        for (uint32_t k = 0; k < 4; k++) {
                b->in = place[k / 2 % 2];
                b->in_id = id[k / 2 % 2];
                CHECK(reaches(&o), "operation %u: request %u", operation, k);
        }
        emulator_map(o.e, o.session[who], id[1], 0, false); /* what is remembered now */
        emulator_buffer_move(o.e, o.session[who], id[1], moved, o.t.max_bytes);
        emulator_map(o.e, o.session[who], id[1], ALL_GPUS, false);
        b->in = moved;
        CHECK(reaches(&o) && reaches(&o), "operation %u: memory that has moved", operation);
        one_deinit(&o);
}

/* Memory that goes before its rank has entered: all take the other way. */
static void late(uint32_t n, uint32_t workers, uint64_t seed) {
        struct one o;

        one_init(&o, n, workers, RING_OP_ALL_REDUCE, 2 * STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n, false,
                 STAGING_PACKET, seed);
        for (uint32_t k = 1; k < 3; k++) {
                for (uint32_t r = 0; r < n; r++)
                        one_map(&o, r, ALL_GPUS, false);
                for (uint32_t r = 0; r < n; r++)
                        if (r != k % n)
                                CHECK(traffic_ring(&o.t, r), "no slot");
                rest(o.e);
                if (k >= 2)
                        emulator_restart(o.e, (k + 1) % n);
                one_map(&o, k % n, 0, false);
                CHECK(!reaches(&o), "rank %u had nothing mapped", k % n);
        }
        one_deinit(&o);
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */
/* All but `missing` have entered, or all but it have done their share; then the communicator fails. */
static void failure(uint32_t n, uint32_t workers, uint64_t seed) {
        const uint32_t status = ring_status(RMX_E_PEER_LOST, 0);

        for (uint32_t missing = 0; missing < n; missing += n - 1) {
                uint32_t got;
                struct one o;

                one_init(&o, n, workers, RING_OP_ALL_REDUCE, STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n, false,
                         STAGING_PACKET, seed);
                for (uint32_t r = 0; r < n; r++)
                        one_map(&o, r, ALL_GPUS, false);
                for (uint32_t r = 0; r < n; r++)
                        if (r != missing)
                                CHECK(traffic_ring(&o.t, r), "no slot");
                rest(o.e);
                for (uint32_t r = 0; r < n; r++)
                        emulator_freeze(o.e, o.comm, r, status);
                rest(o.e);
                for (uint32_t r = 0; r < n; r++)
                        CHECK(r == missing || !answered(&o, r, &got), "rank %u is told while others may reach it", r);
                emulator_restart(o.e, (missing + 1) % n);
                CHECK(traffic_ring(&o.t, missing), "no slot"); /* it has not entered: no reason to wait */
                rest(o.e);
                CHECK(answered(&o, missing, &got) && got == status, "rank %u, which came late, waits", missing);
                for (uint32_t r = 0; r < n; r++)
                        CHECK(r == missing || !answered(&o, r, &got), "rank %u: the others could have begun", r);
                for (uint32_t r = 0; r < n; r++)
                        emulator_settle(o.e, o.comm, r);
                for (uint32_t r = 0; r < n; r++)
                        if (r != missing) {
                                while (!answered(&o, r, &got))
                                        emulator_turn(o.e, "no answer after all have stopped");
                                CHECK(got == status, "rank %u got %x", r, got);
                        }
                one_deinit(&o);
        }
}

/* All but one rank have entered when a rank's executor hears that another has left before, or that its memory is gone:
 * the others could still begin, so nothing is answered before all have stopped. */
static void gone(uint32_t n, uint32_t workers, bool leaves, uint64_t seed) {
        const uint64_t bytes = STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n;
        const uint32_t lost = ring_status(RMX_E_PEER_LOST, 0), missing = (uint32_t)(seed % (n - 1));
        const uint32_t who = n - 1; /* whose executor hears it */
        uint32_t got;
        struct one o;

        one_init(&o, n, workers, RING_OP_ALL_REDUCE, bytes, false, STAGING_PACKET, seed);
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        for (uint32_t r = 0; r < n; r++)
                if (r != missing)
                        CHECK(traffic_ring(&o.t, r), "no slot");
        rest(o.e);
        if (leaves)
                emulator_leave(o.e, o.comm, who, 0, lost);
        else
                emulator_retire(o.e, o.session[who], o.t.slot[0].b[who].in_id);
        rest(o.e);
        CHECK(emulator_reported(o.e, o.comm, who), "rank %u reports nothing", who);
        for (uint32_t k = 0; k < 2; k++) {
                for (uint32_t r = 0; r < n; r++)
                        CHECK((!k && r == missing) || !answered(&o, r, &got), "rank %u is told %x", r, got);
                if (!k)
                        CHECK(traffic_ring(&o.t, missing), "no slot");
                rest(o.e);
        }
        for (uint32_t r = 0; r < n; r++)
                emulator_freeze(o.e, o.comm, r, lost);
        for (uint32_t r = 0; r < n; r++)
                emulator_settle(o.e, o.comm, r);
        for (uint32_t r = 0; r < n; r++) {
                while (!answered(&o, r, &got))
                        emulator_turn(o.e, "no answer after all have stopped");
                /* Lane 0, which nobody reaches, has been told at once. */
                CHECK(got == lost || (!leaves && r == who && got == ring_status(RMX_E_INVALID, -1)), "rank %u got %x",
                      r, got);
        }
        one_deinit(&o);
}

/* Who takes itself for the root compares with nobody on lane 0. */
static void roots(uint32_t n, uint32_t workers, uint32_t operation, uint64_t seed) {
        struct one o;

        one_init(&o, n, workers, operation, STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n, false, STAGING_PACKET, seed);
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        CHECK(traffic_ring(&o.t, 0), "no slot");
        o.t.slot[0].q[n - 1].root = one_case.root == n - 1 ? 0 : n - 1;
        for (uint32_t r = 1; r < n; r++)
                CHECK(traffic_ring(&o.t, r), "no slot");
        rest(o.e);
        for (uint32_t r = 0; r < n; r++)
                CHECK((emulator_reported(o.e, o.comm, r) & 0xff) == RMX_E_MISMATCH, "rank %u reports %x", r,
                      emulator_reported(o.e, o.comm, r));
        one_deinit(&o);
}

/* One rank calls for fewer elements: nobody writes anything, since it would go where that rank keeps something else. */
static void mismatch(uint32_t n, uint32_t workers, uint64_t seed) {
        const uint64_t bytes = STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n;

        for (uint32_t odd = 0; odd < n; odd += n - 1) {
                struct one o;

                one_init(&o, n, workers, RING_OP_ALL_REDUCE, bytes, false, STAGING_PACKET, seed);
                for (uint32_t r = 0; r < n; r++)
                        one_map(&o, r, ALL_GPUS, false);
                CHECK(traffic_ring(&o.t, !odd), "no slot"); /* now the others' requests are made */
                o.t.slot[0].q[odd].count -= 8;
                for (uint32_t r = 0; r < n; r++)
                        CHECK(r == !odd || traffic_ring(&o.t, r), "no slot");
                rest(o.e);
                for (uint32_t r = 0; r < n; r++) {
                        const unsigned char *out = o.t.slot[0].b[r].out;

                        CHECK((emulator_reported(o.e, o.comm, r) & 0xff) == RMX_E_MISMATCH, "rank %u reports %x", r,
                              emulator_reported(o.e, o.comm, r));
                        for (uint64_t i = 0; i < bytes; i++)
                                CHECK(out[i] == 0xa5, "byte %llu of rank %u was written", (unsigned long long)i, r);
                }
                one_deinit(&o);
        }
}

/* What a rank said is mapped is not, or is smaller: the request fails, and nothing is answered before all stop. */
static void broken(uint32_t n, uint32_t workers, bool small, uint64_t seed) {
        const uint64_t bytes = STAGING_DATA_LANES * STAGING_PACKET_CHUNK * n;
        const uint32_t liar = (uint32_t)(seed % n), finder = (liar + 1) % n;
        const uint32_t status = ring_status(RMX_E_INVALID, (int32_t)liar);
        struct case_buffers *b;
        uint32_t got;
        struct one o;

        one_init(&o, n, workers, RING_OP_ALL_REDUCE, bytes, false, STAGING_PACKET, seed);
        b = &o.t.slot[0].b[liar];
        if (small) { /* the others know the memory that was there before */
                void *memory = emulator_memory(o.e, bytes - 16);

                emulator_buffer_move(o.e, o.session[liar], b->in_id, memory, bytes - 16);
        }
        for (uint32_t r = 0; r < n; r++)
                one_map(&o, r, ALL_GPUS, false);
        if (small)
                emulator_buffer_move(o.e, o.session[liar], b->in_id, b->in, n * bytes + 512);
        else
                one_map(&o, liar, ALL_GPUS & ~(1u << finder), true);
        for (uint32_t r = 0; r < n; r++)
                CHECK(traffic_ring(&o.t, r), "no slot");
        rest(o.e);
        CHECK(emulator_reported(o.e, o.comm, finder) == status, "reported: %x", emulator_reported(o.e, o.comm, finder));
        for (uint32_t r = 0; r < n; r++)
                CHECK(!answered(&o, r, &got), "rank %u is told %x", r, got);
        for (uint32_t r = 0; r < n; r++)
                emulator_freeze(o.e, o.comm, r, status);
        rest(o.e);
        for (uint32_t r = 0; r < n; r++)
                CHECK(!answered(&o, r, &got), "rank %u is told %x", r, got);
        for (uint32_t r = 0; r < n; r++)
                emulator_settle(o.e, o.comm, r);
        for (uint32_t r = 0; r < n; r++) {
                while (!answered(&o, r, &got))
                        emulator_turn(o.e, "no answer after all have stopped");
                CHECK(got == status, "rank %u got %x", r, got);
        }
        one_deinit(&o);
}

/* ---- everything -------------------------------------------------------------------------------------------------- */
static void run(uint32_t n, uint32_t workers, uint32_t comms, uint32_t window, uint32_t flags, uint32_t requests,
                uint64_t seed) {
        struct emulator *e = emulator_new(n, workers, flags, seed);
        struct traffic *t = (struct traffic *)calloc(COMMS_MAX, sizeof(*t));
        uint32_t session[COMMS_MAX][EMULATOR_RANKS_MAX], comm[COMMS_MAX];

        CHECK(t, "no memory");
        for (uint32_t i = 0; i < COMMS_MAX; i++)
                for (uint32_t r = 0; r < n; r++)
                        session[i][r] = i && seed % 4 < 2 ? session[0][r] : emulator_session(e, r, 1);
        for (uint32_t i = 0; i < comms; i++) {
                comm[i] = emulator_comm(e, n, session[i], mix(seed + i) % 2 ? STAGING_PACKET : STAGING_BULK,
                                        mix(seed + i) % 3 ? 0 : 0u - 5, mix(seed + i) % 5 ? 0 : 0u - 3);
                traffic_init(&t[i], e, comm[i], n, session[i], window, n == 8 ? 200000 : 120000, mix(seed + i));
                t[i].choose = choose;
                t[i].alike = 2;
                t[i].forms = 5;
                emulator_choose(e, comm[i], RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, STAGING_PACKET);
                emulator_reach(e, comm[i], LEAST);
                if (mix(seed + i + 7) % 2)
                        emulator_burst(e, comm[i], mix(seed + i + 8) % 3 ? LEAST : 3 * LEAST);
        }
        if (mix(seed + 9) % 2)
                emulator_copies(e, mix(seed + 11) % 3 ? ALL_GPUS : mix(seed + 11) >> 8,
                                mix(seed + 10) % 2 ? LEAST : 2 * LEAST);
        for (uint32_t done = 0; done < requests; done += window) {
                const uint64_t random = mix(seed + done);
                const uint32_t held = (uint32_t)(random >> 8) % workers, gpu = (uint32_t)(random >> 16) % n;

                for (uint32_t i = 0; i < comms; i++) /* nothing is under way */
                        for (uint32_t k = 0; k < window; k++)
                                for (uint32_t r = 0; r < n; r++) {
                                        const struct case_buffers *b = &t[i].slot[k].b[r];
                                        const uint64_t dice = mix(random + 100 * i + 10 * k + r);

                                        if (dice % 4 && done)
                                                continue;
                                        emulator_map(e, session[i][r], b->in_id, dice % 32 ? ALL_GPUS : dice >> 8,
                                                     false);
                                        emulator_map(e, session[i][r], b->out_id, dice % 48 ? ALL_GPUS : dice >> 16,
                                                     false);
                                }
                if (random % 4 == 0) /* it comes late to what the others have begun */
                        emulator_hold(e, gpu, held, true);
                emulator_burst_hold(e, gpu, random % 8 < 3);
                if (random % 8 > 5)
                        emulator_burst_patience(e, (gpu + 1) % n, random >> 40 & 31);
                for (uint32_t i = 0; i < comms; i++)
                        for (uint32_t k = 0; k < window; k++)
                                for (uint32_t r = 0; r < n; r++)
                                        (void)traffic_ring(&t[i], (r + i) % n);
                if (random % 4 == 0) {
                        rest(e);
                        emulator_hold(e, gpu, held, false);
                }
                if (random % 16 < 3)
                        emulator_restart(e, gpu);
                emulator_burst_hold(e, gpu, false);
                for (uint32_t i = 0; i < comms; i++)
                        traffic_drain(&t[i]);
        }
        emulator_free(e);
        for (uint32_t i = 0; i < comms; i++)
                traffic_deinit(&t[i]);
        free(t);
}

/* All but the random ones. Of many ranks they take longest: those come last, so that a defect is found early. */
static void several(uint32_t n, uint64_t seed) {
        decisions(n, n == 4 ? 5 : 16, mix(seed + n));
        late(n, n == 4 ? 16 : 3, mix(seed + n + 1));
        remembered(n, n == 2 ? 5 : 16, RING_OP_ALL_REDUCE, mix(seed + n + 10));
        remembered(n, 16, RING_OP_REDUCE_SCATTER, mix(seed + n + 11));
        failure(n, n == 2 ? 5 : 16, mix(seed + n + 2));
        gone(n, n == 4 ? 5 : 16, true, mix(seed + n + 6));
        gone(n, n == 2 ? 5 : 16, false, mix(seed + n + 7));
        roots(n, 16, RING_OP_BROADCAST, mix(seed + n + 8));
        roots(n, 4, RING_OP_REDUCE, mix(seed + n + 9));
        mismatch(n, n == 8 ? 5 : 16, mix(seed + n + 5));
        broken(n, 16, false, mix(seed + n + 3));
        broken(n, 5, true, mix(seed + n + 4));
}

int main(void) {
        static const uint32_t ranks[] = {2, 4, 8}, workers[] = {16, 5, 19};
        const uint64_t seed = test_seed();
        uint32_t i = 0;

        if (test_takes(seed, 0, 3))
                several(2, seed);
        for (uint32_t round = 0; round < (test_full() ? 20 : 1); round++)
                for (uint32_t n : ranks)
                        for (uint32_t k : workers)
                                for (uint32_t window = 1; window <= (k == 19 ? 1u : 2u); window++, i++) {
                                        if (!test_takes(seed, i % 3, 3))
                                                continue;
                                        run(n, k, 1 + i / 2 % COMMS_MAX, window,
                                            i % 3 ? EMULATOR_JITTER | EMULATOR_WATCH : EMULATOR_WATCH, n == 8 ? 6 : 12,
                                            mix(seed + 50 + i) | 1);
                                }
        for (uint32_t k = 1; k < 3; k++)
                if (test_takes(seed, k, 3))
                        several(2u << k, seed);
        return 0;
}
