/* SPDX-License-Identifier: MIT */
/* Which executors of other GPUs are asked to map a buffer, what its own one is told of them, and in which order they
 * let go of it. That nobody is told of what is not there the plug-in checks by itself (WRONG in its log). */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "railmux/railmux.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS    3u
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED
#define REPLY   RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY
#define BYTES   (UINT64_C(512) << 10) /* from here on requests reach */

struct set {
        struct fixture fixture;
        struct client *clients[GPUS]; /* client i will be rank i, on GPU i */
        uint32_t handles[GPUS];
};

static int setup_some(void **state, uint32_t without) {
        struct set *set = calloc(1, sizeof(*set));

        fixture_reaches = ~(UINT64_C(1) << without);
        fixture_setup_planes(&set->fixture, GPUS, true);
        for (uint32_t i = 0; i < GPUS; i++)
                set->clients[i] = client_open(&set->fixture);
        *state = set;
        return 0;
}

static int setup(void **state) {
        return setup_some(state, 63);
}

static int setup_bursts(void **state) {
        fixture_bursts = 7;
        return setup(state);
}

/* The executor of GPU 2 reaches as the version before bursts did. */
static int setup_bursts_older(void **state) {
        fixture_bursts = 3;
        return setup(state);
}

/* The executor of GPU 2 is of the version before. */
static int setup_older(void **state) {
        return setup_some(state, 2);
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        fixture_reaches = fixture_bursts = 0;
        free(set);
        return 0;
}

static void create_of(struct set *set, uint32_t gpu, uint32_t buffer, uint64_t bytes) {
        struct client *client = set->clients[gpu];
        struct inbox_message *answer =
                client_answer(client, send_buffer_create_device(client, buffer, bytes, gpu, "memory"));

        assert_int_equal(answer->message->body_case, REPLY);
        client_drop(client, answer);
}

static void create(struct set *set, uint32_t gpu, uint32_t buffer) {
        create_of(set, gpu, buffer, BYTES + gpu);
}

static void destroy(struct set *set, uint32_t gpu, uint32_t buffer) {
        struct client *client = set->clients[gpu];

        assert_int_equal(take_ack(client, send_buffer_destroy(client, buffer), NULL, 0), 0);
}

static char *key(char text[96], struct set *set, const char *call, uint32_t whose, uint32_t buffer, const char *more) {
        snprintf(text, 96, "%s %" PRIu64 ".%u%s", call, set->clients[whose]->session, buffer, more);
        return text;
}

/* Calls about a buffer of the client on GPU `whose` in the log of an executor. */
static unsigned int count(struct set *set, uint32_t gpu, const char *call, uint32_t whose, uint32_t buffer) {
        char text[96];

        return plane_count(&set->fixture, gpu, key(text, set, call, whose, buffer, " "));
}

static unsigned int retired(struct set *set, uint32_t gpu, uint32_t whose, uint32_t buffer) {
        char text[96];

        return plane_count(&set->fixture, gpu, key(text, set, "reach_retire", whose, buffer, ""));
}

/* The GPUs that its executor was told of last; ~0: of none yet. */
static uint64_t told(struct set *set, uint32_t whose, uint32_t buffer) {
        char text[96], gpus[96];

        if (count(set, whose, "buffer_reach", whose, buffer) == 0)
                return UINT64_MAX;
        plane_text(&set->fixture, whose, key(text, set, "buffer_reach", whose, buffer, " gpus="), gpus, sizeof(gpus));
        return strtoull(gpus, NULL, 16);
}
#define wait_told(set, whose, buffer, gpus) fixture_wait(&(set)->fixture, told(set, whose, buffer) == (gpus))

static uint64_t bytes_of(struct set *set, uint32_t gpu, const char *call, uint64_t comm, const char *what) {
        char begin[64], text[1024], *at;

        snprintf(begin, sizeof(begin), "%s %" PRIu64 " ", call, comm);
        plane_text(&set->fixture, gpu, begin, text, sizeof(text));
        at = strstr(text, what);
        assert_non_null(at);
        return strtoull(at + strlen(what), NULL, 10);
}

