/* SPDX-License-Identifier: MIT */
/* Several nodes: which requests are made of others, of what, and what becomes of it when something fails. */
#include "tests/client/nodes_rig.h"

/* ---- communicators ----------------------------------------------------------------------------------------------- */
static void test_made(void **state) {
        (void)state;
        nodes_start("0101");
        for (uint32_t rank = 0; rank < 4; rank++) {
                assert_non_null(nodes_of(rank));
                check_part(nodes_of(rank)->local, rank / 2, 2);
                check_part(nodes_of(rank)->across, rank % 2, 2);
                assert_int_equal(nodes_of(rank)->local->gpu, rank);
                assert_ptr_equal(nodes_of(rank)->local->exchange != NULL, true);
                assert_null(nodes_of(rank)->across->exchange);
                assert_null(nodes_of(rank)->across->nodes); /* of two ranks */
                assert_int_equal(nodes_of(rank)->min, 1);
                assert_int_equal(nodes_of(rank)->max, MAX);
        }
        /* In a node 0 and 2 are one group, between the nodes 0 and 1. */
        assert_int_equal(group(nodes_of(0)->local->handle), group(nodes_of(2)->local->handle));
        assert_int_equal(group(nodes_of(0)->across->handle), group(nodes_of(1)->across->handle));
        assert_int_equal(rig.gpu->gathers, 2 + 2 * 2);
        assert_int_equal(rig.gpu->exchanges, 4);
        assert_int_equal(rig.comm->streams.n, 0);
        assert_int_equal(rmx_comm_destroy(rig.crew.comm[3]), RMX_OK);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 3);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(rmx_comm_destroy(rig.crew.comm[rank]), RMX_OK);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 12);
        assert_int_equal(rig.gpu->reusable, 4);
        assert_int_equal(rig.gpu->kept, 0);
        rmx_session_close(rig.crew.session);
        fake_stop(&rig.crew.fake);
}

static int join_but_last(struct crew *crew, uint32_t rank) {
        struct rmx_comm_options options = rig.options;

        options.gpu = (int32_t)rank;
        options.flags = rank == crew->n - 1 ? RMX_COMM_DEVICE_CALLS : 0;
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, &options, &crew->comm[rank]);
}

/* Everything goes as a whole. */
static void check_whole(uint32_t splits, uint32_t gathers) {
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_SPLIT)), splits);
        assert_int_equal(rig.gpu->gathers, gathers);
        for (uint32_t rank = 0; rank < rig.crew.n; rank++)
                assert_null(nodes_of(rank));
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 1);
        launched(0, FAKE_GPU_CALL, STREAM(1));
        crew_stop(&rig.crew);
}

static void test_not_made(void **state) {
        (void)state;
        nodes_start("0001"); /* not as many on each */
        check_whole(0, 0);
        nodes_start("01"); /* nothing would be gained */
        check_whole(0, 0);
        nodes_open("0011"); /* one makes calls of its own */
        crew_run(&rig.crew, join_but_last);
        rig_joined();
        check_whole(0, 1);
        nodes_open("0123"); /* the same */
        crew_run(&rig.crew, join_but_last);
        rig_joined();
        check_whole(0, 1);
        nodes_open("0011"); /* one has another version of the library */
        rig.gpu->old_ranks = 1u << 2;
        nodes_join();
        check_whole(0, 1);
        nodes_open("0011"); /* the daemons do not grant exchange */
        rig.crew.fake.exchange_min = rig.crew.fake.exchange_max = 0;
        nodes_join();
        check_whole(8, 2);
        nodes_open("0011"); /* they have no room for more communicators */
        rig.crew.fake.refuse_splits = RMX_E_LIMIT;
        nodes_join();
        check_whole(8, 2);
}

