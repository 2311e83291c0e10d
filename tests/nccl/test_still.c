/* SPDX-License-Identifier: MIT */
/* The library before a daemon that stands still, or is gone. */
#include "tests/nccl/pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "util/clock.h"

static atomic_bool no_threads;

/* What a sanitizer has in the place of pthread_create(). If its runtime is a part of the program, as clang's is, it is
 * not behind the program's own, and threads that it does not hear of end in its checks. */
__attribute__((weak)) int __interceptor_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                                                       void *(*run)(void *), void *userdata);

/* In the way of the library, which has to see it. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *userdata) {
        int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = __interceptor_pthread_create;
        void *symbol = dlsym(RTLD_NEXT, "pthread_create");

        if (atomic_load(&no_threads))
                return EAGAIN;
        if (!real)
                memcpy(&real, &symbol, sizeof(real));
        return real(ret_thread, attributes, run, userdata);
}

static void comm_new(ncclComm_t *ret_comm) {
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(ret_comm, 1, id, 0), ncclSuccess);
}

/* As an abort does, it returns; when the daemon goes on, it hears of it. */
static void test_revoke(void **state) {
        uint32_t before = fake_calls(&fake, BODY(COMM_ABORT));
        uint64_t start_ns;
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        fake_deafen(&fake, true);
        start_ns = clock_now_ns();
        /* Otherwise it never returns: the time limit of the test ends it. */
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclCommRevoke: the daemon has not answered"));
        assert_true(clock_now_ns() - start_ns < UINT64_C(10000000000));
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_int_equal(ask(comm), ncclInProgress); /* executors may be at work in its memory yet */
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_ABORT), before + 1);
        assert_int_equal(settled(comm), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

static void *destroy(void *userdata) {
        return (void *)(uintptr_t)ncclCommDestroy(userdata);
}

/* It has returned, and what it does waits for the daemon yet: so does a destroy, which an abort ends. */
static void test_revoke_and_end(void **state) {
        uint32_t ends = fake_calls(&fake, BODY(COMM_DESTROY));
        pthread_t destroyer;
        ncclComm_t comm;
        void *result;
        int n;

        (void)state;
        comm_new(&comm);
        fake_deafen(&fake, true);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_int_equal(pthread_create(&destroyer, NULL, destroy, comm), 0);
        while (!ncclCommCount(comm, &n))
                sched_yield();
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
        pthread_join(destroyer, &result); /* otherwise the time limit of the test ends it */
        assert_null(result);
        assert_int_equal(fake_calls(&fake, BODY(COMM_DESTROY)), ends);
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_DESTROY), ends + 1);
}

static void *revoke(void *userdata) {
        return (void *)(uintptr_t)ncclCommRevoke(userdata, 0);
}

/* An abort beside it waits as well: executors may be at work in its memory yet. So does one that comes later. */
static void test_abort_beside(void **state) {
        (void)state;
        for (int later = 0; later < 2; later++) {
                uint32_t ends = fake_calls(&fake, BODY(COMM_DESTROY));
                pthread_t revoker;
                ncclComm_t comm;
                void *result;

                comm_new(&comm);
                fake_deafen(&fake, true);
                assert_int_equal(pthread_create(&revoker, NULL, revoke, comm), 0);
                fake_wait_unread(&fake);
                if (later)
                        pthread_join(revoker, &result);
                assert_int_equal(ncclCommAbort(comm), ncclSuccess);
                assert_non_null(strstr(ncclGetLastError(NULL), "the daemon has not answered"));
                assert_non_null(strstr(ncclGetLastError(NULL), later ? "ncclCommAbort" : "ncclComm"));
                if (!later)
                        pthread_join(revoker, &result);
                assert_null(result);
                fake_deafen(&fake, false);
                fake_wait_calls(&fake, BODY(COMM_DESTROY), ends + 1);
        }
}

static void test_revoke_heard(void **state) {
        uint32_t before = fake_calls(&fake, BODY(COMM_ABORT));
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        assert_int_equal(ncclCommRevoke(comm, 1), ncclInvalidArgument);
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSuccess);
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), before + 1); /* before it returns */
        assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
}

