/* SPDX-License-Identifier: MIT */
/*
 * Hierarchical plans on GPUs: sums are made inside a node first, and ranks exchange them with their like on other
 * nodes. All operations that have such plans, types and reductions, in and out of place, from buffers and inline, odd
 * counts, on nodes that are equal and that are not; compared bit for bit with the host's reductions in node order. Then
 * what goes to other nodes, byte by byte as the plan has it, and what is told when ranks call different things.
 */
extern "C" {
#include "gpu/mirror.h"
#include "plan/nodes.h"
#include "plan/rails.h"
#include "util/type.h"
}
#include <string.h>

#include "tests/device/node_world.h"
#include "tests/device/traffic.h"

#include "ring/line.h"

#define BYTES 20000u

static uint64_t seed;

static const struct placement placements[] = {
        {4, {0, 0, 1, 1}},
        {8, {0, 0, 0, 0, 1, 1, 1, 1}},
        {8, {0, 0, 1, 1, 2, 2, 3, 3}},
        {6, {1, 0, 2, 2, 2, 0}}, /* uneven, and in no order */
        {4, {0, 1, 1, 0}},       /* carriers of one shard are not in the order of their nodes */
        {5, {0, 1, 1, 1, 1}},
        {3, {0, 1, 2}},
        {2, {0, 1}},
        {8, {0, 0, 0, 0, 1, 1, 1, 1}, 2},
};
#define N_PLACEMENTS (sizeof(placements) / sizeof(placements[0]))

static const uint32_t staged[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_BROADCAST, RING_OP_ALL_GATHER,
                                  RING_OP_REDUCE_SCATTER};

static void choose(struct world *w, const struct placement *p, uint32_t all_reduce) {
        for (uint32_t operation : staged)
                emulator_choose_nodes(w->e, w->comm, operation,
                                      operation == RING_OP_ALL_REDUCE ? all_reduce : (uint32_t)PLAN_HIERARCHICAL_STAGED,
                                      p->node);
}

/* ---- what comes out ------------------------------------------------------------------------------------------------
 */
static const struct placement *where; /* of the traffic that is under way */

static struct collective_case in_node_order(uint32_t n, uint64_t random, uint64_t max_bytes) {
        struct collective_case c = case_random(n, random, max_bytes);

        c.node = where->node;
        return c;
}

/* Requests of all kinds, with kernels stopped and launched in the middle. */
static void sweep(const struct placement *p, uint32_t workers, uint32_t all_reduce, uint32_t chunks, uint32_t flags) {
        static struct traffic t;
        struct world w;

        where = p;
        world_init(&w, p, workers, STAGING_PACKET, chunks, flags, mix(seed + workers * 7 + p->n * 64 + all_reduce));
        choose(&w, p, all_reduce);
        traffic_init(&t, w.e, w.comm, p->n, w.session, 3, BYTES, mix(seed + p->n + all_reduce));
        t.choose = in_node_order;
        world_sweep(&w, &t, test_full() ? 30 : 5, 6, seed);
}

/* ---- what goes to other nodes --------------------------------------------------------------------------------------
 */
static struct collective_case form; /* of each request */
static uint64_t look_ns;            /* of proxies; see nodes_look */

#define LOOK_NS 250u /* at two wires (docs/gpu.md) */

static struct collective_case as_told(uint32_t n, uint64_t random, uint64_t max_bytes) {
        (void)n, (void)random, (void)max_bytes;
        return form;
}

struct measured {
        uint64_t data, told;       /* of the busiest rank */
        uint64_t messages, chunks; /* to other nodes, of the rank that makes most of them */
};

