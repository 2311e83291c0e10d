/* SPDX-License-Identifier: MIT */
/* How much stack the library needs: programs call it from threads that have little. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/client/crew.h"

#define STACK_BYTES (1u << 20)
#define BOUND_BYTES (16u << 10)
#define PAINT       0xa7

struct run {
        struct crew *crew;
        const unsigned char *base; /* of the stack when the calls begin */
        int result;
};

static int in_group(struct rmx_comm *comm) {
        int32_t in = 3, out = 0;
        int r;

        r = rmx_group_start();
        if (!r)
                r = rmx_send(comm, &in, 1, RMX_INT32, 0, NULL);
        if (!r)
                r = rmx_recv(comm, &out, 1, RMX_INT32, 0, NULL);
        if (!r)
                r = rmx_group_end();
        return r ? r : out == in ? RMX_OK : -1;
}

static int with_comm(struct rmx_session *session, struct rmx_comm *comm) {
        static int32_t x[1000];
        struct rmx_request request;
        void *memory;
        int r;

        r = rmx_all_reduce_start(comm, x, x, 1000, RMX_INT32, RMX_SUM, NULL, &request);
        if (!r)
                r = rmx_wait(&request, NULL);
        if (!r)
                r = in_group(comm);
        if (!r)
                r = rmx_mem_alloc(session, 4096, &memory);
        if (!r)
                r = rmx_mem_free(session, memory);
        if (!r && rmx_all_reduce(comm, x, x, 1000, 99, RMX_SUM, NULL) != RMX_E_INVALID)
                r = -2;
        return r ? r : rmx_comm_abort(comm);
}

static void *run_main(void *userdata) {
        struct run *run = userdata;
        struct rmx_session_options options = {.size = sizeof(options), .socket = run->crew->fake.path};
        struct rmx_session *session;
        struct rmx_comm *comm;
        struct rmx_id id;

        run->base = __builtin_frame_address(0);
        run->result = rmx_session_open(&options, &session);
        if (!run->result)
                run->result = rmx_get_id(session, &id);
        if (!run->result)
                run->result = rmx_comm_create(session, &id, 1, 0, NULL, &comm);
        if (!run->result)
                run->result = with_comm(session, comm);
        if (!run->result)
                run->result = rmx_comm_destroy(comm);
        if (!run->result)
                rmx_session_close(session);
        return NULL;
}

static void test_depth(void **state) {
        struct run run = {.result = -1};
        pthread_attr_t attributes;
        const unsigned char *p;
        pthread_t thread;
        struct crew crew;
        void *stack;

        (void)state;
        crew_start(&crew, 1, 64);
        run.crew = &crew;
        stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        assert_true(stack != MAP_FAILED);
        memset(stack, PAINT, STACK_BYTES);
        pthread_attr_init(&attributes);
        assert_int_equal(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
        assert_int_equal(pthread_create(&thread, &attributes, run_main, &run), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
        assert_int_equal(run.result, RMX_OK);
        for (p = stack; *p == PAINT; p++) /* up to the deepest byte that was written */
                ;
        print_message("%td bytes\n", run.base - p);
        assert_true(p < run.base && run.base - p < BOUND_BYTES);
        munmap(stack, STACK_BYTES);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_depth)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
