/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "cluster.h"

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
#include "railmux/railmux.h"
#include "util/memfd.h"

const struct plan_choice cluster_choices[] = {
        {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, 1024, 0},     {RING_OP_ALL_REDUCE, PLAN_RING, 65536, 0},
        {RING_OP_ALL_REDUCE, PLAN_TREE, UINT64_MAX, 0},   {RING_OP_REDUCE, PLAN_TREE, UINT64_MAX, 0},
        {RING_OP_BROADCAST, PLAN_DIRECT, 1024, 0},        {RING_OP_BROADCAST, PLAN_TREE, UINT64_MAX, 0},
        {RING_OP_ALL_GATHER, PLAN_RING, UINT64_MAX, 0},   {RING_OP_REDUCE_SCATTER, PLAN_DIRECT, UINT64_MAX, 0},
        {RING_OP_ALL_TO_ALL, PLAN_DIRECT, UINT64_MAX, 0}, {RING_OP_ALL_TO_ALL_V, PLAN_DIRECT, UINT64_MAX, 0},
        {RING_OP_GATHER, PLAN_DIRECT, UINT64_MAX, 0},     {RING_OP_SCATTER, PLAN_DIRECT, UINT64_MAX, 0},
        {RING_OP_SEND, PLAN_ZERO_COPY, UINT64_MAX, 0},    {RING_OP_BARRIER, PLAN_RECURSIVE_DOUBLING, UINT64_MAX, 0},
};
const uint32_t n_cluster_choices = sizeof(cluster_choices) / sizeof(cluster_choices[0]);

const struct cluster_placement cluster_placements[] = {
        {2, {0, 1}}, {4, {0, 1, 1, 1}}, {4, {0, 1, 0, 1}}, {3, {0, 1, 2}}, {8, {0, 0, 0, 1, 1, 2, 2, 2}},
};
const uint32_t n_cluster_placements = sizeof(cluster_placements) / sizeof(cluster_placements[0]);

void cluster_init(struct cluster *c, uint32_t n_ranks, const uint8_t *node, size_t buffer_bytes) {
        memset(c, 0, sizeof(*c));
        fixture_init(&c->f, n_ranks, buffer_bytes);
        plan_geometry_choose(n_ranks, &c->geometry);
        c->choices = cluster_choices;
        c->n_choices = n_cluster_choices;
        carrier_init(&c->carrier, n_ranks, node, &c->geometry, 1);
        c->n_nodes = c->carrier.n_nodes;
        memcpy(c->node, node, n_ranks);
        c->doorbell_fd = eventfd(0, EFD_CLOEXEC);
        assert_true(c->doorbell_fd >= 0);
        for (uint32_t i = 0; i < c->n_nodes; i++) {
                assert_int_equal(memfd_new("marks", marks_bytes(n_ranks), &c->nodes[i].marks_fd), 0);
                c->nodes[i].wake_fd = c->carrier.nodes[i].wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                assert_true(c->nodes[i].wake_fd >= 0);
        }
}

void cluster_deinit(struct cluster *c) {
        cluster_carry_stop(c);
        for (uint32_t i = 0; i < c->n_nodes; i++) {
                cluster_detach(c, i);
                cluster_kill(c, i);
                close(c->nodes[i].marks_fd);
                close(c->nodes[i].wake_fd);
        }
        close(c->doorbell_fd);
        carrier_deinit(&c->carrier);
        fixture_deinit(&c->f);
}

void cluster_parameters(struct cluster *c, uint32_t node, struct comm_parameters *p,
                        struct comm_member members[FIXTURE_RANKS_MAX]) {
        *p = (struct comm_parameters){
                .id = FIXTURE_COMM,
                .name = "test",
                .n_ranks = c->f.n_ranks,
                .geometry = c->geometry,
                .ring_depth = FIXTURE_DEPTH,
                .failed_rank = -1,
                .choices = c->choices,
                .n_choices = c->n_choices,
                .n_nodes = c->n_nodes,
                .node = node,
                .area_fd = c->carrier.nodes[node].fd,
                .doorbell_fd = c->doorbell_fd,
                .wake_fd = c->nodes[node].wake_fd,
        };
        for (uint32_t r = 0; r < c->f.n_ranks; r++)
                members[r] = (struct comm_member){
                        .node = c->node[r],
                        .handle = FIXTURE_HANDLE + r,
                        .gpu = r,
                        .session = session_find(&c->nodes[node].executor, r + 1), /* NULL: elsewhere */
                };
}

