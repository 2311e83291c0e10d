/* SPDX-License-Identifier: MIT */
/* Opening, closing, and calls to the daemon: answers, failures, restarts, the end. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"

#define BODY(name)              RAILMUX__SESSION__MESSAGE__BODY_##name
#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

static void test_open_close(void **state) {
        struct rmx_session_options options = {.size = sizeof(options), .name = "a program"};
        struct rmx_session *session = NULL;
        struct fake fake;
        unsigned int fds = count_fds();

        (void)state;
        fake_start(&fake);
        setenv("RAILMUX_SOCKET", fake.path, 1);
        assert_int_equal(rmx_session_open(&options, &session), RMX_OK);
        assert_string_equal(fake.name, "a program");
        assert_int_equal(rmx_session_gpu_count(session), FAKE_GPUS);
        rmx_session_close(session);
        assert_int_equal(rmx_session_open(NULL, &session), RMX_OK);
        assert_string_equal(fake.name, program_invocation_short_name);
        rmx_session_close(session);
        rmx_session_close(NULL);
        unsetenv("RAILMUX_SOCKET");
        fake_stop(&fake);
        assert_int_equal(count_fds(), fds);
}

static void test_open_options(void **state) {
        struct {
                struct rmx_session_options known;
                uint64_t later;
        } grown = {.known = {.size = sizeof(grown)}};
        struct rmx_session_options options = {.size = 4};
        struct rmx_session *session = NULL;
        struct fake fake;
        char name[65];

        (void)state;
        fake_start(&fake);
        assert_int_equal(rmx_session_open(NULL, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_INVALID);
        assert_error_says("opt->size is 4");
        options = (struct rmx_session_options){.size = sizeof(options), .reserved = 1};
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_INVALID);
        assert_error_says("opt->reserved must be 0");
        memset(name, 'x', 64);
        name[64] = 0;
        options = (struct rmx_session_options){.size = sizeof(options), .socket = fake.path, .name = name};
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_INVALID);
        assert_error_says("longer than 63 bytes");
        name[63] = 0;
        assert_int_equal(rmx_session_open(&options, &session), RMX_OK);
        rmx_session_close(session);
        /* A program built against a later header. */
        grown.known.socket = fake.path;
        grown.later = 1;
        session = NULL;
        assert_int_equal(rmx_session_open(&grown.known, &session), RMX_E_UNSUPPORTED);
        assert_null(session);
        grown.later = 0;
        assert_int_equal(rmx_session_open(&grown.known, &session), RMX_OK);
        rmx_session_close(session);
        fake_stop(&fake);
}

static void test_no_daemon(void **state) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = "/nowhere/at all.sock"};
        struct rmx_session *session = NULL;
        unsigned int fds = count_fds();
        char path[200];

        (void)state;
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_NO_DAEMON);
        assert_error_says("/nowhere/at all.sock");
        assert_error_says("$RAILMUX_SOCKET");
        assert_null(session);
        memset(path, 'x', sizeof(path));
        path[sizeof(path) - 1] = 0;
        options.socket = path;
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_INVALID);
        assert_error_says("107 bytes");
        assert_int_equal(count_fds(), fds);
}

static void test_hello_refused(void **state) {
        struct rmx_session_options options = {.size = sizeof(options), .timeout_ms = 50};
        struct rmx_session *session = NULL;
        unsigned int fds = count_fds();
        struct fake fake;

        (void)state;
        fake_start(&fake);
        options.socket = fake.path;
        fake.hello_version = 9;
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_VERSION);
        assert_error_says("speaks session protocol 9");
        fake.hello_failure = RMX_E_LIMIT;
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_LIMIT);
        assert_error_says("not today");
        fake.hello_failure = 4711; /* a code from the future */
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_INTERNAL);
        fake.hello_failure = 0;
        fake.hello_version = 1;
        fake_deafen(&fake, true);
        assert_int_equal(rmx_session_open(&options, &session), RMX_E_NO_DAEMON);
        assert_error_says("did not answer within 50 ms");
        assert_null(session);
        fake_stop(&fake);
        assert_int_equal(count_fds(), fds);
}

