/* SPDX-License-Identifier: MIT */
#pragma once
/* A node without railmuxd: the memfds that railmuxd would make, clients as ring producers in the test process, and an
 * executor either in this process or in a child that can be killed. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "executor/comm.h"
#include "executor/executor.h"
#include "ring/ring.h"

#define FIXTURE_RANKS_MAX 8u
#define FIXTURE_COMM      7u
#define FIXTURE_BUFFER    5u
#define FIXTURE_HANDLE    3u
#define FIXTURE_DEPTH     16u

struct fixture_rank {
        int client_fd, executor_fd, event_fd, buffer_fd;
        void *client_area;
        const void *executor_area;
        struct ring_producer producer;
        char *buffer; /* shared memory: input in the first half, output in the second */
        uint32_t sequence;
};

struct fixture {
        uint32_t n_ranks;
        size_t buffer_bytes;
        int marks_fd;
        struct marks *marks;
        struct fixture_rank ranks[FIXTURE_RANKS_MAX];

        const struct gpu_ops *ops; /* NULL: the host backend */
        struct executor executor;  /* in this process */
        bool attached;
        pid_t child; /* or in that one */
};

void fixture_init(struct fixture *f, uint32_t n_ranks, size_t buffer_bytes);
void fixture_deinit(struct fixture *f);

/* Runs an executor here / in a child; attaches sessions 1..n, buffers, the comm, rings. */
void fixture_attach(struct fixture *f, uint32_t *ret_lost);
/* Attaches a comm of all sessions, rank r with handle `handle` + r. Write lock. */
void fixture_attach_comm(struct fixture *f, uint64_t id, uint32_t handle, int marks_fd, uint32_t *ret_lost);
void fixture_detach(struct fixture *f);
void fixture_spawn(struct fixture *f);
void fixture_kill(struct fixture *f);

/* A request of a rank, in proper sequence: in = [0, ...), out = buffer_bytes / 2 ... ; returns the ring sequence. */
struct ring_request fixture_request(struct fixture *f, uint32_t rank, uint32_t op, uint32_t type, uint32_t redop,
                                    uint64_t count, uint32_t root);
uint32_t fixture_ring(struct fixture *f, uint32_t rank, const struct ring_request *request);
/* Puts an argument block into the rank's area, if there is room for it. */
void fixture_argument(struct fixture *f, uint32_t rank, const void *block, size_t bytes, uint32_t offset);
/* Rings one send or receive in a line of its own / several as a group, whose block is at `offset`. */
uint32_t fixture_ring_single(struct fixture *f, uint32_t rank, const struct ring_group_entry *entry);
uint32_t fixture_ring_group(struct fixture *f, uint32_t rank, const struct ring_group_entry *entries, uint32_t n,
                            uint32_t offset);
/* Has the executor taken the line? */
bool fixture_latched(const struct fixture *f, uint32_t rank, uint32_t ring_sequence);
/* Waits until the executor in this process has taken the line and knows the request. */
void fixture_wait_entered(struct fixture *f, uint32_t rank, uint32_t ring_sequence);
/* Waits at most 20 s for the status; fails the test otherwise. */
uint32_t fixture_wait(struct fixture *f, uint32_t rank, uint32_t ring_sequence);
