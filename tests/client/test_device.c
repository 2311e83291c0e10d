/* SPDX-License-Identifier: MIT */
/* On GPUs: opening the device, which requests are inlined, what lines say. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/comm.h"
#include "client/device.h"
#include "tests/client/device_rig.h"
#include "util/clock.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */
static void test_open(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_comm *more;
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        assert_string_equal(rmx_session_backend(rig.crew.session), "hip");
        assert_string_equal(rmx_session_gpu_pci(rig.crew.session, 0), "0000:00:00.0");
        assert_string_equal(rmx_session_gpu_pci(rig.crew.session, 3), "0000:03:00.0");
        assert_string_equal(rmx_session_gpu_pci(rig.crew.session, 4), "");
        assert_string_equal(rmx_session_gpu_pci(NULL, 0), "");
        assert_string_equal(rmx_session_backend(NULL), "");
        assert_int_equal(rig.gpu->opened, 1); /* three ranks, one device */
        assert_int_equal(rig.crew.fake.areas, 1);
        options.gpu = 2;
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &more), RMX_OK);
        assert_int_equal(rig.gpu->opened, 2);
        assert_int_equal(rmx_comm_destroy(more), RMX_OK);

        rig.gpu->hidden_device = 1;
        options.gpu = 1;
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &more), RMX_E_DENIED);
        assert_error_says("GPU 1");
        assert_error_says("0000:01:00.0 is not visible");
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)), 2); /* the daemon was told */
        rig.gpu->hidden_device = UINT32_MAX;
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &more), RMX_OK);
        assert_int_equal(rmx_comm_destroy(more), RMX_OK);
        rig_stop(&rig);
        assert_int_equal(rig.gpu->closed, 3);
}

static int join_alone(struct rig *rig, uint32_t gpu, struct rmx_cancel *cancel, uint32_t timeout_ms,
                      struct rmx_comm **ret_comm) {
        struct rmx_comm_options options = {
                .size = sizeof(options), .gpu = (int32_t)gpu, .cancel = cancel, .timeout_ms = timeout_ms};
        struct rmx_id id;
        int r;

        r = rmx_get_id(rig->crew.session, &id);
        return r ? r : rmx_comm_create(rig->crew.session, &id, 1, 0, &options, ret_comm);
}

/* What the daemon has been told of stays, for an executor may look at it; the next join comes back to it. */
static void test_open_again(void **state) {
        struct rmx_comm *comm;
        struct rig rig;

        (void)state;
        rig_start(&rig, 1);
        fake_cut_rings(&rig.crew.fake, 2);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(join_alone(&rig, 1, NULL, 0, &comm), RMX_E_LIMIT);
                assert_error_says("open files");
        }
        rig.gpu->fail_attach = RMX_E_NO_MEMORY;
        assert_int_equal(join_alone(&rig, 1, NULL, 0, &comm), RMX_E_NO_MEMORY);
        assert_error_says("pinning failed");
        assert_int_equal(rig.gpu->closed, 0);
        assert_int_equal(join_alone(&rig, 1, NULL, 0, &comm), RMX_OK);
        assert_int_equal(rig.gpu->opened, 2);
        assert_int_equal(rig.crew.fake.areas, 2);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(RING_OPEN)), 5);
        assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
        assert_int_equal(join_alone(&rig, 1, NULL, 0, &comm), RMX_OK);
        assert_int_equal(fake_calls(&rig.crew.fake, BODY(RING_OPEN)), 5); /* once it has been answered well */
        fake_cut_rings(&rig.crew.fake, 1);
        assert_int_equal(join_alone(&rig, 2, NULL, 0, &comm), RMX_E_LIMIT);
        rig_stop(&rig);
        assert_int_equal(rig.gpu->opened, 3);
        assert_int_equal(rig.gpu->closed, 3);
}

struct joiner {
        struct rig *rig;
        pthread_t thread;
        struct rmx_cancel *cancel;
        struct rmx_comm *comm;
        int result;
};

