/* SPDX-License-Identifier: MIT */
#pragma once
/* What the files of a communicator share: comm.c (life), comm_ring.c (requests come in), comm_run.c (and are worked
 * on), comm_p2p.c (sends and receives), comm_nodes.c (several nodes). */
#include "executor/comm.h"
#include "executor/takeover.h"

/* Release, with the plain reading order of a successor (takeover.c): everything before it in program order is there. */
#define comm_mark(word, value) atomic_store_explicit(&(word), (value), memory_order_release)

static inline uint32_t comm_error(const struct comm *comm) {
        return atomic_load_explicit(&comm->error, memory_order_acquire); /* with the release in comm_set_error */
}

static inline void comm_lock(struct comm *comm) {
        pthread_mutex_lock(&comm->mutex);
}
/* Gives the mutex back and wakes the clients whose completions were published meanwhile. */
void comm_unlock(struct comm *comm);
/* Mutex held. The first error stays. */
void comm_set_error(struct comm *comm, uint32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Mutex held. Takes a request out of its rank's list and publishes its status. */
void comm_answer(struct comm_rank *rank, struct request *request, uint32_t status);
/* Mutex held, and every rank's running flag or the write lock. */
void comm_answer_error(struct comm *comm);
/* Mutex held. */
void comm_enqueue(struct comm_rank *rank, struct request *request);
/* The plan for a request of so many bytes; NULL: none. */
const struct plan *comm_plan(const struct comm *comm, uint32_t operation, uint32_t widening, uint64_t bytes);

/* comm_mismatch.c, mutex held: compares a request that is about to be queued or just was with its sequence. 0 (then
 * look at comm->disputed: nothing may be started), or the status that ends the comm and a text. */
uint32_t comm_mismatch_check(struct comm_rank *rank, const struct comm_op *op, const struct request *request,
                             char *text, size_t size);

/* ---- comm_nodes.c ------------------------------------------------------------------------------------------------ */
/* Which ranks are here; maps the area. 0, -errno or COMM_E_INVALID with a text. */
int comm_nodes_attach(struct comm *comm, const struct comm_parameters *p, const struct comm_member *members,
                      char *error, size_t error_size);
void comm_nodes_detach(struct comm *comm);
/* The backend's communicator. The same errors. */
int comm_nodes_gpu(struct comm *comm, char *error, size_t error_size);
/* Does the plan leave the memory of other nodes alone? 0 or COMM_E_PLAN with a text. */
int comm_nodes_check_plan(const struct comm *comm, const struct plan *plan, char *error, size_t error_size);
/* Before takeover_read: what another executor has served over several nodes is lost. The same errors. */
int comm_nodes_forsake(struct comm *comm, char *error, size_t error_size);
/* Write lock: the rank's process has ended. True: it has left, and others hear of its end later. */
bool comm_nodes_linger(struct comm_rank *rank);
/* Read lock: the backend got a chunk of another call for the rank, which it was running. */
void comm_nodes_mismatch(struct comm_rank *rank);

/* ---- comm_p2p.c: all with the mutex held ------------------------------------------------------------------------- */
int comm_p2p_init(struct comm *comm);
void comm_p2p_deinit(struct comm *comm);
/* After takeover_read; used: the comm was served before. Returns how many sends were declared lost. */
uint32_t comm_p2p_take_over(struct comm *comm, bool used);
/* Is the validated request one whose outcome a takeover has settled altogether? */
bool comm_p2p_settled(struct comm_rank *rank, const struct request *request);
/* Takes over a validated request: queues or answers it. */
void comm_p2p_ring(struct comm_rank *rank, struct request *request);
/* The backend has moved the rank's current request (`done`: to its end). */
void comm_p2p_moved(struct comm_rank *rank, struct request *request, bool done);
/* Forgets all that is open: the comm has failed. */
void comm_p2p_clear(struct comm *comm);
/* One that is open with a rank of another node that left at that time or before; NULL: none. */
const struct p2p_entry *comm_p2p_deserted(const struct comm *comm, uint64_t since_ns);
/* Does another rank's request name this rank in a call that it has not made? */
bool comm_p2p_awaits(const struct comm *comm, uint32_t rank);
/* Fills in what the oldest open request waits for; false if there is none. */
bool comm_p2p_oldest_wait(struct comm *comm, struct comm_wait *ret_wait);