/* For operators, of as much of the name as there is room for, and no half of a letter. */
static void test_names(void **state) {
        static const char *const names[][2] = {
                {NULL, "between nodes"},
                {"layers", "layers, between nodes"},
                {"123456789 123456789 123456789 123456789 12345678", /* just */
                 "123456789 123456789 123456789 123456789 12345678, between nodes"},
                {"123456789 123456789 123456789 123456789 1234567\u00e4",
                 "123456789 123456789 123456789 123456789 1234567, between nodes"},
                {"123456789 123456789 123456789 123456789 123456789 123456789 123",
                 "123456789 123456789 123456789 123456789 12345678, between nodes"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                nodes_open("0011");
                rig.options.name = names[i][0];
                nodes_join();
                assert_string_equal(rig.crew.fake.split_name, names[i][1]);
                assert_int_equal(rig.crew.fake.n_spare, 8);
                crew_stop(&rig.crew);
        }
}

/* One node cannot exchange. What was made for it goes again, in good order. */
static void test_cannot(void **state) {
        (void)state;
        nodes_open("0011");
        rig.gpu->cannot_open = 1u << 1; /* in each node the second one */
        nodes_join();
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 8);
        assert_int_equal(rig.gpu->kept, 0);
        check_whole(8, 2 + 2 * 2);
}