static void *joiner_main(void *userdata) {
        struct joiner *j = userdata;

        j->result = join_alone(j->rig, 1, j->cancel, 0, &j->comm);
        return NULL;
}

/* The daemon does not answer for a ring, and then not at all: who joins can be given up, whoever else waits for the
 * same ring. */
static void test_open_unanswered(void **state) {
        struct joiner joiners[2];
        struct rmx_comm *comm;
        struct rig rig;
        uint32_t left;

        (void)state;
        rig_start(&rig, 1);
        fake_drop(&rig.crew.fake, BODY(RING_OPEN), UINT32_MAX);
        /* long enough for all that comes before it */
        assert_int_equal(join_alone(&rig, 1, NULL, 3000, &comm), RMX_E_TIMEOUT);
        left = fake_calls(&rig.crew.fake, BODY(COMM_DESTROY));
        assert_int_equal(left, 1);
        for (uint32_t i = 0; i < 2; i++) {
                joiners[i] = (struct joiner){.rig = &rig};
                assert_int_equal(rmx_cancel_new(&joiners[i].cancel), RMX_OK);
                assert_int_equal(pthread_create(&joiners[i].thread, NULL, joiner_main, &joiners[i]), 0);
                fake_wait_calls(&rig.crew.fake, BODY(RING_OPEN), 3 + i);
        }
        fake_mute(&rig.crew.fake, true);
        for (uint32_t i = 2; i-- > 0;) {
                rmx_cancel_set(joiners[i].cancel);
                pthread_join(joiners[i].thread, NULL);
                assert_int_equal(joiners[i].result, RMX_E_ABORTED);
                rmx_cancel_free(joiners[i].cancel);
        }
        fake_drop(&rig.crew.fake, 0, 0);
        fake_mute(&rig.crew.fake, false);
        assert_int_equal(join_alone(&rig, 1, NULL, 0, &comm), RMX_OK);
        assert_int_equal(rig.gpu->opened, 2);
        assert_true(fake_calls(&rig.crew.fake, BODY(COMM_DESTROY)) >= left + 2); /* it has heard of both */
        rig_stop(&rig);
}

/* The counters of a rank begin at 0 also where another one was before. */
static void test_slots_again(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct rmx_id id;
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        for (uint32_t i = 1; i < 2 * CLIENT_GPU_SLOTS; i++) {
                struct rmx_comm *comm;

                assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
                assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &comm), RMX_OK);
                assert_int_equal(rmx_all_reduce(comm, rig.a, rig.b, 16, RMX_FLOAT32, rung(comm), NULL), RMX_OK);
                assert_true(last(&rig)->bell.slot != 0 && last(&rig)->bell.slot < CLIENT_GPU_SLOTS);
                rig.gpu->n_launches = 0;
                assert_int_equal(rmx_comm_destroy(comm), RMX_OK);
                assert_int_equal(rig.crew.fake.last_sequence, 1);
        }
        rig_stop(&rig);
}