static void test_names(void **state) {
        (void)state;
        assert_string_equal(rmx_error_name(RMX_E_LOST), "RMX_E_LOST");
        assert_string_equal(rmx_error_name(RMX_E_COUNT), "RMX_E_?");
        assert_string_equal(rmx_error_name(-1), "RMX_E_?");
        for (int i = 0; i < RMX_E_COUNT; i++)
                assert_string_not_equal(rmx_error_name(i), "RMX_E_?");
        assert_int_equal(rmx_version(), RMX_VERSION_MAJOR << 16 | RMX_VERSION_MINOR << 8 | RMX_VERSION_PATCH);
        assert_int_equal(rmx_type_size(RMX_BFLOAT16), 2);
        assert_int_equal(rmx_type_size(RMX_TYPE_COUNT), 0);
}

/* A child of fork() is told off, and its clumsy close does no harm to the parent. */
static void test_fork(void **state) {
        struct crew crew;
        int status;
        pid_t pid;

        (void)state;
        crew_start(&crew, 1, 64);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
                struct rmx_id id;
                int32_t x = 1;
                int bad = 0;

                bad |= rmx_get_id(crew.session, &id) != RMX_E_INVALID;
                bad |= !strstr(rmx_last_error(), "fork()");
                bad |= rmx_all_reduce(crew.comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL) != RMX_E_INVALID;
                bad |= rmx_comm_destroy(crew.comm[0]) != RMX_E_INVALID;
                rmx_session_close(crew.session);
                _exit(bad);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_DESTROY)), 0);
        crew_stop(&crew);
}

/* Has everybody closed the other end? A thread that was joined may be about to. */
static bool life_is_over(struct fake *fake, unsigned int i, int wait_ms) {
        struct pollfd p = {.fd = fake_life(fake, i)}; /* POLLHUP is told unasked */

        assert_true(p.fd >= 0);
        return poll(&p, 1, wait_ms) > 0 && p.revents & POLLHUP;
}

/* How many descriptors of this process are ends of it. */
static unsigned int life_ends(struct fake *fake, unsigned int i) {
        char path[64], link[64], mine[64];
        ssize_t length;
        unsigned int n = 0;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_life(fake, i));
        length = readlink(path, mine, sizeof(mine) - 1);
        assert_true(length > 0);
        mine[length] = 0;
        for (int fd = 0; fd < 1024; fd++) {
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                length = readlink(path, link, sizeof(link) - 1);
                n += length > 0 && (link[length] = 0, !strcmp(link, mine));
        }
        return n;
}

/* Said to be armed: one byte, and no more. */
static bool life_is_armed(struct fake *fake, unsigned int i) {
        int n = -1;

        assert_int_equal(ioctl(fake_life(fake, i), FIONREAD, &n), 0);
        return n == 1;
}

/* Nor does it issue what the parent had recorded. */
static void test_fork_group(void **state) {
        struct crew crew;
        int32_t x = 1;
        uint32_t lines;
        int status;
        pid_t pid;

        (void)state;
        crew_start(&crew, 1, 64);
        lines = fake_lines(&crew.fake);
        assert_int_equal(rmx_group_start(), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], &x, &x, 1, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
                int bad = rmx_group_end() != RMX_E_INVALID;

                _exit(bad | !strstr(rmx_last_error(), "fork()"));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(fake_lines(&crew.fake), lines);
        assert_int_equal(rmx_group_end(), RMX_OK);
        assert_int_equal(fake_lines(&crew.fake), lines + 1);
        crew_stop(&crew);
}