/* From how many bytes on the ranks of a comm reach, as the executor was told last. */
static uint64_t reach_of(struct set *set, uint32_t gpu, const char *call, uint64_t comm) {
        return bytes_of(set, gpu, call, comm, " reach=");
}

static uint64_t burst_of(struct set *set, uint32_t gpu, const char *call, uint64_t comm) {
        return bytes_of(set, gpu, call, comm, " burst=");
}

static unsigned int comm_calls(struct set *set, uint32_t gpu, const char *call, uint64_t comm) {
        char text[64];

        snprintf(text, sizeof(text), "%s %" PRIu64, call, comm);
        return plane_count(&set->fixture, gpu, text);
}

static void assert_reach(struct set *set, uint64_t comm, uint32_t n, uint64_t bytes) {
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(reach_of(set, i, "comm_attach", comm), bytes);
}

static void succeed(struct set *set) {
        fixture_start(&set->fixture);
        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
}

/* ---- who gets what ----------------------------------------------------------------------------------------------- */
static void test_comm_then_buffers(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[96], rest[256];

        assert_reach(set, make_comm(set->clients, GPUS, set->handles), GPUS, BYTES);
        for (uint32_t i = 0; i < GPUS; i++)
                create(set, i, 5);
        for (uint32_t i = 0; i < GPUS; i++)
                wait_told(set, i, 5, 7u & ~(1u << i));
        for (uint32_t i = 0; i < GPUS; i++)
                for (uint32_t whose = 0; whose < GPUS; whose++)
                        assert_int_equal(count(set, i, "reach_import", whose, 5), i != whose);
        /* The same as its own executor has. */
        plane_text(f, 1, key(text, set, "buffer_import", 1, 5, " "), rest, sizeof(rest));
        assert_int_equal(plane_count(f, 2, key(text, set, "reach_import", 1, 5, " ")), 1);
        snprintf(text, sizeof(text), "reach_import %" PRIu64 ".5 %.60s", set->clients[1]->session, rest);
        assert_int_equal(plane_count(f, 2, text), 1);
        fixture_assert_says(f, "--json", "gpus", "\"buffers_mapped\": 2");
        fixture_assert_says(f, "--json", "gpus", "\"buffers_reached\": 1");
}

static void test_buffers_then_comm(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        for (uint32_t i = 0; i < GPUS; i++)
                for (uint32_t k = 1; k <= 20; k++)
                        create(set, i, k);
        make_comm(set->clients, 2, set->handles);
        for (uint32_t k = 1; k <= 20; k++) {
                wait_told(set, 0, k, 2);
                wait_told(set, 1, k, 1);
        }
        assert_int_equal(plane_count(f, 2, "reach_import"), 0);
        assert_int_equal(plane_count(f, 2, "buffer_reach"), 0);
        make_comm(set->clients, 3, set->handles); /* one more place to be in */
        for (uint32_t i = 0; i < GPUS; i++)
                for (uint32_t k = 1; k <= 20; k++) {
                        wait_told(set, i, k, 7u & ~(1u << i));
                        assert_int_equal(count(set, (i + 1) % 3, "reach_import", i, k), 1);
                }
}

/* No request that reaches fits into it. */
static void test_small_buffer(void **state) {
        struct set *set = *state;

        make_comm(set->clients, 2, set->handles);
        create_of(set, 0, 4, BYTES - 1);
        create_of(set, 0, 5, BYTES);
        wait_told(set, 0, 5, 2);
        assert_int_equal(count(set, 1, "reach_import", 0, 5), 1);
        assert_int_equal(count(set, 1, "reach_import", 0, 4), 0);
}

/* A comm with two ranks on one GPU does not reach, and one of a single rank has nobody. */
static void test_not_for_all(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint8_t id[COMM_ID_BYTES];
        struct comm_answer answer;
        uint64_t calls[GPUS];

        for (uint32_t i = 0; i < GPUS; i++)
                create(set, i, 5);
        call_id_create(set->clients[0], id);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_create_on(set->clients[r], id, GPUS, r, r == 2 ? 1 : (int32_t)r);
        for (uint32_t r = 0; r < GPUS; r++)
                answer = take_comm(set->clients[r], calls[r]);
        assert_int_equal(answer.code, 0);
        assert_reach(set, answer.comm, 2, 0);
        assert_reach(set, make_comm(set->clients, 1, set->handles), 1, 0);
        make_comm(set->clients, 2, set->handles);
        wait_told(set, 0, 5, 2);
        wait_told(set, 1, 5, 1);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(plane_count(f, i, "reach_import"), i < 2);
}

