/* SPDX-License-Identifier: MIT */
/* Requests that the ranks' own kernels exchange, as operators see them. The test plays the kernels: it writes what they
 * would into the host memory of the bells. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "gpu/device/bell.h"
#include "gpu/plane.h"
#include "ring/line.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GPUS    3u
#define SLOT    7u
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

struct set {
        struct fixture fixture;
        struct client *clients[GPUS];
        struct bell_host *host[GPUS];
        uint32_t handles[GPUS];
};

static struct bell_host *open_ring(struct client *client, uint32_t gpu) {
        struct inbox_message *answer = client_answer(client, send_ring_open_device(client, gpu, "area", 0));
        void *host;

        assert_non_null(answer);
        assert_int_equal(answer->message->body_case, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY);
        host = mmap(NULL, plane_bell_host_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, answer->fds[0], 0);
        assert_true(host != MAP_FAILED);
        client_drop(client, answer);
        return host;
}

static int setup(void **state) {
        struct set *set = calloc(1, sizeof(*set));

        assert_non_null(set);
        fixture_planes_config = "gpu: {exchange: 64K}\n";
        fixture_setup_planes(&set->fixture, GPUS, true);
        fixture_planes_config = NULL;
        for (uint32_t i = 0; i < GPUS; i++) {
                set->clients[i] = client_open(&set->fixture);
                set->host[i] = open_ring(set->clients[i], i);
        }
        make_comm(set->clients, GPUS, set->handles);
        *state = set;
        return 0;
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        for (uint32_t i = 0; i < GPUS; i++)
                munmap(set->host[i], plane_bell_host_bytes());
        free(set);
        return 0;
}

/* Rank r has begun that many. */
static void begin(struct set *set, uint32_t r, uint32_t calls, uint32_t operation) {
        struct bell_exchanged *to = &set->host[r]->exchanged[SLOT + r];

        /* release, twice; partner: plane_exchanged(). */
        __atomic_store_n(&to->begun, (uint64_t)calls << 32 | operation, __ATOMIC_RELEASE);
        __atomic_store_n(&to->handle, set->handles[r], __ATOMIC_RELEASE);
}

/* ... and found that rank `other` called something else than what it called itself. */
static void differ(struct set *set, uint32_t r, uint32_t other, uint32_t head, uint32_t root, uint64_t count) {
        struct bell_exchanged *to = &set->host[r]->exchanged[SLOT + r];

        to->head = head;
        to->root = root;
        to->count = count;
        /* release; partner: plane_exchanged(). */
        __atomic_store_n(&to->differs, 1 + other, __ATOMIC_RELEASE);
}

static uint32_t head_of(uint32_t operation, uint32_t type, uint32_t redop) {
        return operation << 16 | type << 8 | redop;
}

static bool says(struct set *set, const char *word, const char *text) {
        return fixture_ctl_says(&set->fixture, word, NULL, text);
}

static bool says_more(struct set *set, const char *word, const char *option, const char *text) {
        return fixture_ctl_says(&set->fixture, word, option, text);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_counted(void **state) {
        struct set *set = *state;

        fixture_assert_says(&set->fixture, "comms", "--json", "\"exchanged\": 0");
        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 41, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, says_more(set, "comms", "--json", "\"operations\": 41,"));
        fixture_wait(&set->fixture, says_more(set, "comms", "--json", "\"exchanged\": 41,"));
        fixture_wait(&set->fixture, !says_more(set, "comms", "--json", "\"awaited\": true"));
        fixture_wait(&set->fixture, says_more(set, "comms", "--ranks", "exchanged 41"));
        fixture_assert_silent(&set->fixture, "comms", NULL, "exchange 42");
        /* They have nothing to do, however long. */
        begin(set, 0, 42, RING_OP_ALL_GATHER);
        fixture_wait(&set->fixture, says(set, "status", "exchange 42"));
        for (uint32_t r = 1; r < GPUS; r++)
                begin(set, r, 42, RING_OP_ALL_GATHER);
        fixture_wait(&set->fixture, !says(set, "status", "exchange"));
        fixture_wait(&set->fixture, !says(set, "comms", "exchange"));
}

