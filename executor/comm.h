/* SPDX-License-Identifier: MIT */
#pragma once
/* One communicator: its ranks' queues, the sequences in flight, the marks, the sticky error. See comm.c, and
 * comm_nodes.c for those of which only some ranks are on this node. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "executor/bell.h"
#include "plan/cost.h"
#include "plan/nodes.h"
#include "plan/plan.h"
#include "ring/marks.h"
#include "ring/net.h"

struct executor;
struct session;
struct comm_pair;

/* One sequence that at least one rank has rung and that is not settled. */
struct comm_op {
        uint32_t sequence;
        uint32_t n_rung; /* 0: free */
        uint32_t n_done;
        uint32_t first_rank; /* whose request the others are compared with */
        uint32_t operation;
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        uint64_t count;
        uint64_t bytes; /* of all ranks' counts together, for statistics */
        uint64_t first_ns;
        const struct plan *plan;
};

struct comm_rank {
        struct comm *comm;
        uint32_t index;
        uint32_t handle;
        uint32_t gpu;
        uint32_t numa;           /* of the GPU */
        bool here;               /* on this node; those elsewhere never have requests */
        struct session *session; /* NULL: its session is gone, or it is served elsewhere */

        _Atomic bool again;      /* somebody found it running: look once more. seq_cst, see comm_rank_run */
        atomic_flag running;     /* test_and_set acquire / clear release: one worker runs the rank at a time */
        struct request *current; /* owned by the runner */
        _Atomic uint32_t queued; /* requests in the queue; a hint for workers, exact under the mutex */

        /* guarded by the comm's mutex */
        struct request *requests; /* utlist: unpublished, as rung */
        struct request *run;      /* first one not started */
        uint32_t expected;        /* next sequence of a collective */
        bool resync;              /* after a takeover: the first sequence may be any that the marks allow */
        bool left;
        bool ended;             /* ... with its process: not everybody has been told yet, see comm_nodes_ended */
        uint32_t last_sequence; /* if left, */
        uint64_t left_ns;       /* and when we heard of it */

        UT_hash_handle hh; /* session->ranks by handle */
};

struct comm {
        struct executor *executor;
        uint64_t id;
        char name[64];
        uint32_t n_ranks;
        struct plan_geometry geometry;
        uint32_t n_choices;
        struct plan_choice choices[PLAN_CHOICES_MAX];
        const struct plan *plans[PLAN_CHOICES_MAX]; /* by choice */
        struct gpu_comm *gpu;
        struct marks *marks;
        uint32_t n_here;         /* ranks on this node: those that `marks` and everything below speak of */
        struct plan_nodes nodes; /* n_nodes 1: all ranks are here, and the rest is not used */
        uint32_t node;           /* this one */
        struct net_area *area;   /* NULL: one node */
        size_t area_bytes;
        int doorbell_fd, wake_fd; /* of the fabric, and for us; -1: one node */

        _Atomic uint32_t error; /* sticky status or 0; stored release under the mutex, loaded acquire by runners */
        _Atomic bool flush;     /* error set and queues not yet answered */

        pthread_mutex_t mutex;
        uint32_t window;     /* size of ops, a power of two >= every ring's depth */
        struct comm_op *ops; /* by sequence & (window - 1) */
        uint32_t settled;    /* every sequence up to here is final or lost */
        uint32_t highest;    /* highest sequence rung */
        uint32_t lost_after, lost_until;
        uint32_t epoch;
        bool disputed; /* ranks called different things; see comm_mismatch.c */
        uint32_t disputed_sequence, disputed_rank;
        uint64_t disputed_ns;
        struct comm_pair *pairs; /* [sender * n_ranks + receiver] */
        const struct plan *send_plan;
        uint32_t reported_stall; /* sequence last reported as stalled */
        bool reported_error;
        bool told_error; /* by railmuxd, which knows why */
        char error_text[160];
        uint64_t operations, bytes, lost;

        /* completions published under the mutex, whose clients are woken after it is given back */
        uint32_t n_wakes;
        struct comm_wake {
                struct bell *bell;
                uint32_t ring_sequence;
        } wakes[PLAN_RANKS_MAX];

        struct comm *next;                /* executor->gone_comms */
        struct comm *net_next, *net_prev; /* executor->net_comms */
        uint32_t index;                   /* in executor->comm_list, or */
#define COMM_UNLISTED UINT32_MAX
        UT_hash_handle hh;
        struct comm_rank ranks[];
};

