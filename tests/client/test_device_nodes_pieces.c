/* SPDX-License-Identifier: MIT */
/*
 * Several nodes: reduce_scatter, all_gather, all_to_all and broadcast made of requests inside nodes and between them.
 * What the ranks put on their streams is carried out here, on numbers: each part when all of its communicator's ranks
 * have come to it.
 */
#include <stdlib.h>

#include "tests/client/nodes_rig.h"

#define RANKS    8u
#define MEMORY   (5u << 20)
#define MANY     (128u << 20) /* more than there is: nobody touches it */
#define POISON   0xa5
#define TOTAL    65536u /* from here on */
#define NO_PIECE 65552u

static char in_of[RANKS][MEMORY] __attribute__((aligned(256)));
static char out_of[RANKS][MEMORY] __attribute__((aligned(256)));

static void start(const char *nodes) {
        nodes_open(nodes);
        rig.crew.fake.exchange_max = MANY;
        nodes_join();
        for (uint32_t rank = 0; rank < rig.crew.n; rank++) {
                const int32_t device = rig.crew.comm[rank]->device->number;

                fake_gpu_add(rig.gpu, in_of[rank], MEMORY, 10 + 2 * rank)->device = device;
                fake_gpu_add(rig.gpu, out_of[rank], MEMORY, 11 + 2 * rank)->device = device;
        }
}

/* ---- carrying it out --------------------------------------------------------------------------------------------- */
struct player {
        uint32_t next, end; /* launches */
};
static struct player player[RANKS];

/* What the rank has to do with a part: its place there, and how many there are. */
static const struct rmx_comm *part_of(uint32_t rank, uint32_t handle) {
        const struct device_nodes *nodes = nodes_of(rank);

        if (handle == nodes->local->handle)
                return nodes->local;
        assert_int_equal(handle, nodes->across->handle);
        return nodes->across;
}

/* Where the line says that it is; of an exchange, where the kernel is told. */
static char *address(const struct fake_gpu_launch *launch, uint32_t word, const void *told) {
        const struct client_gpu_bell *bell = &launch->bell;
        struct fake_gpu_handle handle;

        if (launch->kind == FAKE_GPU_EXCHANGE || bell->inlined)
                return (char *)(uintptr_t)told;
        for (uint32_t i = 0; i < FAKE_BUFFERS; i++) {
                const struct fake_device_buffer *buffer = &rig.crew.fake.device_buffers[i];

                if (!bell->word[word] || buffer->id != bell->word[word])
                        continue;
                memcpy(&handle, buffer->handle, sizeof(handle));
                return (char *)(uintptr_t)handle.base + bell->word[word + 1];
        }
        fail_msg("buffer %u is unknown", bell->word[word]);
        return NULL;
}

/* Memory of one rank's part may be the same in place only. */
static void check_places(uint32_t op, const char *in, size_t in_bytes, const char *out, size_t out_bytes, size_t own) {
        if (op == RING_OP_ALL_GATHER && in == out + own)
                return;
        if ((op == RING_OP_REDUCE_SCATTER && out == in + own) || (op == RING_OP_BROADCAST && in == out))
                return;
        assert_true(in >= out + out_bytes || out >= in + in_bytes);
}

static void add(uint32_t *sum, const char *from, size_t bytes) {
        for (size_t i = 0; i < bytes / sizeof(*sum); i++)
                sum[i] += ((const uint32_t *)(const void *)from)[i];
}

