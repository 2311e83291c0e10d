/* SPDX-License-Identifier: MIT */
/*
 * railmuxd ends while an executor is being replaced, and another one goes on with that. Communicators survive wherever
 * it ends: at moments that the executors' logs show, and (without sanitizers, which do not like preloaded libraries) in
 * place of each message that it would send.
 */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"

#include "daemon/state.h"
#include "railmux/railmux.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPUS    3u
#define GOES    2u /* the one that is replaced */
#define RESUMED RAILMUX__SESSION__EVENT__BODY_RESUMED
#define FAILED  RAILMUX__SESSION__EVENT__BODY_COMM_FAILED

struct set { /* a comm of all, and one that has nothing to do with it */
        struct fixture fixture;
        struct client *clients[GPUS];
        uint64_t comm, other;
        uint32_t handles[GPUS], other_handles[2];
        uint32_t taken;
        unsigned int deaths;
};

static int setup(void **state) {
        struct set *set = calloc(1, sizeof(*set));

        fixture_setup_planes(&set->fixture, GPUS, true);
        for (uint32_t i = 0; i < GPUS; i++) {
                struct client *client = client_open(&set->fixture);

                set->clients[i] = client;
                client_drop(client, client_answer(client, send_ring_open_device(client, i, "area", 0)));
        }
        set->comm = make_comm(set->clients, GPUS, set->handles);
        set->other = make_comm(set->clients, 2, set->other_handles);
        *state = set;
        return 0;
}

static int teardown(void **state) {
        struct set *set = *state;

        fixture_teardown(&set->fixture);
        free(set);
        return 0;
}

/* ---- railmuxd comes back ----------------------------------------------------------------------------------------- */

static void hear(struct set *set) {
        for (uint32_t i = 0; i < GPUS; i++) {
                assert_false(client_has_event(set->clients[i], FAILED));
                while (client_has_event(set->clients[i], RESUMED))
                        client_drop(set->clients[i], client_event(set->clients[i], RESUMED));
        }
}

/* If it has ended, a successor is started. */
static void revive(struct set *set) {
        struct fixture *f = &set->fixture;

        if (f->daemon != 0 && waitpid(f->daemon, NULL, WNOHANG) == f->daemon)
                f->daemon = 0;
        if (f->daemon == 0) {
                set->deaths++;
                fixture_start(f);
        }
        hear(set);
}

static void die(struct set *set) {
        fixture_kill(&set->fixture);
        revive(set);
}

/* ---- replacing --------------------------------------------------------------------------------------------------- */

static unsigned int line(struct set *set, uint32_t gpu, const char *what, uint64_t comm, const char *more) {
        char text[96];

        snprintf(text, sizeof(text), "%s %" PRIu64 "%s", what, comm, more);
        return plane_line(&set->fixture, gpu, text);
}

static void begin(struct set *set) {
        char taken[16];

        set->taken += 3;
        snprintf(taken, sizeof(taken), "%u", set->taken);
        for (uint32_t i = 0; i < GPUS; i++)
                plane_write(&set->fixture, i, "taken", taken);
        plane_term(&set->fixture, GOES);
}

static bool ended(struct set *set) {
        struct fixture *f = &set->fixture;
        int status;

        if (f->planes[GOES] && waitpid(f->planes[GOES], &status, WNOHANG) == f->planes[GOES]) {
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                f->planes[GOES] = 0;
        }
        return f->planes[GOES] == 0;
}

static void end(struct set *set) {
        fixture_wait(&set->fixture, (revive(set), ended(set)));
}

/* Everybody has begun anew with the sequence that follows, and nobody is held any more. */
static bool goes_on(struct set *set) {
        char first[32];

        snprintf(first, sizeof(first), " first=%u", set->taken + 1);
        for (uint32_t i = 0; i < GOES; i++) {
                unsigned int moved = line(set, i, "comm_move", set->comm, first),
                             released = line(set, i, "comm_release", set->comm, "");

                if (!moved || released < moved || released < line(set, i, "comm_hold", set->comm, "") ||
                    moved < line(set, i, "peer_add", GOES, ""))
                        return false;
        }
        snprintf(first, sizeof(first), " %u", set->taken + 1);
        return line(set, GOES, "comm_first", set->comm, first) > plane_line(&set->fixture, GOES, "open") &&
               plane_line(&set->fixture, GOES, "ring_attach") > line(set, GOES, "comm_first", set->comm, first);
}

/* And all is well, with a railmuxd that lives. */
static void look(struct set *set) {
        struct fixture *f = &set->fixture;
        uint8_t id[COMM_ID_BYTES];

        plane_wait_ready(f, GPUS);
        for (uint32_t i = 0; i < GPUS; i++) {
                call_id_create(set->clients[i], id); /* events come before the answer */
                assert_int_equal(line(set, i, "comm_abort", set->comm, ""), 0);
        }
        hear(set);
        for (uint32_t i = 0; i < GOES; i++)
                assert_int_equal(line(set, i, "comm_hold", set->other, ""), 0);
}

static void go_on(struct set *set) {
        fixture_wait(&set->fixture, (revive(set), goes_on(set)));
        look(set);
}

/* ---- at moments that can be seen --------------------------------------------------------------------------------- */