/* Threads alone keep the other ends, so a child of fork() that lives on does not. */
static void test_life(void **state) {
        unsigned int fds = count_fds();
        struct crew crew;
        int status, hold[2];
        char byte;
        pid_t pid;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(fake_calls(&crew.fake, BODY(LIFE_OPEN)), 1);
        for (unsigned int i = 0; i < 2; i++) {
                assert_false(life_is_over(&crew.fake, i, 0));
                assert_true(life_is_armed(&crew.fake, i));
                assert_int_equal(life_ends(&crew.fake, i), 1); /* the daemon's, which is played in this process */
        }
        assert_int_equal(pipe(hold), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
                close(hold[1]);
                _exit(read(hold[0], &byte, 1) != 0);
        }
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        for (unsigned int i = 0; i < 2; i++)
                assert_false(life_is_over(&crew.fake, i, 0));
        rmx_session_close(crew.session);
        for (unsigned int i = 0; i < 2; i++) {
                assert_true(life_is_over(&crew.fake, i, 10000));
                assert_true(life_is_armed(&crew.fake, i));
        }
        close(hold[0]);
        close(hold[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        fake_stop(&crew.fake);
        assert_int_equal(count_fds(), fds);
}

/* The daemon has died and its successor answers the call that was made to it as well: whichever answer is not used ends
 * without having been armed. */
static void test_life_twice(void **state) {
        struct rmx_session *session;
        struct rmx_id id;
        struct fake fake;

        (void)state;
        fake_start(&fake);
        fake.twice_life = true;
        session = fake_session(&fake);
        assert_int_equal(rmx_get_id(session, &id), RMX_OK); /* answers before this one have been read */
        for (unsigned int i = 0; i < 2; i++) {
                assert_true(life_is_over(&fake, i, 10000)); /* those of the second answer */
                assert_false(life_is_armed(&fake, i));
        }
        rmx_session_close(session);
        fake_stop(&fake);
}

/* A session does without it. */
static void test_no_life(void **state) {
        (void)state;
        for (unsigned int round = 0; round < 2; round++) {
                struct rmx_session *session;
                struct fake fake;

                fake_start(&fake);
                if (round)
                        fake.refuse_life = RMX_E_LIMIT;
                else
                        fake.no_features = SESSION_FEATURE_LIFE;
                session = fake_session(&fake);
                assert_int_equal(fake_calls(&fake, BODY(LIFE_OPEN)), round);
                rmx_session_close(session);
                fake_stop(&fake);
        }
}

/* A session that leaves everything lying about is cleaned up by close alone. */
static void test_close_takes_all(void **state) {
        unsigned int fds = count_fds();
        int32_t here[64] = {0};
        struct rmx_request request;
        struct crew crew;
        void *memory;

        (void)state;
        crew_start(&crew, 2, 64);
        assert_int_equal(rmx_mem_alloc(crew.session, 10000, &memory), RMX_OK);
        assert_int_equal(rmx_buffer_register(crew.session, here, sizeof(here)), RMX_OK);
        /* Rank 0 has something outstanding, so only rank 1 leaves in good order. */
        assert_int_equal(rmx_barrier_start(crew.comm[0], NULL, &request), RMX_OK);
        rmx_session_close(crew.session);
        fake_wait_calls(&crew.fake, BODY(COMM_DESTROY), 1);
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_DESTROY)), 1);
        fake_stop(&crew.fake);
        assert_int_equal(count_fds(), fds);
}

/* railmuxd dies with a call unanswered, its successor says RESUMED: the call is made again and succeeds. */
static void test_resumed(void **state) {
        struct crew crew;
        struct rmx_id id;
        void *memory;

        (void)state;
        crew_start(&crew, 1, 64);
        fake_drop(&crew.fake, BODY(ID_CREATE), 1);
        assert_int_equal(rmx_get_id(crew.session, &id), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(ID_CREATE)), 3); /* one is the crew's */
        fake_drop(&crew.fake, BODY(BUFFER_CREATE), 1);
        assert_int_equal(rmx_mem_alloc(crew.session, 4096, &memory), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 2);
        assert_int_equal(rmx_mem_free(crew.session, memory), RMX_OK);
        fake_drop(&crew.fake, BODY(COMM_DESTROY), 1);
        crew_stop(&crew);
}

static int join_second(struct crew *crew, uint32_t rank) {
        return rmx_comm_create(crew->session, &crew->id, crew->n, rank, NULL, &crew->comm[rank]);
}

/* Many calls wait at once, all are lost, all are sent again. The ranks sit on four rings, opened at the same time. */
static void test_resumed_many(void **state) {
        struct rmx_comm *first[FAKE_RANKS_MAX];
        struct crew crew;

        (void)state;
        crew_start(&crew, 8, 64);
        memcpy(first, crew.comm, sizeof(first));
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        fake_drop(&crew.fake, BODY(COMM_CREATE), 8);
        crew_run(&crew, join_second);
        for (uint32_t i = 0; i < crew.n; i++) {
                assert_int_equal(crew.result[i], RMX_OK);
                assert_int_equal(rmx_comm_rank(crew.comm[i]), i);
                assert_int_equal(rmx_comm_size(crew.comm[i]), 8);
                assert_int_equal(rmx_comm_destroy(first[i]), RMX_OK);
        }
        crew_stop(&crew);
}