static void test_gather_stuck(void **state) {
        (void)state;
        for (uint32_t stuck = 1; stuck <= 6; stuck++) {
                nodes_open("0011");
                rig.options.timeout_ms = 300;
                rig.gpu->stuck_gather = stuck;
                crew_run(&rig.crew, join_on_four);
                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_int_not_equal(rig.crew.result[rank], RMX_OK);
                assert_null(rig.crew.session->comms);
                crew_stop(&rig.crew);
        }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
/* Rank 3 has the second piece: of its node's two ranks it is the second. */
static void test_parts(void **state) {
        const struct client_gpu_bell *found;
        char *in, *out;

        (void)state;
        nodes_start("0011");
        as_rank(3);
        in = rig.memory;
        out = rig.memory + 2 * MAX;
        for (uint32_t i = 0; i < 2; i++) {
                const uint32_t first = launches();

                assert_int_equal(
                        rmx_all_reduce(rig.comm, i ? out : in, out, BYTES / 2, RMX_BFLOAT16, RMX_MAX, STREAM(1)),
                        RMX_OK);
                assert_int_equal(launches(), first + 4);
                found = bell(first, FAKE_GPU_EXCHANGE, STREAM(1), RING_OP_REDUCE_SCATTER, BYTES, BYTES / 2, BYTES / 4);
                assert_int_equal(found->word[RING_W_HEAD] & 0xffff, RMX_BFLOAT16 << 8 | RMX_MAX);
                assert_int_equal(found->word[RING_W_COMM], nodes_of(3)->local->handle);
                assert_ptr_equal(found->in, i ? out : in);
                assert_ptr_equal(found->out, out + BYTES / 2);
                found = bell(first + 1, FAKE_GPU_CALL, STREAM(1), RING_OP_ALL_REDUCE, BYTES / 2, BYTES / 2, BYTES / 4);
                assert_int_equal(found->word[RING_W_HEAD] & 0xffff, RMX_BFLOAT16 << 8 | RMX_MAX);
                assert_int_equal(found->slot, nodes_of(3)->across->slot);
                check_words(found, nodes_of(3)->across->handle, 2 * MAX + BYTES / 2, 2 * MAX + BYTES / 2);
                found = bell(first + 2, FAKE_GPU_EXCHANGE, STREAM(1), RING_OP_ALL_GATHER, BYTES / 2, BYTES, BYTES / 4);
                assert_int_equal(found->word[RING_W_HEAD] & 0xffff, RMX_BFLOAT16 << 8);
                assert_ptr_equal(found->in, out + BYTES / 2);
                assert_ptr_equal(found->out, out);
                for (uint32_t part = 0; part < 3; part++)
                        assert_ptr_equal(fake_gpu_launched(rig.gpu, rig.first + first + part)->bell.gate,
                                         nodes_of(3)->local->exchange);
                /* Its number is told behind all of it. */
                assert_int_equal(launched(first + 3, FAKE_GPU_MARK, STREAM(1))->bell.slot, rig.comm->slot);
                assert_int_equal(launched(first + 3, FAKE_GPU_MARK, STREAM(1))->bell.number, 3 + i);
                assert_int_equal(rig.comm->number, 3 + i);
        }
        crew_stop(&rig.crew);
}

static bool made(size_t bytes, uint32_t redop) {
        const uint32_t before = launches();

        assert_int_equal(rmx_all_reduce(rig.comm, rig.memory, rig.memory, bytes, RMX_UINT8, redop, NULL), RMX_OK);
        if (launches() == before + 1)
                launched(before, FAKE_GPU_CALL, NULL);
        return launches() > before + 1;
}

static void test_which(void **state) {

        (void)state;
        nodes_start("0011");
        assert_true(made(32, RMX_SUM));
        assert_true(made(64, RMX_PROD));
        assert_true(made(BYTES, RMX_MIN));
        assert_true(made(MAX, RMX_MAX));
        assert_false(made(0, RMX_SUM));
        assert_false(made(16, RMX_SUM));
        assert_false(made(48, RMX_SUM)); /* no pieces of whole units */
        assert_false(made(BYTES + 1, RMX_SUM));
        assert_false(made(MAX + 32, RMX_SUM));
        assert_false(made(BYTES, RMX_AVG)); /* of averages: rounded twice */
        assert_int_equal(rmx_all_gather(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, NULL), RMX_OK);
        launched(launches() - 1, FAKE_GPU_CALL, NULL);
        assert_int_equal(rmx_reduce(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, RMX_SUM, 0, NULL), RMX_OK);
        launched(launches() - 1, FAKE_GPU_CALL, NULL);
        crew_stop(&rig.crew);

        nodes_open("0011"); /* what all nodes exchange */
        rig.crew.fake.exchange_more = 99;
        nodes_join();
        assert_int_equal(nodes_of(0)->min, 100);
        assert_false(made(96, RMX_SUM));
        assert_true(made(128, RMX_SUM));
        crew_stop(&rig.crew);
}

/* What is small needs no memory that the daemon knows, also between the nodes. */
static void test_inlined(void **state) {
        static char host[4096] __attribute__((aligned(64)));

        (void)state;
        nodes_start("0011");
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, 64, RMX_UINT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(launches(), 4);
        assert_true(launched(1, FAKE_GPU_CALL, NULL)->bell.inlined);
        assert_ptr_equal(launched(1, FAKE_GPU_CALL, NULL)->bell.in, host);
        assert_int_equal(rig.crew.fake.calls[BODY(BUFFER_CREATE)], 0);
        crew_stop(&rig.crew);
}

static void test_refused(void **state) {
        static char host[BYTES] __attribute__((aligned(64)));
        const uint32_t too_many = 4 * MAX - BYTES + 32;
        struct rmx_device_call call = {.size = sizeof(call),
                                       .version = RMX_DEVICE_VERSION,
                                       .operation = RMX_OP_ALL_REDUCE,
                                       .count = BYTES,
                                       .type = RMX_UINT8};
        struct rmx_device_handle handle;

        (void)state;
        nodes_start("0011");
        call.in = call.out = rig.memory;
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        assert_int_equal(rmx_all_reduce(rig.comm, host, host, BYTES, RMX_UINT8, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("host memory");
        /* Its own piece would do. */
        assert_int_equal(rmx_all_reduce(rig.comm, rig.memory, rig.memory + too_many, BYTES, RMX_UINT8, RMX_SUM, NULL),
                         RMX_E_INVALID);
        assert_error_says("over the end");
        assert_int_equal(launches(), 0);
        assert_int_equal(rmx_device_prepare(rig.comm, &call, &handle), RMX_E_UNSUPPORTED);
        assert_error_says("RMX_COMM_DEVICE_CALLS");
        crew_stop(&rig.crew);
}

/* Memory that no other process can map: the piece goes through the library's own. */
static void test_copied(void **state) {
        static char secret[BYTES] __attribute__((aligned(256)));

        (void)state;
        nodes_start("0011");
        fake_gpu_add(rig.gpu, secret, sizeof(secret), 2)->secret = true;
        assert_int_equal(rmx_all_reduce(rig.comm, secret, secret, BYTES, RMX_UINT8, RMX_SUM, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 6);
        launched(0, FAKE_GPU_EXCHANGE, STREAM(1));
        assert_ptr_equal(launched(1, FAKE_GPU_COPY, STREAM(1))->from, secret);
        assert_int_equal(launched(1, FAKE_GPU_COPY, STREAM(1))->bytes, BYTES / 2);
        launched(2, FAKE_GPU_CALL, STREAM(1));
        assert_ptr_equal(launched(3, FAKE_GPU_COPY, STREAM(1))->to, secret);
        assert_int_equal(launched(3, FAKE_GPU_COPY, STREAM(1))->bytes, BYTES / 2);
        launched(4, FAKE_GPU_EXCHANGE, STREAM(1));
        launched(5, FAKE_GPU_MARK, STREAM(1));
        crew_stop(&rig.crew);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */
static void test_captured(void **state) {
        (void)state;
        nodes_start("0011");
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 3);
        for (uint32_t i = 0; i < 3; i++)
                assert_true(fake_gpu_launched(rig.gpu, rig.first + i)->bell.captured);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        crew_stop(&rig.crew);
}

static void test_streams(void **state) {
        (void)state;
        nodes_start("0011");
        rig.gpu->stuck = true;
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(BYTES, STREAM(2)), RMX_OK); /* behind it, and once */
        assert_int_equal(launches(), 9);
        assert_ptr_equal(launched(4, FAKE_GPU_ORDER, STREAM(2))->from, STREAM(1));
        assert_int_equal(reduce(48, STREAM(1)), RMX_OK); /* as a whole */
        assert_ptr_equal(launched(9, FAKE_GPU_ORDER, STREAM(1))->from, STREAM(2));
        launched(10, FAKE_GPU_CALL, STREAM(1));
        /* A stream that is being captured cannot be waited for: a kernel waits for the number, before all else. */
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(reduce(BYTES, STREAM(3)), RMX_OK);
        assert_int_equal(launched(11, FAKE_GPU_EXCHANGE, STREAM(3))->bell.after, 5);
        assert_int_equal(launched(11, FAKE_GPU_EXCHANGE, STREAM(3))->bell.slot, rig.comm->slot);
        assert_int_equal(launched(12, FAKE_GPU_CALL, STREAM(3))->bell.after, 0);
        assert_int_equal(launched(13, FAKE_GPU_EXCHANGE, STREAM(3))->bell.after, 0);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = false;
        crew_stop(&rig.crew);
}

static void test_started(void **state) {
        struct rmx_request request;
        void *own;

        (void)state;
        nodes_start("0011");
        own = rig.comm->aside.stream;
        assert_non_null(own);
        assert_int_equal(
                rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, RMX_SUM, STREAM(1), &request),
                RMX_OK);
        assert_int_equal(launches(), 6);
        launched(0, FAKE_GPU_ORDER, own);
        launched(1, FAKE_GPU_EXCHANGE, own);
        assert_false(launched(2, FAKE_GPU_CALL, own)->bell.started); /* it is a call, whatever the whole is */
        launched(3, FAKE_GPU_EXCHANGE, own);
        assert_true(launched(4, FAKE_GPU_MARK, own)->bell.started);
        launched(5, FAKE_GPU_SET, own);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(reduce(48, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_group_end(), RMX_OK);
        crew_stop(&rig.crew);
}

static void wait_failed(struct rmx_comm *comm, int code, int32_t rank) {
        int r;

        while ((r = rmx_comm_error(comm)) == RMX_OK)
                ;
        assert_int_equal(r, code);
        assert_int_equal(rmx_comm_failed_rank(comm), rank);
}

static void test_broken(void **state) {
        (void)state;
        nodes_start("0011");
        rig.gpu->fail = RMX_E_INTERNAL;
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_E_INTERNAL);
        assert_int_equal(launches(), 0);
        assert_false(rig.comm->adrift);
        rig.gpu->fail = RMX_E_INTERNAL;
        rig.gpu->fail_after = 1;
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_E_INTERNAL);
        assert_error_says("launching failed");
        assert_int_equal(launches(), 1);
        assert_true(rig.comm->adrift); /* a part of it is there, and others may wait in it */
        assert_int_equal(reduce(BYTES, STREAM(2)), RMX_E_INTERNAL);
        assert_int_equal(launches(), 1);
        wait_failed(rig.crew.comm[1], RMX_E_ABORTED, 0);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->kept, 1);
        rig.crew.comm[0] = NULL;
        crew_stop(&rig.crew);

        nodes_start("0011");
        as_rank(1);
        rig.gpu->fail_mark = RMX_E_INTERNAL; /* nobody hears of its end: the place is not used again */
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 3);
        assert_true(rig.comm->adrift);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->kept, 1);
        rig.crew.comm[1] = NULL;
        crew_stop(&rig.crew);
}

