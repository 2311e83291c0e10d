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

        struct executor executor; /* in this process */
        bool attached;
        pid_t child; /* or in that one */
};

void fixture_init(struct fixture *f, uint32_t n_ranks, size_t buffer_bytes);
void fixture_deinit(struct fixture *f);

/* Runs an executor here / in a child; attaches sessions 1..n, buffers, the comm, rings. */
void fixture_attach(struct fixture *f, uint32_t *ret_lost);
void fixture_detach(struct fixture *f);
void fixture_spawn(struct fixture *f);
void fixture_kill(struct fixture *f);

/* A request of a rank, in proper sequence: in = [0, ...), out = buffer_bytes / 2 ... ; returns the ring sequence. */
struct ring_request fixture_request(struct fixture *f, uint32_t rank, uint32_t op, uint32_t type, uint32_t redop,
                                    uint64_t count, uint32_t root);
uint32_t fixture_ring(struct fixture *f, uint32_t rank, const struct ring_request *request);
/* Waits at most 20 s for the status; fails the test otherwise. */
uint32_t fixture_wait(struct fixture *f, uint32_t rank, uint32_t ring_sequence);
