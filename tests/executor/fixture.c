/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "fixture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/session.h"
#include "plan/cost.h"
#include "railmux/railmux.h"
#include "util/memfd.h"

void fixture_init(struct fixture *f, uint32_t n_ranks, size_t buffer_bytes) {
        struct ring_layout layout;

        *f = (struct fixture){.n_ranks = n_ranks, .buffer_bytes = (buffer_bytes + 4095) & ~(size_t)4095};
        assert_int_equal(ring_layout_init(&layout, FIXTURE_DEPTH, 4096), RING_OK);
        assert_int_equal(memfd_new("marks", marks_bytes(f->n_ranks), &f->marks_fd), 0);
        assert_int_equal(memfd_map(f->marks_fd, marks_bytes(f->n_ranks), 0, 1, (void **)&f->marks), 0);
        for (uint32_t r = 0; r < n_ranks; r++) {
                struct fixture_rank *rank = &f->ranks[r];

                assert_int_equal(memfd_new("client", layout.client_bytes, &rank->client_fd), 0);
                assert_int_equal(memfd_new("executor", layout.executor_bytes, &rank->executor_fd), 0);
                assert_int_equal(memfd_new("buffer", f->buffer_bytes, &rank->buffer_fd), 0);
                assert_int_equal(memfd_map(rank->client_fd, layout.client_bytes, 1, 1, &rank->client_area), 0);
                assert_int_equal(
                        memfd_map(rank->executor_fd, layout.executor_bytes, 0, 1, (void **)&rank->executor_area), 0);
                assert_int_equal(memfd_map(rank->buffer_fd, f->buffer_bytes, 1, 1, (void **)&rank->buffer), 0);
                rank->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                assert_true(rank->event_fd >= 0);
                ring_producer_init(&rank->producer, &layout, rank->client_area, rank->executor_area,
                                   RING_FIRST_SEQUENCE);
        }
}

void fixture_deinit(struct fixture *f) {
        fixture_detach(f);
        fixture_kill(f);
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                struct fixture_rank *rank = &f->ranks[r];

                memfd_unmap(rank->client_area, rank->producer.layout.client_bytes);
                memfd_unmap((void *)rank->executor_area, rank->producer.layout.executor_bytes);
                memfd_unmap(rank->buffer, f->buffer_bytes);
                close(rank->client_fd);
                close(rank->executor_fd);
                close(rank->event_fd);
                close(rank->buffer_fd);
        }
        memfd_unmap(f->marks, marks_bytes(f->n_ranks));
        close(f->marks_fd);
}

void fixture_attach_comm(struct fixture *f, uint64_t id, uint32_t handle, int marks_fd, uint32_t *ret_lost) {
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct comm_member members[FIXTURE_RANKS_MAX];
        struct comm_parameters p = {.id = id,
                                    .name = "test",
                                    .n_ranks = f->n_ranks,
                                    .ring_depth = FIXTURE_DEPTH,
                                    .failed_rank = -1,
                                    .choices = choices};
        struct plan_constants constants;
        struct comm *comm;
        char error[256] = "";

        plan_constants_host(&constants, 2);
        plan_geometry_choose(f->n_ranks, &p.geometry);
        p.n_choices = plan_choose(&constants, f->n_ranks, choices);
        for (uint32_t r = 0; r < f->n_ranks; r++)
                members[r] = (struct comm_member){
                        .handle = handle + r, .gpu = r, .session = session_find(&f->executor, r + 1)};
        if (comm_attach(&f->executor, &p, members, marks_fd, &comm, ret_lost, error, sizeof(error)))
                fail_msg("comm_attach: %s", error);
}

void fixture_attach(struct fixture *f, uint32_t *ret_lost) {
        struct session *sessions[FIXTURE_RANKS_MAX];

        assert_int_equal(executor_init(&f->executor, f->ops ? f->ops : &gpu_host_ops, 8, 2, 1000000000), 0);
        f->attached = true;
        pthread_rwlock_wrlock(&f->executor.tables);
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                assert_int_equal(session_attach(&f->executor, r + 1, (uint32_t)getpid(), &sessions[r]), 0);
                assert_int_equal(
                        session_buffer_import(sessions[r], FIXTURE_BUFFER, f->buffer_bytes, f->ranks[r].buffer_fd), 0);
        }
        fixture_attach_comm(f, FIXTURE_COMM, FIXTURE_HANDLE, f->marks_fd, ret_lost);
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                int fds[3] = {f->ranks[r].client_fd, f->ranks[r].executor_fd, dup(f->ranks[r].event_fd)};

                assert_int_equal(bell_attach(sessions[r], r, FIXTURE_DEPTH, 4096, fds), 0);
        }
        pthread_rwlock_unlock(&f->executor.tables);
}