/* ---- one rank on each node --------------------------------------------------------------------------------------- */
static void test_alone(void **state) {
        static char large[4 << 18] __attribute__((aligned(256)));
        const size_t bytes = 1 << 18, piece = bytes / 4;
        const struct client_gpu_bell *found;

        (void)state;
        nodes_start("0123");
        as_rank(2);
        assert_ptr_equal(nodes_of(2)->across, rig.comm);
        assert_null(nodes_of(2)->local);
        assert_int_equal(rig.gpu->gathers, 1);
        fake_gpu_add(rig.gpu, large, sizeof(large), 2)->device = rig.comm->device->number;
        assert_int_equal(rmx_all_reduce(rig.comm, large, large + bytes, bytes / 4, RMX_FLOAT32, RMX_SUM, STREAM(1)),
                         RMX_OK);
        assert_int_equal(launches(), 3);
        found = bell(0, FAKE_GPU_CALL, STREAM(1), RING_OP_REDUCE_SCATTER, bytes, piece, piece / 4);
        check_words(found, rig.comm->handle, 0, bytes + 2 * piece);
        assert_ptr_equal(found->in, large);
        assert_ptr_equal(found->out, large + bytes + 2 * piece);
        assert_null(found->gate);
        found = bell(1, FAKE_GPU_CALL, STREAM(1), RING_OP_ALL_GATHER, piece, bytes, piece / 4);
        assert_int_equal(found->word[RING_W_HEAD] & 0xffff, RMX_FLOAT32 << 8);
        check_words(found, rig.comm->handle, bytes + 2 * piece, bytes);
        assert_ptr_equal(found->in, large + bytes + 2 * piece);
        assert_ptr_equal(found->out, large + bytes);
        launched(2, FAKE_GPU_MARK, STREAM(1));
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes / 4 - 4, RMX_FLOAT32, RMX_SUM, STREAM(1)),
                         RMX_OK);
        assert_int_equal(launches(), 4); /* no equal pieces of whole units */
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes / 8, RMX_FLOAT32, RMX_SUM, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 5); /* a hop more costs more than it saves */
        rig.gpu->stuck = true;
        assert_int_equal(reduce(48, STREAM(1)), RMX_OK);
        fake_gpu_capture(rig.gpu, STREAM(1), NULL);
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes, RMX_UINT8, RMX_SUM, STREAM(2)), RMX_OK);
        assert_int_equal(launched(6, FAKE_GPU_CALL, STREAM(2))->bell.after, rig.comm->number - 1);
        assert_int_equal(launched(7, FAKE_GPU_CALL, STREAM(2))->bell.after, 0);
        assert_int_equal(launches(), 9);
        /* Copies cannot wait, so a kernel before them does. */
        fake_gpu_capture(rig.gpu, STREAM(2), NULL);
        rig.gpu->block[rig.gpu->n_blocks - 1].secret = true;
        rig.gpu->block[rig.gpu->n_blocks - 1].id = 3;
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes, RMX_UINT8, RMX_SUM, STREAM(3)), RMX_OK);
        assert_int_equal(launched(9, FAKE_GPU_BEHIND, STREAM(3))->bell.after, rig.comm->number - 1);
        launched(10, FAKE_GPU_COPY, STREAM(3));
        assert_int_equal(launched(11, FAKE_GPU_CALL, STREAM(3))->bell.after, 0);
        fake_gpu_capture(rig.gpu, NULL, NULL);
        rig.gpu->stuck = false;
        /* One of two is there: the next one is begun, and executors tell whom it meets. */
        rig.gpu->fail = RMX_E_INTERNAL;
        rig.gpu->fail_after = 1;
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes, RMX_UINT8, RMX_SUM, STREAM(3)), RMX_E_INTERNAL);
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes, RMX_UINT8, RMX_SUM, STREAM(3)), RMX_OK);
        crew_stop(&rig.crew);
}