/* A rank has died, which its program has heard or not; it goes on without. */
static void test_revoke_past_dead(void **state) {
        ncclComm_t comms[2], alone;

        (void)state;
        for (int heard = 0; heard < 2; heard++) {
                pair_new(comms, true);
                fake_comm_failed(&fake, RMX_E_PEER_LOST, 1);
                while (heard && ask(comms[0]) == ncclSuccess)
                        continue;
                assert_int_equal(ncclCommRevoke(comms[0], 0), ncclSuccess);
                assert_int_equal(settled(comms[0]), ncclSuccess);
                assert_int_equal(ncclCommShrink(comms[0], (int[]){1}, 1, &alone, NULL, NCCL_SHRINK_DEFAULT),
                                 ncclSuccess);
                assert_int_equal(settled(alone), ncclSuccess);
                assert_int_equal(settled(comms[0]), ncclSuccess);
                assert_int_equal(ncclCommDestroy(alone), ncclSuccess);
                for (int rank = 0; rank < 2; rank++)
                        assert_int_equal(ncclCommAbort(comms[rank]), ncclSuccess);
        }
}

/* It aborts what it comes from, and does not wait for the daemon either, if the new one does not block. */
static void test_shrink(void **state) {
        uint32_t aborts = fake_calls(&fake, BODY(COMM_ABORT));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclComm_t comms[2], alone[2];

        (void)state;
        config.blocking = 0;
        pair_new(comms, false);
        fake_deafen(&fake, true);
        for (int rank = 0; rank < 2; rank++) /* otherwise it never returns */
                assert_int_equal(
                        ncclCommShrink(comms[rank], (int[]){!rank}, 1, &alone[rank], &config, NCCL_SHRINK_ABORT),
                        ncclInProgress);
        assert_int_equal(ncclCommAbort(alone[1]), ncclSuccess);
        assert_int_equal(ask(alone[0]), ncclInProgress);
        assert_int_equal(fake_calls(&fake, BODY(COMM_ABORT)), aborts);
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(COMM_ABORT), aborts + 1);
        assert_int_equal(settled(alone[0]), ncclSuccess);
        assert_int_equal(settled(comms[0]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(alone[0]), ncclSuccess);
        pair_destroy(comms);
}

enum what { SHRINK, SHRINK_ABORT, GROW, SPLIT, GROUP, N_WHATS };

/* What blocks, of rank 0; in a group with what waits behind that, and beside it. */
struct maker {
        pthread_t thread;
        ncclComm_t comms[2], made[3];
        ncclResult_t result;
        enum what what;
};

static void *make(void *userdata) {
        struct maker *m = userdata;
        int flags = m->what == SHRINK_ABORT ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;

        if (m->what == GROUP)
                m->result = ncclGroupStart();
        if (m->what == GROW)
                m->result = ncclCommGrow(m->comms[0], 3, NULL, -1, &m->made[0], NULL);
        else if (m->what == SPLIT)
                m->result = ncclCommSplit(m->comms[0], 0, 0, &m->made[0], NULL);
        else
                m->result = ncclCommShrink(m->comms[0], (int[]){1}, 1, &m->made[0], NULL, flags);
        if (m->what != GROUP)
                return NULL;
        (void)ncclCommGrow(m->comms[0], 3, NULL, -1, &m->made[1], NULL);
        (void)ncclCommShrink(m->comms[1], (int[]){0}, 1, &m->made[2], NULL, flags);
        m->result = ncclGroupEnd();
        return NULL;
}

/* Something else fails meanwhile. What goes on behind it has been told of, and must not write over that. */
static void fail_otherwise(void) {
        assert_int_equal(ncclCommCount(NULL, &(int){0}), ncclInvalidArgument);
}

static void check_otherwise(void) {
        assert_string_equal(ncclGetLastError(NULL), "ncclCommCount: comm is NULL");
}

/* It asks the daemon. Rank 0, or what is to come from it, is aborted: who makes that comes back, and what else is to
 * hear of it hears when the daemon goes on. */