/* The executor that ends and its successor: what has happened so far. */
static void test_moments(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        begin(set); /* while all are brought to a stand */
        fixture_wait(f, line(set, 0, "comm_hold", set->comm, "") > 0);
        die(set);
        end(set);
        plane_start(f, GOES);
        go_on(set);

        begin(set); /* it is gone */
        end(set);
        die(set);
        plane_start(f, GOES);
        go_on(set);

        begin(set); /* it is gone, and the next one is there before the next railmuxd */
        end(set);
        fixture_kill(f);
        plane_start(f, GOES);
        go_on(set);

        begin(set); /* the next one knows the communicator */
        end(set);
        plane_start(f, GOES);
        fixture_wait(f, line(set, GOES, "comm_attach", set->comm, "") > plane_line(f, GOES, "open"));
        die(set);
        go_on(set);

        begin(set); /* twice */
        end(set);
        die(set);
        die(set);
        plane_start(f, GOES);
        die(set);
        go_on(set);
        assert_int_equal(set->deaths, 7);
        fixture_assert_says(f, "metrics", NULL, "railmux_executor_losses_total 0\n");
}

/* An orderly end of railmuxd is no other. */
static void test_stopped(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        pid_t pid;

        begin(set);
        end(set);
        fixture_signal(f, SIGTERM);
        fixture_wait(f, (pid = waitpid(f->daemon, NULL, WNOHANG)) != 0);
        assert_int_equal(pid, f->daemon);
        f->daemon = 0;
        plane_start(f, GOES);
        go_on(set);
}

/* The client of the one that is away ends while nobody looks. */
static void test_client_dies(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        begin(set);
        end(set);
        fixture_kill(f);
        client_close(set->clients[GOES]);
        fixture_start(f);
        plane_start(f, GOES); /* before that nobody knows that the one before touches nothing any more */
        for (uint32_t i = 0; i < GOES; i++) {
                struct inbox_message *event = client_event(set->clients[i], FAILED);

                assert_int_equal(event->message->event->comm_failed->code, RMX_E_PEER_LOST);
                client_drop(set->clients[i], event);
        }
        plane_wait_ready(f, GPUS);
        for (uint32_t i = 0; i < GOES; i++)
                fixture_wait(f, line(set, i, "comm_abort", set->comm, "") > 0);
}

/* Another executor dies while nobody looks. */
static void test_another_dies(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;

        begin(set);
        end(set);
        fixture_kill(f);
        plane_kill(f, 0);
        plane_start(f, 0);
        fixture_start(f);
        plane_start(f, GOES);
        for (uint32_t i = 0; i < GPUS; i++) {
                struct inbox_message *event = client_event(set->clients[i], FAILED);

                client_drop(set->clients[i], event);
        }
        plane_wait_ready(f, GPUS);
}

/* railmuxd has ended between recording where communicators stand and the word that commits it: nobody was told to go,
 * and nothing stands. */
static void test_not_committed(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        int fd = f->store[fixture_stored(f, "state")].fd;
        struct state_record *records;
        unsigned int n = 0;
        struct stat status;
        uint8_t *map;

        fixture_kill(f);
        assert_int_equal(fstat(fd, &status), 0);
        map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        records = (struct state_record *)(map + STATE_HEADER_BYTES);
        for (size_t i = 0; i < ((size_t)status.st_size - STATE_HEADER_BYTES) / STATE_RECORD_BYTES; i++)
                if (atomic_load(&records[i].valid) == STATE_VALID && records[i].kind == STATE_COMM) {
                        atomic_store(&records[i].comm.stand, STATE_STANDS | 77);
                        n++;
                }
        assert_int_equal(n, 2);
        munmap(map, (size_t)status.st_size);
        revive(set);
        begin(set);
        end(set);
        plane_start(f, GOES);
        go_on(set);
        for (uint32_t i = 0; i < GOES; i++) {
                assert_int_equal(plane_count(f, i, "comm_move"), 1);
                assert_int_equal(line(set, i, "comm_move", set->comm, " first=78"), 0);
        }
}

/* ---- in place of every message ----------------------------------------------------------------------------------- */
#ifdef PRELOAD
static int setup_preloaded(void **state) {
        fixture_preload = PRELOAD;
        return setup(state);
}

static int teardown_preloaded(void **state) {
        fixture_preload = NULL;
        return teardown(state);
}

static void test_every_message(void **state) {
        struct set *set = *state;
        struct fixture *f = &set->fixture;
        unsigned int k = 0, before;
        char number[16];
        bool over;

        do {
                snprintf(number, sizeof(number), "%u", ++k);
                plane_write(f, 0, "die", number);
                before = set->deaths;
                begin(set);
                end(set);
                plane_start(f, GOES);
                fixture_wait(f, (revive(set), goes_on(set)));
                plane_write(f, 0, "die", NULL);
                over = set->deaths == before;
                die(set); /* one that is going to end later is of no use */
                look(set);
        } while (!over);
        print_message("%u points\n", k - 1);
        assert_true(k > 12);
}
#endif

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_moments, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
                cmocka_unit_test_setup_teardown(test_client_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_another_dies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_not_committed, setup, teardown),
#ifdef PRELOAD
                cmocka_unit_test_setup_teardown(test_every_message, setup_preloaded, teardown_preloaded),
#endif
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
