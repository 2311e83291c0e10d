/* SPDX-License-Identifier: MIT */
/* What is registered belongs to communicators, and goes with the last that has it. */
#include "tests/nccl/pair.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((size_t)32 << 20)
#define LIMIT ((size_t)40 << 20) /* of what the daemon gives: room for one */

static void comm_new(ncclComm_t *ret_comm) {
        ncclUniqueId id;

        assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
        assert_int_equal(ncclCommInitRank(ret_comm, 1, id, 0), ncclSuccess);
}

static void *range(unsigned int i) {
        static char memory[8]; /* nobody looks into what is registered: addresses are enough */

        return memory + i;
}

/* There is room for the next one only when that of the one before has been given back. */
static void test_left(void **state) {
        void *handle;

        (void)state;
        for (unsigned int i = 0; i < 8; i++) {
                ncclComm_t comm;

                comm_new(&comm);
                assert_int_equal(ncclCommRegister(comm, range(i), BYTES, &handle), ncclSuccess);
                assert_non_null(handle);
                if (i % 4 == 1) /* more than once */
                        assert_int_equal(ncclCommRegister(comm, range(i), BYTES, &handle), ncclSuccess);
                assert_int_equal(i % 2 ? ncclCommAbort(comm) : ncclCommDestroy(comm), ncclSuccess);
                assert_int_equal(ncclCommDeregister(comm, handle), ncclInvalidArgument);
        }
}

/* Two have the same range. */
static void test_shared(void **state) {
        void *handle[2], *more;
        ncclComm_t comm[2];

        (void)state;
        for (int i = 0; i < 2; i++) {
                comm_new(&comm[i]);
                assert_int_equal(ncclCommRegister(comm[i], range(0), BYTES, &handle[i]), ncclSuccess);
        }
        assert_ptr_equal(handle[0], handle[1]);
        assert_int_equal(ncclCommDestroy(comm[0]), ncclSuccess);
        /* The other has its memory yet, so for a further range there is none. */
        assert_int_equal(ncclCommRegister(comm[1], range(1), BYTES, &more), ncclSuccess);
        assert_null(more);
        assert_int_equal(ncclCommDeregister(comm[1], handle[1]), ncclSuccess);
        assert_int_equal(ncclCommRegister(comm[1], range(1), BYTES, &more), ncclSuccess);
        assert_non_null(more);
        assert_int_equal(ncclCommDeregister(comm[1], more), ncclSuccess);
        /* Nobody's any more, and no handle. */
        assert_int_equal(ncclCommDeregister(comm[1], handle[1]), ncclInvalidArgument);
        assert_non_null(strstr(ncclGetLastError(NULL), "ncclCommRegister"));
        assert_int_equal(ncclCommDeregister(comm[1], handle[0]), ncclInvalidArgument);
        assert_int_equal(ncclCommDeregister(comm[1], &handle), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm[1]), ncclSuccess);
}

/* What one has registered another cannot take back: it would lose it then without having said so. */
static void test_others(void **state) {
        ncclComm_t comm[2];
        void *handle;

        (void)state;
        for (int i = 0; i < 2; i++)
                comm_new(&comm[i]);
        assert_int_equal(ncclCommRegister(comm[0], range(0), BYTES, &handle), ncclSuccess);
        assert_int_equal(ncclCommDeregister(comm[1], handle), ncclInvalidArgument);
        assert_int_equal(ncclCommDestroy(comm[1]), ncclSuccess);
        assert_int_equal(ncclCommDeregister(comm[0], handle), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm[0]), ncclSuccess);
}

struct registrar {
        pthread_t thread;
        _Atomic pid_t tid; /* 0: it has not begun */
        ncclComm_t comm;
        void *handle;
        ncclResult_t result;
};

static void *take(void *userdata) {
        struct registrar *r = userdata;

        r->tid = gettid();
        r->result = ncclCommRegister(r->comm, range(1), BYTES, &r->handle);
        return NULL;
}