static void test_older_executor(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        for (uint32_t i = 0; i < GPUS; i++)
                create(set, i, 5);
        assert_reach(set, make_comm(set->clients, 3, set->handles), 3, 0);
        assert_reach(set, make_comm(set->clients, 2, set->handles), 2, BYTES);
        wait_told(set, 0, 5, 2);
        wait_told(set, 1, 5, 1);
        assert_int_equal(plane_count(f, 2, "reach_"), 0); /* it would not take it either */
        assert_int_equal(plane_count(f, 2, "buffer_reach"), 0);
}

static void test_refused(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        plane_write(f, 1, "fail", "reach_import 28");
        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5); /* is answered all the same */
        wait_told(set, 0, 5, 4);
        plane_write(f, 1, "fail", NULL);
        create(set, 0, 6);
        wait_told(set, 0, 6, 6);
        assert_int_equal(count(set, 1, "reach_import", 0, 5), 1);
        /* What lay in its place is still mapped: that will pass. */
        plane_write(f, 2, "fail", "reach_import 16");
        create(set, 0, 7);
        wait_told(set, 0, 7, 2);
        plane_write(f, 2, "fail", NULL);
        wait_told(set, 0, 7, 6);
        assert_int_equal(told(set, 0, 5), 4);
        destroy(set, 0, 5);
        assert_int_equal(retired(set, 1, 0, 5), 0);
        assert_int_equal(retired(set, 2, 0, 5), 1);
}

static void test_switched_off(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        const uint64_t comm = make_comm(set->clients, GPUS, set->handles);
        FILE *file = fopen(f->config, "we");

        assert_non_null(file);
        fputs("gpu: {reach: off}\n", file);
        fclose(file);
        fixture_signal(f, SIGHUP);
        fixture_wait(f, f->n_reloading == 1);
        assert_reach(set, make_comm(set->clients, GPUS, set->handles), GPUS, 0);
        assert_reach(set, comm, GPUS, BYTES); /* all its executors know it so */
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
}

static void configure(struct fixture *f, const char *text) {
        const uint32_t before = f->n_reloading;
        FILE *file = fopen(f->config, "we");

        assert_non_null(file);
        fputs(text, file);
        fclose(file);
        fixture_signal(f, SIGHUP);
        fixture_wait(f, f->n_reloading == before + 1);
}

/* Bursts are as configured when the communicator is made, where all executors know them; and no others are told so. */
static void test_bursts(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t comm = make_comm(set->clients, GPUS, set->handles), other;
        char move[64];

        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(burst_of(set, i, "comm_attach", comm), 512 << 10); /* by policy */
        configure(f, "gpu: {reach: 512K, burst: 2M}\n");
        comm = make_comm(set->clients, GPUS, set->handles);
        assert_reach(set, comm, GPUS, BYTES);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(burst_of(set, i, "comm_attach", comm), 4 * BYTES);
        configure(f, "gpu: {reach: off, burst: 2M}\n");
        other = make_comm(set->clients, GPUS, set->handles);
        assert_reach(set, other, GPUS, 0);
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(burst_of(set, i, "comm_attach", other), 0);
        /* A successor of railmuxd tells a new executor the same, whatever is configured for new communicators. */
        configure(f, "gpu: {reach: 1M, burst: 8M}\n");
        fixture_kill(f);
        succeed(set);
        plane_wait_ready(f, GPUS);
        assert_int_equal(plane_stop(f, 1), 0);
        plane_start(f, 1);
        snprintf(move, sizeof(move), "comm_move %" PRIu64 " ", comm);
        fixture_wait(f, plane_count(f, 0, move) == 1 && plane_count(f, 2, move) == 1);
        fixture_wait(f, comm_calls(set, 1, "comm_attach", comm) == 2);
        assert_int_equal(burst_of(set, 0, "comm_move", comm), 4 * BYTES);
        assert_int_equal(burst_of(set, 1, "comm_attach", comm), 4 * BYTES);
}

