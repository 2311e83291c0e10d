/* SPDX-License-Identifier: MIT */
/* railmuxd with executors of GPUs, whose plug-in is a fake: sessions, memory, communicators and their staging. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "gpu/plane.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GPUS 4u

static int setup(void **state) {
        struct fixture *fixture = malloc(sizeof(*fixture));

        fixture_setup_planes(fixture, GPUS, false);
        *state = fixture;
        return 0;
}

static int teardown(void **state) {
        fixture_teardown(*state);
        free(*state);
        return 0;
}

/* Code of an answer that is a reply of that kind, or a failure. */
static uint32_t take_reply(struct client *client, uint64_t id, uint32_t body_case, unsigned int n_fds) {
        struct inbox_message *answer = client_answer(client, id);
        uint32_t code = 0;

        assert_non_null(answer);
        if (answer->message->body_case == RAILMUX__SESSION__MESSAGE__BODY_FAILURE) {
                code = answer->message->failure->code;
        } else {
                assert_int_equal(answer->message->body_case, body_case);
                assert_int_equal(answer->n_fds, n_fds);
        }
        client_drop(client, answer);
        return code;
}

static uint32_t open_ring(struct client *client, uint32_t gpu, const char *tag) {
        return take_reply(client, send_ring_open_device(client, gpu, tag, 0),
                          RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY, 3);
}

static uint32_t create_buffer(struct client *client, uint32_t buffer, uint64_t bytes, uint32_t gpu, const char *tag) {
        return take_reply(client, send_buffer_create_device(client, buffer, bytes, gpu, tag),
                          RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, 0);
}

static uint32_t failure_code(struct client *client, uint32_t *ret_handle, int32_t *ret_rank) {
        struct inbox_message *event = client_event(client, RAILMUX__SESSION__EVENT__BODY_COMM_FAILED);
        uint32_t code = event->message->event->comm_failed->code;

        *ret_handle = event->message->event->comm_failed->handle;
        *ret_rank = event->message->event->comm_failed->rank;
        client_drop(client, event);
        return code;
}

/* Where rank r's staging of a comm lies, as the executor of GPU 0 was told. */
static void staging_of(struct fixture *f, uint64_t comm, uint32_t n_ranks, uint64_t *ret_offsets) {
        char begin[64], text[1024], *at;

        snprintf(begin, sizeof(begin), "comm_attach %" PRIu64 " ", comm);
        plane_text(f, 0, begin, text, sizeof(text));
        at = text;
        for (uint32_t r = 0; r < n_ranks; r++) {
                at = strchr(at, '@');
                assert_non_null(at);
                ret_offsets[r] = strtoull(++at, NULL, 10);
        }
}

static void test_hello(void **state) {
        struct fixture *f = *state;
        struct client *client = client_connect(f);
        struct inbox_message *answer = client_answer(client, send_hello(client));
        const Railmux__Session__HelloReply *reply = answer->message->hello_reply;

        assert_string_equal(reply->backend, "hip");
        assert_int_equal(reply->gpus, GPUS);
        assert_int_equal(reply->n_gpu_pci, GPUS);
        for (uint32_t i = 0; i < GPUS; i++) {
                char pci[32];

                snprintf(pci, sizeof(pci), "0000:%02x:00.0", 0x10 + i);
                assert_string_equal(reply->gpu_pci[i], pci);
                fixture_wait(f, plane_count(f, i, "peer_add ") == GPUS /* the own one too */);
        }
        client_drop(client, answer);
}

/* What stood in the latch when the ring was attached last; -1: the executor had none. */
static int attached_with(struct fixture *f, struct client *client, uint32_t gpu) {
        char begin[64], text[1024], *at, *end;
        long value;

        snprintf(begin, sizeof(begin), "ring_attach %" PRIu64 " ", client->session);
        plane_text(f, gpu, begin, text, sizeof(text));
        at = strstr(text, "latch=");
        assert_non_null(at);
        at += strlen("latch=");
        value = strtol(at, &end, 10);
        assert_true(end > at && (*end == '\0' || *end == '\n'));
        return (int)value;
}

