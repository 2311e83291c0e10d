/* SPDX-License-Identifier: MIT */
/*
 * The same request over and over, as models make it, which workers wait for with everything prepared (hot.h): with one
 * set of buffers and with several in turns, on several communicators of the same clients, with kernels that end and
 * start again, workers that stand still, buffers that go and come, and requests of another form in between.
 */
#include "tests/device/traffic.h"

#include "gpu/device/staging.h"
extern "C" {
#include "util/type.h"
}
#include "ring/line.h"

#define COMMS_MAX 2u

static bool near_forms; /* forms that differ in length only */

/* Sums, what moves blocks, and what has a root, in whole parts of 256 or 512 bytes for most lanes, or not quite, or of
 * a few elements. */
static struct collective_case choose(uint32_t n, uint64_t random, uint64_t max_bytes) {
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER,
                                              RING_OP_ALL_GATHER, RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,
                                              RING_OP_BROADCAST,  RING_OP_REDUCE};
        static const uint32_t types[] = {RMX_BFLOAT16, RMX_FLOAT16, RMX_FLOAT32};
        struct collective_case c = {};
        uint64_t parts, bytes;

        if (!near_forms && mix(random) % 8 == 0)
                return case_random(n, random, max_bytes);
        c.n = n;
        c.operation = near_forms ? operations[n % 5] : operations[mix(random + 1) % 8];
        c.root = operation_has_root(c.operation) ? (uint32_t)(mix(random + 10) % n) : 0;
        c.type = types[mix(random + 2) % 3];
        c.redop = operation_has_redop(c.operation) ? RMX_SUM : 0;
        parts = 1 + mix(random + 3) % STAGING_DATA_LANES;
        bytes = parts * (mix(random + 4) % 2 ? STAGING_PACKET_CHUNK : STAGING_PACKET_CHUNK / 2);
        if (c.operation == RING_OP_ALL_REDUCE && mix(random + 5) % 2)
                bytes *= n; /* shards of so many parts */
        if (near_forms)     /* the same part for all */
                bytes = parts * STAGING_PACKET_CHUNK;
        else if (mix(random + 6) % 4 == 0)
                bytes -= 8 * (mix(random + 7) % 8);
        else if (mix(random + 6) % 4 == 1)
                bytes = 8 + 8 * (mix(random + 7) % 128);
        while (bytes * n > max_bytes)
                bytes = near_forms ? bytes - STAGING_PACKET_CHUNK : bytes / 2 & ~UINT64_C(7);
        c.count = bytes / type_size(c.type);
        c.inlined = !near_forms && bytes * n <= BELL_INLINE_BYTES && mix(random + 8) % 3 == 0;
        c.in_place = !c.inlined && c.operation != RING_OP_ALL_TO_ALL && mix(random + 9) % 2 == 0;
        if (c.inlined && (c.operation == RING_OP_ALL_REDUCE || operation_has_root(c.operation)))
                c.count -= mix(random + 11) % 2; /* which no whole units are made of */
        return c;
}

static void algorithm(struct emulator *e, uint32_t comm, uint64_t random) {
        emulator_choose(e, comm, RING_OP_ALL_REDUCE, random % 2 ? PLAN_ONE_SHOT : PLAN_TWO_SHOT, STAGING_PACKET);
}

static void run(uint32_t n, uint32_t workers, uint32_t comms, uint32_t window, uint32_t alike, uint32_t flags,
                uint32_t requests, uint64_t seed) {
        struct emulator *e = emulator_new(n, workers, flags, seed);
        struct traffic *t = (struct traffic *)calloc(COMMS_MAX, sizeof(*t));
        uint32_t session[COMMS_MAX][EMULATOR_RANKS_MAX], comm[COMMS_MAX];

        CHECK(t, "no memory");
        for (uint32_t i = 0; i < COMMS_MAX; i++)
                for (uint32_t r = 0; r < n; r++)
                        session[i][r] = i && seed % 4 < 2 ? session[0][r] : emulator_session(e, r, 1);
        for (uint32_t i = 0; i < comms; i++) {
                comm[i] = emulator_comm(e, n, session[i], STAGING_PACKET, 0, 0);
                traffic_init(&t[i], e, comm[i], n, session[i], window, near_forms ? 40000 : 24000, mix(seed + i));
                t[i].choose = choose;
                t[i].alike = alike;
                t[i].form_seed = seed;
                t[i].forms = 3;
        }
        for (uint32_t done = 0; done < requests; done += alike) {
                const uint64_t random = mix(seed + done);
                const uint32_t held = (uint32_t)(random >> 8) % workers, gpu = (uint32_t)(random >> 16) % n;

                for (uint32_t i = 0; i < comms && !near_forms; i++) /* a new version of the tables */
                        algorithm(e, comm[i], random + i);
                if (random % 4 == 0) /* it comes late to what the others have begun */
                        emulator_hold(e, gpu, held, true);
                for (uint32_t i = 0; i < comms; i++)
                        for (uint32_t k = 0; k < window; k++)
                                for (uint32_t r = 0; r < n; r++)
                                        if (t[i].rung[r] < t[i].finished + alike)
                                                (void)traffic_ring(&t[i], r);
                if (random % 4 == 0) {
                        while (!emulator_rests(e))
                                continue;
                        emulator_hold(e, gpu, held, false);
                }
                if (random % 16 < 3)
                        emulator_restart(e, gpu);
                for (uint32_t i = 0; i < comms; i++)
                        traffic_run(&t[i], alike - (t[i].finished % alike));
        }
        emulator_free(e);
        for (uint32_t i = 0; i < comms; i++)
                traffic_deinit(&t[i]);
        free(t);
}