/* What each moves differs between these versions. */
static void test_bursts_older(void **state) {
        struct set *set = *state;
        uint64_t comm;

        configure(&set->fixture, "gpu: {reach: 512K, burst: 2M}\n");
        comm = make_comm(set->clients, GPUS, set->handles);
        assert_reach(set, comm, GPUS, 0);
        comm = make_comm(set->clients, 2, set->handles);
        assert_reach(set, comm, 2, BYTES);
        assert_int_equal(burst_of(set, 0, "comm_attach", comm), 4 * BYTES);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
static bool answered(struct client *client, uint64_t id) {
        return client_find(client, id) != NULL;
}

/* The client hears when the others have let go, and they hear when its own executor has. */
static void test_destroy(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[96];
        uint64_t call;

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
        plane_write(f, 0, "slow_buffers", "");
        plane_write(f, 1, "slow_reach", "");
        call = send_buffer_destroy(set->clients[0], 5);
        fixture_wait(f, plane_count(f, 0, key(text, set, "buffer_retire", 0, 5, "")) == 1);
        create(set, 1, 1); /* railmuxd and these executors have done whatever they would do */
        create(set, 2, 1);
        assert_int_equal(retired(set, 1, 0, 5), 0);
        assert_int_equal(retired(set, 2, 0, 5), 0);
        plane_write(f, 0, "slow_buffers", NULL);
        fixture_wait(f, retired(set, 1, 0, 5) == 1 && retired(set, 2, 0, 5) == 1);
        create(set, 2, 2);
        assert_false(answered(set->clients[0], call));
        client_drop(set->clients[0],
                    client_answer(set->clients[0], send_buffer_create_device(set->clients[0], 5, BYTES, 0, "memory")));
        assert_false(answered(set->clients[0], call)); /* BUSY */
        plane_write(f, 1, "slow_reach", NULL);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
        assert_int_equal(plane_count(f, 0, key(text, set, "buffer_reach", 0, 5, " ")), 1);
        create(set, 0, 5); /* another one of that number */
        fixture_wait(f, count(set, 1, "reach_import", 0, 5) == 2 && count(set, 0, "buffer_reach", 0, 5) == 2);
        destroy(set, 0, 5);
}

/* It is destroyed while others are being asked to map it. */
static void test_destroy_early(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t call;

        make_comm(set->clients, GPUS, set->handles);
        plane_write(f, 1, "slow_import", "");
        create(set, 0, 5);
        fixture_wait(f, count(set, 1, "reach_import", 0, 5) == 1);
        call = send_buffer_destroy(set->clients[0], 5);
        fixture_wait(f, retired(set, 2, 0, 5) == 1);
        assert_false(answered(set->clients[0], call));
        plane_write(f, 1, "slow_import", NULL);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
        assert_int_equal(retired(set, 1, 0, 5), 1);
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
}

/* Without a communicator to use it nobody keeps it; first its own executor ceases to count on that. */
static void test_comm_ends(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
        plane_write(f, 0, "slow_tell", "");
        for (uint32_t i = 0; i < GPUS; i++)
                assert_int_equal(
                        take_ack(set->clients[i], send_comm_destroy(set->clients[i], set->handles[i], 0), NULL, 0), 0);
        fixture_wait(f, told(set, 0, 5) == 0);
        create(set, 1, 1);
        create(set, 2, 1);
        assert_int_equal(plane_count(f, 1, "reach_retire") + plane_count(f, 2, "reach_retire"), 0);
        plane_write(f, 0, "slow_tell", NULL);
        fixture_wait(f, retired(set, 1, 0, 5) == 1 && retired(set, 2, 0, 5) == 1);
        make_comm(set->clients, 2, set->handles);
        wait_told(set, 0, 5, 2);
        assert_int_equal(count(set, 1, "reach_import", 0, 5), 2);
}

/* Communicators first, then what their requests used. */
static void test_session_ends(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        char text[96], comm[64];
        const uint64_t number = make_comm(set->clients, GPUS, set->handles);

        for (uint32_t k = 1; k < 4; k++)
                create(set, 0, k);
        for (uint32_t k = 1; k < 4; k++)
                wait_told(set, 0, k, 6);
        key(text, set, "reach_retire", 0, 0, "");
        snprintf(comm, sizeof(comm), "comm_abort %" PRIu64 " ", number);
        fixture_assert_says(f, "--json", "gpus", "\"buffers_mapped\": 3"); /* by each of the other two */
        fixture_assert_says(f, "--json", "gpus", "\"buffers_reached\": 3");
        client_close(set->clients[0]);
        for (uint32_t i = 1; i < GPUS; i++) {
                fixture_wait(f, plane_count(f, i, text) == 1);
                assert_true(plane_line(f, i, comm) > 0);
                assert_true(plane_line(f, i, comm) < plane_line(f, i, text));
        }
        for (uint32_t n = 1; n <= 3; n++) {
                snprintf(text, sizeof(text), "\"buffers_mapped\": %u", n);
                fixture_wait(f, !fixture_ctl_says(f, "--json", "gpus", text));
                snprintf(text, sizeof(text), "\"buffers_reached\": %u", n);
                fixture_assert_silent(f, "--json", "gpus", text);
        }
        set->clients[0] = client_open(f);
        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 1);
        wait_told(set, 0, 1, 6);
}