/* One part, all of whose ranks are here: by their places in it. */
static void carry_out(const struct fake_gpu_launch *const *launch, uint32_t n) {
        const struct client_gpu_bell *first = &launch[0]->bell;
        const size_t bytes = (size_t)first->word[RING_W_COUNT_LO] * sizeof(uint32_t);
        const uint32_t op = first->word[RING_W_HEAD] >> 16 & 0xff, root = first->word[RING_W_PEER];
        const bool each = op == RING_OP_ALL_TO_ALL;
        const size_t in_bytes = op == RING_OP_REDUCE_SCATTER || each ? bytes * n : bytes;
        const size_t out_bytes = op == RING_OP_ALL_GATHER || each ? bytes * n : bytes;
        char *all = calloc(n, bytes * n);

        assert_non_null(all);
        for (uint32_t i = 0; i < n; i++) {
                const struct client_gpu_bell *bell = &launch[i]->bell;
                const bool gives = op != RING_OP_BROADCAST || i == root;
                const char *in = gives ? address(launch[i], RING_W_IN_BUFFER, bell->in) : NULL;

                assert_int_equal(bell->word[RING_W_HEAD], first->word[RING_W_HEAD]);
                assert_int_equal(bell->word[RING_W_COUNT_LO], first->word[RING_W_COUNT_LO]);
                assert_int_equal(bell->word[RING_W_PEER], root);
                assert_int_equal(bell->in_bytes, gives ? in_bytes : 0);
                assert_int_equal(bell->out_bytes, out_bytes);
                assert_int_equal(bell->number, 0);
                assert_non_null(bell->gate);
                assert_false(bell->started);
                if (in)
                        check_places(op, in, in_bytes, address(launch[i], RING_W_OUT_BUFFER, bell->out), out_bytes,
                                     i * bytes);
                if (op == RING_OP_ALL_GATHER)
                        memcpy(all + i * bytes, in, bytes);
                else if (op == RING_OP_BROADCAST && gives)
                        memcpy(all, in, bytes);
                else if (op == RING_OP_REDUCE_SCATTER)
                        add((uint32_t *)(void *)all, in, in_bytes);
                for (uint32_t to = 0; to < n && each; to++)
                        memcpy(all + (to * n + i) * bytes, in + to * bytes, bytes);
        }
        for (uint32_t i = 0; i < n; i++)
                memcpy(address(launch[i], RING_W_OUT_BUFFER, launch[i]->bell.out),
                       all + (op == RING_OP_REDUCE_SCATTER ? i * bytes
                              : each                       ? i * out_bytes
                                                           : 0),
                       out_bytes);
        free(all);
}

/* The part that the rank has come to, if all others of it have, too. */
static bool step_together(uint32_t rank) {
        const struct fake_gpu_launch *launch[RANKS] = {0}, *mine = fake_gpu_launched(rig.gpu, player[rank].next);
        const uint32_t handle = mine->bell.word[RING_W_COMM], n = part_of(rank, handle)->n_ranks;
        uint32_t here = 0, who[RANKS];

        for (uint32_t other = 0; other < rig.crew.n; other++) {
                const struct fake_gpu_launch *theirs;

                if (player[other].next == player[other].end)
                        continue;
                theirs = fake_gpu_launched(rig.gpu, player[other].next);
                if (theirs->kind != mine->kind || group(theirs->bell.word[RING_W_COMM]) != group(handle))
                        continue;
                launch[part_of(other, theirs->bell.word[RING_W_COMM])->rank] = theirs;
                who[here++] = other;
        }
        if (here < n)
                return false;
        assert_int_equal(here, n);
        carry_out(launch, n);
        for (uint32_t i = 0; i < n; i++)
                player[who[i]].next++;
        return true;
}

static bool step(uint32_t rank) {
        const struct fake_gpu_launch *launch;

        if (player[rank].next == player[rank].end)
                return false;
        launch = fake_gpu_launched(rig.gpu, player[rank].next);
        if (launch->kind == FAKE_GPU_EXCHANGE || launch->kind == FAKE_GPU_CALL)
                return step_together(rank);
        if (launch->kind == FAKE_GPU_COPY)
                memcpy(launch->to, launch->from, launch->bytes);
        player[rank].next++;
        return true;
}