/* Each rank in turn is the only one that has begun a request: it is reported as having done so. */
static void waiting(uint32_t n, uint32_t workers, uint64_t seed) {
        struct emulator *e = emulator_new(n, workers, EMULATOR_WATCH, seed);
        struct traffic *t = (struct traffic *)calloc(1, sizeof(*t));
        uint32_t session[EMULATOR_RANKS_MAX], comm;

        CHECK(t, "no memory");
        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, 1);
        comm = emulator_comm(e, n, session, STAGING_PACKET, 0, 0);
        traffic_init(t, e, comm, n, session, 1, 40000, seed);
        near_forms = true;
        t->choose = choose;
        t->forms = 1;
        for (uint32_t i = 0; i < n; i++) {
                traffic_run(t, 3);
                CHECK(traffic_ring(t, i % n), "no slot");
                while (!emulator_rests(e))
                        continue;
                for (uint32_t r = 0; r < n; r++)
                        CHECK(emulator_rung(e, comm, r) == t->rung[r], "rank %u alone: rank %u has begun %u, not %u",
                              i % n, r, emulator_rung(e, comm, r), (uint32_t)t->rung[r]);
                traffic_drain(t);
        }
        emulator_free(e);
        traffic_deinit(t);
        free(t);
}

/* Buffers that move under their names, and kernels that start again, beside requests that are remembered. */
static void moving(uint32_t n, uint32_t workers, uint32_t window, uint64_t seed) {
        const uint64_t bytes = 8000;
        struct emulator *e = emulator_new(n, workers, EMULATOR_WATCH | EMULATOR_JITTER, seed);
        struct traffic *t = (struct traffic *)calloc(COMMS_MAX, sizeof(*t));
        uint32_t session[COMMS_MAX][EMULATOR_RANKS_MAX];

        CHECK(t, "no memory");
        near_forms = false;
        for (uint32_t i = 0; i < COMMS_MAX; i++) {
                for (uint32_t r = 0; r < n; r++)
                        session[i][r] = i && window % 2 ? session[0][r] : emulator_session(e, r, 1);
                traffic_init(&t[i], e, emulator_comm(e, n, session[i], STAGING_PACKET, 0, 0), n, session[i], window,
                             bytes, mix(seed + i));
                t[i].choose = choose;
                t[i].forms = 3;
                t[i].alike = 1 + window;
        }
        for (uint32_t step = 0; step < 8; step++) {
                const uint64_t random = mix(seed + 100 + step);
                const uint32_t i = random >> 8 & 1, r = (uint32_t)(random >> 24) % n;
                struct case_buffers *b = &t[i].slot[(random >> 16) % window].b[r];
                unsigned char *memory = (unsigned char *)emulator_memory(e, bytes + 256);

                for (uint32_t k = 0; k < COMMS_MAX; k++)
                        traffic_run(&t[k], 1 + random % 5);
                emulator_buffer_move(e, session[i][r], random >> 32 & 1 ? b->in_id : b->out_id, memory, bytes + 256);
                if (random >> 32 & 1)
                        b->in = memory;
                else
                        b->out = memory;
                if (random >> 40 & 1)
                        emulator_restart(e, r);
        }
        emulator_free(e);
        for (uint32_t i = 0; i < COMMS_MAX; i++)
                traffic_deinit(&t[i]);
        free(t);
}

static struct collective_case the_case;