/* Requests whose memory others reach are answered when all have stopped. */
static void test_thaw(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        const uint64_t comm = make_comm(set->clients, GPUS, set->handles);
        unsigned int early;
        uint64_t call;

        plane_hang(f, 2, "hang");
        call = send_comm_abort(set->clients[0], set->handles[0]);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, comm_calls(set, i, "comm_abort", comm) == 1 || plane_is_late(f, 2));
        create(set, 0, 1); /* railmuxd has heard of these two, and they would have heard again */
        create(set, 1, 1);
        early = comm_calls(set, 0, "comm_thaw", comm) + comm_calls(set, 1, "comm_thaw", comm);
        if (!plane_go(f, 2, "hang")) {
                teardown(state);
                setup(state);
                test_thaw(state);
                return;
        }
        assert_int_equal(early, 0);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, comm_calls(set, i, "comm_thaw", comm) == 1);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
}

/* Not without railmuxd, and when it is back not before the others have heard of it. */
static void test_thaw_alone(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        const uint64_t comm = make_comm(set->clients, GPUS, set->handles);
        unsigned int early = 0;
        char text[64];

        fixture_kill(f);
        snprintf(text, sizeof(text), "%" PRIu64 " 0 2 1 1 %u\n", comm, RMX_E_MISMATCH);
        plane_write(f, 0, "reports", text);
        fixture_wait(f, comm_calls(set, 0, "comm_abort", comm) == 1);
        plane_hang(f, 2, "hang");
        succeed(set);
        fixture_wait(f, comm_calls(set, 1, "comm_abort", comm) == 1);
        create(set, 0, 1); /* railmuxd has heard of these two */
        create(set, 1, 1);
        for (uint32_t i = 0; i < 2; i++)
                early += comm_calls(set, i, "comm_thaw", comm) + comm_calls(set, i, "comm_detach", comm);
        if (!plane_go(f, 2, "hang")) {
                teardown(state);
                setup(state);
                test_thaw_alone(state);
                return;
        }
        assert_int_equal(early, 0);
        for (uint32_t i = 0; i < GPUS; i++)
                fixture_wait(f, comm_calls(set, i, "comm_thaw", comm) + comm_calls(set, i, "comm_detach", comm) >= 1);
        assert_int_equal(comm_calls(set, 2, "comm_abort", comm), 1);
}

/* ---- executors --------------------------------------------------------------------------------------------------- */
static void wait_failed(struct set *set) {
        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i], client_event(set->clients[i], FAILED));
}

static void test_executor_dies(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t comm;
        char text[64];

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        create(set, 1, 5);
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        plane_kill(f, 1);
        wait_failed(set);
        fixture_wait(f, told(set, 0, 5) == 4 || told(set, 0, 5) == 0); /* the comm has gone, too */
        plane_start(f, 1);
        plane_wait_ready(f, GPUS);
        comm = make_comm(set->clients, GPUS, set->handles);
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        assert_int_equal(count(set, 1, "reach_import", 0, 5), 2); /* the second time by the new process */
        /* Nobody was in a communicator with it while counting on what the old one had. */
        snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ", comm);
        assert_true(plane_line(f, 0, text) > 0);
        destroy(set, 0, 5);
        destroy(set, 1, 5);
        for (uint32_t i = 0; i < GPUS; i++)
                for (uint32_t whose = 0; whose < 2; whose++)
                        assert_true(i == whose || retired(set, i, whose, 5) >= 1);
}