static void play(void) {
        bool moved = true;

        while (moved) {
                moved = false;
                for (uint32_t rank = 0; rank < rig.crew.n; rank++)
                        while (step(rank))
                                moved = true;
        }
        for (uint32_t rank = 0; rank < rig.crew.n; rank++)
                assert_int_equal(player[rank].next, player[rank].end); /* or some wait for ever */
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
static uint32_t value(uint32_t rank, size_t i) {
        return 1000003u * (rank + 1) + (uint32_t)i;
}

static void fill(char *memory, uint32_t rank, size_t count) {
        for (size_t i = 0; i < count; i++)
                ((uint32_t *)(void *)memory)[i] = value(rank, i);
}

struct shape {
        uint32_t op, root;
        size_t count;
        bool in_place;
};

static size_t in_count(const struct shape *s) {
        return s->op == RING_OP_REDUCE_SCATTER || s->op == RING_OP_ALL_TO_ALL ? s->count * rig.crew.n : s->count;
}

static size_t out_count(const struct shape *s) {
        return s->op == RING_OP_ALL_GATHER || s->op == RING_OP_ALL_TO_ALL ? s->count * rig.crew.n : s->count;
}

static char *in_place(const struct shape *s, uint32_t rank) {
        if (!s->in_place)
                return in_of[rank];
        return s->op == RING_OP_ALL_GATHER ? out_of[rank] + rank * s->count * sizeof(uint32_t) : out_of[rank];
}

static char *out_place(const struct shape *s, uint32_t rank) {
        return s->in_place && s->op == RING_OP_REDUCE_SCATTER ? out_of[rank] + rank * s->count * sizeof(uint32_t)
                                                              : out_of[rank];
}

static int call(const struct shape *s, uint32_t rank, void *stream) {
        const char *in = in_place(s, rank);
        char *out = out_place(s, rank);

        switch (s->op) {
        case RING_OP_REDUCE_SCATTER:
                return rmx_reduce_scatter(rig.crew.comm[rank], in, out, s->count, RMX_UINT32, RMX_SUM, stream);
        case RING_OP_ALL_GATHER:
                return rmx_all_gather(rig.crew.comm[rank], in, out, s->count, RMX_UINT32, stream);
        case RING_OP_ALL_TO_ALL:
                return rmx_all_to_all(rig.crew.comm[rank], in, out, s->count, RMX_UINT32, stream);
        default:
                return rmx_broadcast(rig.crew.comm[rank], rank == s->root ? in : NULL, out, s->count, RMX_UINT32,
                                     s->root, stream);
        }
}

static uint32_t expected(const struct shape *s, uint32_t rank, size_t i) {
        uint32_t sum = 0;

        switch (s->op) {
        case RING_OP_REDUCE_SCATTER:
                for (uint32_t from = 0; from < rig.crew.n; from++)
                        sum += value(from, rank * s->count + i);
                return sum;
        case RING_OP_ALL_GATHER:
                return value((uint32_t)(i / s->count), i % s->count);
        case RING_OP_ALL_TO_ALL:
                return value((uint32_t)(i / s->count), rank * s->count + i % s->count);
        default:
                return value(s->root, i);
        }
}

static void check_result(const struct shape *s) {
        for (uint32_t rank = 0; rank < rig.crew.n; rank++) {
                const char *out = out_place(s, rank);

                for (size_t i = 0; i < out_count(s); i++)
                        if (((const uint32_t *)(const void *)out)[i] != expected(s, rank, i))
                                fail_msg("operation %u, root %u, count %zu, rank %u: element %zu is wrong", s->op,
                                         s->root, s->count, rank, i);
                if (!s->in_place) /* and nothing behind it is touched */
                        assert_int_equal((unsigned char)out[out_count(s) * sizeof(uint32_t)], POISON);
        }
}

/* parts: launches of each rank, or 0. */
static void run(const struct shape *s, uint32_t parts) {
        rig.gpu->n_launches = rig.first = 0; /* there is room for some hundred */
        for (uint32_t rank = 0; rank < rig.crew.n; rank++) {
                memset(out_of[rank], POISON, out_count(s) * sizeof(uint32_t) + 1);
                fill(in_place(s, rank), rank, in_count(s));
        }
        for (uint32_t rank = 0; rank < rig.crew.n; rank++) {
                player[rank].next = rig.gpu->n_launches;
                assert_int_equal(call(s, rank, STREAM(rank)), RMX_OK);
                player[rank].end = rig.gpu->n_launches;
                if (parts)
                        assert_int_equal(player[rank].end - player[rank].next, parts);
        }
        play();
        check_result(s);
}

static void test_results(void **state) {
        static const struct {
                const char *nodes;
                uint32_t local, across;
        } cases[] = {{"0011", 2, 2}, {"110022", 2, 3}, {"000111", 3, 2}, {"11110000", 4, 2}, {"00112233", 2, 4}};

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const uint32_t n = cases[i].local * cases[i].across, across = cases[i].across;
                const uint32_t units = TOTAL / 16 / cases[i].local + 1; /* of a node's rank, of a broadcast */

                start(cases[i].nodes);
                for (uint32_t in_place = 0; in_place < 2; in_place++) {
                        struct shape s = {.count = (units / 2 + 1) * 4, .in_place = in_place};

                        s.op = RING_OP_REDUCE_SCATTER;
                        run(&s, across + 1 + 1);
                        s.op = RING_OP_ALL_GATHER;
                        run(&s, across + 1 + 1);
                        s.op = RING_OP_ALL_TO_ALL;
                        if (!in_place) /* which is refused */
                                run(&s, across + 1 + 1);
                        s.op = RING_OP_BROADCAST;
                        s.count = (size_t)units * cases[i].local * 4;
                        for (s.root = 0; s.root < n; s.root++)
                                run(&s, 2 + 1);
                }
                crew_stop(&rig.crew);
        }
}