/* One request of `count` elements. The plan NULL: as everybody exchanges with everybody. */
static struct measured measure(const struct placement *p, uint32_t operation, uint32_t algorithm, uint32_t type,
                               uint64_t count) {
        const struct plan_geometry geometry = {STAGING_PACKET_CHUNK, STAGING_SLOTS};
        struct plan_load load[PLAN_RANKS_MAX] = {};
        struct plan_shape shape = {};
        static struct traffic t;
        struct measured most = {};
        struct plan_nodes nodes;
        struct plan plan;
        struct world w;

        world_init(&w, p, 2, STAGING_PACKET, 0, 0, seed);
        nodes_look(w.nodes, look_ns);
        CHECK(!plan_nodes_init(&nodes, p->n, p->node), "the nodes are wrong");
        CHECK(!plan_build_nodes(operation, algorithm, p->n, &nodes, &plan), "no such plan");
        if (algorithm >= PLAN_HIERARCHICAL_STAGED)
                emulator_choose_nodes(w.e, w.comm, operation, algorithm, p->node);
        else
                emulator_choose(w.e, w.comm, operation, algorithm, STAGING_PACKET);
        form = {};
        form.n = p->n;
        form.operation = operation;
        form.type = type;
        form.root = operation_has_root(operation) ? p->n - 1 : 0;
        form.count = count;
        form.node = algorithm >= PLAN_HIERARCHICAL_STAGED ? p->node : NULL;
        traffic_init(&t, w.e, w.comm, p->n, w.session, 1, count * p->n * type_size(type) + 64, seed);
        t.choose = as_told;
        traffic_run(&t, 1);
        while (!nodes_quiet(w.nodes))
                emulator_turn(w.e, "the fabric keeps something");
        shape.count = count;
        shape.element_bytes = (uint32_t)type_size(type);
        shape.partial_bytes = (uint32_t)type_accumulator_size(type, RMX_SUM);
        shape.root = form.root;
        plan_load_ranks(&plan, &geometry, &shape, load);
        for (uint32_t r = 0; r < p->n; r++) {
                uint64_t told, data = nodes_data(w.nodes, r, &told);
                uint64_t chunks, messages = nodes_messages(w.nodes, r, &chunks);
                /* Packets are whole. */
                uint64_t rest = load[r].chunks_out * 7 * (shape.partial_bytes / shape.element_bytes);

                CHECK(data >= load[r].bytes_out && data <= load[r].bytes_out + (count % 64 ? rest : 0),
                      "operation %u, %s, %llu elements of type %u: rank %u of %u sent %llu bytes to other nodes, and "
                      "not %llu",
                      operation, plan_algorithm_name(algorithm), (unsigned long long)count, type, r, p->n,
                      (unsigned long long)data, (unsigned long long)load[r].bytes_out);
                most.data = data > most.data ? data : most.data;
                most.told = told > most.told ? told : most.told;
                most.messages = messages > most.messages ? messages : most.messages;
                most.chunks = chunks > most.chunks ? chunks : most.chunks;
        }
        n_compared += t.finished;
        traffic_deinit(&t);
        world_deinit(&w);
        return most;
}

static void say(const char *what, const struct placement *p, uint32_t operation, uint32_t flat, uint32_t hierarchical,
                uint32_t type, uint64_t count, double least) {
        const struct measured before = measure(p, operation, flat, type, count);
        const struct measured after = measure(p, operation, hierarchical, type, count);

        printf("%-8s %-14s %-9s %6llu elements: %7llu bytes to other nodes and %llu words, with %s %7llu and %llu\n",
               what, plan_operation_name(operation), type == RMX_BFLOAT16 ? "bfloat16" : "float32",
               (unsigned long long)count, (unsigned long long)before.data, (unsigned long long)before.told,
               plan_algorithm_name(hierarchical), (unsigned long long)after.data, (unsigned long long)after.told);
        CHECK((double)before.data >= least * (double)after.data, "that is not %.1f times less", least);
        CHECK(after.told <= before.told, "more is told");
}

