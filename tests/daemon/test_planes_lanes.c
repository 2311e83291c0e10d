/* SPDX-License-Identifier: MIT */
/* How many lanes a communicator's requests are spread over: settled when it is made, and the same for its life, whoever
 * serves it later and whichever railmuxd tells. */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "daemon/state.h"
#include "railmux/railmux.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GPUS    3u
#define GOES    1u /* the one that is replaced */
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED

struct set {
        struct fixture fixture;
        struct client *clients[GPUS];
};

/* Another process with so many workers; 0: it does not tell. */
static void replace(struct set *set, uint32_t gpu, const char *workers) {
        assert_int_equal(plane_stop(&set->fixture, gpu), 0);
        plane_write(&set->fixture, gpu, "workers", workers);
        plane_start(&set->fixture, gpu);
}

static int setup(void **state) {
        static const char *const workers[GPUS] = {"300", "33", "17"};
        struct set *set = calloc(1, sizeof(*set));

        fixture_setup_planes(&set->fixture, GPUS, true);
        for (uint32_t i = 0; i < GPUS; i++)
                replace(set, i, workers[i]);
        plane_wait_ready(&set->fixture, GPUS);
        for (uint32_t i = 0; i < GPUS; i++)
                set->clients[i] = client_open(&set->fixture);
        *state = set;
        return 0;
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        free(set);
        return 0;
}

/* What the executor was told last, in COMM_ATTACH or COMM_MOVE. */
static uint32_t told(struct set *set, uint32_t gpu, const char *what, uint64_t comm) {
        char begin[64], text[1024], *at;

        snprintf(begin, sizeof(begin), "%s %" PRIu64 " ", what, comm);
        plane_text(&set->fixture, gpu, begin, text, sizeof(text));
        at = strstr(text, " lanes=");
        assert_non_null(at);
        return (uint32_t)strtoul(at + strlen(" lanes="), NULL, 10);
}

static void assert_told(struct set *set, uint64_t comm, uint32_t n, uint32_t lanes) {
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(told(set, i, "comm_attach", comm), lanes);
}

/* GOES has been replaced: it was told anew, as the other one was, and nobody else's number counts. */
static void assert_replaced(struct set *set, uint64_t comm, uint32_t lanes) {
        struct fixture *f = &set->fixture;
        char text[64];

        plane_wait_ready(f, GPUS);
        snprintf(text, sizeof(text), "comm_release %" PRIu64, comm);
        fixture_wait(f, plane_count(f, 0, text) > 0);
        assert_int_equal(told(set, 0, "comm_move", comm), lanes);
        snprintf(text, sizeof(text), "comm_attach %" PRIu64 " ", comm);
        assert_int_equal(plane_count(f, GOES, text), 2);
        assert_int_equal(told(set, GOES, "comm_attach", comm), lanes);
}

static void succeed(struct set *set) {
        fixture_start(&set->fixture);
        for (uint32_t i = 0; i < GPUS; i++)
                client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
}

/* The executor with the fewest workers decides, of those that serve the communicator. */
static void test_fewest(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        uint64_t calls[2];
        struct comm_answer answer;
        uint8_t id[COMM_ID_BYTES];

        assert_told(set, make_comm(set->clients, 1, handles), 1, 135);
        assert_told(set, make_comm(set->clients, 2, handles), 2, 32);
        assert_told(set, make_comm(set->clients, 3, handles), 3, 16);
        call_id_create(set->clients[0], id); /* all of them on one GPU */
        for (uint32_t r = 0; r < 2; r++)
                calls[r] = send_comm_create_on(set->clients[r], id, 2, r, 2);
        for (uint32_t r = 0; r < 2; r++)
                answer = take_comm(set->clients[r], calls[r]);
        assert_int_equal(answer.code, 0);
        assert_int_equal(told(set, 2, "comm_attach", answer.comm), 16);
        replace(set, 2, "1");
        plane_wait_ready(f, GPUS);
        assert_told(set, make_comm(set->clients, 3, handles), 3, 1);
}

/* The comms of a split by themselves: ranks 0 and 1 are on GPUs 0 and 1, the third rank alone on GPU 0. */
static void test_split(void **state) {
        struct set *set = *state;
        uint32_t handles[GPUS];
        uint64_t calls[GPUS];
        struct comm_answer answer;

        make_comm(set->clients, GPUS, handles);
        for (uint32_t r = 0; r < GPUS; r++)
                calls[r] = send_comm_split(set->clients[r], handles[r], 1, r < 2 ? 0 : 1, 0);
        for (uint32_t r = 0; r < GPUS; r++) {
                answer = take_comm(set->clients[r], calls[r]);
                assert_int_equal(answer.code, 0);
                assert_int_equal(told(set, answer.gpu, "comm_attach", answer.comm), r < 2 ? 32 : 135);
        }
}

/* One that does not tell, and perhaps does not listen either, has all lanes, and so have the others. */
static void test_not_told(void **state) {
        struct set *set = *state;
        uint32_t handles[GPUS];

        replace(set, 2, "0");
        plane_wait_ready(&set->fixture, GPUS);
        assert_told(set, make_comm(set->clients, 3, handles), 3, 0);
        assert_told(set, make_comm(set->clients, 2, handles), 2, 32);
}

/* A new process with another number of workers. */
static void test_replaced(void **state) {
        struct set *set = *state;
        uint32_t handles[GPUS];
        uint64_t comm = make_comm(set->clients, 2, handles);

        replace(set, GOES, "5");
        assert_replaced(set, comm, 32);
        assert_told(set, make_comm(set->clients, 2, handles), 2, 4);
}

/* ... and another railmuxd, which comes while it is away. */
static void test_successor(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        uint64_t comm = make_comm(set->clients, 2, handles);

        assert_int_equal(plane_stop(f, GOES), 0);
        fixture_kill(f);
        plane_write(f, GOES, "workers", "136");
        plane_start(f, GOES);
        succeed(set);
        assert_replaced(set, comm, 32);
        assert_told(set, make_comm(set->clients, 2, handles), 2, 135);
}

/* A predecessor that knew nothing of it has told nobody. */
static void test_older_state(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        uint32_t handles[GPUS];
        uint64_t comm = make_comm(set->clients, 2, handles);
        int fd = f->store[fixture_stored(f, "state")].fd;
        struct state_record *records;
        struct stat status;
        unsigned int n = 0;
        uint8_t *map;

        fixture_kill(f);
        assert_int_equal(fstat(fd, &status), 0);
        map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        ((struct state_header *)map)->version = 3;
        records = (struct state_record *)(map + STATE_HEADER_BYTES);
        for (size_t i = 0; i < ((size_t)status.st_size - STATE_HEADER_BYTES) / STATE_RECORD_BYTES; i++)
                if (atomic_load(&records[i].valid) == STATE_VALID && records[i].kind == STATE_COMM) {
                        n += records[i].comm.lanes;
                        records[i].comm.lanes = 0;
                }
        munmap(map, (size_t)status.st_size);
        succeed(set);
        assert_int_equal(n, 32);
        plane_wait_ready(f, GPUS);
        replace(set, GOES, "33");
        assert_replaced(set, comm, 0);
        assert_told(set, make_comm(set->clients, 2, handles), 2, 32);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_fewest, setup, teardown),
                cmocka_unit_test_setup_teardown(test_split, setup, teardown),
                cmocka_unit_test_setup_teardown(test_not_told, setup, teardown),
                cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
                cmocka_unit_test_setup_teardown(test_successor, setup, teardown),
                cmocka_unit_test_setup_teardown(test_older_state, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