static void check_blocking(enum what what, bool child) {
        const uint32_t n = what == GROUP ? 3 : 1, ids = fake_calls(&fake, BODY(ID_CREATE)) + 1;
        struct maker m = {.what = what};
        const struct fake_comm *old;
        uint32_t creates, backs;
        uint64_t start_ns;
        ncclComm_t made;

        pair_new(m.comms, true);
        old = fake_newest(&fake);
        for (int rank = 0; rank < 2 && what == SPLIT; rank++)
                assert_int_equal(ncclCommRevoke(m.comms[rank], 0), ncclSuccess);
        creates = fake_calls(&fake, BODY(COMM_CREATE));
        backs = fake_taken_back(&fake);
        fake_deafen(&fake, true);
        assert_int_equal(pthread_create(&m.thread, NULL, make, &m), 0);
        while (!(made = __atomic_load_n(&m.made[0], __ATOMIC_ACQUIRE)))
                sched_yield();
        fake_wait_unread(&fake);
        start_ns = clock_now_ns();
        assert_int_equal(ncclCommAbort(child ? made : m.comms[0]), ncclSuccess);
        pthread_join(m.thread, NULL); /* otherwise the time limit of the test ends it */
        /* What rank 1 makes is given up with the first one, and then has as long. */
        assert_true(what != GROUP || clock_now_ns() - start_ns > UINT64_C(1500000000));
        assert_int_equal(m.result, ncclInvalidUsage);
        for (int i = 0; i < 3; i++)
                assert_null(m.made[i]);
        if (child) {
                assert_non_null(strstr(ncclGetLastError(NULL), "aborted meanwhile"));
                assert_int_equal(ask(m.comms[0]), ncclInProgress);
                assert_int_equal(ncclCommAbort(made), ncclInvalidArgument);
        }
        assert_int_equal(fake_calls(&fake, BODY(COMM_CREATE)), creates);
        fail_otherwise();
        fake_deafen(&fake, false);
        fake_wait_calls(&fake, BODY(ID_CREATE), ids + n);
        fake_wait_calls(&fake, BODY(COMM_CREATE), creates + n);
        fake_wait_taken_back(&fake, backs + n);
        if (child)
                assert_int_equal(settled(m.comms[0]), ncclSuccess);
        else
                fake_wait_left(&fake, old, 0);
        check_otherwise();
        assert_int_equal(ncclCommDestroy(m.comms[0]), child ? ncclSuccess : ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(m.comms[1]), ncclSuccess);
        for (uint32_t rank = 0; rank < 2; rank++)
                fake_wait_left(&fake, old, rank);
}

static void test_blocking(void **state) {
        (void)state;
        for (enum what what = 0; what < N_WHATS; what++)
                check_blocking(what, false);
        check_blocking(SHRINK, true);
        check_blocking(GROUP, true);
}

static void *split_and_grow(void *userdata) {
        struct maker *m = userdata;

        m->result = ncclGroupStart();
        (void)ncclCommSplit(m->comms[0], 0, 0, &m->made[0], NULL);
        (void)ncclCommGrow(m->comms[0], 2, NULL, -1, &m->made[1], NULL);
        m->result = ncclGroupEnd();
        return NULL;
}

static void *shrink_and_grow(void *userdata) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        struct maker *m = userdata;

        config.blocking = 0;
        m->result = ncclGroupStart();
        (void)ncclCommShrink(m->comms[0], (int[]){1}, 1, &m->made[0], NULL, NCCL_SHRINK_DEFAULT);
        (void)ncclCommGrow(m->comms[0], 3, NULL, -1, &m->made[1], &config);
        m->result = ncclGroupEnd();
        return NULL;
}

/* What does not block comes behind what is left, and no thread can be had for it then: its handle, which the program
 * has, says so, and what the program had it in is its own again. */