static void loads(void) {
        const struct placement *two = &placements[1], *four = &placements[2];
        const uint32_t one = PLAN_HIERARCHICAL_STAGED, cut = PLAN_HIERARCHICAL_STAGED_SCATTER;

        say("2x4", two, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, one, RMX_FLOAT32, 8192, 4);
        say("2x4", two, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, cut, RMX_FLOAT32, 8192, 4);
        say("2x4", two, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, one, RMX_BFLOAT16, 8192, 2);
        say("2x4", two, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, cut, RMX_BFLOAT16, 8192, 2.6);
        say("4x2", four, RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, cut, RMX_FLOAT32, 8192, 2);
        say("2x4", two, RING_OP_ALL_GATHER, PLAN_DIRECT, one, RMX_FLOAT32, 2048, 4);
        say("4x2", four, RING_OP_ALL_GATHER, PLAN_DIRECT, one, RMX_FLOAT32, 2048, 2);
        say("2x4", two, RING_OP_REDUCE_SCATTER, PLAN_DIRECT, one, RMX_FLOAT32, 2048, 4);
        say("2x4", two, RING_OP_BROADCAST, PLAN_DIRECT, one, RMX_FLOAT32, 8192, 16);
        say("2x4", two, RING_OP_REDUCE, PLAN_DIRECT, one, RMX_FLOAT32, 8192, 4);
        for (uint32_t i = 0; i < N_PLACEMENTS; i++) /* whatever the count */
                for (uint32_t operation : staged)
                        measure(&placements[i], operation, one, i % 2 ? RMX_FLOAT16 : RMX_FLOAT32,
                                1 + mix(seed + i * 8 + operation) % 3000);
}

/* An all_reduce of so many bytes over two nodes of two: of what a proxy finds, look by look, how many messages does it
 * make if time does not count, and how many if there is a measure of short ones? */
static void say_messages(uint32_t algorithm, uint32_t type, uint64_t bytes, uint64_t *any, uint64_t *paced) {
        const struct placement *two = &placements[0];
        const uint64_t count = bytes / type_size(type);
        struct measured before, after;

        before = measure(two, RING_OP_ALL_REDUCE, algorithm, type, count);
        look_ns = LOOK_NS;
        after = measure(two, RING_OP_ALL_REDUCE, algorithm, type, count);
        look_ns = 0;
        printf("2x2      all_reduce of %7llu bytes, %-8s, %-27s: %4llu chunks in %3llu messages, paced %3llu\n",
               (unsigned long long)bytes, type == RMX_BFLOAT16 ? "bfloat16" : "float32", plan_algorithm_name(algorithm),
               (unsigned long long)before.chunks, (unsigned long long)before.messages,
               (unsigned long long)after.messages);
        /* One more of a strand may be by chance. */
        CHECK(before.chunks == after.chunks && after.messages <= before.messages + WIRE_STRANDS,
              "a measure makes more messages");
        *any += before.messages;
        *paced += after.messages;
}

static void messages(void) {
        static const uint32_t algorithms[] = {PLAN_TWO_SHOT, PLAN_HIERARCHICAL_STAGED,
                                              PLAN_HIERARCHICAL_STAGED_SCATTER};
        const uint64_t most = test_full() ? 2097152 : 131072;

        for (uint64_t bytes = 8192; bytes <= most; bytes *= 16) {
                /* Of 128 KB each strand has half, and few looks find more than one message then. */
                const uint64_t percent = bytes == 131072 ? 97 : 90;
                bool fewer = bytes == 8192;

                for (uint32_t tries = 0; tries == 0 || (!fewer && tries < 5);
                     tries++) { /* a busy machine has its say */
                        uint64_t any = 0, paced = 0;

                        for (uint32_t algorithm : algorithms) {
                                say_messages(algorithm, RMX_FLOAT32, bytes, &any, &paced);
                                say_messages(algorithm, RMX_BFLOAT16, bytes, &any, &paced);
                        }
                        fewer = fewer || 100 * paced <= percent * any;
                }
                CHECK(fewer, "with a measure of short messages there are as many");
        }
}

/* ---- what is called ------------------------------------------------------------------------------------------------
 */
/* Would the rank's result have something in it of what `who` has called, or of what others have? */
static bool concerned(uint32_t operation, uint32_t r, uint32_t who) {
        if (operation == RING_OP_REDUCE)
                return r == 0;
        if (operation == RING_OP_BROADCAST)
                return r != 0 && (who == 0 || r == who);
        return true;
}

/* One rank calls something else: whoever would have a result with that in it does not end well. Who hears of it from
 * the rank itself names it; that one sees it the other way round, and so do those to whom it tells that. */