static void test_memory(void **state) {
        struct fixture *f = *state;
        struct client *client = client_open(f);
        uint64_t session;
        char text[256];

        snprintf(text, sizeof(text),
                 "ring_attach %" PRIu64 " offset=4096 bytes=%" PRIu64 " 'area a' wake=0 soon latch=0", client->session,
                 plane_bell_bytes());
        assert_int_equal(open_ring(client, 2, "area a"), 0);
        assert_int_equal(plane_count(f, 2, text), 1);
        assert_int_equal(plane_count(f, 1, "ring_attach"), 0);
        /* the same call again, and one with other memory */
        assert_int_equal(open_ring(client, 2, "area a"), 0);
        assert_int_equal(open_ring(client, 2, "area b"), RMX_E_INVALID);
        assert_int_equal(plane_count(f, 2, "ring_attach"), 1);

        assert_int_equal(create_buffer(client, 7, 1000, 2, "buffer a"), 0);
        snprintf(text, sizeof(text), "buffer_import %" PRIu64 ".7 offset=4096 bytes=1000 'buffer a'", client->session);
        assert_int_equal(plane_count(f, 2, text), 1);
        assert_int_equal(plane_count(f, 0, "buffer_import"), 0);
        assert_int_equal(create_buffer(client, 7, 1000, 2, "buffer a"), 0);
        assert_int_equal(create_buffer(client, 7, 1000, 1, "buffer a"), RMX_E_INVALID);
        assert_int_equal(create_buffer(client, 7, 1000, 2, "buffer b"), RMX_E_INVALID);
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 7), NULL, 0), 0);
        snprintf(text, sizeof(text), "buffer_retire %" PRIu64 ".7", client->session);
        assert_int_equal(plane_count(f, 2, text), 1);
        assert_int_equal(create_buffer(client, 7, 2000, 1, "buffer c"), 0);

        session = client->session;
        client_close(client);
        fixture_wait(f, plane_count(f, 2, "ring_detach") == 1);
        /* and a session without a ring there: its buffers go in one call, not one by one */
        snprintf(text, sizeof(text), "buffer_retire %" PRIu64 ".7 with all", session);
        fixture_wait(f, plane_count(f, 1, text) == 1);
        assert_int_equal(plane_count(f, 1, "buffer_retire"), 1);
        fixture_wait_idle(f);
}

/* All sessions on a GPU and its executor share a page, whoever comes and goes. */
static void test_latch(void **state) {
        struct fixture *f = *state;
        struct client *a = client_open(f), *b = client_open(f), *c;
        int32_t *page = client_latch(a, 2), *other = client_latch(b, 2), *elsewhere = client_latch(b, 1);

        *page = 41;
        assert_int_equal(*other, 41);
        assert_int_equal(*elsewhere, 0);
        client_close(a);
        fixture_wait(f, plane_count(f, 2, "ring_detach") == 1);
        client_close(b);
        fixture_wait_idle(f);
        c = client_open(f);
        assert_int_equal(open_ring(c, 2, "area"), 0);
        assert_int_equal(attached_with(f, c, 2), 41);
        assert_int_equal(plane_count(f, 2, "latch"), 1);
        *page = 43;
        plane_kill(f, 2);
        plane_start(f, 2);
        fixture_wait(f, plane_count(f, 2, "ring_attach") == 4);
        assert_int_equal(attached_with(f, c, 2), 43);
        munmap(page, plane_latch_bytes());
        munmap(other, plane_latch_bytes());
        munmap(elsewhere, plane_latch_bytes());
}

/* What it is good for is not worth a ring. */
static void test_no_latch(void **state) {
        struct fixture *f = *state;
        struct client *a = client_open(f), *b = client_open(f);

        plane_write(f, 1, "fail", "latch 12");
        assert_int_equal(open_ring(a, 1, "area"), 0);
        assert_int_equal(attached_with(f, a, 1), -1);
        plane_write(f, 1, "fail", NULL);
        assert_int_equal(open_ring(b, 1, "area"), 0);
        assert_int_equal(attached_with(f, b, 1), 0);
        assert_int_equal(plane_count(f, 1, "latch"), 2);
}

