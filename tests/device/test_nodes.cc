/* SPDX-License-Identifier: MIT */
/*
 * Communicators over several nodes: the interpreter over wires, the executors' proxies and a fabric that delivers in
 * any order. All operations, types and reductions, small and large, from buffers and inline, odd counts; compared bit
 * for bit with the host backend's reductions in rank order. Then numbers that wrap, kernels stopped with chunks on the
 * way, sends and receives, calls that differ, and what a fabric may get wrong, which must be noticed: by wrong data, or
 * by nothing going on any more.
 */
#include "gpu/mirror.h"
#include "tests/device/node_world.h"
#include "tests/device/traffic.h"

extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/line.h"

#define BYTES 20000u

static uint64_t seed;

static const struct placement placements[] = {
        {2, {0, 1}},
        {4, {0, 0, 1, 1}},
        {3, {0, 1, 2}},
        {4, {0, 1, 1, 0}},
        {5, {0, 1, 1, 2, 0}},
        {8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {8, {0, 0, 1, 1, 2, 2, 3, 3}},
        {6, {1, 0, 2, 2, 2, 0}},
        {8, {0, 1, 2, 3, 4, 5, 6, 7}},
};

/* Requests of all kinds, with kernels stopped and launched in the middle. */
static void sweep(const struct placement *p, uint32_t workers, uint32_t transport, uint32_t all_reduce, uint32_t chunks,
                  uint32_t flags) {
        static struct traffic t;
        struct world w;

        world_init(&w, p, workers, transport, chunks, flags, mix(seed + workers * 7 + p->n * 64 + transport));
        emulator_choose(w.e, w.comm, RING_OP_ALL_REDUCE, all_reduce, transport);
        traffic_init(&t, w.e, w.comm, p->n, w.session, 3, BYTES, mix(seed + p->n + transport));
        world_sweep(&w, &t, test_full() ? 30 : 4, 5, seed);
}

static struct collective_case inlined_case(uint32_t n, uint64_t random, uint64_t max_bytes) {
        struct collective_case c = case_random(n, random, max_bytes);
        const uint64_t size = type_size(c.type);

        c.operation = RING_OP_ALL_REDUCE;
        c.root = 0;
        c.count = (BELL_INLINE_BYTES - mix(random + 9) % (BELL_INLINE_BYTES / 2)) / size;
        c.inlined = true;
        c.in_place = false;
        return c;
}

/* Many nodes of one rank add up in two steps what is as large as payload beside a line may be; one node does not. */
static void inlined(void) {
        static const struct placement p = {8, {0, 1, 2, 3, 4, 5, 6, 7}};
        static struct traffic t;
        struct world w;

        world_init(&w, &p, 2, STAGING_PACKET, 0, EMULATOR_JITTER, mix(seed + 8));
        emulator_choose(w.e, w.comm, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, STAGING_PACKET);
        traffic_init(&t, w.e, w.comm, p.n, w.session, 3, p.n * (BELL_INLINE_BYTES + 64), mix(seed + 9));
        t.choose = inlined_case;
        world_sweep(&w, &t, test_full() ? 8 : 1, 5, seed);
}

/* ---- sends and receives --------------------------------------------------------------------------------------------
 */
struct transfer {
        struct emulator_request q[2];
        uint32_t sequence[2];
};

/* Each rank sends to each, and receives from each, at once and in orders of its own. */
static void transfers(const struct placement *p, uint64_t bytes, bool inlined) {
        static struct transfer t[EMULATOR_RANKS_MAX][EMULATOR_RANKS_MAX]; /* from, to */
        struct world w;
        unsigned char *memory[EMULATOR_RANKS_MAX][2];
        uint32_t id[EMULATOR_RANKS_MAX][2];

        world_init(&w, p, 3, STAGING_PACKET, 0u - 3, EMULATOR_JITTER, mix(seed + bytes));
        for (uint32_t r = 0; r < p->n; r++)
                for (uint32_t k = 0; k < 2; k++) {
                        memory[r][k] = (unsigned char *)emulator_memory(w.e, p->n * bytes + 8);
                        id[r][k] = emulator_buffer(w.e, w.session[r], memory[r][k], p->n * bytes + 8);
                        for (uint64_t i = 0; i < p->n * bytes; i++)
                                memory[r][k][i] = k ? 0xa5 : (unsigned char)mix(i * 9 + r + seed);
                }
        for (uint32_t k = 0; k < 2 * p->n; k++)
                for (uint32_t r = 0; r < p->n; r++) {
                        const uint32_t half = (k + r) % 2, peer = (k / 2 * (half ? 1 : p->n - 1) + r + half) % p->n;
                        struct transfer *x = half ? &t[peer][r] : &t[r][peer];
                        struct emulator_request *q = &x->q[half];

                        *q = {};
                        q->operation = half ? RING_OP_RECV : RING_OP_SEND;
                        q->root = peer;
                        q->count = bytes;
                        q->type = RMX_UINT8;
                        q->inlined = inlined;
                        (half ? q->out_bytes : q->in_bytes) = bytes;
                        (half ? q->out_buffer : q->in_buffer) = id[r][half];
                        (half ? q->out_offset : q->in_offset) = peer * bytes;
                        if (half)
                                q->out = memory[r][1] + peer * bytes;
                        else
                                q->in = memory[r][0] + peer * bytes;
                        x->sequence[half] = emulator_ring(w.e, w.comm, r, q);
                        CHECK(x->sequence[half], "a slot is not free");
                }
        for (uint32_t from = 0; from < p->n; from++)
                for (uint32_t to = 0; to < p->n; to++) {
                        const struct transfer *x = &t[from][to];

                        CHECK(!emulator_wait(w.e, w.comm, from, x->sequence[0], &x->q[0]), "a send failed");
                        CHECK(!emulator_wait(w.e, w.comm, to, x->sequence[1], &x->q[1]), "a receive failed");
                        CHECK(!memcmp(memory[to][1] + from * bytes, memory[from][0] + to * bytes, bytes),
                              "%u to %u: %llu bytes arrived wrong", from, to, (unsigned long long)bytes);
                        n_compared++;
                }
        world_deinit(&w);
}

/* ---- all_to_all_v --------------------------------------------------------------------------------------------------
 */
static uint64_t pair_count(uint32_t from, uint32_t to) {
        return mix(seed + from * 8 + to) % 3 ? mix(seed * 3 + from * 8 + to) % 3000 : 0;
}

static void vectors(const struct placement *p, uint32_t transport) {
        uint64_t vector[EMULATOR_RANKS_MAX][4 * EMULATOR_RANKS_MAX];
        unsigned char *memory[EMULATOR_RANKS_MAX][2];
        struct emulator_request q[EMULATOR_RANKS_MAX];
        uint32_t sequence[EMULATOR_RANKS_MAX];
        const uint32_t n = p->n;
        struct world w;

        world_init(&w, p, 2, transport, 0, EMULATOR_JITTER, mix(seed + n));
        for (uint32_t r = 0; r < n; r++) {
                uint64_t *v = vector[r], at[2] = {0, 0};

                for (uint32_t x = 0; x < n; x++) {
                        v[x] = pair_count(r, x), v[n + x] = at[0], at[0] += v[x] + 1;
                        v[2 * n + x] = pair_count(x, r), v[3 * n + x] = at[1], at[1] += v[2 * n + x] + 1;
                }
                q[r] = {};
                q[r].operation = RING_OP_ALL_TO_ALL_V;
                q[r].type = RMX_UINT8;
                q[r].vector = v;
                q[r].in_bytes = at[0], q[r].out_bytes = at[1];
                memory[r][0] = (unsigned char *)emulator_memory(w.e, at[0] + 8);
                memory[r][1] = (unsigned char *)emulator_memory(w.e, at[1] + 8);
                for (uint64_t i = 0; i < at[0]; i++)
                        memory[r][0][i] = (unsigned char)mix(i + r * 100000 + seed);
                memset(memory[r][1], 0xa5, at[1]);
                q[r].in_buffer = emulator_buffer(w.e, w.session[r], memory[r][0], at[0]);
                q[r].out_buffer = emulator_buffer(w.e, w.session[r], memory[r][1], at[1]);
        }
        for (uint32_t r = 0; r < n; r++)
                sequence[r] = emulator_ring(w.e, w.comm, r, &q[r]);
        for (uint32_t r = 0; r < n; r++)
                CHECK(!emulator_wait(w.e, w.comm, r, sequence[r], &q[r]), "an all_to_all_v failed");
        for (uint32_t r = 0; r < n; r++)
                for (uint32_t x = 0; x < n; x++) {
                        const unsigned char *got = memory[r][1] + vector[r][3 * n + x];

                        CHECK(!memcmp(got, memory[x][0] + vector[x][n + r], pair_count(x, r)),
                              "all_to_all_v: %u to %u is wrong", x, r);
                        CHECK(got[pair_count(x, r)] == 0xa5, "all_to_all_v: %u to %u is too long", x, r);
                        n_compared++;
                }
        world_deinit(&w);
}

/* ---- what must be noticed ------------------------------------------------------------------------------------------
 */
/* Ranks of different nodes that call different things: everybody who waits for the other hears of it. */
static void mismatch(void) {
        static const struct placement two = {2, {0, 1}};
        struct emulator_request q = {};
        uint32_t sequence[2], status;
        uint64_t in = 5, out[2];
        struct world w;

        world_init(&w, &two, 2, STAGING_PACKET, 0, 0, seed);
        q.operation = RING_OP_ALL_REDUCE;
        q.type = RMX_INT32;
        q.in_bytes = q.out_bytes = 8;
        q.count = 2;
        q.inlined = true;
        q.in = &in;
        for (uint32_t r = 0; r < 2; r++) {
                q.out = &out[r];
                q.redop = r ? RMX_MAX : RMX_SUM;
                sequence[r] = emulator_ring(w.e, w.comm, r, &q);
        }
        for (uint32_t r = 0; r < 2; r++) {
                q.out = &out[r];
                status = emulator_wait(w.e, w.comm, r, sequence[r], &q);
                CHECK((status & 0xffff) == RMX_E_MISMATCH, "rank %u got status %x", r, status);
        }
        world_deinit(&w);
}

/* ---- looking -------------------------------------------------------------------------------------------------------
 */
/* What a rank asks for alone: a broadcast from rank 0, or a send to the other rank. */
static void ring_alone(struct world *w, uint32_t rank, uint32_t operation, uint64_t bytes, unsigned char **ret_out) {
        struct emulator_request q = {};
        unsigned char *memory[2];

        for (uint32_t k = 0; k < 2; k++)
                memory[k] = (unsigned char *)emulator_memory(w->e, bytes);
        memset(memory[1], 0xa5, bytes);
        q.operation = operation;
        q.root = operation == RING_OP_SEND ? 1 - rank : 0;
        q.count = bytes;
        q.type = RMX_UINT8;
        q.in_bytes = rank ? 0 : bytes;
        q.out_bytes = operation == RING_OP_SEND ? 0 : bytes;
        q.in_buffer = emulator_buffer(w->e, w->session[rank], memory[0], bytes);
        q.out_buffer = emulator_buffer(w->e, w->session[rank], memory[1], bytes);
        CHECK(emulator_ring(w->e, w->comm, rank, &q), "a slot is not free");
        *ret_out = memory[1];
}

static struct wire *wire_of(const struct world *w, uint32_t rank) {
        void *wire[NODES_RANKS_MAX];

        nodes_wires(w->nodes, rank, wire);
        return (struct wire *)wire[1 - rank];
}

/* Packets in a wire are not looked at before the word says that they have come: a look at them is a look over the bus.
 */
static void nothing_before_it_is_told(void) {
        static const struct placement two = {2, {0, 1}};
        const uint32_t channel = staging_channel(STAGING_PACKET, 0, 1);
        unsigned char *out;
        struct wire *wire;
        struct world w;

        world_init(&w, &two, 1, STAGING_PACKET, 0, 0, seed);
        wire = wire_of(&w, 1);
        ring_alone(&w, 1, RING_OP_BROADCAST, 8, &out);
        ((uint64_t *)(void *)wire->in[channel][0])[0] = UINT64_C(1) << 32 | 0x55667788; /* a packet of chunk 1 */
        ((uint64_t *)(void *)wire->in[channel][0])[1] = UINT64_C(1) << 32 | 0x11223344;
        for (uint32_t i = 0; i < 100; i++)
                emulator_turn(w.e, "a turn");
        CHECK(out[0] == 0xa5, "a chunk was taken that nobody had told of");
        __atomic_store_n(&wire->come[channel][0], 1, __ATOMIC_RELEASE);
        for (uint32_t i = 0; i < 100 && out[0] == 0xa5; i++)
                emulator_turn(w.e, "a turn");
        CHECK(out[0] == 0x88 && out[7] == 0x11, "a chunk that was told of was not taken");
        world_deinit(&w);
}

/* A rank that nobody takes anything from fills the slots, and writes on when it has been told of room. */
static void no_more_than_there_is_room_for(uint32_t operation, uint32_t channel) {
        static const struct placement two = {2, {0, 1}};
        unsigned char *out;
        struct wire *wire;
        struct world w;

        world_init(&w, &two, 1, STAGING_BULK, 0, 0, seed);
        wire = wire_of(&w, 0);
        ring_alone(&w, 0, operation, UINT64_C(2048) * 15 * 20, &out);
        for (uint32_t room = 0; room < 3; room++) {
                __atomic_store_n(&wire->room[channel], room, __ATOMIC_RELEASE);
                for (uint32_t i = 0; i < 200; i++)
                        emulator_turn(w.e, "a turn");
                CHECK(__atomic_load_n(&wire->pushed[channel], __ATOMIC_RELAXED) == room + WIRE_SLOTS,
                      "%u chunks with room for %u", wire->pushed[channel], room + WIRE_SLOTS);
        }
        world_deinit(&w);
}

/* However long there is something to do: a worker looks up now and then, for who wants to stop it. */
static void never_for_long(uint32_t operation, uint32_t channel) {
        static const struct placement two = {2, {0, 1}};
        const uint32_t parts = 20, most = TASK_PARTS_FAR / STAGING_DATA_LANES + 1;
        uint32_t pushed = 0, turns = 0;
        unsigned char *out;
        struct wire *wire;
        struct world w;

        world_init(&w, &two, 1, STAGING_BULK, 0, 0, seed);
        wire = wire_of(&w, 0);
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) /* there is always room, as if all had been taken at once */
                wire->room[c] = 0x40000000;
        ring_alone(&w, 0, operation, UINT64_C(2048) * 15 * parts, &out);
        while (pushed < parts) {
                const uint32_t before = pushed;

                emulator_turn(w.e, "nothing is pushed though there is room");
                pushed = __atomic_load_n(&wire->pushed[channel], __ATOMIC_RELAXED);
                CHECK(pushed - before <= most, "a task went on for %u parts", pushed - before);
                turns += pushed != before;
                if (turns == 2 && pushed != before) { /* what it keeps when it is stopped goes on */
                        emulator_restart(w.e, 0);
                        pushed = __atomic_load_n(&wire->pushed[channel], __ATOMIC_RELAXED);
                        CHECK(pushed < parts, "a kernel was stopped only when there was nothing left to do");
                }
        }
        CHECK(turns >= parts / most, "%u turns", turns);
        world_deinit(&w);
}