static struct collective_case choose_the_case(uint32_t, uint64_t, uint64_t) {
        return the_case;
}

/* Runs the_case until all have stayed that have a part of it: lanes 1 .. parts of all ranks. Whoever has to wait for
 * others, or for the inbox, looks for what else there is; so that takes some. */
static void stays(struct traffic *t, uint32_t parts) {
        uint64_t before[EMULATOR_RANKS_MAX][STAGING_LANES];
        bool all = false;

        for (uint32_t r = 0; r < t->n; r++)
                for (uint32_t lane = 1; lane <= parts; lane++)
                        before[r][lane] = emulator_stayed(t->e, r, lane);
        for (uint32_t i = 0; i < 1000 && !all; i++) {
                for (uint32_t k = 0; k < t->n; k++) /* who rings last has to wait for nobody */
                        CHECK(traffic_ring(t, (i + k) % t->n), "no slot");
                traffic_drain(t);
                all = true;
                for (uint32_t r = 0; r < t->n; r++)
                        for (uint32_t lane = 1; lane <= parts; lane++)
                                all = all && emulator_stayed(t->e, r, lane) > before[r][lane];
        }
        CHECK(all, "%u ranks, operation %u, %llu elements%s: somebody never stays", t->n, the_case.operation,
              (unsigned long long)the_case.count, the_case.inlined ? " inline" : "");
}

/* The usual requests, however long their pieces are, and whether or not a part is full. */
static void lengths(uint32_t n, uint32_t algorithm, uint64_t seed) {
        static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                              RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,      RING_OP_REDUCE};
        static const uint64_t sizes[] = {8, 1016, 2880, 24, 256, 1024, 5760};
        struct emulator *e = emulator_new(n, STAGING_LANES, EMULATOR_WATCH | EMULATOR_JITTER, seed);
        uint32_t session[EMULATOR_RANKS_MAX], comm;
        struct traffic t;

        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, 1);
        comm = emulator_comm(e, n, session, STAGING_PACKET, 0, 0);
        emulator_spread(e, comm, 0);
        emulator_choose(e, comm, RING_OP_ALL_REDUCE, algorithm, STAGING_PACKET);
        traffic_init(&t, e, comm, n, session, 1, n * 5760, seed);
        t.choose = choose_the_case;
        for (uint32_t i = 0; i < (algorithm == PLAN_TWO_SHOT ? 1 : 6); i++)
                for (uint32_t k = 0; k < (test_full() ? 7 : n == 2 ? 4 : n == 4 ? 2 : 1); k++) {
                        const uint64_t bytes = sizes[k];
                        const uint64_t piece = algorithm == PLAN_TWO_SHOT ? (bytes / n + 15) & ~UINT64_C(15) : bytes;
                        uint64_t part = 256;

                        while (part * STAGING_DATA_LANES < piece)
                                part *= 2;
                        the_case = {};
                        the_case.n = n;
                        the_case.operation = operations[i];
                        the_case.type = RMX_BFLOAT16;
                        the_case.redop = operation_has_redop(operations[i]) ? RMX_SUM : 0;
                        the_case.root = operation_has_root(operations[i]) ? (uint32_t)(bytes / 8 % n) : 0;
                        the_case.count = bytes / 2;
                        for (uint32_t again = 0; again < (operation_has_root(operations[i]) ? 3 : 1); again++) {
                                stays(&t, (uint32_t)((piece + part - 1) / part));
                                the_case.root ^= operation_has_root(operations[i]); /* the same but for that */
                        }
                        the_case.inlined = bytes * (i > 0 && i < 4 ? n : 1) <= 1024;
                        if (the_case.inlined)
                                stays(&t, (uint32_t)((piece + part - 1) / part));
                }
        emulator_free(e);
        traffic_deinit(&t);
}

/* The root of broadcasts, and who is not the root of reduces, does not wait for the others, but for room: of four
 * requests the first two are answered before any other rank has called them. */