/* Each of these is the client's mistake, and costs it this call only. */
static void test_bad_memory(void **state) {
        struct fixture *f = *state;
        struct client *client = client_open(f);
        static const struct {
                uint32_t kind, n_handle;
                uint64_t allocation, offset, bytes;
        } bad[] = {
                {2, 64, 0, 0, 4096},       {3, 64, 0, 0, 4096},    {1, 63, 0, 0, 4096},
                {1, 0, 0, 0, 4096},        {1, 64, 0, 0, 0},       {1, 64, 0, UINT64_MAX, 4096},
                {1, 64, 8192, 4097, 4096}, {1, 64, 4096, 0, 8192}, {1, 64, 0, UINT64_MAX - 4095, 4096},
                {1, 64, 8192, 1, 4096},
        };
        uint64_t call, destroy;
        unsigned int n;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
                Railmux__Session__BufferCreate body = RAILMUX__SESSION__BUFFER_CREATE__INIT;
                Railmux__Session__DeviceMemory memory = RAILMUX__SESSION__DEVICE_MEMORY__INIT;
                uint8_t handle[64] = "x";

                memory.kind = bad[i].kind;
                memory.handle.data = handle;
                memory.handle.len = bad[i].n_handle;
                memory.allocation_bytes = bad[i].allocation;
                memory.offset = bad[i].offset;
                memory.bytes = bad[i].bytes;
                body.buffer = 1;
                body.bytes = 1;
                body.memory = &memory;
                message.body_case = RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE;
                message.buffer_create = &body;
                assert_int_equal(take_reply(client, client_send(client, &message), 0, 0), RMX_E_INVALID);
        }
        assert_int_equal(take_reply(client, send_buffer_create(client, 1, 4096), 0, 0), RMX_E_UNSUPPORTED);
        assert_int_equal(take_reply(client, send_ring_open(client, 1), 0, 0), RMX_E_INVALID);
        assert_int_equal(take_reply(client, send_ring_open_device(client, 1, "a", plane_bell_bytes() - 1), 0, 0),
                         RMX_E_INVALID);
        assert_int_equal(open_ring(client, GPUS, "a"), RMX_E_INVALID);
        assert_int_equal(create_buffer(client, 1, 4096, GPUS, "a"), RMX_E_INVALID);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(plane_count(f, i, "ring_attach") + plane_count(f, i, "buffer_import"), 0);

        /* what the plane refuses */
        plane_write(f, 1, "fail", "ring_attach 22");
        assert_int_equal(open_ring(client, 1, "a"), RMX_E_INVALID);
        plane_write(f, 1, "fail", "buffer_import 12");
        assert_int_equal(create_buffer(client, 1, 4096, 1, "a"), RMX_E_NO_MEMORY);
        plane_write(f, 1, "fail", "buffer_import 16"); /* EBUSY: it is asked again */
        call = send_buffer_create_device(client, 2, 4096, 1, "b");
        fixture_wait(f, plane_count(f, 1, "buffer_import") >= 3);
        plane_write(f, 1, "fail", NULL);
        assert_int_equal(take_reply(client, call, RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY, 0), 0);
        assert_int_equal(take_ack(client, send_buffer_destroy(client, 2), NULL, 0), 0);
        plane_write(f, 1, "fail", "buffer_import 16"); /* and not any more */
        n = plane_count(f, 1, "buffer_import");
        call = send_buffer_create_device(client, 2, 4096, 1, "b");
        fixture_wait(f, plane_count(f, 1, "buffer_import") >= n + 2);
        destroy = send_buffer_destroy(client, 2);
        assert_int_equal(take_reply(client, call, 0, 0), RMX_E_INVALID);
        assert_int_equal(take_ack(client, destroy, NULL, 0), 0);
        plane_write(f, 1, "fail", NULL);
        assert_int_equal(open_ring(client, 1, "a"), 0);
        assert_int_equal(create_buffer(client, 1, 4096, 1, "a"), 0);
}

