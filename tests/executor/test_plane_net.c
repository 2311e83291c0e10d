/* SPDX-License-Identifier: MIT */
/* What the executor of a GPU makes of a communicator over several nodes, before the plane (here: a notebook) has it. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/plane_executor.h"
#include "railmux/railmux.h"
#include "ring/net.h"
#include "util/memfd.h"

#define N 3u

static struct {
        uint32_t n;
        struct plane_comm_member members[N];
        bool has_net;
        struct plane_net net;
        int result;
} noted;

static int note_attach(struct plane *plane, const struct plane_comm *comm, char *error) {
        (void)plane;
        noted.n++;
        assert_int_equal(comm->n_ranks, N);
        memcpy(noted.members, comm->members, sizeof(noted.members));
        noted.has_net = comm->net != NULL;
        if (comm->net)
                noted.net = *comm->net;
        if (noted.result)
                snprintf(error, PLANE_TEXT, "the plane does not like it");
        return noted.result;
}

/* The area is there until the plane has let go of it. */
static void note_detach(struct plane *plane, uint64_t comm) {
        (void)plane;
        (void)comm;
        if (noted.has_net)
                assert_int_equal(noted.net.area->magic, NET_MAGIC);
}

static void note_close(struct plane *plane) {
        note_detach(plane, 0);
}

static const struct plane_ops ops = {.comm_attach = note_attach, .comm_detach = note_detach, .close = note_close};

struct world {
        struct plane_executor executor;
        int fds[4]; /* marks, area, doorbell, wake */
        struct net_area *area;
        size_t bytes;
        Railmux__Executor__CommAttach attach;
        Railmux__Executor__Member member[N], *members[N];
};

static int setup(void **state) {
        struct world *w = calloc(1, sizeof(*w));
        uint64_t memory_bytes;
        uint32_t capacity;
        void *area;

        assert_non_null(w);
        memset(&noted, 0, sizeof(noted));
        w->executor.ops = &ops;
        w->executor.gpu = 4;
        assert_int_equal(plane_net_size(N, &capacity, &memory_bytes), 0);
        w->bytes = (net_area_bytes(capacity, memory_bytes) + 4095) / 4096 * 4096;
        assert_int_equal(memfd_new("test-net", w->bytes, &w->fds[1]), 0);
        assert_int_equal(memfd_map(w->fds[1], w->bytes, 1, 1, &area), 0);
        w->area = area;
        net_area_init(w->area, capacity, memory_bytes);
        w->fds[0] = w->fds[3] = -1;
        w->fds[2] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        railmux__executor__comm_attach__init(&w->attach);
        w->attach.comm = 9;
        w->attach.n_ranks = (uint32_t)(w->attach.n_members = N);
        w->attach.members = w->members;
        w->attach.n_nodes = 2;
        w->attach.node = 1;
        for (uint32_t i = 0; i < N; i++) {
                railmux__executor__member__init(&w->member[i]);
                w->members[i] = &w->member[i];
                w->member[i].gpu = 4;
                w->member[i].handle = 7 + i;
                w->member[i].node = i == 1 ? 0 : 1;
        }
        w->member[2].gpu = 3;
        *state = w;
        return 0;
}

static int teardown(void **state) {
        struct world *w = *state;

        plane_executor_deinit(&w->executor);
        memfd_unmap(w->area, w->bytes);
        close(w->fds[1]);
        close(w->fds[2]);
        free(w);
        return 0;
}

static struct dispatch_result call(struct world *w, unsigned int n_fds) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        struct dispatch_result result;

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &w->attach;
        plane_call(&w->executor, &message, w->fds, n_fds, &result);
        return result;
}

static void detach(struct world *w) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommDetach detached = RAILMUX__EXECUTOR__COMM_DETACH__INIT;
        struct dispatch_result result;

        detached.comm = 9;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
        message.comm_detach = &detached;
        plane_call(&w->executor, &message, NULL, 0, &result);
        assert_int_equal(result.code, 0);
}

static void the_plane_gets_area_and_doorbell(void **state) {
        struct world *w = *state;
        int doorbell;

        for (uint32_t use = 0; use < 2; use++) {
                uint64_t one = 1, got;

                assert_int_equal(call(w, 4).code, 0);
                assert_int_equal(noted.n, use + 1);
                assert_true(noted.has_net);
                assert_ptr_not_equal(noted.net.area, w->area);
                w->area->arrivals = 55 + use;
                assert_int_equal(noted.net.area->arrivals, 55 + use);
                doorbell = noted.net.doorbell_fd;
                assert_int_not_equal(doorbell, w->fds[2]);
                assert_int_equal(write(doorbell, &one, sizeof(one)), sizeof(one));
                assert_int_equal(read(w->fds[2], &got, sizeof(got)), sizeof(got));
                assert_true(noted.members[0].here);
                assert_false(noted.members[0].far);
                assert_true(noted.members[1].far);
                assert_false(noted.members[1].here); /* though its GPU has the same number */
                assert_false(noted.members[2].here || noted.members[2].far);
                detach(w);
                assert_int_equal(fcntl(doorbell, F_GETFD), -1);
                assert_int_equal(errno, EBADF);
        }
        assert_int_equal(call(w, 4).code, 0); /* is closed with the executor */
}

static void one_node_needs_none(void **state) {
        struct world *w = *state;

        w->attach.n_nodes = 1;
        assert_int_equal(call(w, 1).code, 0);
        assert_false(noted.has_net);
        for (uint32_t i = 0; i < N; i++)
                assert_false(noted.members[i].far);
}

static void what_is_no_net_is_refused(void **state) {
        struct world *w = *state;
        struct dispatch_result result;
        int before = dup(0), after;

        close(before);
#define REFUSED(n_fds, code_, word)                                                                                    \
        do {                                                                                                           \
                result = call(w, n_fds);                                                                               \
                assert_int_equal(result.code, code_);                                                                  \
                assert_non_null(strstr(result.message, word));                                                         \
                assert_null(w->executor.comms);                                                                        \
        } while (0)
        REFUSED(2, RMX_E_INVALID, "doorbell");
        w->attach.node = 2;
        REFUSED(4, RMX_E_INVALID, "node");
        w->attach.node = 1;
        w->area->version++;
        REFUSED(4, RMX_E_INVALID, "net area is none");
        w->area->version--;
        assert_int_equal(noted.n, 0);
        noted.result = -EINVAL;
        REFUSED(4, RMX_E_INVALID, "does not like");
        noted.result = 0;
        after = dup(0);
        close(after);
        assert_int_equal(after, before); /* nothing is open that was not */
        assert_int_equal(call(w, 4).code, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(the_plane_gets_area_and_doorbell, setup, teardown),
                cmocka_unit_test_setup_teardown(one_node_needs_none, setup, teardown),
                cmocka_unit_test_setup_teardown(what_is_no_net_is_refused, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