void fixture_detach(struct fixture *f) {
        if (f->attached)
                executor_deinit(&f->executor);
        f->attached = false;
}

void fixture_spawn(struct fixture *f) {
        int ready[2];
        char byte;

        assert_int_equal(pipe(ready), 0);
        f->child = fork();
        assert_true(f->child >= 0);
        if (!f->child) {
                uint32_t lost;

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                fixture_attach(f, &lost);
                if (write(ready[1], "", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
}

void fixture_kill(struct fixture *f) {
        if (f->child > 0) {
                kill(f->child, SIGKILL);
                waitpid(f->child, NULL, 0);
        }
        f->child = 0;
}

struct ring_request fixture_request(struct fixture *f, uint32_t rank, uint32_t op, uint32_t type, uint32_t redop,
                                    uint64_t count, uint32_t root) {
        struct ring_request request = {0};

        ring_request_set_head(&request, op, type, redop);
        request.word[RING_W_COMM] = FIXTURE_HANDLE + rank;
        ring_request_set_u64(&request, RING_W_COUNT_LO, count);
        request.word[RING_W_IN_BUFFER] = FIXTURE_BUFFER;
        request.word[RING_W_OUT_BUFFER] = FIXTURE_BUFFER;
        ring_request_set_u64(&request, RING_W_OUT_LO, f->buffer_bytes / 2);
        request.word[RING_W_PEER] = root;
        request.word[RING_W_EPOCH] = 1;
        request.word[RING_W_SEQUENCE] = ++f->ranks[rank].sequence;
        return request;
}

uint32_t fixture_ring(struct fixture *f, uint32_t rank, const struct ring_request *request) {
        struct fixture_rank *r = &f->ranks[rank];
        const uint64_t one = 1;
        uint32_t sequence;

        assert_int_equal(ring_producer_publish(&r->producer, request, &sequence), RING_OK);
        if (ring_producer_must_wake(&r->producer))
                assert_int_equal(write(r->event_fd, &one, sizeof(one)), sizeof(one));
        return sequence;
}

uint32_t fixture_ring_single(struct fixture *f, uint32_t rank, const struct ring_group_entry *e) {
        struct ring_request request = fixture_request(f, rank, e->operation, e->type, 0, e->count, e->peer);
        bool sends = e->operation == RING_OP_SEND;

        f->ranks[rank].sequence--; /* not a sequence of the comm */
        request.word[RING_W_SEQUENCE] = e->sequence;
        request.word[sends ? RING_W_OUT_BUFFER : RING_W_IN_BUFFER] = 0;
        ring_request_set_u64(&request, sends ? RING_W_OUT_LO : RING_W_IN_LO, 0);
        ring_request_set_u64(&request, sends ? RING_W_IN_LO : RING_W_OUT_LO, e->offset);
        return fixture_ring(f, rank, &request);
}

void fixture_argument(struct fixture *f, uint32_t rank, const void *block, size_t bytes, uint32_t offset) {
        const struct ring_layout *layout = &f->ranks[rank].producer.layout;

        if (offset + bytes <= layout->argument_bytes)
                memcpy((char *)f->ranks[rank].client_area + layout->argument_offset + offset, block, bytes);
}

uint32_t fixture_ring_group(struct fixture *f, uint32_t rank, const struct ring_group_entry *entries, uint32_t n,
                            uint32_t offset) {
        struct ring_request request = {0};

        fixture_argument(f, rank, entries, n * sizeof(*entries), offset);
        ring_request_set_head(&request, RING_OP_GROUP, 0, 0);
        request.word[RING_W_COMM] = FIXTURE_HANDLE + rank;
        ring_request_set_u64(&request, RING_W_COUNT_LO, n);
        request.word[RING_W_ARGUMENT] = offset;
        request.word[RING_W_EPOCH] = 1;
        return fixture_ring(f, rank, &request);
}

bool fixture_latched(const struct fixture *f, uint32_t rank, uint32_t ring_sequence) {
        const struct ring_executor_header *header = f->ranks[rank].executor_area;

        return ring_sequence_before(ring_sequence, atomic_load(&header->next));
}

void fixture_wait_entered(struct fixture *f, uint32_t rank, uint32_t ring_sequence) {
        while (!fixture_latched(f, rank, ring_sequence))
                sched_yield();
        /* A worker keeps the table lock from latching to entering. */
        pthread_rwlock_wrlock(&f->executor.tables);
        pthread_rwlock_unlock(&f->executor.tables);
}

uint32_t fixture_wait(struct fixture *f, uint32_t rank, uint32_t ring_sequence) {
        uint32_t status;

        if (ring_producer_wait(&f->ranks[rank].producer, ring_sequence, 20000000000, &status))
                fail_msg("rank %u: ring sequence %u was not answered", rank, ring_sequence);
        ring_producer_release(&f->ranks[rank].producer, ring_sequence);
        return status;
}