/* Three nodes of two: between the nodes, too, it is two requests. */
static void test_both(void **state) {
        static char large[1 << 20] __attribute__((aligned(256)));
        const size_t bytes = 3 << 18, half = bytes / 2, piece = half / 3;
        const struct device_nodes *nodes;

        (void)state;
        nodes_open("001122");
        rig.crew.fake.exchange_max = 1 << 20;
        nodes_join();
        as_rank(5);
        nodes = nodes_of(5);
        check_part(nodes->local, 1, 2);
        check_part(nodes->across, 2, 3);
        assert_ptr_equal(nodes->across->nodes->across, nodes->across);
        fake_gpu_add(rig.gpu, large, sizeof(large), 2)->device = rig.comm->device->number;
        assert_int_equal(rmx_all_reduce(rig.comm, large, large, bytes, RMX_UINT8, RMX_SUM, STREAM(1)), RMX_OK);
        assert_int_equal(launches(), 5);
        bell(0, FAKE_GPU_EXCHANGE, STREAM(1), RING_OP_REDUCE_SCATTER, bytes, half, half);
        check_words(bell(1, FAKE_GPU_CALL, STREAM(1), RING_OP_REDUCE_SCATTER, half, piece, piece),
                    nodes->across->handle, half, half + 2 * piece);
        check_words(bell(2, FAKE_GPU_CALL, STREAM(1), RING_OP_ALL_GATHER, piece, half, piece), nodes->across->handle,
                    half + 2 * piece, half);
        bell(3, FAKE_GPU_EXCHANGE, STREAM(1), RING_OP_ALL_GATHER, half, bytes, half);
        crew_stop(&rig.crew);
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */
/* Something is found in one of the communicators only, or the daemon says it of the whole: all are ended, for all. */
static void test_failed(void **state) {
        static const struct {
                uint32_t who; /* 0: in the node, 1: between the nodes, 2: the whole */
                int32_t rank, expected;
        } cases[] = {{0, 0, 1}, {0, 1, 3}, {1, 0, 2}, {1, 1, 3}, {2, 0, 0}};

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct device_nodes *nodes;
                uint32_t handle;

                nodes_start("0101");
                as_rank(3);
                nodes = nodes_of(3);
                handle = cases[i].who == 0   ? nodes->local->handle
                         : cases[i].who == 1 ? nodes->across->handle
                                             : rig.comm->handle;
                fake_comm_failed_one(&rig.crew.fake, group(handle), RMX_E_MISMATCH, cases[i].rank);
                fake_wait_calls(&rig.crew.fake, BODY(COMM_ABORT), 1); /* without a call of any rank */
                wait_failed(rig.comm, RMX_E_MISMATCH, cases[i].expected);
                assert_int_equal(reduce(BYTES, STREAM(1)), RMX_E_MISMATCH);
                for (uint32_t rank = 0; rank < 4; rank++) {
                        while (!comm_status(rig.crew.comm[rank]) || !comm_status(nodes_of(rank)->local) ||
                               !comm_status(nodes_of(rank)->across))
                                (void)rmx_comm_error(rig.crew.comm[rank]);
                        assert_int_equal(rmx_comm_error(rig.crew.comm[rank]), RMX_E_MISMATCH);
                }
                crew_stop(&rig.crew);
        }
}

