/* SPDX-License-Identifier: MIT */
#pragma once
/* Several ranks of one communicator in one session, and threads to drive them. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/client/fake.h"
#include "tests/cmocka_all.h"

struct crew {
        struct fake fake;
        struct rmx_session *session;
        uint32_t n;
        struct rmx_id id;
        struct rmx_comm *comm[FAKE_RANKS_MAX];
        int result[FAKE_RANKS_MAX];
};

/* Runs function(crew, rank) in one thread per rank; its results are in crew->result. */
void crew_run(struct crew *crew, int (*function)(struct crew *crew, uint32_t rank));
/* Starts a fake with rings of this depth, opens a session and joins n ranks to one comm. */
void crew_start(struct crew *crew, uint32_t n, uint32_t depth);
/* The same, with rings of so many argument bytes. */
void crew_start_with(struct crew *crew, uint32_t n, uint32_t depth, uint32_t argument_bytes);
/* The same, each rank on a node of its own. */
void crew_start_nodes(struct crew *crew, uint32_t n, uint32_t depth);
/* The same with a daemon that serves GPUs. All ranks are on GPU 0. */
void crew_start_gpus(struct crew *crew, uint32_t n);
void crew_start_gpus_without_latch(struct crew *crew, uint32_t n); /* fake.h, no_latch */
void crew_stop(struct crew *crew);
/* Does that thread of this process sleep? Where it cannot be seen, never. */
bool thread_sleeps(pid_t id);
/* Number of open descriptors of this process. */
unsigned int count_fds(void);