/* Larger ones after smaller ones and the other way round: own memory that grows, and is used again. */
static void test_sizes(void **state) {
        static const struct {
                size_t count;
                uint32_t allocated; /* by then; a megabyte is the least, for each rank and direction, an all_to_all
                                       needs twice of */
        } cases[] = {{4096, 8}, {8192, 8}, {262144, 20}, {4100, 20}, {262144, 20}};

        (void)state;
        start("0011");
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct shape s = {.op = RING_OP_ALL_GATHER, .count = cases[i].count};

                run(&s, 4);
                s.in_place = true;
                run(&s, 4);
                s.op = RING_OP_REDUCE_SCATTER;
                run(&s, 4);
                s.in_place = false;
                run(&s, 4);
                s.op = RING_OP_ALL_TO_ALL;
                run(&s, 4);
                assert_int_equal(rig.gpu->allocated, cases[i].allocated);
        }
        crew_stop(&rig.crew);
}

/* ---- which ------------------------------------------------------------------------------------------------------- */
static bool goes_whole(int r, uint32_t before) {
        assert_int_equal(r, RMX_OK);
        if (launches() == before + 1)
                launched(before, FAKE_GPU_CALL, NULL);
        return launches() == before + 1;
}

static bool gathers_whole(size_t bytes) {
        const uint32_t before = launches();

        return goes_whole(rmx_all_gather(rig.comm, in_of[0], out_of[0], bytes, RMX_UINT8, NULL), before);
}

static bool scatters_whole(size_t bytes, uint32_t redop) {
        const uint32_t before = launches();

        return goes_whole(rmx_reduce_scatter(rig.comm, in_of[0], out_of[0], bytes, RMX_UINT8, redop, NULL), before);
}

static bool swaps_whole(size_t bytes) {
        const uint32_t before = launches();

        return goes_whole(rmx_all_to_all(rig.comm, in_of[0], out_of[0], bytes, RMX_UINT8, NULL), before);
}

static bool casts_whole(size_t bytes) {
        const uint32_t before = launches();

        return goes_whole(rmx_broadcast(rig.comm, in_of[0], out_of[0], bytes, RMX_UINT8, 0, NULL), before);
}