/* A rank is lost: the daemon says so of all communicators that it is in, and of the others nobody asks. */
static void test_lost(void **state) {
        (void)state;
        nodes_start("0101");
        as_rank(3);
        fake_comm_failed_one(&rig.crew.fake, group(nodes_of(3)->local->handle), RMX_E_PEER_LOST, 0);
        wait_failed(rig.comm, RMX_E_PEER_LOST, 1);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_ABORT)), 0);
        assert_int_equal(comm_status(nodes_of(3)->across), 0);
        fake_comm_failed_one(&rig.crew.fake, group(rig.comm->handle), RMX_E_PEER_LOST, 1);
        while (!comm_status(nodes_of(3)->across))
                (void)rmx_comm_error(rig.comm);
        wait_failed(rig.crew.comm[0], RMX_E_PEER_LOST, 1);
        crew_stop(&rig.crew);
}

/* Another rank has ended a part, and the daemon says why; or it does not. */
static void test_vague(void **state) {
        (void)state;
        for (uint32_t said = 0; said < 2; said++) {
                struct rmx_request request;

                nodes_start("0101");
                as_rank(3);
                rig.gpu->status = ring_status(RMX_E_ABORTED, 0); /* of the ranks of node 1 */
                assert_int_equal(rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, RMX_SUM,
                                                      STREAM(1), &request),
                                 RMX_OK);
                if (said)
                        fake_comm_failed_one(&rig.crew.fake, group(rig.comm->handle), RMX_E_PEER_LOST, 2);
                assert_int_equal(rmx_wait(&request, NULL), said ? RMX_E_PEER_LOST : RMX_E_ABORTED);
                assert_int_equal(rmx_comm_error(rig.comm), said ? RMX_E_PEER_LOST : RMX_E_ABORTED);
                assert_int_equal(rmx_comm_failed_rank(rig.comm), said ? 2 : 1);
                crew_stop(&rig.crew);

                nodes_start("0101");
                /* One of another node: it may only have left. */
                fake_comm_failed_one(&rig.crew.fake, group(nodes_of(0)->across->handle), RMX_E_PEER_LOST, 1);
                if (said)
                        fake_comm_failed_one(&rig.crew.fake, group(rig.comm->handle), RMX_E_PEER_LOST, 2);
                while (!comm_status(nodes_of(0)->across))
                        (void)rmx_comm_error(rig.comm);
                if (said)
                        wait_failed(rig.comm, RMX_E_PEER_LOST, 2);
                else
                        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_E_PEER_LOST);
                assert_int_equal(rmx_comm_failed_rank(rig.comm), said ? 2 : 1);
                crew_stop(&rig.crew);
        }
}