static void test_staging(void **state) {
        struct fixture *f = *state;
        const uint64_t share = plane_staging_bytes(GPUS), pair = plane_staging_bytes(2);
        uint64_t numbers[3], offsets[3][GPUS];
        struct client *clients[GPUS];
        uint32_t handles[3][GPUS];
        char begin[64];

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        for (uint32_t c = 0; c < 2; c++) {
                numbers[c] = make_comm(clients, GPUS, handles[c]);
                staging_of(f, numbers[c], GPUS, offsets[c]);
                for (uint32_t r = 0; r < GPUS; r++)
                        assert_int_equal(offsets[c][r], c * share);
        }
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(begin, sizeof(begin), "comm_attach %" PRIu64 " ranks=4 code=0", numbers[1]);
                assert_int_equal(plane_count(f, i, begin), 1);
        }
        /* One on GPUs 0 and 1 only: the first gap is behind the two. */
        numbers[2] = make_comm(clients, 2, handles[2]);
        staging_of(f, numbers[2], 2, offsets[2]);
        assert_int_equal(offsets[2][0], 2 * share);
        snprintf(begin, sizeof(begin), "comm_attach %" PRIu64, numbers[2]);
        assert_int_equal(plane_count(f, 2, begin), 0);
        /* The first one goes; its place is taken again when all have let go of it. */
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], handles[0][r], 0), NULL, 0), 0);
        snprintf(begin, sizeof(begin), "comm_detach %" PRIu64, numbers[0]);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, plane_count(f, i, begin) == 1);
        numbers[0] = make_comm(clients, 2, handles[0]);
        staging_of(f, numbers[0], 2, offsets[0]);
        assert_true(offsets[0][0] == 0 && offsets[0][1] == 0);
        assert_true(pair < share);
        snprintf(begin, sizeof(begin), "rank_leave");
        assert_int_equal(plane_count(f, 3, begin), GPUS); /* whichever GPU the rank is on */
}

/* A rank of its own may share a GPU with another. */
static void test_shared_gpu(void **state) {
        struct fixture *f = *state;
        struct client *clients[2] = {client_open(f), client_open(f)};
        uint64_t calls[2], offsets[2];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];

        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create_on(clients[r], id, 2, r, 0);
        for (uint32_t r = 0; r < 2; r++)
                answer = take_comm(clients[r], calls[r]);
        assert_int_equal(answer.code, 0);
        assert_int_equal(answer.gpu, 0);
        staging_of(f, answer.comm, 2, offsets);
        assert_int_equal(offsets[0], 0);
        assert_int_equal(offsets[1], plane_staging_bytes(2));
        assert_int_equal(plane_count(f, 1, "comm_attach"), 0);
}

static void test_pool_is_full(void **state) {
        struct fixture *f = *state;
        const uint32_t fit = (uint32_t)(((uint64_t)256 << 20) / plane_staging_bytes(2));
        struct client *clients[2] = {client_open(f), client_open(f)};
        uint32_t handles[2], last[2];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[2];

        for (uint32_t i = 0; i < fit; i++)
                make_comm(clients, 2, i == fit / 2 ? handles : last);
        for (unsigned int turn = 0; turn < 2; turn++) {
                call_id_create(clients[0], id);
                for (uint32_t r = 0; r < 2; r++)
                        calls[r] = send_comm_create(clients[r], id, 2, r);
                for (uint32_t r = 0; r < 2; r++) {
                        answer = take_comm(clients[r], calls[r]);
                        assert_int_equal(answer.code, RMX_E_LIMIT);
                        assert_non_null(strstr(answer.text, "GPU 0 has no staging left"));
                }
        }
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(take_ack(clients[r], send_comm_destroy(clients[r], handles[r], 0), NULL, 0), 0);
        for (uint32_t i = 0; i < 2; i++)
                fixture_wait(f, plane_count(f, i, "comm_detach") == 1);
        make_comm(clients, 2, handles);
}

/* Half of the staging is for communicators that somebody needs. */
static void test_spare(void **state) {
        struct fixture *f = *state;
        const uint32_t half = (uint32_t)(((uint64_t)128 << 20) / plane_staging_bytes(2));
        struct client *clients[2] = {client_open(f), client_open(f)};
        uint32_t handles[64][2];
        char used[64];

        assert_true(half < 64);
        for (uint32_t i = 0; i < half; i++)
                make_comm(clients, 2, handles[i]);
        for (uint32_t number = 1; number <= 3; number++) {
                uint64_t calls[2];

                for (uint32_t r = 0; r < 2; r++) {
                        clients[r]->spare = number != 2;
                        calls[r] = send_comm_split(clients[r], handles[0][r], number, 0, 0);
                }
                for (uint32_t r = 0; r < 2; r++) {
                        struct comm_answer answer = take_comm(clients[r], calls[r]);

                        assert_int_equal(answer.code, number == 1 ? RMX_E_LIMIT : 0);
                        if (number == 1)
                                assert_non_null(strstr(answer.text, "has no staging left"));
                }
                for (uint32_t i = 1; number == 2 && i <= 2; i++) /* room for one */
                        for (uint32_t r = 0; r < 2; r++)
                                assert_int_equal(
                                        take_ack(clients[r], send_comm_destroy(clients[r], handles[i][r], 0), NULL, 0),
                                        0);
                snprintf(used, sizeof(used), "\"staging_used_bytes\": %" PRIu64, (half - 1) * plane_staging_bytes(2));
                if (number == 2) /* when all executors have let go of them */
                        fixture_wait(f, fixture_ctl_says(f, "--json", "gpus", used));
        }
}