static int make_comms(struct crew *crew, uint32_t rank) {
        int32_t x = 1;
        int r = 0;

        /* Each thread is a whole comm of one, again and again, while the others do the same. */
        for (int i = 0; i < 20 && !r; i++) {
                struct rmx_comm *comm = NULL;
                struct rmx_id id;

                r = rmx_get_id(crew->session, &id);
                if (!r)
                        r = rmx_comm_create(crew->session, &id, 1, 0, NULL, &comm);
                if (!r)
                        r = rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, RMX_SUM, NULL);
                if (!r)
                        r = rmx_comm_destroy(comm);
        }
        (void)rank;
        return r;
}

static void test_threads(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 8, 64);
        crew_run(&crew, make_comms);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_OK);
        crew_stop(&crew);
}

static int wait_for_ever(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm;
        struct rmx_id id;

        if (rank % 2)
                return rmx_get_id(crew->session, &id);
        return rmx_comm_create(crew->session, &crew->id, 9, rank, NULL, &comm); /* the ninth never comes */
}

static void *hang_up_later(void *userdata) {
        struct crew *crew = userdata;

        fake_wait_calls(&crew->fake, BODY(COMM_CREATE), 8 + 4);
        fake_wait_calls(&crew->fake, BODY(ID_CREATE), 1 + 1 + 4);
        fake_hang_up(&crew->fake);
        return NULL;
}

/* The end of the connection ends all calls, and all later ones. */
static void test_lost(void **state) {
        unsigned int fds = count_fds();
        pthread_t thread;
        struct crew crew;
        void *memory;

        (void)state;
        crew_start(&crew, 8, 64);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        pthread_mutex_lock(&crew.fake.mutex);
        crew.fake.mute = true;
        pthread_mutex_unlock(&crew.fake.mutex);
        must(!pthread_create(&thread, NULL, hang_up_later, &crew));
        crew_run(&crew, wait_for_ever);
        pthread_join(thread, NULL);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], RMX_E_DAEMON_LOST);
        assert_int_equal(rmx_mem_alloc(crew.session, 1, &memory), RMX_E_DAEMON_LOST);
        assert_error_says(crew.fake.path);
        crew_stop(&crew);
        assert_int_equal(count_fds(), fds);
}

static void *many_calls(void *userdata) {
        struct rmx_session *session = userdata;
        struct rmx_id id;

        for (int i = 0; i < 50; i++)
                must(rmx_get_id(session, &id) == RMX_OK);
        return NULL;
}

static bool has_unsent(struct rpc *rpc) {
        bool unsent = false;

        pthread_mutex_lock(&rpc->mutex);
        for (struct rpc_call *call = rpc->calls; call; call = call->next)
                unsent |= !call->sent;
        pthread_mutex_unlock(&rpc->mutex);
        return unsent;
}

/* A daemon that does not read: the socket fills up, calls wait for room, and all go through in the end. */
static void test_socket_full(void **state) {
        pthread_t threads[15];
        struct crew crew;
        int size = 1; /* the least there is */

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(setsockopt(crew.session->rpc.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
        fake_deafen(&crew.fake, true);
        for (uint32_t i = 0; i < 15; i++)
                must(!pthread_create(&threads[i], NULL, many_calls, crew.session));
        while (!has_unsent(&crew.session->rpc))
                (void)poll(NULL, 0, 1); /* the library signals nothing to look for */
        fake_deafen(&crew.fake, false);
        for (uint32_t i = 0; i < 15; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(fake_calls(&crew.fake, BODY(ID_CREATE)), 15 * 50 + 1);
        crew_stop(&crew);
}

/* A join that timed out succeeds later: the library leaves for the caller who has gone. */
static void test_stray_join(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .timeout_ms = 20};
        struct rmx_session *other;
        struct rmx_comm *comm = NULL, *theirs = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        other = fake_session(&crew.fake);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 0, &options, &comm), RMX_E_TIMEOUT);
        assert_error_says("not all ranks have joined within 20 ms");
        assert_null(comm);
        assert_int_equal(rmx_comm_create(other, &crew.id, 2, 1, NULL, &theirs), RMX_OK);
        /* The answer is there now; the next look at the socket finds it. */
        assert_int_equal(rmx_comm_error(crew.comm[0]), RMX_OK);
        fake_wait_calls(&crew.fake, BODY(COMM_DESTROY), 1);
        rmx_session_close(other);
        crew_stop(&crew);
}