/* Who has ended has let go. */
static void test_dies_instead_of_letting_go(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t call;

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
        plane_write(f, 1, "slow_reach", "");
        call = send_buffer_destroy(set->clients[0], 5);
        fixture_wait(f, retired(set, 1, 0, 5) == 1 && retired(set, 2, 0, 5) == 1);
        create(set, 2, 1);
        assert_false(answered(set->clients[0], call));
        plane_kill(f, 1);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
        plane_write(f, 1, "slow_reach", NULL);
}

/* Replaced as planned: nobody counts on it when the communicator goes on, and all is as before afterwards. */
static void test_executor_replaced(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        const uint64_t comm = make_comm(set->clients, GPUS, set->handles);
        char text[96], move[64];

        create(set, 0, 5);
        create(set, 1, 5);
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        assert_int_equal(plane_stop(f, 1), 0);
        wait_told(set, 0, 5, 4);
        plane_start(f, 1);
        snprintf(move, sizeof(move), "comm_move %" PRIu64 " ", comm);
        for (uint32_t i = 0; i < GPUS; i += 2)
                fixture_wait(f, plane_count(f, i, move) == 1);
        assert_true(plane_line(f, 0, key(text, set, "buffer_reach", 0, 5, " gpus=4")) < plane_line(f, 0, move));
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        assert_int_equal(reach_of(set, 0, "comm_move", comm), BYTES);
        assert_int_equal(reach_of(set, 2, "comm_move", comm), BYTES);
        assert_int_equal(reach_of(set, 1, "comm_attach", comm), BYTES);
        assert_int_equal(count(set, 0, "reach_import", 1, 5), 1); /* it has it still */
        assert_int_equal(count(set, 1, "reach_import", 0, 5), 2);
        assert_int_equal(count(set, 2, "reach_import", 0, 5), 1);
}

/* ... by one that cannot: then nobody in this communicator does. */
static void test_replaced_by_older(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        const uint64_t comm = make_comm(set->clients, GPUS, set->handles);
        char move[64];

        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
        assert_int_equal(plane_stop(f, 1), 0);
        fixture_reaches = ~UINT64_C(2);
        plane_start(f, 1);
        snprintf(move, sizeof(move), "comm_move %" PRIu64 " ", comm);
        for (uint32_t i = 0; i < GPUS; i += 2) {
                fixture_wait(f, plane_count(f, i, move) == 1);
                assert_int_equal(reach_of(set, i, "comm_move", comm), 0);
        }
        fixture_wait(f, comm_calls(set, 1, "comm_attach", comm) == 2);
        assert_int_equal(reach_of(set, 1, "comm_attach", comm), 0);
        wait_told(set, 0, 5, 0);
        fixture_wait(f, retired(set, 2, 0, 5) == 1);
}

/* ---- restarts of railmuxd ---------------------------------------------------------------------------------------- */
static void test_successor(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        create(set, 1, 5);
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        fixture_kill(f);
        succeed(set);
        plane_wait_ready(f, GPUS);
        wait_told(set, 0, 5, 6);
        wait_told(set, 1, 5, 5);
        create(set, 0, 6); /* after that, nothing is under way any more */
        wait_told(set, 0, 6, 6);
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_int_equal(plane_count(f, i, "reach_retire"), 0); /* requests may be using it */
                assert_true(count(set, i, "reach_import", 0, 5) <= 1);
                assert_true(count(set, i, "reach_import", 1, 5) <= 1);
        }
        destroy(set, 0, 5);
        for (uint32_t i = 1; i < GPUS; i++)
                assert_int_equal(retired(set, i, 0, 5), 1);
}