static void test_which(void **state) {
        (void)state;
        start("0011");
        fake_gpu_add(rig.gpu, in_of[0], 4 * (size_t)MANY, 77)->device = rig.comm->device->number;
        fake_gpu_add(rig.gpu, out_of[0], 4 * (size_t)MANY, 78)->device = rig.comm->device->number;
        assert_true(gathers_whole(TOTAL / 4 - 16));
        assert_false(gathers_whole(TOTAL / 4));
        assert_true(gathers_whole(TOTAL / 4 + 8));
        assert_false(gathers_whole(MANY / 8));
        assert_true(gathers_whole(MANY / 8 + 16)); /* too much of the own memory */
        assert_true(scatters_whole(TOTAL / 4 - 16, RMX_SUM));
        assert_false(scatters_whole(TOTAL / 4, RMX_PROD));
        assert_false(scatters_whole(TOTAL / 4, RMX_MIN));
        assert_false(scatters_whole(TOTAL / 4, RMX_MAX));
        assert_true(scatters_whole(TOTAL / 4, RMX_AVG));
        assert_true(scatters_whole(TOTAL / 4 + 4, RMX_SUM));
        assert_false(scatters_whole(MANY / 8, RMX_SUM));
        assert_true(scatters_whole(MANY / 8 + 16, RMX_SUM));
        assert_true(swaps_whole(TOTAL / 4 - 16));
        assert_false(swaps_whole(TOTAL / 4));
        assert_true(swaps_whole(TOTAL / 4 + 8));
        assert_false(swaps_whole(MANY / 16));
        assert_true(swaps_whole(MANY / 16 + 16)); /* too much of the own memory */
        assert_true(casts_whole(TOTAL - 32));
        assert_false(casts_whole(TOTAL));
        assert_true(casts_whole(NO_PIECE));
        assert_true(casts_whole(TOTAL + 1));
        assert_false(casts_whole(MANY));
        assert_true(casts_whole(MANY + 32)); /* more than is exchanged */
        crew_stop(&rig.crew);

        nodes_open("0011"); /* no more is exchanged than the half of it */
        rig.crew.fake.exchange_max = TOTAL;
        nodes_join();
        fake_gpu_add(rig.gpu, in_of[0], MEMORY, 77)->device = rig.comm->device->number;
        fake_gpu_add(rig.gpu, out_of[0], MEMORY, 78)->device = rig.comm->device->number;
        assert_false(gathers_whole(TOTAL / 2));
        assert_true(gathers_whole(TOTAL / 2 + 16));
        assert_false(scatters_whole(TOTAL / 2, RMX_SUM));
        assert_true(scatters_whole(TOTAL / 2 + 16, RMX_SUM));
        assert_false(swaps_whole(TOTAL / 2));
        assert_true(swaps_whole(TOTAL / 2 + 16));
        crew_stop(&rig.crew);

        nodes_open("0011"); /* nor less than that */
        rig.crew.fake.exchange_max = MANY;
        rig.crew.fake.exchange_more = TOTAL;
        nodes_join();
        fake_gpu_add(rig.gpu, in_of[0], MEMORY, 77)->device = rig.comm->device->number;
        fake_gpu_add(rig.gpu, out_of[0], MEMORY, 78)->device = rig.comm->device->number;
        assert_true(gathers_whole(TOTAL / 2));
        assert_false(gathers_whole(TOTAL / 2 + 16));
        crew_stop(&rig.crew);

        start("001122"); /* a kernel more, so more bytes */
        assert_true(gathers_whole(TOTAL / 4 - 16));
        assert_false(gathers_whole(TOTAL / 4));
        assert_true(scatters_whole(TOTAL / 4 - 16, RMX_SUM));
        assert_false(scatters_whole(TOTAL / 4, RMX_SUM));
        assert_true(casts_whole(TOTAL - 32));
        assert_false(casts_whole(TOTAL));
        crew_stop(&rig.crew);

        start("0101"); /* the pieces of results do not lie node by node */
        assert_true(gathers_whole(TOTAL));
        assert_true(scatters_whole(TOTAL, RMX_SUM));
        assert_true(swaps_whole(TOTAL));
        assert_true(casts_whole(TOTAL));
        assert_int_equal(rmx_all_reduce(rig.comm, in_of[0], out_of[0], TOTAL, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(launches(), 4 + 4);
        crew_stop(&rig.crew);

        start("0110");
        assert_true(gathers_whole(TOTAL));
        crew_stop(&rig.crew);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
static int gather(size_t bytes, void *stream) {
        return rmx_all_gather(rig.comm, in_of[rig.comm->rank], out_of[rig.comm->rank], bytes, RMX_UINT8, stream);
}

/* What comes behind a stream that is being captured: a part that rings waits for numbers of its own. */
static void test_behind(void **state) {
        const struct fake_gpu_launch *found;

        (void)state;
        start("0011");
        as_rank(2);
        rig.gpu->stuck = true;
        assert_int_equal(gather(TOTAL, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 4);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(gather(TOTAL, STREAM(2)), RMX_OK);
        found = launched(4, FAKE_GPU_BEHIND, STREAM(2));
        assert_int_equal(found->bell.slot, rig.comm->slot);
        assert_int_equal(found->bell.after, rig.comm->number - 1);
        assert_int_equal(launched(5, FAKE_GPU_CALL, STREAM(2))->bell.after, 0);
        assert_int_equal(launched(6, FAKE_GPU_EXCHANGE, STREAM(2))->bell.after, 0);
        assert_int_equal(launches(), 9);
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        assert_int_equal(rmx_broadcast(rig.comm, NULL, out_of[2], TOTAL, RMX_UINT8, 1, STREAM(3)), RMX_OK);
        assert_int_equal(launched(9, FAKE_GPU_BEHIND, STREAM(3))->bell.after, rig.comm->number - 1);
        launched(10, FAKE_GPU_CALL, STREAM(3));
        assert_int_equal(launched(11, FAKE_GPU_EXCHANGE, STREAM(3))->bell.word[RING_W_PEER], 1); /* is compared */
        assert_int_equal(launches(), 13);
        fake_gpu_capture(rig.gpu, STREAM(3), NULL);
        assert_int_equal(rmx_broadcast(rig.comm, in_of[2], out_of[2], TOTAL, RMX_UINT8, 2, STREAM(4)), RMX_OK);
        found = launched(13, FAKE_GPU_EXCHANGE, STREAM(4));
        assert_int_equal(found->bell.after, rig.comm->number - 1);
        assert_int_equal(found->bell.slot, rig.comm->slot);
        assert_int_equal(launches(), 16);
        fake_gpu_capture(rig.gpu, STREAM(4), NULL);
        rig.gpu->fail = RMX_E_INTERNAL; /* nothing of it is there */
        assert_int_equal(gather(TOTAL, STREAM(5)), RMX_E_INTERNAL);
        assert_error_says("launching failed");
        assert_int_equal(launches(), 16);
        assert_false(rig.comm->adrift);
        rig.gpu->fail = RMX_E_INTERNAL; /* what waits is there */
        rig.gpu->fail_after = 1;
        assert_int_equal(gather(TOTAL, STREAM(5)), RMX_E_INTERNAL);
        launched(16, FAKE_GPU_BEHIND, STREAM(5));
        assert_int_equal(launches(), 17);
        assert_true(rig.comm->adrift);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

/* A part cannot be put on the stream. Made once more, the request would begin with one like those that others wait in:
 * so nothing is begun. */
static void test_broken(void **state) {
        struct shape s = {.op = RING_OP_REDUCE_SCATTER, .count = TOTAL / 4};
        struct rmx_request request;

        (void)state;
        for (uint32_t there = 1; there <= 2; there++) {
                for (uint32_t i = 0; i < 2; i++) {
                        start("0011");
                        s.op = i ? RING_OP_ALL_GATHER : RING_OP_REDUCE_SCATTER;
                        rig.gpu->fail = RMX_E_INTERNAL;
                        rig.gpu->fail_after = there;
                        assert_int_equal(call(&s, 0, STREAM(1)), RMX_E_INTERNAL);
                        assert_int_equal(launches(), there);
                        assert_true(rig.comm->adrift);
                        while (rmx_comm_error(rig.crew.comm[3]) == RMX_OK) /* without another call of that rank */
                                ;
                        assert_int_equal(call(&s, 0, STREAM(1)), RMX_E_INTERNAL);
                        assert_int_equal(launches(), there);
                        assert_int_equal(rmx_comm_error(rig.crew.comm[3]), RMX_E_ABORTED);
                        assert_int_equal(rmx_comm_failed_rank(rig.crew.comm[3]), 0);
                        crew_stop(&rig.crew);
                        assert_true(rig.gpu->stopped > 0);
                }
        }
        start("0011"); /* a start that nothing could wait for */
        rig.gpu->fail_mark = RMX_E_INTERNAL;
        assert_int_equal(rmx_all_gather_start(rig.comm, in_of[0], out_of[0], TOTAL, RMX_UINT8, STREAM(1), &request),
                         RMX_E_INTERNAL);
        assert_true(rig.comm->adrift);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_INTERNAL);
        crew_stop(&rig.crew);

        start("0011"); /* a graph of which a part is missing, which is the caller's not to run */
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        rig.gpu->fail = RMX_E_INTERNAL;
        rig.gpu->fail_after = 1;
        assert_int_equal(call(&s, 0, STREAM(1)), RMX_E_INTERNAL);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->stopped, 0);
        crew_stop(&rig.crew);
}

/* Requests one behind the other, with one piece of own memory: nothing is put there before it has been read. */
static void test_several(void **state) {
        static const size_t count[] = {TOTAL / 16, TOTAL / 8, TOTAL / 16}, at[] = {0, MEMORY / 2, MEMORY / 4};

        (void)state;
        start("0011");
        for (uint32_t rank = 0; rank < rig.crew.n; rank++) {
                fill(in_of[rank], rank, count[1]);
                player[rank].next = rig.gpu->n_launches;
                for (uint32_t i = 0; i < 3; i++)
                        assert_int_equal(rmx_all_gather(rig.crew.comm[rank], in_of[rank], out_of[rank] + at[i],
                                                        count[i], RMX_UINT32, STREAM(rank)),
                                         RMX_OK);
                player[rank].end = rig.gpu->n_launches;
                assert_int_equal(player[rank].end - player[rank].next, 12);
        }
        play();
        for (uint32_t rank = 0; rank < rig.crew.n; rank++)
                for (uint32_t i = 0; i < 3; i++)
                        for (size_t k = 0; k < 4 * count[i]; k++)
                                assert_int_equal(((const uint32_t *)(const void *)(out_of[rank] + at[i]))[k],
                                                 value((uint32_t)(k / count[i]), k % count[i]));
        crew_stop(&rig.crew);
}

static void test_captured(void **state) {
        (void)state;
        start("0011");
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(gather(TOTAL, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 3);
        for (uint32_t i = 0; i < 3; i++)
                assert_true(fake_gpu_launched(rig.gpu, rig.first + i)->bell.captured);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        crew_stop(&rig.crew);
}

static void test_started(void **state) {
        struct rmx_request request;
        void *own;

        (void)state;
        start("0011");
        own = rig.comm->aside.stream;
        assert_int_equal(rmx_all_gather_start(rig.comm, in_of[0], out_of[0], TOTAL, RMX_UINT8, STREAM(1), &request),
                         RMX_OK);
        assert_int_equal(launches(), 6);
        launched(0, FAKE_GPU_ORDER, own);
        assert_false(launched(1, FAKE_GPU_CALL, own)->bell.started);
        launched(2, FAKE_GPU_EXCHANGE, own);
        launched(3, FAKE_GPU_EXCHANGE, own);
        launched(4, FAKE_GPU_MARK, own);
        launched(5, FAKE_GPU_SET, own);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        crew_stop(&rig.crew);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* All of a group is prepared before any of it is launched: each keeps the own memory that it was prepared with. */
static void test_group(void **state) {
        const size_t bytes[] = {TOTAL, MEMORY / 4};
        const char *own[2];

        (void)state;
        start("0011");
        assert_int_equal(rmx_group_start(), RMX_OK);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(gather(bytes[i], STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        for (uint32_t i = 0; i < 2; i++) {
                own[i] = launched(4 * i, FAKE_GPU_CALL, STREAM(1))->bell.out;
                assert_ptr_equal(launched(4 * i + 1, FAKE_GPU_EXCHANGE, STREAM(1))->bell.in, own[i]);
                assert_ptr_equal(launched(4 * i + 2, FAKE_GPU_EXCHANGE, STREAM(1))->bell.in, own[i] + bytes[i]);
        }
        assert_ptr_not_equal(own[0], own[1]);
        crew_stop(&rig.crew);
}

static void test_no_memory(void **state) {
        uint32_t n_blocks;

        (void)state;
        start("0011");
        n_blocks = rig.gpu->n_blocks;
        rig.gpu->n_blocks = FAKE_GPU_BLOCKS;
        assert_int_equal(gather(TOTAL, STREAM(1)), RMX_E_NO_MEMORY);
        assert_error_says("rmx_all_gather");
        assert_error_says("no memory");
        assert_int_equal(launches(), 0);
        rig.gpu->n_blocks = n_blocks;
        assert_int_equal(gather(TOTAL, STREAM(1)), RMX_OK);
        crew_stop(&rig.crew);
}

/* Memory that no other process can map: what goes across is copied, the rest is used where it is. */
static void test_copied(void **state) {
        (void)state;
        start("0011");
        for (uint32_t i = 0; i < rig.gpu->n_blocks; i++)
                for (uint32_t rank = 0; rank < 4; rank++)
                        if (rig.gpu->block[i].base == (uintptr_t)in_of[rank] ||
                            rig.gpu->block[i].base == (uintptr_t)out_of[rank])
                                rig.gpu->block[i].secret = true;
        for (uint32_t in_place = 0; in_place < 2; in_place++) {
                struct shape s = {.op = RING_OP_ALL_GATHER, .count = TOTAL / 4, .in_place = in_place};

                run(&s, 5); /* in */
                s.op = RING_OP_REDUCE_SCATTER;
                run(&s, 5); /* out */
                s.op = RING_OP_ALL_TO_ALL;
                if (!in_place)
                        run(&s, 5); /* out */
                s.op = RING_OP_BROADCAST;
                for (s.root = 0; s.root < 4; s.root++)
                        run(&s, 0);
        }
        crew_stop(&rig.crew);
}

static void test_refused(void **state) {
        struct rmx_device_call call = {.size = sizeof(call),
                                       .version = RMX_DEVICE_VERSION,
                                       .operation = RMX_OP_ALL_GATHER,
                                       .in = in_of[0],
                                       .out = out_of[0],
                                       .count = TOTAL,
                                       .type = RMX_UINT8};
        struct rmx_device_handle handle;

        (void)state;
        start("0011");
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_E_UNSUPPORTED);
        assert_error_says("RMX_COMM_DEVICE_CALLS");
        assert_int_equal(rmx_all_gather(rig.comm, in_of[0], out_of[0] + MEMORY - TOTAL, TOTAL, RMX_UINT8, NULL),
                         RMX_E_INVALID);
        assert_error_says("over the end");
        assert_int_equal(launches(), 0);
        crew_stop(&rig.crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_results),   cmocka_unit_test(test_sizes),   cmocka_unit_test(test_which),
                cmocka_unit_test(test_behind),    cmocka_unit_test(test_broken),  cmocka_unit_test(test_several),
                cmocka_unit_test(test_captured),  cmocka_unit_test(test_started), cmocka_unit_test(test_group),
                cmocka_unit_test(test_no_memory), cmocka_unit_test(test_copied),  cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