static void test_too_many_ranks(void **state) {
        struct fixture *f = *state;
        struct client *client = client_open(f);
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];

        call_id_create(client, id);
        answer = take_comm(client, send_comm_create(client, id, 65, 0));
        assert_int_equal(answer.code, RMX_E_INVALID);
        assert_non_null(strstr(answer.text, "n_ranks is 65; allowed: 1 .. 64"));
}

static void test_attach_fails(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];
        uint64_t calls[GPUS];
        uint32_t handles[GPUS];

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        plane_write(f, 2, "fail", "comm_attach 28");
        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create(clients[r], id, GPUS, r);
        for (uint32_t r = 0; r < GPUS; r++) {
                answer = take_comm(clients[r], calls[r]);
                assert_int_equal(answer.code, RMX_E_LIMIT);
                assert_non_null(strstr(answer.text, "the test says that comm_attach fails"));
        }
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, i == 2 || plane_count(f, i, "comm_detach") == 1);
        /* What is there of that name is something else. */
        plane_write(f, 2, "fail", "comm_attach 17");
        call_id_create(clients[0], id);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create(clients[r], id, GPUS, r);
        for (uint32_t r = 0; r < GPUS; r++)
                assert_int_equal(take_comm(clients[r], calls[r]).code, RMX_E_INTERNAL);
        plane_write(f, 2, "fail", NULL);
        make_comm(clients, GPUS, handles);
}

/* What one kernel finds, all ranks are told, after all executors have ended the comm. */
static void test_failure(void **state) {
        struct fixture *f = *state;
        const uint32_t status = ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, 3);
        struct client *clients[GPUS];
        uint32_t handles[GPUS], handle;
        uint64_t number, other;
        uint32_t other_handles[GPUS];
        char text[128];
        int32_t rank;

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        number = make_comm(clients, GPUS, handles);
        other = make_comm(clients, GPUS, other_handles);
        snprintf(text, sizeof(text), "%" PRIu64 " 1 5 4 1 %u\n", number, status);
        plane_write(f, 1, "reports", text);
        for (uint32_t r = 0; r < GPUS; r++) {
                assert_int_equal(failure_code(clients[r], &handle, &rank), RMX_E_MISMATCH);
                assert_int_equal(handle, handles[r]);
                assert_int_equal(rank, 3);
        }
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "comm_abort %" PRIu64 " code=%u rank=3", number, RMX_E_MISMATCH);
                assert_int_equal(plane_count(f, i, text), 1);
                snprintf(text, sizeof(text), "comm_abort %" PRIu64, other);
                assert_int_equal(plane_count(f, i, text), 0);
        }
}

static void test_client_abort(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS], handle;
        int32_t rank;

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        make_comm(clients, GPUS, handles);
        assert_int_equal(take_ack(clients[2], send_comm_abort(clients[2], handles[2]), NULL, 0), 0);
        for (uint32_t r = 0; r < GPUS; r++) {
                assert_int_equal(plane_count(f, r, "comm_abort"), 1);
                assert_int_equal(failure_code(clients[r], &handle, &rank), RMX_E_ABORTED);
                assert_int_equal(rank, 2);
        }
}

static void test_client_death(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS], handle;
        char text[128];
        int32_t rank;

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = i == 1 ? client_open_child(f) : client_open(f);
        assert_int_equal(open_ring(clients[1], 1, "a"), 0);
        make_comm(clients, GPUS, handles);
        client_close(clients[1]);
        for (uint32_t r = 0; r < GPUS; r++) {
                if (r == 1)
                        continue;
                assert_int_equal(failure_code(clients[r], &handle, &rank), RMX_E_PEER_LOST);
                assert_int_equal(rank, 1);
        }
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "comm_abort 1 code=%u rank=1", RMX_E_PEER_LOST);
                assert_int_equal(plane_count(f, i, text), 1);
        }
        fixture_wait(f, plane_count(f, 1, "ring_detach") == 1);
        assert_true(plane_line(f, 1, "comm_abort") < plane_line(f, 1, "ring_detach"));
}