/* What has ended meanwhile is let go of; an executor that is away is waited for as ever. */
static void test_successor_is_late(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t call;

        make_comm(set->clients, GPUS, set->handles);
        create(set, 0, 5);
        wait_told(set, 0, 5, 6);
        kill(f->planes[1], SIGSTOP);
        fixture_kill(f);
        succeed(set);
        plane_wait_ready(f, GPUS - 1);
        call = send_buffer_destroy(set->clients[0], 5);
        fixture_wait(f, retired(set, 2, 0, 5) == 1);
        create(set, 2, 1);
        assert_false(answered(set->clients[0], call));
        kill(f->planes[1], SIGCONT);
        assert_int_equal(take_ack(set->clients[0], call, NULL, 0), 0);
        assert_int_equal(retired(set, 1, 0, 5), 1);
}

/* ---- what one session may cause ---------------------------------------------------------------------------------- */
/* Whoever else wants something of an executor waits for a few imports. */
static void test_takes_turns(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        unsigned int before;
        uint64_t call;

        make_comm(set->clients, GPUS, set->handles);
        plane_write(f, 1, "slow_import", "");
        for (uint32_t k = 1; k <= 100; k++)
                create(set, 0, k);
        fixture_wait(f, plane_count(f, 1, "reach_import") == 1);
        call = send_buffer_create_device(set->clients[1], 1, BYTES, 1, "memory");
        plane_write(f, 1, "slow_import", NULL);
        client_drop(set->clients[1], client_answer(set->clients[1], call));
        before = plane_line(f, 1, "buffer_import");
        assert_true(before > 0);
        for (uint32_t k = 1; k <= 100; k++)
                wait_told(set, 0, k, 6);
        assert_int_equal(plane_count(f, 1, "reach_import"), 100);
        assert_true(plane_line(f, 1, "reach_import") > before + 80);
}

#define MANY 1100u
#define MOST 1024u
static void test_no_more_than_its_share(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint64_t calls[MANY];

        make_comm(set->clients, 2, set->handles);
        for (uint32_t from = 0; from < MANY; from += 100) {
                for (uint32_t k = from; k < from + 100; k++)
                        calls[k] = send_buffer_create_device(set->clients[0], k + 1, BYTES, 0, "memory");
                for (uint32_t k = from; k < from + 100; k++)
                        client_drop(set->clients[0], client_answer(set->clients[0], calls[k]));
        }
        fixture_wait(f, plane_count(f, 1, "reach_import") == MOST);
        create(set, 1, 1); /* another one has a share of its own */
        wait_told(set, 1, 1, 1);
        assert_int_equal(plane_count(f, 1, "reach_import"), MOST);
        destroy(set, 0, 1); /* makes room for another one */
        fixture_wait(f, plane_count(f, 1, "reach_import") == MOST + 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_comm_then_buffers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_buffers_then_comm, setup, teardown),
                cmocka_unit_test_setup_teardown(test_small_buffer, setup, teardown),
                cmocka_unit_test_setup_teardown(test_not_for_all, setup, teardown),
                cmocka_unit_test_setup_teardown(test_older_executor, setup_older, teardown),
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_switched_off, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bursts, setup_bursts, teardown),
                cmocka_unit_test_setup_teardown(test_bursts_older, setup_bursts_older, teardown),
                cmocka_unit_test_setup_teardown(test_destroy, setup, teardown),
                cmocka_unit_test_setup_teardown(test_destroy_early, setup, teardown),
                cmocka_unit_test_setup_teardown(test_comm_ends, setup, teardown),
                cmocka_unit_test_setup_teardown(test_session_ends, setup, teardown),
                cmocka_unit_test_setup_teardown(test_thaw, setup, teardown),
                cmocka_unit_test_setup_teardown(test_thaw_alone, setup, teardown),
                cmocka_unit_test_setup_teardown(test_executor_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_dies_instead_of_letting_go, setup, teardown),
                cmocka_unit_test_setup_teardown(test_executor_replaced, setup, teardown),
                cmocka_unit_test_setup_teardown(test_replaced_by_older, setup, teardown),
                cmocka_unit_test_setup_teardown(test_successor, setup, teardown),
                cmocka_unit_test_setup_teardown(test_successor_is_late, setup, teardown),
                cmocka_unit_test_setup_teardown(test_takes_turns, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_more_than_its_share, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