/* Whom ranks wait for is said, by both, until it comes. */
static void test_waits(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 9 + (r != 1), r == 1 ? RING_OP_BROADCAST : RING_OP_ALL_TO_ALL);
        fixture_wait(&set->fixture, says(set, "comms", "exchange 10 (all_to_all) for rank 1 since "));
        fixture_wait(&set->fixture, says(set, "status", ": exchange 10 (all_to_all) has waited for rank 1 for "));
        fixture_wait(&set->fixture, says_more(set, "comms", "--ranks", "exchanged 9  <- waited for"));
        fixture_assert_silent(&set->fixture, "comms", "--ranks", "exchanged 10  <- waited for");
        fixture_wait(&set->fixture, says_more(set, "comms", "--json", "\"awaited\": true"));
        fixture_wait(&set->fixture, says(set, "metrics", "\nrailmux_comms_stalled 1\n"));
        begin(set, 1, 10, RING_OP_ALL_TO_ALL);
        fixture_wait(&set->fixture, says(set, "metrics", "\nrailmux_comms_stalled 0\n"));
        fixture_wait(&set->fixture, !says(set, "comms", "exchange"));
        fixture_wait(&set->fixture, !says(set, "status", "exchange"));
        /* And once more, for two. */
        begin(set, 1, 11, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 11 (all_reduce) has waited for ranks 0, 2 for "));
}

/* Numbers come round. */
static void test_wraps(void **state) {
        struct set *set = *state;

        begin(set, 0, 0, RING_OP_ALL_REDUCE);
        begin(set, 1, UINT32_MAX, RING_OP_ALL_REDUCE);
        begin(set, 2, 0, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 0 (all_reduce) has waited for rank 1 for "));
}

/* A rank that has left is said to have, and so is one that ended with its process. */
static void test_left(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 5, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, says_more(set, "comms", "--ranks", "exchanged 5"));
        (void)send_comm_destroy(set->clients[2], set->handles[2], 0);
        begin(set, 0, 6, RING_OP_ALL_REDUCE);
        begin(set, 1, 6, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture,
                     says(set, "status",
                          ": exchange 6 (all_reduce) has waited for rank 2, which left the communicator, for "));
        fixture_wait(&set->fixture,
                     says(set, "comms", "exchange 6 (all_reduce) for rank 2, which left the communicator, since "));
}

/* Another rank comes to have the place of one before, and what that one did is not taken for its own. */
static void test_place_again(void **state) {
        struct set *set = *state;

        begin(set, 0, 5, RING_OP_ALL_REDUCE);
        begin(set, 1, 4, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 5 (all_reduce) has waited for rank 1"));
        set->handles[0] += 1000; /* of no communicator */
        begin(set, 0, 6, RING_OP_ALL_REDUCE);
        fixture_wait(&set->fixture, !says(set, "status", "exchange"));
        fixture_wait(&set->fixture, says_more(set, "comms", "--json", "\"exchanged\": 4"));
}

/* A transfer that waits is told as those are that executors carry out. */
static void test_transfer_waits(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 2, RING_OP_ALL_REDUCE);
        __atomic_store_n(&set->host[1]->exchanged[SLOT + 1].pair, UINT64_C(7) << 32 | 2 << 8 | 1 << 1 | 1,
                         __ATOMIC_RELAXED);
        fixture_wait(&set->fixture, says(set, "status", "rank 1 has waited in send 7 to rank 2"));
        __atomic_store_n(&set->host[2]->exchanged[SLOT + 2].pair, UINT64_C(8) << 32 | 0 << 8 | 0 << 1 | 1,
                         __ATOMIC_RELAXED);
        fixture_wait(&set->fixture, says(set, "status", "rank 2 has waited in recv 8 from rank 0"));
        __atomic_store_n(&set->host[1]->exchanged[SLOT + 1].pair, 0, __ATOMIC_RELAXED);
        fixture_wait(&set->fixture, !says(set, "status", "rank 1 has waited"));
        __atomic_store_n(&set->host[2]->exchanged[SLOT + 2].pair, UINT64_C(8) << 32 | 200 << 8 | 1, __ATOMIC_RELAXED);
        fixture_wait(&set->fixture, !says(set, "status", "has waited in"));
}

/* What each rank called is said, whoever tells first, and the communicator fails for all. */
static void test_mismatch(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 12, r == 1 ? RING_OP_BROADCAST : RING_OP_ALL_REDUCE);
        differ(set, 0, 1, head_of(RING_OP_ALL_REDUCE, RMX_BFLOAT16, RMX_SUM), UINT32_MAX, 1024);
        differ(set, 1, 0, head_of(RING_OP_BROADCAST, RMX_FLOAT32, 0), 2, UINT64_C(1) << 33);
        differ(set, 2, 1, head_of(RING_OP_ALL_REDUCE, RMX_BFLOAT16, RMX_SUM), UINT32_MAX, 1024);
        for (uint32_t r = 0; r < GPUS; r++) {
                struct inbox_message *event = client_event(set->clients[r], FAILED);

                assert_non_null(event);
                assert_int_equal(event->message->event->comm_failed->code, RMX_E_MISMATCH);
                client_drop(set->clients[r], event);
        }
        fixture_wait(&set->fixture,
                     says(set, "status", "exchange 12 of rank 0: all_reduce of 1024 bf16, sum; rank 1 "));
        fixture_wait(&set->fixture,
                     says(set, "status", "exchange 12 of rank 1: broadcast of 8589934592 fp32, root 2; rank 0 "));
        fixture_wait(&set->fixture,
                     says(set, "status", "exchange 12 of rank 2: all_reduce of 1024 bf16, sum; rank 1 "));
        fixture_wait(&set->fixture, says(set, "status", "called something else; exchange 12"));
        fixture_assert_says(&set->fixture, "comms", "--json", "RMX_E_MISMATCH");
}