void cluster_attach(struct cluster *c, uint32_t node) {
        struct cluster_node *n = &c->nodes[node];
        struct comm_member members[FIXTURE_RANKS_MAX];
        struct session *sessions[FIXTURE_RANKS_MAX];
        struct comm_parameters p;
        char error[256] = "";
        uint32_t lost;

        assert_int_equal(executor_init(&n->executor, &gpu_host_ops, 8, 2, 1000000000), 0);
        n->attached = true;
        pthread_rwlock_wrlock(&n->executor.tables);
        for (uint32_t r = 0; r < c->f.n_ranks; r++) {
                if (c->node[r] != node)
                        continue;
                assert_int_equal(session_attach(&n->executor, r + 1, (uint32_t)getpid(), &sessions[r]), 0);
                assert_int_equal(
                        session_buffer_import(sessions[r], FIXTURE_BUFFER, c->f.buffer_bytes, c->f.ranks[r].buffer_fd),
                        0);
        }
        cluster_parameters(c, node, &p, members);
        if (comm_attach(&n->executor, &p, members, n->marks_fd, &n->comm, &lost, error, sizeof(error)))
                fail_msg("comm_attach: %s", error);
        for (uint32_t r = 0; r < c->f.n_ranks; r++) {
                int fds[3] = {c->f.ranks[r].client_fd, c->f.ranks[r].executor_fd, -1};

                if (c->node[r] != node)
                        continue;
                fds[2] = dup(c->f.ranks[r].event_fd);
                assert_int_equal(bell_attach(sessions[r], r, FIXTURE_DEPTH, 4096, fds), 0);
        }
        pthread_rwlock_unlock(&n->executor.tables);
}

void cluster_detach(struct cluster *c, uint32_t node) {
        if (c->nodes[node].attached)
                executor_deinit(&c->nodes[node].executor);
        c->nodes[node].attached = false;
}

void cluster_spawn(struct cluster *c, uint32_t node) {
        struct cluster_node *n = &c->nodes[node];
        int ready[2];
        char byte;

        assert_int_equal(pipe(ready), 0);
        n->child = fork();
        assert_true(n->child >= 0);
        if (!n->child) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                cluster_attach(c, node);
                if (write(ready[1], "", 1) != 1)
                        _exit(1);
                for (;;)
                        pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
}

void cluster_kill(struct cluster *c, uint32_t node) {
        if (c->nodes[node].child > 0) {
                kill(c->nodes[node].child, SIGKILL);
                waitpid(c->nodes[node].child, NULL, 0);
        }
        c->nodes[node].child = 0;
}

static void *carry_main(void *argument) {
        struct cluster *c = argument;
        uint64_t value;

        while (!atomic_load_explicit(&c->stop, memory_order_acquire)) { /* with cluster_carry_stop */
                bool any = carrier_take(&c->carrier);

                if (carrier_carry(&c->carrier) || any || carrier_sleep(&c->carrier))
                        continue;
                atomic_fetch_add_explicit(&c->n_waits, 1, memory_order_relaxed);
                assert_int_equal(read(c->doorbell_fd, &value, sizeof(value)), sizeof(value));
                carrier_awake(&c->carrier);
        }
        return NULL;
}

void cluster_carry(struct cluster *c) {
        atomic_store(&c->stop, false);
        assert_int_equal(pthread_create(&c->thread, NULL, carry_main, c), 0);
        c->carrying = true;
}

void cluster_carry_stop(struct cluster *c) {
        const uint64_t one = 1;

        if (!c->carrying)
                return;
        atomic_store_explicit(&c->stop, true, memory_order_release); /* with carry_main */
        assert_int_equal(write(c->doorbell_fd, &one, sizeof(one)), sizeof(one));
        pthread_join(c->thread, NULL);
        c->carrying = false;
}

void cluster_abort(struct cluster *c, uint32_t node, uint32_t status) {
        pthread_rwlock_wrlock(&c->nodes[node].executor.tables);
        comm_fail(c->nodes[node].comm, status, "aborted");
        pthread_rwlock_unlock(&c->nodes[node].executor.tables);
}

void cluster_start(struct cluster *c, const struct cluster_placement *placement) {
        cluster_init(c, placement->n_ranks, placement->node, CLUSTER_BYTES);
        for (uint32_t i = 0; i < c->n_nodes; i++)
                cluster_attach(c, i);
        cluster_carry(c);
}

void cluster_wait_asleep(struct cluster *c, uint32_t node) {
        while (!atomic_load(&c->carrier.nodes[node].area->executor_asleep))
                sched_yield();
}

