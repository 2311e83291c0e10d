/* SPDX-License-Identifier: MIT */
/* Where memory of clients is unmapped: without the tables' lock, since that takes long and workers would wait, and
 * before the call is answered. munmap(2) is wrapped. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/dispatch.h"
#include "executor/session.h"
#include "fixture.h"
#include "railmux/railmux.h"
#include "tests/cmocka_all.h"
#include "util/memfd.h"

#define N     3u
#define BYTES (4u << 20)
#define LARGE (512u << 10) /* rings and marks are far smaller */

static struct {
        const struct fixture *fixture; /* NULL: nothing is counted */
        uint32_t n_locked, n_free;
} unmapped;

int __real_munmap(void *address, size_t size);
int __wrap_munmap(void *address, size_t size);

int __wrap_munmap(void *address, size_t size) {
        pthread_rwlock_t *tables = unmapped.fixture ? (pthread_rwlock_t *)&unmapped.fixture->executor.tables : NULL;

        if (tables && size >= LARGE) {
                if (pthread_rwlock_tryrdlock(tables)) {
                        unmapped.n_locked++;
                } else {
                        unmapped.n_free++;
                        pthread_rwlock_unlock(tables);
                }
        }
        return __real_munmap(address, size);
}

static int setup(void **state) {
        static struct fixture f;
        uint32_t lost;

        fixture_init(&f, N, BYTES);
        fixture_attach(&f, &lost);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        unmapped.fixture = NULL;
        fixture_deinit(*state);
        return 0;
}

/* Returns how many large mappings went. */
static uint32_t call(struct fixture *f, const Railmux__Executor__Message *message) {
        struct dispatch_result result;

        memset(&unmapped, 0, sizeof(unmapped));
        unmapped.fixture = f;
        dispatch_call(&f->executor, message, NULL, 0, &result);
        unmapped.fixture = NULL;
        assert_int_equal(result.code, RMX_OK);
        assert_false(result.in_use);
        assert_int_equal(unmapped.n_locked, 0);
        return unmapped.n_free;
}

/* Numbers of buffers that a client has chosen so that all are in one bucket of an ordinary hash table. */
static void test_chosen_numbers(void **state) {
        struct fixture *f = *state;
        struct session *session = f->executor.sessions;
        uint32_t n = 0, longest = 0, hash;
        int fd;

        assert_int_equal(memfd_new("chosen", 4096, &fd), 0);
        for (uint32_t id = 1000; n < 1000; id++) {
                HASH_JEN(&id, sizeof(id), hash);
                if (hash % 1024 != 77)
                        continue;
                pthread_rwlock_wrlock(&f->executor.tables);
                assert_int_equal(session_buffer_import(session, id, 4096, fd), 0);
                assert_non_null(session_buffer(session, id));
                assert_null(session_buffer(session, id + 1));
                pthread_rwlock_unlock(&f->executor.tables);
                n++;
        }
        close(fd);
        for (uint32_t i = 0; i < session->buffers->hh.tbl->num_buckets; i++)
                if (session->buffers->hh.tbl->buckets[i].count > longest)
                        longest = session->buffers->hh.tbl->buckets[i].count;
        assert_true(longest < 100);
}

static void test_buffer(void **state) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__BufferRetire retire = RAILMUX__EXECUTOR__BUFFER_RETIRE__INIT;

        retire.session = 1;
        retire.buffer = FIXTURE_BUFFER;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE;
        message.buffer_retire = &retire;
        assert_int_equal(call(*state, &message), 1);
        assert_int_equal(call(*state, &message), 0);
}

static void test_session(void **state) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__SessionDetach detach = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;

        detach.session = 2;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
        message.session_detach = &detach;
        assert_int_equal(call(*state, &message), 1);
}

/* The staging. */
static void test_comm(void **state) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommDetach detach = RAILMUX__EXECUTOR__COMM_DETACH__INIT;

        detach.comm = FIXTURE_COMM;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
        message.comm_detach = &detach;
        assert_int_equal(call(*state, &message), 1);
        assert_null(comm_find(&((struct fixture *)*state)->executor, FIXTURE_COMM));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_chosen_numbers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_buffer, setup, teardown),
                cmocka_unit_test_setup_teardown(test_session, setup, teardown),
                cmocka_unit_test_setup_teardown(test_comm, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