static int start(struct rmx_request *request, size_t bytes, void *memory) {
        return rmx_all_reduce_start(rig.comm, memory, memory, bytes, RMX_UINT8, RMX_SUM, STREAM(1), request);
}

/* An executor dies, which other communicators get over: these do not, for a part that has failed is not used again. */
static void test_lost_request(void **state) {
        static char large[1 << 18] __attribute__((aligned(256)));
        struct rmx_request request;
        int done = 0;
        int r;

        (void)state;
        nodes_start("0011");
        rig.gpu->status = RMX_E_LOST;
        assert_int_equal(start(&request, BYTES, rig.memory), RMX_OK);
        while (!done) { /* nobody says why, and who only asks hears of it, too */
                r = rmx_test(&request, &done);
                assert_true(r == RMX_OK || done);
        }
        assert_int_equal(r, RMX_E_LOST);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_LOST);
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_E_LOST);
        fake_wait_calls(&rig.crew.fake, BODY(COMM_ABORT), 1); /* others may wait for ever */
        crew_stop(&rig.crew);

        nodes_start("0123"); /* parts of its own */
        fake_gpu_add(rig.gpu, large, sizeof(large), 2)->device = rig.comm->device->number;
        rig.gpu->status = RMX_E_LOST;
        assert_int_equal(start(&request, sizeof(large), large), RMX_OK);
        assert_int_equal(launched(1, FAKE_GPU_CALL, rig.comm->aside.stream)->bell.started, false);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_LOST);
        crew_stop(&rig.crew);
}

/* A kernel has met something: its rank is that of the whole. */
static void test_status(void **state) {
        (void)state;
        nodes_start("0011");
        as_rank(2);
        rig.gpu->status = ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, 1);
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        (void)rmx_comm_error(rig.comm);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_MISMATCH);
        assert_error_says("rank 3 gave another count");
        assert_int_equal(rmx_comm_failed_rank(rig.comm), 3);
        rig.gpu->status = 0; /* the other node's hear it from the daemon */
        wait_failed(rig.crew.comm[0], RMX_E_MISMATCH, 3);
        wait_failed(rig.crew.comm[1], RMX_E_MISMATCH, 3);
        crew_stop(&rig.crew);
}