/* In a process of its own: does it end well? */
static bool survives(enum nodes_fault fault, uint64_t fault_at) {
        static const struct placement four = {4, {0, 0, 1, 1}};
        static struct traffic t;
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                struct world w;

                if (!freopen("/dev/null", "w", stderr))
                        _exit(0);
                world_init(&w, &four, 2, STAGING_BULK, 0, 0, seed);
                nodes_break(w.nodes, fault, fault_at);
                traffic_init(&t, w.e, w.comm, 4, w.session, 3, BYTES, seed);
                /* Far more than there are batches: where a proxy looks rarely, one takes what several requests send. */
                traffic_run(&t, fault == NODES_DROP_CREDITS ? 16 * WIRE_BATCHES : 60);
                _exit(0);
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void faults(void) {
        CHECK(survives(NODES_RIGHT, 0), "a fabric that is right is not believed");
        for (uint32_t fault = NODES_RIGHT + 1; fault < NODES_FAULTS; fault++) {
                bool found = false;

                for (uint64_t at = 0; at < 6 && !found; at++)
                        found = !survives((enum nodes_fault)fault, 20 + 17 * at);
                CHECK(found, "fault %u of the fabric was not noticed", fault);
        }
}

int main(void) {
        const uint32_t n_placements = sizeof(placements) / sizeof(placements[0]);

        seed = test_seed();
        for (uint32_t i = 0; i < n_placements; i++) {
                const struct placement *p = &placements[i];
                const uint32_t jitter = (i + seed) % 2 ? EMULATOR_JITTER : 0;

                sweep(p, 2, STAGING_PACKET, PLAN_ONE_SHOT, 0, jitter);
                sweep(p, 3, STAGING_BULK, PLAN_ONE_SHOT, 0u - 7, EMULATOR_JITTER - jitter);
                sweep(p, 1, STAGING_PACKET, PLAN_TWO_SHOT, 0u - 4, jitter);
        }
        inlined();
        transfers(&placements[1], 5, true);
        transfers(&placements[2], 3001, false);
        transfers(&placements[4], 90001, false);
        vectors(&placements[4], STAGING_PACKET);
        vectors(&placements[3], STAGING_BULK);
        mismatch();
        nothing_before_it_is_told();
        no_more_than_there_is_room_for(RING_OP_BROADCAST, staging_channel(STAGING_BULK, 0, 1));
        no_more_than_there_is_room_for(RING_OP_SEND, staging_channel(STAGING_BULK, STAGING_REGION_P2P, 1));
        never_for_long(RING_OP_BROADCAST, staging_channel(STAGING_BULK, 0, 1));
        never_for_long(RING_OP_SEND, staging_channel(STAGING_BULK, STAGING_REGION_P2P, 1));
        faults();
        printf("%llu requests compared, %llu chunks between nodes\n", (unsigned long long)n_compared,
               (unsigned long long)n_carried);
        return n_compared < 300 || n_carried < 10000;
}