static void test_no_plugin(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        char *path = strdup(getenv("RAILMUX_CLIENT_PLUGIN"));
        struct rmx_session *session;
        struct rmx_comm *comm;
        struct fake fake;
        struct rmx_id id;

        (void)state;
        fake_start(&fake);
        fake.backend = "hip";
        setenv("RAILMUX_CLIENT_PLUGIN", "/nonexistent/plug-in.so", 1);
        session = fake_session(&fake); /* is of use all the same */
        assert_int_equal(rmx_get_id(session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(session, &id, 1, 0, &options, &comm), RMX_E_UNSUPPORTED);
        assert_error_says("librailmux-hip.so is needed");
        rmx_session_close(session);
        setenv("RAILMUX_CLIENT_PLUGIN", path, 1);
        free(path);
        fake_stop(&fake);
}

/* ---- what is inlined --------------------------------------------------------------------------------------------- */
static int call_op(struct rig *rig, struct rmx_comm *comm, uint32_t op, size_t count, uint32_t type) {
        switch (op) {
        case RING_OP_ALL_REDUCE:
                return rmx_all_reduce(comm, rig->a, rig->b, count, type, RMX_MAX, NULL);
        case RING_OP_REDUCE:
                return rmx_reduce(comm, rig->a, rig->b, count, type, RMX_MAX, 0, NULL);
        case RING_OP_BROADCAST:
                return rmx_broadcast(comm, rig->a, rig->b, count, type, 0, NULL);
        case RING_OP_ALL_GATHER:
                return rmx_all_gather(comm, rig->a, rig->b, count, type, NULL);
        case RING_OP_REDUCE_SCATTER:
                return rmx_reduce_scatter(comm, rig->a, rig->b, count, type, RMX_MAX, NULL);
        case RING_OP_ALL_TO_ALL:
                return rmx_all_to_all(comm, rig->a, rig->b, count, type, NULL);
        case RING_OP_GATHER:
                return rmx_gather(comm, rig->a, rig->b, count, type, 0, NULL);
        case RING_OP_SCATTER:
                return rmx_scatter(comm, rig->a, rig->b, count, type, 0, NULL);
        default:
                return rmx_barrier(comm, NULL);
        }
}

/* Four ranks, of which 0 (the root) and 1 call. */
static void test_inline(void **state) {
        static const struct {
                uint32_t op, count, type, rank;
                bool inlined;
                uint32_t in_bytes, out_bytes;
        } cases[] = {
                {RING_OP_ALL_REDUCE, 1, RMX_INT8, 1, true, 1, 1},
                {RING_OP_ALL_REDUCE, 4096, RMX_FLOAT32, 1, true, 16384, 16384},
                {RING_OP_ALL_REDUCE, 4097, RMX_FLOAT32, 1, false, 16388, 16388},
                {RING_OP_ALL_REDUCE, 16383, RMX_UINT8, 1, true, 16383, 16383},
                {RING_OP_ALL_REDUCE, 0, RMX_UINT8, 1, true, 0, 0},
                {RING_OP_REDUCE, 5, RMX_BFLOAT16, 0, true, 10, 10},
                {RING_OP_REDUCE, 5, RMX_BFLOAT16, 1, true, 10, 0},
                {RING_OP_BROADCAST, 7, RMX_INT8, 0, true, 7, 7},
                {RING_OP_BROADCAST, 7, RMX_INT8, 1, true, 0, 7},
                {RING_OP_ALL_GATHER, 2, RMX_FLOAT32, 1, true, 8, 32},
                {RING_OP_ALL_GATHER, 3, RMX_FLOAT32, 1, false, 12, 48},
                {RING_OP_ALL_GATHER, 1024, RMX_FLOAT32, 1, true, 4096, 16384},
                {RING_OP_ALL_GATHER, 1026, RMX_FLOAT32, 1, false, 4104, 16416},
                {RING_OP_REDUCE_SCATTER, 4, RMX_BFLOAT16, 0, true, 32, 8},
                {RING_OP_REDUCE_SCATTER, 2, RMX_BFLOAT16, 0, false, 16, 4},
                {RING_OP_REDUCE_SCATTER, 2048, RMX_BFLOAT16, 0, true, 16384, 4096},
                {RING_OP_ALL_TO_ALL, 1, RMX_FLOAT64, 1, true, 32, 32},
                {RING_OP_ALL_TO_ALL, 7, RMX_INT8, 1, false, 28, 28},
                {RING_OP_GATHER, 512, RMX_FLOAT64, 0, true, 4096, 16384},
                {RING_OP_GATHER, 513, RMX_FLOAT64, 0, false, 4104, 16416},
                {RING_OP_GATHER, 513, RMX_FLOAT64, 1, true, 4104, 0},
                {RING_OP_SCATTER, 513, RMX_FLOAT64, 1, true, 0, 4104},
                {RING_OP_BARRIER, 0, 0, 1, true, 0, 0},
        };
        struct rig rig;

        (void)state;
        rig_start(&rig, 4);
        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct client_gpu_bell *bell;
                struct ring_request line;
                bool typed = cases[i].op != RING_OP_BARRIER;

                assert_int_equal(
                        call_op(&rig, rig.crew.comm[cases[i].rank], cases[i].op, cases[i].count, cases[i].type),
                        RMX_OK);
                bell = &last(&rig)->bell;
                if (bell->inlined != cases[i].inlined)
                        fail_msg("case %u", i);
                assert_int_equal(bell->in_bytes, cases[i].in_bytes);
                assert_int_equal(bell->out_bytes, cases[i].out_bytes);
                assert_true(!typed || (bell->in == rig.a && bell->out == rig.b));
                memcpy(line.word, bell->word, sizeof(line.word));
                assert_int_equal(ring_request_abi(&line), RING_ABI);
                assert_int_equal(ring_request_op(&line), cases[i].op);
                assert_int_equal(ring_request_type(&line), cases[i].type);
                assert_int_equal(ring_request_u64(&line, RING_W_COUNT_LO), cases[i].count);
                assert_int_equal(line.word[RING_W_PEER], 0);
                assert_int_equal(line.word[RING_W_EPOCH], 1);
                assert_int_equal(line.word[RING_W_COMM], rig.crew.fake.comms->member[cases[i].rank].handle);
                for (uint32_t word = RING_W_IN_BUFFER; word < RING_W_PEER && cases[i].inlined; word++)
                        assert_int_equal(line.word[word], 0);
                assert_int_equal(!line.word[RING_W_IN_BUFFER], cases[i].inlined || !cases[i].in_bytes);
                assert_int_equal(!line.word[RING_W_OUT_BUFFER], cases[i].inlined || !cases[i].out_bytes);
                assert_int_equal(bell->n_arguments, 0);
        }
        rig_stop(&rig);
}