/* Rank 0 calls an eleventh time, which rank 3, that has left after ten, will never do. */
static void call_what_will_not_be(struct fixture *f, uint64_t comm, struct client *const *clients) {
        uint32_t handle;
        char text[64];
        int32_t rank;

        snprintf(text, sizeof(text), "%" PRIu64 " 0 11 10 1 0\n", comm);
        plane_write(f, 0, "reports", text);
        for (uint32_t i = 0; i < 2; i++) {
                assert_int_equal(failure_code(clients[i], &handle, &rank), RMX_E_PEER_LOST);
                assert_int_equal(rank, 3);
        }
}

static void test_left(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS];
        uint64_t number;

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        number = make_comm(clients, GPUS, handles);
        assert_int_equal(take_ack(clients[3], send_comm_destroy(clients[3], handles[3], 10), NULL, 0), 0);
        call_what_will_not_be(f, number, clients);
}

/* One whose process says more than it has rung. */
static void test_left_with_a_lie(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS];
        uint64_t number;
        char text[128];

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        number = make_comm(clients, GPUS, handles);
        snprintf(text, sizeof(text), "%" PRIu64 " 3 10 10 1 0\n", number);
        plane_write(f, 3, "reports", text);
        assert_int_equal(take_ack(clients[3], send_comm_destroy(clients[3], handles[3], 3000000), NULL, 0), 0);
        snprintf(text, sizeof(text), "rank_leave %" PRIu64 " rank=3 last=10", number);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, plane_count(f, i, text) == 1);
        call_what_will_not_be(f, number, clients);
}

/* No executor knows who is missing; together they do. */
static void test_stall(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS];
        uint64_t number;
        char text[128];

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        number = make_comm(clients, GPUS, handles);
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "%" PRIu64 " %u %u 10 1 0\n", number, i, i == 1 || i == 2 ? 10 : 11);
                plane_write(f, i, "reports", text);
        }
        snprintf(text, sizeof(text), "communicator %" PRIu64 " (test): all_reduce 11 has waited for ranks 1, 2 for",
                 number);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, text));
        fixture_wait(f, fixture_ctl_says(f, "comms", NULL, "all_reduce 11 for ranks 1, 2 since"));
        fixture_wait(f, fixture_ctl_says(f, "metrics", NULL, "\nrailmux_comms_stalled 1\n"));
        for (uint32_t i = 0; i < GPUS; i++) {
                snprintf(text, sizeof(text), "%" PRIu64 " %u 11 11 1 0\n", number, i);
                plane_write(f, i, "reports", text);
        }
        fixture_wait(f, !fixture_ctl_says(f, "status", NULL, "has waited for"));
        fixture_wait(f, fixture_ctl_says(f, "metrics", NULL, "\nrailmux_comms_stalled 0\n"));
}