/* Descriptors that this process has no room for fail the call that wanted them, and no other. */
static void test_no_descriptors(void **state) {
        struct rlimit limit, tight;
        struct crew crew;
        struct rmx_id id;
        void *memory;
        int next;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_get_id(crew.session, &id), RMX_OK); /* so what the fake sent before is closed there */
        next = dup(0);
        assert_true(next >= 0);
        close(next);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        tight = limit;
        tight.rlim_cur = (rlim_t)next + 1; /* room for one: the fake's own of the buffer */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        assert_int_equal(rmx_mem_alloc(crew.session, 4096, &memory), RMX_E_LIMIT);
        assert_error_says("open files");
        assert_int_equal(rmx_get_id(crew.session, &id), RMX_OK);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        fake_wait_calls(&crew.fake, BODY(BUFFER_DESTROY), 1);
        assert_int_equal(rmx_mem_alloc(crew.session, 4096, &memory), RMX_OK);
        crew_stop(&crew);
}

static void test_comm_arguments(void **state) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = FAKE_GPUS};
        struct rmx_comm *comm = NULL;
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_get_id(crew.session, &crew.id), RMX_OK);
        assert_int_equal(rmx_comm_create(NULL, &crew.id, 1, 0, NULL, &comm), RMX_E_INVALID);
        assert_int_equal(rmx_comm_create(crew.session, NULL, 1, 0, NULL, &comm), RMX_E_INVALID);
        assert_error_says("id is NULL");
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 0, 0, NULL, &comm), RMX_E_INVALID);
        assert_error_says("n_ranks 0 is not in 1..64");
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 65, 0, NULL, &comm), RMX_E_INVALID);
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 2, 2, NULL, &comm), RMX_E_INVALID);
        assert_error_says("rank 2 is out of range; n_ranks is 2");
        assert_int_equal(rmx_comm_create(crew.session, &crew.id, 1, 0, &options, &comm), RMX_E_INVALID);
        assert_error_says("opt->gpu 4 is not in -1..3");
        assert_null(comm);
        assert_int_equal(rmx_comm_destroy(NULL), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(COMM_CREATE)), 1);
        crew_stop(&crew);
}

static struct rmx_comm *split_result[FAKE_RANKS_MAX];

static int split(struct crew *crew, uint32_t rank) {
        int32_t x = (int32_t)rank, colour = rank == 5 ? -1 : (int32_t)(rank % 2);
        struct rmx_comm *comm = NULL;
        int r;

        r = rmx_comm_split(crew->comm[rank], colour, -(int32_t)rank, NULL, &comm);
        split_result[rank] = comm;
        if (r || !comm)
                return r;
        r = rmx_all_reduce(comm, &x, &x, 1, RMX_INT32, RMX_SUM, NULL);
        if (!r && x != (rank % 2 ? 1 + 3 : 0 + 2 + 4))
                r = -1;
        return r;
}

static void test_split(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 6, 64);
        for (int round = 0; round < 2; round++) {
                crew_run(&crew, split);
                for (uint32_t i = 0; i < 6; i++)
                        assert_int_equal(crew.result[i], RMX_OK);
                assert_null(split_result[5]);
                assert_int_equal(rmx_comm_size(split_result[0]), 3);
                assert_int_equal(rmx_comm_rank(split_result[0]), 2); /* keys turn the order round */
                assert_int_equal(rmx_comm_rank(split_result[4]), 0);
                for (uint32_t i = 0; i < 5; i++)
                        assert_int_equal(rmx_comm_destroy(split_result[i]), RMX_OK);
        }
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_open_close),
                cmocka_unit_test(test_open_options),
                cmocka_unit_test(test_no_daemon),
                cmocka_unit_test(test_hello_refused),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_fork),
                cmocka_unit_test(test_fork_group),
                cmocka_unit_test(test_life),
                cmocka_unit_test(test_life_twice),
                cmocka_unit_test(test_no_life),
                cmocka_unit_test(test_close_takes_all),
                cmocka_unit_test(test_resumed),
                cmocka_unit_test(test_resumed_many),
                cmocka_unit_test(test_threads),
                cmocka_unit_test(test_lost),
                cmocka_unit_test(test_socket_full),
                cmocka_unit_test(test_stray_join),
                cmocka_unit_test(test_no_descriptors),
                cmocka_unit_test(test_comm_arguments),
                cmocka_unit_test(test_split),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