/* How often the executor of GPU 0 has been told that something will be rung, and the latch has been lifted before. */
static uint64_t announced(struct rig *rig) {
        uint32_t *lifted = rig->comm->device->latch;
        uint64_t n = 0;

        if (read(rig->crew.fake.sessions->rings[0].wake_fd, &n, sizeof(n)) != sizeof(n))
                assert_int_equal(errno, EAGAIN);
        assert_int_equal(!lifted, rig->crew.fake.no_latch);
        if (lifted) {
                assert_int_equal(*lifted, n);
                *lifted = 0;
        }
        return n;
}

/* The first call, and one after a silence, are announced; what is captured, or close behind, is not. */
static void announcements(struct rig *rig) {
        char stream;

        (void)announced(rig);
        fake_gpu_capture(rig->gpu, &stream, NULL);
        assert_int_equal(rmx_all_reduce(rig->comm, rig->a, rig->b, 5, RMX_INT8, RMX_MAX, &stream), RMX_OK);
        fake_gpu_capture(rig->gpu, NULL, NULL);
        assert_int_equal(announced(rig), 0);
        for (uint32_t silent = 0; silent < 2; silent++) {
                struct rmx_request request = {0};
                uint64_t begun;

                rig->comm->device->rung_ns = silent ? clock_now_ns() - UINT64_C(150000000) : 0;
                assert_int_equal(rmx_all_reduce(rig->comm, rig->a, rig->b, 5, RMX_INT8, RMX_MAX, NULL), RMX_OK);
                assert_int_equal(announced(rig), 1);
                begun = clock_now_ns();
                assert_int_equal(rmx_all_reduce(rig->comm, rig->a, rig->b, 5, RMX_INT8, RMX_MAX, NULL), RMX_OK);
                if (clock_now_ns() - begun < UINT64_C(100000000))
                        assert_int_equal(announced(rig), 0);
                rig->comm->device->rung_ns = 0;
                assert_int_equal(rmx_all_reduce_start(rig->comm, rig->a, rig->b, 5, RMX_INT8, RMX_MAX, NULL, &request),
                                 RMX_OK);
                assert_int_equal(announced(rig), 1);
                assert_int_equal(rmx_wait_stream(&request, NULL), RMX_OK);
        }
}