/* The same of one that was started, when it is waited for. */
static void test_wait_failed(void **state) {
        struct rmx_request request;

        (void)state;
        nodes_start("0101");
        as_rank(3);
        assert_int_equal(
                rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, RMX_SUM, STREAM(1), &request),
                RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_OK);
        rig.gpu->status = ring_status(RMX_E_PEER_LOST, 0); /* of the ranks of node 1 */
        assert_int_equal(
                rmx_all_reduce_start(rig.comm, rig.memory, rig.memory, BYTES, RMX_UINT8, RMX_SUM, STREAM(1), &request),
                RMX_OK);
        assert_int_equal(rmx_wait(&request, NULL), RMX_E_PEER_LOST);
        assert_int_equal(rmx_comm_failed_rank(rig.comm), 1);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_ABORT)), 0); /* the daemon tells the others */
        rig.crew.comm[3] = NULL;
        as_rank(2);
        rig.crew.fake.tells_aborts = false;               /* nothing is known of the node's ranks yet */
        rig.gpu->status = ring_status(RMX_E_MISMATCH, 0); /* between the nodes */
        rig.gpu->status_after = 1;
        assert_int_equal(reduce(BYTES, STREAM(1)), RMX_OK);
        assert_int_equal(rmx_comm_error(rig.comm), RMX_E_MISMATCH);
        assert_int_equal(rmx_comm_failed_rank(rig.comm), 2);
        assert_int_equal(rmx_comm_destroy(rig.comm), RMX_OK);
        assert_int_equal(rig.gpu->kept, 2); /* others may still write to their areas */
        assert_int_equal(rig.gpu->reusable, 0);
        rig.crew.comm[2] = NULL;
        crew_stop(&rig.crew);
}

static void test_abort(void **state) {
        (void)state;
        nodes_start("0011");
        assert_int_equal(rmx_comm_abort(rig.comm), RMX_OK);
        assert_true(fake_calls(&rig.crew.fake, BODY(COMM_ABORT)) >= 3);
        assert_int_equal(ring_status_code(comm_status(nodes_of(0)->local)), RMX_E_ABORTED);
        assert_int_equal(ring_status_code(comm_status(nodes_of(0)->across)), RMX_E_ABORTED);
        wait_failed(rig.crew.comm[3], RMX_E_ABORTED, 0);
        crew_stop(&rig.crew);

        nodes_start("0011"); /* a daemon that is slow to say so: it is over here all the same */
        rig.crew.fake.tells_aborts = false;
        assert_int_equal(rmx_comm_abort(rig.comm), RMX_OK);
        assert_int_equal(ring_status_code(comm_status(nodes_of(0)->local)), RMX_E_ABORTED);
        assert_int_equal(ring_status_code(comm_status(nodes_of(0)->across)), RMX_E_ABORTED);
        assert_int_equal(rig.gpu->stopped, 0);
        fake_comm_failed_one(&rig.crew.fake, group(rig.comm->handle), RMX_E_ABORTED, 0);
        for (uint32_t rank = 0; rank < 4; rank++)
                wait_failed(rig.crew.comm[rank], RMX_E_ABORTED, 0);
        while (rig.gpu->stopped < 4)
                (void)rmx_comm_error(rig.comm);
        crew_stop(&rig.crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_made),         cmocka_unit_test(test_not_made),
                cmocka_unit_test(test_names),        cmocka_unit_test(test_cannot),
                cmocka_unit_test(test_gather_stuck), cmocka_unit_test(test_parts),
                cmocka_unit_test(test_which),        cmocka_unit_test(test_inlined),
                cmocka_unit_test(test_refused),      cmocka_unit_test(test_copied),
                cmocka_unit_test(test_captured),     cmocka_unit_test(test_streams),
                cmocka_unit_test(test_started),      cmocka_unit_test(test_broken),
                cmocka_unit_test(test_alone),        cmocka_unit_test(test_both),
                cmocka_unit_test(test_failed),       cmocka_unit_test(test_status),
                cmocka_unit_test(test_abort),        cmocka_unit_test(test_lost),
                cmocka_unit_test(test_lost_request), cmocka_unit_test(test_vague),
                cmocka_unit_test(test_wait_failed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