/* rank 2 receives from 0, which has not sent; the executors of both tell. */
static void test_stalled_pair(void **state) {
        struct fixture *f = *state;
        struct client *clients[GPUS];
        uint32_t handles[GPUS];
        uint64_t number;
        char text[160];

        for (uint32_t i = 0; i < GPUS; i++)
                clients[i] = client_open(f);
        number = make_comm(clients, GPUS, handles);
        snprintf(text, sizeof(text), "%" PRIu64 " 2 0 0 6 4\n", number);
        plane_write(f, 2, "pairs", text);
        snprintf(text, sizeof(text), "communicator %" PRIu64 " (test): rank 2 has waited in recv 5 from rank 0 for ",
                 number);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, text));
        fixture_assert_says(f, "comms", NULL, "rank 2 waits in recv 5 from rank 0 since ");

        /* Others', of the other direction and earlier ones are not what it waits for. */
        snprintf(text, sizeof(text), "%" PRIu64 " 0 2 0 9 8\n%" PRIu64 " 0 3 1 9 8\n%" PRIu64 " 0 2 1 4 3\n", number,
                 number, number);
        plane_write(f, 0, "pairs", text);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, "rank 0 has waited in "));
        fixture_assert_says(f, "comms", NULL, "rank 2 waits in recv 5 from rank 0 since ");

        /* It is called, and not served yet. */
        snprintf(text, sizeof(text), "%" PRIu64 " 0 2 1 5 4\n", number);
        plane_write(f, 0, "pairs", text);
        fixture_wait(f, fixture_ctl_says(f, "comms", NULL, "recv 5 of rank 2 from rank 0 is running since "));

        /* The next one; and all over. */
        snprintf(text, sizeof(text), "%" PRIu64 " 2 0 0 6 5\n", number);
        plane_write(f, 2, "pairs", text);
        plane_write(f, 0, "pairs", NULL);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, "rank 2 has waited in recv 6 from rank 0 for "));
        fixture_wait(f, fixture_ctl_says(f, "metrics", NULL, "\nrailmux_comms_stalled 1\n"));
        plane_write(f, 2, "pairs", NULL);
        fixture_wait(f, !fixture_ctl_says(f, "status", NULL, "has waited in"));
        fixture_wait(f, fixture_ctl_says(f, "metrics", NULL, "\nrailmux_comms_stalled 0\n"));
        fixture_wait(f, !fixture_ctl_says(f, "comms", NULL, "waits in"));

        /* A collective that has waited longer is named instead. */
        snprintf(text, sizeof(text), "%" PRIu64 " 1 3 2 1 0\n", number);
        plane_write(f, 1, "reports", text);
        fixture_wait(f, fixture_ctl_says(f, "comms", NULL, "all_reduce "));
        snprintf(text, sizeof(text), "%" PRIu64 " 3 1 1 1 0\n", number);
        plane_write(f, 3, "pairs", text);
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, "rank 3 has waited in send 1 to rank 1 for "));
        fixture_wait(f, fixture_ctl_says(f, "status", NULL, "all_reduce 3 has waited for ranks 0, 2, 3 for"));
        fixture_assert_says(f, "comms", NULL, "all_reduce ");
}

static void test_gpus(void **state) {
        struct fixture *f = *state;
        struct client *clients[2] = {client_open(f), client_open(f)};
        uint32_t handles[2];
        char text[64];

        make_comm(clients, 2, handles);
        snprintf(text, sizeof(text), "\"staging_used_bytes\": %" PRIu64, plane_staging_bytes(2));
        fixture_assert_says(f, "--json", "gpus", text);
        fixture_assert_says(f, "--json", "gpus", "\"staging_bytes\": 268435456");
        fixture_assert_says(f, "--json", "gpus", "\"pci\": \"0000:13:00.0\"");
        fixture_wait(f, fixture_ctl_says(f, "--json", "gpus", "\"policy\": \"adaptive\""));
        fixture_wait(f, fixture_ctl_says(f, "--json", "gpus", "\"resident_blocks\": 2"));
        fixture_assert_says(f, "--json", "gpus", "\"comms\": 1");
        fixture_assert_says(f, "gpus", NULL, "0000:10:00.0");
        fixture_assert_says(f, "metrics", NULL, "executor_parks_total");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_hello, setup, teardown),
                cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
                cmocka_unit_test_setup_teardown(test_latch, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_latch, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bad_memory, setup, teardown),
                cmocka_unit_test_setup_teardown(test_staging, setup, teardown),
                cmocka_unit_test_setup_teardown(test_shared_gpu, setup, teardown),
                cmocka_unit_test_setup_teardown(test_pool_is_full, setup, teardown),
                cmocka_unit_test_setup_teardown(test_spare, setup, teardown),
                cmocka_unit_test_setup_teardown(test_too_many_ranks, setup, teardown),
                cmocka_unit_test_setup_teardown(test_attach_fails, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failure, setup, teardown),
                cmocka_unit_test_setup_teardown(test_client_abort, setup, teardown),
                cmocka_unit_test_setup_teardown(test_client_death, setup, teardown),
                cmocka_unit_test_setup_teardown(test_left, setup, teardown),
                cmocka_unit_test_setup_teardown(test_left_with_a_lie, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stall, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stalled_pair, setup, teardown),
                cmocka_unit_test_setup_teardown(test_gpus, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