static void differs(const struct placement *p, uint32_t operation, uint32_t algorithm, uint32_t who, bool count) {
        struct emulator_request q[EMULATOR_RANKS_MAX];
        unsigned char *memory[EMULATOR_RANKS_MAX];
        uint32_t sequence[EMULATOR_RANKS_MAX], id[EMULATOR_RANKS_MAX], n_told = 0;
        bool over[EMULATOR_RANKS_MAX] = {};
        struct world w;

        world_init(&w, p, 2, STAGING_PACKET, 0, 0, mix(seed + who + operation));
        choose(&w, p, algorithm);
        emulator_distrust(w.e, w.comm);
        for (uint32_t r = 0; r < p->n; r++) {
                memory[r] = (unsigned char *)emulator_memory(w.e, 16384);
                id[r] = emulator_buffer(w.e, w.session[r], memory[r], 16384);
                q[r] = {};
                q[r].operation = operation;
                q[r].type = r == who && !count ? RMX_UINT32 : RMX_INT32;
                q[r].count = r == who && count ? 128 : 64;
                q[r].in_buffer = q[r].out_buffer = id[r];
                q[r].out_offset = 8192;
                q[r].in_bytes = q[r].out_bytes = 8192;
        }
        for (uint32_t r = 0; r < p->n; r++)
                sequence[r] = emulator_ring(w.e, w.comm, r, &q[r]);
        while (!emulator_rests(w.e)) /* some wait for ever, until the communicator is ended */
                for (uint32_t r = 0; r < p->n; r++) {
                        uint32_t status;

                        if (over[r] || !emulator_poll(w.e, w.comm, r, sequence[r], &q[r], &status))
                                continue;
                        over[r] = true;
                        CHECK((status & 0xffff) == RMX_E_MISMATCH || (!status && !concerned(operation, r, who)),
                              "operation %u, rank %u of %u got status %x where %u differs", operation, r, p->n, status,
                              who);
                }
        for (uint32_t r = 0; r < p->n; r++) {
                const uint32_t status = emulator_reported(w.e, w.comm, r);

                if (!status)
                        continue;
                n_told += r != who && status >> 16 == who + 1;
                CHECK((status & 0xffff) == RMX_E_MISMATCH && status >> 16 && status >> 16 <= p->n, "rank %u reports %x",
                      r, status);
        }
        CHECK(n_told > 0 || operation == RING_OP_BROADCAST || operation == RING_OP_REDUCE,
              "nobody says that %u differs", who);
        for (uint32_t r = 0; r < p->n; r++)
                CHECK(over[r] || !concerned(operation, r, who) || emulator_reported(w.e, w.comm, r) ||
                              operation_has_root(operation),
                      "operation %u: rank %u waits, and nobody tells it that %u differs", operation, r, who);
        n_compared++;
        world_deinit(&w);
}

static void mismatches(void) {
        for (uint32_t i = 0; i < 4; i++)
                for (uint32_t operation : staged)
                        for (uint32_t k = 0; k < 2; k++) {
                                const struct placement *p = &placements[(i + seed) % 5];
                                const uint32_t who = (uint32_t)mix(seed + i * 16 + operation * 2 + k) % p->n;

                                if (operation == RING_OP_ALL_REDUCE || !k)
                                        differs(p, operation,
                                                k ? PLAN_HIERARCHICAL_STAGED_SCATTER : PLAN_HIERARCHICAL_STAGED, who,
                                                i % 2);
                        }
}

int main(void) {
        seed = test_seed();
        for (uint32_t i = 0; i < N_PLACEMENTS; i++) {
                const uint32_t jitter = (i + seed) % 2 ? EMULATOR_JITTER : 0;

                sweep(&placements[i], 2, PLAN_HIERARCHICAL_STAGED, 0, jitter);
                sweep(&placements[i], 3, PLAN_HIERARCHICAL_STAGED_SCATTER, 0u - 7, EMULATOR_JITTER - jitter);
        }
        loads();
        messages();
        mismatches();
        printf("%llu requests compared, %llu messages between nodes\n", (unsigned long long)n_compared,
               (unsigned long long)n_carried);
        return n_compared < 600 || n_carried < 10000;
}