struct comm_parameters {
        uint64_t id;
        const char *name;
        uint32_t n_ranks;
        struct plan_geometry geometry;
        uint32_t ring_depth;
        uint32_t epoch;
        uint32_t code; /* sticky error in force, 0: none */
        int32_t failed_rank;
        const struct plan_choice *choices;
        uint32_t n_choices;
        uint32_t n_nodes; /* 0 or 1: all ranks are here */
        uint32_t node;    /* this one */
        /* Over several nodes; the descriptors stay the caller's. */
        int area_fd, doorbell_fd, wake_fd;
};
struct comm_member {
        struct session *session; /* NULL: gone, or on another node */
        uint32_t node;
        uint32_t handle;
        uint32_t gpu;
        bool left;
        uint32_t last_sequence;
};

enum { COMM_OK = 0, COMM_E_PLAN = 1, COMM_E_INVALID = 2 };

/* Write lock. Maps the marks (the fd stays the caller's), takes over what a dead executor left, *ret_lost = sequences
 * declared lost. -errno; COMM_E_PLAN / COMM_E_INVALID with a text in error. */
int comm_attach(struct executor *executor, const struct comm_parameters *parameters, const struct comm_member *members,
                int marks_fd, struct comm **ret_comm, uint32_t *ret_lost, char *error, size_t error_size);
struct comm *comm_find(struct executor *executor, uint64_t id);
/* Write lock. Nobody finds it any more; what it holds is given back by executor_tidy. NULL is fine; returns NULL. */
struct comm *comm_detach(struct comm *comm);
void comms_tidy(struct executor *executor); /* part of executor_tidy */

/* Write lock. Ends the comm for all: every outstanding and later request gets the status. Answers at once, since no
 * worker runs. The first error stays. */
void comm_fail(struct comm *comm, uint32_t status, const char *text);
/* Write lock. The rank's session ends. */
void comm_rank_lost(struct comm_rank *rank);
/* Write lock. The rank makes no requests after `last`. */
void comm_rank_leave(struct comm_rank *rank, uint32_t last);

/* Read lock, from bell.c. Takes the request over: queues it or answers it. */
void comm_rank_ring(struct comm_rank *rank, struct request *request, const struct ring_request *line);
/* Read lock. Does another rank wait for a call that this rank has not made? */
bool comm_rank_awaited(struct comm_rank *rank);
/* Has it failed? Then requests are answered at once. */
bool comm_failed(const struct comm *comm);

/* Read lock, from workers. Works on what is runnable; true if something moved. *ret_bytes gets the bytes that are in
 * hand (a hint for how many workers are worth waking). Ranks whose GPUs are on the NUMA node `numa` come first. */
bool comm_run(struct comm *comm, uint32_t first_rank, uint32_t numa, uint64_t *ret_bytes);
/* Write lock. No request in any queue. */
bool comm_quiet(struct comm *comm);

/* Control thread: has a dispute lasted long enough? Then, with the write lock: ends it. */
bool comm_mismatch_due(struct comm *comm);
void comm_mismatch_settle(struct comm *comm);

/* Control thread: does a send or receive wait for a rank of another node that we know to have left, since then or
 * longer? Then, with the write lock: ends the comm. */
bool comm_nodes_deserted(struct comm *comm, uint64_t since_ns);
void comm_nodes_desert(struct comm *comm, uint64_t since_ns);

/* The same: has the process of a rank of this node ended then or earlier, when all that it had called was done here?
 * Then the comm ends for all. */
bool comm_nodes_ended(struct comm *comm, uint64_t since_ns);
void comm_nodes_end(struct comm *comm, uint64_t since_ns);
#define COMM_ENDED_NS UINT64_C(300000000) /* how long others are given */

/* Table lock, from workers: all words that fabrics have stored so far (a number that changes); that we go to sleep, to
 * be followed by a fence and another look at the former; that we are awake. See worker.c. */
uint32_t comm_nodes_arrivals(const struct executor *executor);
void comm_nodes_sleep(const struct executor *executor);
void comm_nodes_awake(const struct executor *executor);

/* What the comm has waited for longest. Mutex held. False if it waits for nothing. */
struct comm_wait {
        uint32_t operation; /* RING_OP_* */
        uint32_t sequence;  /* of the comm; sends and receives: of the pair */
        uint64_t first_ns;
        uint64_t missing; /* bit per rank that has not called. Of ranks elsewhere this is not known: sends and receives
                             name the other side, collectives none of them */
        struct request *request; /* sends and receives: whose; else NULL */
};
bool comm_oldest_wait(struct comm *comm, struct comm_wait *ret_wait);