static void test_rest(void **state) {
        struct maker m = {.what = GROUP};
        const struct fake_comm *old;
        ncclComm_t late, stays;
        uint32_t creates;

        (void)state;
        pair_new(m.comms, true);
        old = fake_newest(&fake);
        creates = fake_calls(&fake, BODY(COMM_CREATE));
        fake_deafen(&fake, true);
        assert_int_equal(pthread_create(&m.thread, NULL, shrink_and_grow, &m), 0);
        while (!(late = __atomic_load_n(&m.made[0], __ATOMIC_ACQUIRE)))
                sched_yield();
        fake_wait_unread(&fake);
        assert_int_equal(ncclCommAbort(late), ncclSuccess);
        pthread_join(m.thread, NULL); /* otherwise the time limit of the test ends it */
        assert_int_equal(m.result, ncclInvalidUsage);
        assert_null(m.made[0]);
        stays = m.made[1];
        assert_non_null(stays);
        assert_int_equal(ask(stays), ncclInProgress);
        atomic_store(&no_threads, true);
        fake_deafen(&fake, false);
        assert_int_equal(settled(stays), ncclSystemError);
        atomic_store(&no_threads, false);
        assert_ptr_equal(m.made[1], stays);
        assert_int_equal(ncclCommAbort(stays), ncclSuccess);
        fake_wait_calls(&fake, BODY(COMM_CREATE), creates + 1);
        assert_int_equal(settled(m.comms[0]), ncclSuccess);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(ncclCommAbort(m.comms[rank]), ncclSuccess);
        for (uint32_t rank = 0; rank < 2; rank++)
                fake_wait_left(&fake, old, rank);
}

/* The first of a group is made, and stays, when the second is left. */
static void test_second(void **state) {
        uint32_t ids = fake_calls(&fake, BODY(ID_CREATE)) + 1, aborts = fake_calls(&fake, BODY(COMM_ABORT));
        struct maker m = {.what = GROUP};

        (void)state;
        comm_new(&m.comms[0]);
        fake_drop(&fake, BODY(ID_CREATE), 2); /* until the second time, when the first one comes again */
        assert_int_equal(pthread_create(&m.thread, NULL, split_and_grow, &m), 0);
        fake_wait_calls(&fake, BODY(ID_CREATE), ids + 1);
        assert_int_equal(ncclCommAbort(__atomic_load_n(&m.made[1], __ATOMIC_ACQUIRE)), ncclSuccess);
        pthread_join(m.thread, NULL); /* otherwise the time limit of the test ends it */
        assert_int_equal(m.result, ncclInvalidUsage);
        assert_null(m.made[1]);
        assert_int_equal(settled(m.made[0]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(m.made[0]), ncclSuccess);
        assert_int_equal(ask(m.comms[0]), ncclInProgress);
        fake_resume(&fake);
        fake_wait_calls(&fake, BODY(COMM_ABORT), aborts + 1);
        assert_int_equal(settled(m.comms[0]), ncclSuccess);
        assert_int_equal(ncclCommDestroy(m.comms[0]), ncclSuccess);
}

/* The new one is there, and only what it was split from is still to be left. Nobody has it then, so it ends. */
static void test_made(void **state) {
        (void)state;
        for (int child = 0; child < 2; child++) {
                uint32_t ends = fake_calls(&fake, BODY(COMM_DESTROY));
                struct maker m = {.what = SPLIT};

                comm_new(&m.comms[0]);
                assert_int_equal(ncclCommRevoke(m.comms[0], 0), ncclSuccess);
                fake_drop(&fake, BODY(COMM_DESTROY), 2);
                assert_int_equal(pthread_create(&m.thread, NULL, make, &m), 0);
                fake_wait_calls(&fake, BODY(COMM_DESTROY), ends + 1);
                assert_int_equal(ncclCommAbort(child ? __atomic_load_n(&m.made[0], __ATOMIC_ACQUIRE) : m.comms[0]),
                                 ncclSuccess);
                pthread_join(m.thread, NULL); /* otherwise the time limit of the test ends it */
                assert_int_equal(m.result, ncclInvalidUsage);
                assert_null(m.made[0]);
                fail_otherwise();
                fake_resume(&fake);
                fake_wait_calls(&fake, BODY(COMM_DESTROY), ends + 4); /* three times of the old one */
                if (child)
                        assert_int_equal(ncclCommDestroy(m.comms[0]), ncclSuccess);
                fake_wait_calls(&fake, BODY(COMM_DESTROY), ends + 5);
                check_otherwise();
        }
}

enum { SMALL = 512, LARGE = 256, PIECE = 4096 }; /* the large ones need memory that the daemon has not given yet */

static void small_and_large(ncclComm_t comm, bool sends, int32_t *values, int32_t *piece) {
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        for (int i = 0; i < SMALL + LARGE; i++) {
                int32_t *at = i < SMALL ? &values[i] : piece;
                size_t n = i < SMALL ? 1 : PIECE;

                assert_int_equal(sends ? ncclSend(at, n, ncclInt32, 1, comm, NULL)
                                       : ncclRecv(at, n, ncclInt32, 0, comm, NULL),
                                 ncclSuccess);
        }
        assert_int_equal(ncclGroupEnd(), ncclInProgress);
}

/* What is called on communicators that do not block is there to be started, and its start waits for the daemon. Who
 * asks does not, whichever it asks for. */
static void test_ask(void **state) {
        static int32_t in[SMALL + 1], out[SMALL], again[SMALL + 1], pieces[2][PIECE];
        ncclComm_t comms[2], others[2];
        int32_t one = 1, sum[2] = {0};
        uint64_t start_ns;

        (void)state;
        fill(in, SMALL + 1);
        fill(pieces[0], PIECE);
        pair_new(comms, false);
        pair_new(others, false);
        fake_pause(&fake, true);
        small_and_large(comms[0], true, in, pieces[0]);
        small_and_large(comms[1], false, out, pieces[1]);
        for (int rank = 0; rank < 2; rank++)
                in_progress(ncclAllReduce(&one, &sum[rank], 1, ncclInt32, ncclSum, others[rank], NULL));
        fake_deafen(&fake, true);
        fake_pause(&fake, false);
        /* Otherwise one of these never returns. */
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(others[rank]), ncclSuccess);
        start_ns = clock_now_ns();
        for (int i = 0; i < 1000; i++) {
                assert_int_equal(ask(comms[i % 2]), ncclInProgress);
                assert_int_equal(ask(others[i % 2]), ncclSuccess);
        }
        assert_true(clock_now_ns() - start_ns < UINT64_C(10000000000));
        /* What needs no more than the memory that is there goes on past it. */
        assert_int_equal(transfers(others[0], true, in, SMALL + 1), ncclInProgress);
        receive(others[1], again, SMALL + 1);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(others[rank]), ncclSuccess);
        assert_filled(again, SMALL + 1);
        fake_deafen(&fake, false);
        for (int rank = 0; rank < 2; rank++)
                assert_int_equal(settled(comms[rank]), ncclSuccess);
        assert_filled(out, SMALL);
        assert_filled(pieces[1], PIECE);
        pair_destroy(others);
        pair_destroy(comms);
}