/* It has begun, and waits for something. */
static void await_sleep(const struct registrar *r) {
        char path[64], state = 0;
        FILE *stat;

        while (state != 'S') {
                sched_yield();
                snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)r->tid);
                stat = fopen(path, "re");
                if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
                        state = 0;
                if (stat)
                        fclose(stat);
        }
}

static void *ask_id(void *userdata) {
        struct registrar *r = userdata;
        ncclUniqueId id;

        r->result = ncclCommGetUniqueId(r->comm, &id);
        return NULL;
}

static void *destroy(void *userdata) {
        struct registrar *r = userdata;

        r->result = ncclCommDestroy(r->comm);
        return NULL;
}

/* A call waits in it, and so does the destroy, until an abort comes. If that is not so, this never returns: the time
 * limit of the test ends it. */
static void destroy_and_abort(ncclComm_t comm) {
        struct registrar destroyer = {.comm = comm};
        int n;

        assert_int_equal(pthread_create(&destroyer.thread, NULL, destroy, &destroyer), 0);
        while (!ncclCommCount(comm, &n))
                sched_yield();
        assert_int_equal(ncclCommAbort(comm), ncclSuccess);
        pthread_join(destroyer.thread, NULL);
        assert_int_equal(destroyer.result, ncclSuccess);
}

/* Registering waits for a daemon that stands still. What needs no daemon does not wait behind that; who wants the same
 * range does, and has it then. */
static void test_still(void **state) {
        struct registrar r[2] = {0};
        ncclComm_t comm[3];
        uint32_t destroys;
        void *handle;

        (void)state;
        for (int i = 0; i < 3; i++) {
                comm_new(&comm[i]);
                assert_int_equal(ncclCommRegister(comm[i], range(0), 1, &handle), ncclSuccess);
                assert_non_null(handle);
        }
        fake_deafen(&fake, true);
        for (int i = 0; i < 2; i++) {
                r[i].comm = comm[i];
                assert_int_equal(pthread_create(&r[i].thread, NULL, take, &r[i]), 0);
                fake_wait_unread(&fake); /* what the first one asks */
                await_sleep(&r[i]);
        }
        /* Otherwise these never return: the time limit of the test ends it. */
        assert_int_equal(ncclCommDeregister(comm[0], handle), ncclSuccess);
        assert_int_equal(ncclCommDeregister(comm[2], handle), ncclSuccess);
        assert_int_equal(ncclMemFree(&handle), ncclInvalidArgument);
        assert_int_equal(ncclCommAbort(comm[2]), ncclSuccess);
        destroy_and_abort(comm[0]);
        destroys = fake_calls(&fake, BODY(COMM_DESTROY));
        fake_deafen(&fake, false);
        for (int i = 0; i < 2; i++) {
                pthread_join(r[i].thread, NULL);
                assert_int_equal(r[i].result, ncclSuccess);
        }
        assert_non_null(r[0].handle);
        assert_non_null(r[1].handle);                             /* the same, unless comm[0] has ended meanwhile */
        fake_wait_calls(&fake, BODY(COMM_DESTROY), destroys + 2); /* comm[0] was left to the registrar */
        assert_int_equal(ncclCommDeregister(comm[1], r[1].handle), ncclSuccess);
        assert_int_equal(ncclCommDestroy(comm[1]), ncclSuccess);
}

/* Without a registration. */
static void test_still_id(void **state) {
        struct registrar caller = {0};

        (void)state;
        comm_new(&caller.comm);
        fake_deafen(&fake, true);
        assert_int_equal(pthread_create(&caller.thread, NULL, ask_id, &caller), 0);
        fake_wait_unread(&fake);
        destroy_and_abort(caller.comm);
        fake_deafen(&fake, false);
        pthread_join(caller.thread, NULL);
        assert_int_equal(caller.result, ncclSuccess);
}

static int limited_start(void **state) {
        int r = pair_start(state);

        fake.max_bytes = LIMIT;
        return r;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_still), /* first: the library has no memory of the daemon's yet */
                cmocka_unit_test(test_still_id), cmocka_unit_test(test_left),
                cmocka_unit_test(test_shared),   cmocka_unit_test(test_others),
        };

        return cmocka_run_group_tests(tests, limited_start, pair_stop);
}
