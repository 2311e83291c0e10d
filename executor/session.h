/* SPDX-License-Identifier: MIT */
#pragma once
/* What the executor holds for one client: bells, imported buffers, and the ranks (handles) its requests may name. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

struct bell;
struct comm_rank;
struct executor;

struct buffer {
        struct executor *executor;
        uint64_t session; /* its number: the session itself may be gone first */
        uint32_t id;
        void *address;
        uint64_t bytes;
        _Atomic uint32_t
                users; /* requests that resolved an address in it; fetch_add pairs with fetch_sub in buffer_unuse */
        bool retired;  /* set under the write lock; the last user calls the control thread, which frees it */
        bool tell;     /* retired: railmuxd wants to hear of its end */
        struct buffer *next, *prev; /* executor->retired, executor->gone_buffers */
        UT_hash_handle hh;
};

struct session {
        struct executor *executor;
        uint64_t id;
        uint32_t pid;
        struct bell *bells;      /* utlist by session */
        struct buffer *buffers;  /* uthash by id */
        struct comm_rank *ranks; /* uthash by handle; owned by their comms */
        UT_hash_handle hh;
};

/* All calls but session_buffer, session_rank and the use counts need the write lock. */
int session_attach(struct executor *executor, uint64_t id, uint32_t pid, struct session **ret_session);
struct session *session_find(struct executor *executor, uint64_t id);
/* Ends the comms of its ranks with PEER_LOST, then forgets everything; its buffers are gone (executor_tidy). Returns
 * NULL. */
struct session *session_detach(struct session *session);

/* Maps the memfd (the fd stays the caller's). -EEXIST if the id is taken. */
int session_buffer_import(struct session *session, uint32_t id, uint64_t bytes, int fd);
/* Unknown ids are fine. What nobody uses is gone (executor_tidy). Requests in flight keep the memory until they end:
 * then true, and session_buffer_released names it later, with what `tell` was in the last call. */
bool session_buffer_retire(struct session *session, uint32_t id, bool tell);
void session_buffers_tidy(struct executor *executor); /* part of executor_tidy */
/* Control thread, no lock needed. Unmaps one retired buffer that nobody uses any more; false if there is none.
 * *ret_tell: railmuxd wants to hear of it, and nothing else is mapped under that number. */
bool session_buffer_released(struct executor *executor, uint64_t *ret_session, uint32_t *ret_id, bool *ret_tell);
struct buffer *session_buffer(struct session *session, uint32_t id); /* read lock */
void buffer_use(struct buffer *buffer);                              /* NULL is fine */
void buffer_unuse(struct buffer *buffer); /* NULL is fine; the buffer may be gone afterwards */

struct comm_rank *session_rank(struct session *session, uint32_t handle); /* read lock */