/* The last test: there is no daemon any more. */
static void test_revoke_gone(void **state) {
        ncclResult_t asked = ncclSuccess;
        ncclComm_t comm;

        (void)state;
        comm_new(&comm);
        fake_hang_up(&fake);
        assert_int_equal(ncclCommRevoke(comm, 0), ncclSystemError);
        assert_non_null(strstr(ncclGetLastError(comm), "ncclCommRevoke: rmx_comm_abort: the connection to the daemon"));
        assert_int_equal(ncclCommGetAsyncError(comm, &asked), ncclSuccess);
        assert_int_equal(asked, ncclSystemError);
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
}

/* As one of today does, it hears of ranks that join no more. */
static int start(void **state) {
        int r = pair_start(state);

        fake.cancels = true;
        return r;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_abort_beside),
                cmocka_unit_test(test_revoke_heard),
                cmocka_unit_test(test_revoke),
                cmocka_unit_test(test_revoke_and_end),
                cmocka_unit_test(test_revoke_past_dead),
                cmocka_unit_test(test_shrink),
                cmocka_unit_test(test_blocking),
                cmocka_unit_test(test_rest),
                cmocka_unit_test(test_second),
                cmocka_unit_test(test_made),
                cmocka_unit_test(test_ask),
                cmocka_unit_test(test_revoke_gone),
        };

        return cmocka_run_group_tests(tests, start, pair_stop);
}