static void ahead(uint32_t n, uint32_t workers, uint32_t operation, uint64_t seed) {
        struct emulator *e = emulator_new(n, workers, EMULATOR_WATCH, seed);
        const uint32_t root = (uint32_t)(seed >> 8) % n, first = operation == RING_OP_BROADCAST ? root : (root + 1) % n;
        uint32_t session[EMULATOR_RANKS_MAX], comm;
        struct traffic t;

        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, 1);
        comm = emulator_comm(e, n, session, STAGING_PACKET, 0u - 7, 0u - 5);
        emulator_spread(e, comm, 0); /* a chunk of each lane */
        traffic_init(&t, e, comm, n, session, 4, n * 7200, seed);
        t.choose = choose_the_case;
        for (uint32_t k = 0; k < 8; k++) {
                the_case = {};
                the_case.n = n;
                the_case.operation = operation;
                the_case.type = RMX_FLOAT32;
                the_case.redop = operation_has_redop(operation) ? RMX_SUM : 0;
                the_case.root = root;
                the_case.count = k % 2 ? 3 : 1800;
                the_case.inlined = k % 4 == 1;
                the_case.in_place = k % 4 > 1;
                traffic_run(&t, 2);
                for (uint32_t i = 0; i < 4; i++)
                        CHECK(traffic_ring(&t, first), "no slot");
                while (!emulator_rests(e))
                        continue;
                traffic_harvest(&t);
                for (uint32_t i = 0; i < 4; i++)
                        CHECK(t.slot[(t.finished + i) % 4].harvested[first] == (i < STAGING_SLOTS),
                              "operation %u: request %u of one that is ahead", operation, i);
                if (k % 3 == 2)
                        emulator_restart(e, k % n);
                traffic_drain(&t);
        }
        emulator_free(e);
        traffic_deinit(&t);
}

/* The root of a reduce that comes first pushes to itself what there is room for, two parts of each lane. The third one
 * follows when the first has been reduced, not when its lanes go on as tasks, here or in the next kernel. */
static void first(uint32_t n, uint32_t workers, uint64_t seed) {
        const uint64_t bytes = 3 * STAGING_DATA_LANES * STAGING_PACKET_CHUNK - 64;
        struct emulator *e = emulator_new(n, workers, EMULATOR_WATCH, seed);
        const uint32_t root = (uint32_t)(seed >> 8) % n;
        uint32_t session[EMULATOR_RANKS_MAX], comm;
        struct traffic t;

        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(e, r, 1);
        comm = emulator_comm(e, n, session, STAGING_PACKET, 0u - 3, 0u - 5);
        traffic_init(&t, e, comm, n, session, 1, n * bytes, seed);
        t.choose = choose_the_case;
        the_case = {};
        the_case.n = n;
        the_case.operation = RING_OP_REDUCE;
        the_case.type = RMX_FLOAT32;
        the_case.redop = RMX_SUM;
        the_case.root = root;
        the_case.count = bytes / 4;
        the_case.in_place = n == 4;
        CHECK(traffic_ring(&t, root), "no slot");
        while (!emulator_rests(e))
                continue;
        if (n != 2)
                emulator_restart(e, root);
        traffic_drain(&t);
        emulator_free(e);
        traffic_deinit(&t);
}

/* All but the random ones. Of many ranks they take longest: those come last, so that a defect is found early. */
static void several(uint32_t n, uint64_t seed) {
        lengths(n, PLAN_ONE_SHOT, mix(seed + n + 20));
        lengths(n, PLAN_TWO_SHOT, mix(seed + n + 21));
        for (uint32_t k = 0; k < 2; k++) {
                ahead(n, k ? 5 : 16, RING_OP_BROADCAST, mix(seed + n + 22 + k));
                ahead(n, k ? 16 : 3, RING_OP_REDUCE, mix(seed + n + 24 + k));
        }
        first(n, n == 4 ? 5 : 16, mix(seed + n + 26));
        for (uint32_t window = 1; window <= 3; window++)
                moving(n, window == 2 ? 6 : 16, window, mix(seed + 10 * n + window) | 1);
        waiting(n, 16, mix(seed + n) | 1);
}

int main(void) {
        static const uint32_t ranks[] = {2, 4, 8}, workers[] = {16, 5};
        const uint64_t seed = test_seed();
        uint32_t i = 0;

        if (test_takes(seed, 0, 3))
                several(2, seed);
        for (uint32_t round = 0; round < (test_full() ? 20 : 1); round++)
                for (uint32_t n : ranks)
                        for (uint32_t k : workers)
                                for (uint32_t window = 1; window <= 4; window++, i++) {
                                        if (!test_takes(seed, i % 3, 3))
                                                continue;
                                        near_forms = i % 4 == 1;
                                        run(n, k, 1 + i / 2 % COMMS_MAX, window, 4 + i % 5,
                                            i % 3 ? EMULATOR_JITTER | EMULATOR_WATCH : EMULATOR_WATCH, n == 8 ? 10 : 24,
                                            mix(seed + i) | 1);
                                }
        for (uint32_t k = 1; k < 3; k++)
                if (test_takes(seed, k, 3))
                        several(2u << k, seed);
        return 0;
}