/* Of transfers the receiver tells, which are not counted among exchanges. */
static void test_transfer_mismatch(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 7, RING_OP_ALL_REDUCE);
        differ(set, 1, 2, head_of(RING_OP_ALL_TO_ALL_V, RMX_INT8, 0), 2, 5);
        fixture_wait(&set->fixture, says(set, "status",
                                         "behind exchange 7 of rank 1: all_to_all_v of 5 int8 from rank 2; rank 2 "
                                         "called something else"));
}

/* One that is of no rank, or names none, is none; what no operation is called is said as it is. */
static void test_mismatch_nonsense(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 3, RING_OP_ALL_REDUCE);
        differ(set, 0, GPUS, head_of(RING_OP_ALL_REDUCE, RMX_INT8, RMX_MAX), 0, 1);
        differ(set, 1, UINT32_MAX - 1, head_of(RING_OP_ALL_REDUCE, RMX_INT8, RMX_MAX), 0, 1);
        set->host[2]->exchanged[SLOT] = (struct bell_exchanged){.handle = set->handles[2] + 1000, .differs = 2};
        fixture_wait(&set->fixture, says_more(set, "comms", "--json", "\"exchanged\": 3,"));
        fixture_assert_silent(&set->fixture, "status", NULL, "called something else");
        differ(set, 2, 0, 0xffffffff, 0xffffffff, UINT64_MAX);
        fixture_wait(&set->fixture, says(set, "status", "rank 2: ? of 18446744073709551615 ?; rank 0 called"));
}

/* What clients write there does no harm. */
static void test_nonsense(void **state) {
        struct set *set = *state;

        for (uint32_t i = 0; i < sizeof(*set->host[0]) / 4; i++)
                ((uint32_t *)(void *)set->host[0])[i] = i * UINT32_C(2654435761);
        for (uint32_t i = 0; i < PLANE_EXCHANGED; i++)
                set->host[1]->exchanged[i] =
                        (struct bell_exchanged){.begun = UINT64_MAX, .handle = set->handles[1], .differs = UINT32_MAX};
        begin(set, 2, 3, 255);
        fixture_assert_says(&set->fixture, "comms", NULL, "ready");
        for (uint32_t i = 0; i < 10; i++)
                fixture_assert_says(&set->fixture, "status", NULL, "railmuxd");
}

/* Successors of railmuxd and of an executor say it, too. */
static void test_restarts(void **state) {
        struct set *set = *state;

        for (uint32_t r = 0; r < GPUS; r++)
                begin(set, r, 9 + (r != 1), RING_OP_ALL_TO_ALL);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 10 (all_to_all) has waited for rank 1 for "));
        fixture_kill(&set->fixture);
        fixture_start(&set->fixture);
        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
        plane_wait_ready(&set->fixture, GPUS);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 10 (all_to_all) has waited for rank 1 for "));
        assert_int_equal(plane_stop(&set->fixture, 0), 0);
        plane_start(&set->fixture, 0);
        plane_wait_ready(&set->fixture, GPUS);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 10 (all_to_all) has waited for rank 1 for "));
        begin(set, 1, 10, RING_OP_ALL_TO_ALL);
        fixture_wait(&set->fixture, !says(set, "status", "exchange"));
        begin(set, 0, 11, RING_OP_ALL_TO_ALL);
        fixture_wait(&set->fixture, says(set, "status", ": exchange 11 (all_to_all) has waited for ranks 1, 2 for "));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_counted, setup, teardown),
                cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wraps, setup, teardown),
                cmocka_unit_test_setup_teardown(test_left, setup, teardown),
                cmocka_unit_test_setup_teardown(test_place_again, setup, teardown),
                cmocka_unit_test_setup_teardown(test_transfer_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_mismatch, setup, teardown),
                cmocka_unit_test_setup_teardown(test_transfer_mismatch, setup, teardown),
                cmocka_unit_test_setup_teardown(test_mismatch_nonsense, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
                cmocka_unit_test_setup_teardown(test_restarts, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