static void test_announced(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        announcements(&rig);
        rig_stop(&rig);
        crew_start_gpus_without_latch(&rig.crew, 2);
        rig.comm = rig.crew.comm[0];
        announcements(&rig);
        rig_stop(&rig);
}

/* Inlined, memory may be any that the device reaches, and is not made known. */
static void test_inline_memory(void **state) {
        static char host[64], managed[64], nowhere[64];
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        fake_gpu_add(rig.gpu, host, sizeof(host), 0)->residence = CLIENT_GPU_HOST;
        fake_gpu_add(rig.gpu, managed, sizeof(managed), 0)->residence = CLIENT_GPU_MANAGED;
        assert_int_equal(rmx_all_reduce(rig.comm, host, managed, 16, RMX_FLOAT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a + 1, rig.b + 3, 64, RMX_INT8, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rig.gpu->n_launches, 2);
        assert_int_equal(creations(&rig) + rig.gpu->exports, 0);
        assert_int_equal(rmx_all_reduce(rig.comm, nowhere, rig.b, 16, RMX_FLOAT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("in: ");
        assert_error_says("is host memory; a communicator on GPUs needs memory of GPU 0");
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, nowhere, 16, RMX_FLOAT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("out: ");
        assert_int_equal(rig.gpu->n_launches, 2);
        rig_stop(&rig);
}

/* ---- argument blocks --------------------------------------------------------------------------------------------- */
static void test_arguments(void **state) {
        const size_t counts[] = {8192, 3, 0}, offsets[] = {1, 8193, 0};
        const struct fake_gpu_launch *launch;
        float factor = 0.5f;
        uint32_t redop, bits;
        struct rig rig;

        (void)state;
        rig_start(&rig, 3);
        assert_int_equal(rmx_redop_create_premul_sum(rig.comm, &factor, RMX_FLOAT32, RMX_SCALAR_MEMORY, &redop),
                         RMX_OK);
        factor = 0.25f;
        assert_int_equal(rmx_all_reduce(rig.comm, rig.a, rig.b, 4, RMX_FLOAT32, redop, NULL), RMX_OK);
        launch = last(&rig);
        memcpy(&bits, &factor, sizeof(bits));
        assert_int_equal(launch->bell.n_arguments, 1);
        assert_int_equal(launch->argument[0], bits);
        assert_int_equal(launch->bell.word[RING_W_HEAD] & 0xff, RMX_PREMUL_SUM);

        assert_int_equal(rmx_all_to_all_v(rig.comm, rig.a, counts, offsets, rig.b, counts, offsets, RMX_FLOAT32, NULL),
                         RMX_OK);
        launch = last(&rig);
        assert_int_equal(launch->bell.n_arguments, 12);
        for (uint32_t i = 0; i < 12; i++)
                assert_int_equal(launch->argument[i], i / 3 % 2 ? offsets[i % 3] : counts[i % 3]);
        assert_false(launch->bell.inlined);
        assert_int_equal(launch->bell.in_bytes, 8196 * 4);
        assert_true(launch->bell.word[RING_W_IN_BUFFER] && launch->bell.word[RING_W_OUT_BUFFER]);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_open),
                cmocka_unit_test(test_open_again),
                cmocka_unit_test(test_open_unanswered),
                cmocka_unit_test(test_slots_again),
                cmocka_unit_test(test_no_plugin),
                cmocka_unit_test(test_inline),
                cmocka_unit_test(test_announced),
                cmocka_unit_test(test_inline_memory),
                cmocka_unit_test(test_arguments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
