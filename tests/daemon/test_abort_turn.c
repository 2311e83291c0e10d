/* SPDX-License-Identifier: MIT */
/* When an executor of a GPU has had the time to end a communicator: not before it was its turn. Clock and kill are the
 * test's. */
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"

#define SECOND UINT64_C(1000000000)

static uint64_t now_ns;
static unsigned int n_killed;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
        (void)clock;
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / SECOND), .tv_nsec = (long)(now_ns % SECOND)};
        return 0;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
        assert_int_equal(number, SYS_pidfd_send_signal);
        n_killed++;
        return 0;
}

static struct manager manager;
static struct executor_link executor;
static struct executor_op op;
static struct comm *comm;

/* It began to end the communicator ten seconds after the start. */
static int setup(void **unused) {
        (void)unused;
        now_ns = SECOND;
        n_killed = 0;
        manager = (struct manager){.on_device = true, .started_ns = now_ns};
        executor = (struct executor_link){
                .manager = &manager, .n_gpus = 1, .fd = -1, .pidfd = 1000, .state = EXECUTOR_READY, .name = "0"};
        DL_APPEND(manager.links, &executor);
        assert_int_equal(comm_new_numbered(&manager, NULL, 7, 1, "", &comm), 0);
        now_ns += 10 * SECOND;
        comm->aborting = true;
        comm->abort_ns = now_ns;
        op = (struct executor_op){.kind = EXECUTOR_OP_COMM_ABORT, .object = 7};
        return 0;
}

static int teardown(void **unused) {
        (void)unused;
        HASH_DELETE(hh, manager.comms, comm);
        free(comm);
        return 0;
}

static unsigned int after(uint64_t ns) {
        now_ns += ns;
        comm_device_overdue(&manager);
        return n_killed;
}

/* It waits to be sent, and the executor answers others' calls. */
static void test_waits(void **unused) {
        (void)unused;
        DL_APPEND(executor.outgoing, &op);
        for (unsigned int i = 0; i < 20; i++) {
                executor.heard_ns = now_ns;
                assert_int_equal(after(SECOND), 0);
        }
        assert_int_equal(after(2 * SECOND), 0);
        assert_int_equal(after(2 * SECOND), 1); /* it answers nothing */
}

static void test_told(void **unused) {
        (void)unused;
        DL_APPEND(executor.pending, &op);
        for (unsigned int i = 0; i < 20; i++) {
                op.turn_ns = now_ns; /* it answers what was before it */
                assert_int_equal(after(SECOND), 0);
        }
        executor.heard_ns = now_ns;
        assert_int_equal(after(2 * SECOND), 0);
        executor.heard_ns = now_ns; /* what came later does not count */
        assert_int_equal(after(2 * SECOND), 1);
}

static void test_at_once(void **unused) {
        (void)unused;
        op.turn_ns = now_ns;
        DL_APPEND(executor.pending, &op);
        assert_int_equal(after(4 * SECOND), 0);
        assert_int_equal(after(SECOND), 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_told, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_at_once, setup, teardown)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