bool cluster_oldest_wait(struct comm *comm, struct comm_wait *wait) {
        bool waits;

        pthread_mutex_lock(&comm->mutex);
        waits = comm_oldest_wait(comm, wait);
        pthread_mutex_unlock(&comm->mutex);
        return waits;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
int32_t cluster_value(uint32_t rank, uint64_t i, uint32_t salt) {
        return (int32_t)((i + 1) * 2654435761u * (salt + 1) + rank * 97u);
}

void cluster_fill(struct fixture *f, uint32_t salt) {
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                int32_t *in = (int32_t *)(void *)f->ranks[r].buffer;

                for (uint32_t i = 0; i < CLUSTER_HALF / 4; i++)
                        in[i] = cluster_value(r, i, salt);
                memset(f->ranks[r].buffer + CLUSTER_HALF, 0xa5, CLUSTER_HALF);
        }
}

const int32_t *cluster_out(const struct fixture *f, uint32_t rank) {
        return (const int32_t *)(const void *)(f->ranks[rank].buffer + CLUSTER_HALF);
}

static int32_t sum(uint32_t n, uint64_t i, uint32_t salt) {
        uint32_t s = 0;

        for (uint32_t r = 0; r < n; r++)
                s += (uint32_t)cluster_value(r, i, salt);
        return (int32_t)s;
}

/* Element i of a rank's output; *ret_n of them. */
static int32_t expected(uint32_t op, uint32_t n, uint64_t count, uint32_t root, uint32_t rank, uint64_t i,
                        uint32_t salt, uint64_t *ret_n) {
        uint64_t block = count ? i / count : 0, within = count ? i % count : 0;

        *ret_n = count;
        switch (op) {
        case RING_OP_ALL_REDUCE:
                return sum(n, i, salt);
        case RING_OP_REDUCE:
                *ret_n = rank == root ? count : 0;
                return sum(n, i, salt);
        case RING_OP_BROADCAST:
                return cluster_value(root, i, salt);
        case RING_OP_REDUCE_SCATTER:
                return sum(n, rank * count + i, salt);
        case RING_OP_ALL_GATHER:
                *ret_n = n * count;
                return cluster_value((uint32_t)block, within, salt);
        case RING_OP_GATHER:
                *ret_n = rank == root ? n * count : 0;
                return cluster_value((uint32_t)block, within, salt);
        case RING_OP_SCATTER:
                return cluster_value(root, rank * count + i, salt);
        case RING_OP_ALL_TO_ALL:
                *ret_n = n * count;
                return cluster_value((uint32_t)block, rank * count + within, salt);
        default:
                *ret_n = 0;
                return 0;
        }
}

void cluster_check(const struct fixture *f, uint32_t op, uint64_t count, uint32_t root, uint32_t salt) {
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                uint64_t n_out;

                expected(op, f->n_ranks, count, root, r, 0, salt, &n_out);
                for (uint64_t i = 0; i < n_out; i++)
                        if (cluster_out(f, r)[i] != expected(op, f->n_ranks, count, root, r, i, salt, &n_out))
                                fail_msg("operation %u count %llu rank %u element %llu", op, (unsigned long long)count,
                                         r, (unsigned long long)i);
                assert_int_equal(cluster_out(f, r)[n_out], (int32_t)0xa5a5a5a5);
        }
}

void cluster_ring(struct fixture *f, uint32_t op, uint64_t count, uint32_t root, uint32_t *q) {
        for (uint32_t r = 0; r < f->n_ranks; r++) {
                struct ring_request request =
                        fixture_request(f, r, op, RMX_INT32, 0, op == RING_OP_BARRIER ? 0 : count, root);

                q[r] = fixture_ring(f, r, &request);
        }
}

void cluster_wait(struct fixture *f, const uint32_t *q, uint32_t status) {
        for (uint32_t r = 0; r < f->n_ranks; r++)
                assert_int_equal(fixture_wait(f, r, q[r]), status);
}

struct ring_group_entry cluster_entry(uint32_t op, uint32_t peer, uint32_t sequence, uint64_t count, uint64_t element) {
        return (struct ring_group_entry){
                .operation = op,
                .type = RMX_INT32,
                .peer = peer,
                .sequence = sequence,
                .count = count,
                .offset = (op == RING_OP_SEND ? 0 : CLUSTER_HALF) + element * sizeof(int32_t),
                .buffer = FIXTURE_BUFFER,
        };
}
