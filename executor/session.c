/* SPDX-License-Identifier: MIT */
/*
 * The end of a buffer.
 *
 * railmuxd gives a tenant its charge back when the memory is not mapped here any more, so it has to know. A buffer that
 * is retired while requests use it leaves the session's table at once (no later request finds it) and goes to the
 * executor's list of retired ones. The worker that drops the last use only calls the control thread: that one unmaps,
 * which may take long, and tells railmuxd. Only the control thread touches the list, and buffer_unuse looks at nothing
 * of the buffer after its decrement, so no lock is needed. What a session leaves behind is unmapped before its
 * detaching is answered: with its ranks all its requests have ended.
 *
 * Unmapping takes some 10 ms a GiB, and for that time workers would serve nobody if it were done under the write lock.
 * So there a buffer only goes to another list, of those that are gone, and the control thread empties it when it has
 * given the lock back, before it answers (executor_tidy).
 */
#include "executor/session.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "executor/bell.h"
#include "executor/comm.h"
#include "executor/executor.h"
#include "util/memfd.h"

int session_attach(struct executor *executor, uint64_t id, uint32_t pid, struct session **ret_session) {
        struct session *session;

        if (session_find(executor, id))
                return -EEXIST;
        session = calloc(1, sizeof(*session));
        if (!session)
                return -ENOMEM;
        session->executor = executor;
        session->id = id;
        session->pid = pid;
        HASH_ADD(hh, executor->sessions, id, sizeof(session->id), session);
        if (!session->hh.tbl) { /* no memory for the table */
                free(session);
                return -ENOMEM;
        }
        *ret_session = session;
        return 0;
}

struct session *session_find(struct executor *executor, uint64_t id) {
        struct session *session;

        HASH_FIND(hh, executor->sessions, &id, sizeof(id), session);
        return session;
}

static void buffer_free(struct buffer *buffer) {
        memfd_unmap(buffer->address, buffer->bytes);
        free(buffer);
}

static bool buffer_unused(const struct buffer *buffer) {
        /* acquire, with the fetch_sub of buffer_unuse: the last user's accesses are done */
        return !atomic_load_explicit(&buffer->users, memory_order_acquire);
}

/* Write lock. */
static void buffer_gone(struct buffer *buffer) {
        DL_APPEND(buffer->executor->gone_buffers, buffer);
}

void session_buffers_tidy(struct executor *executor) {
        struct buffer *buffer, *next;

        DL_FOREACH_SAFE(executor->gone_buffers, buffer, next) {
                DL_DELETE(executor->gone_buffers, buffer);
                buffer_free(buffer);
        }
}

struct session *session_detach(struct session *session) {
        struct comm_rank *rank, *next_rank;
        struct buffer *buffer, *next_buffer;
        struct bell *bell, *next_bell;

        if (!session)
                return NULL;
        HASH_ITER(hh, session->ranks, rank, next_rank) {
                comm_rank_lost(rank);
        }
        DL_FOREACH_SAFE(session->bells, bell, next_bell) {
                bell_detach(bell);
        }
        HASH_ITER(hh, session->buffers, buffer, next_buffer) {
                session_buffer_retire(session, buffer->id, false);
        }
        DL_FOREACH_SAFE(session->executor->retired, buffer, next_buffer) {
                if (buffer->session != session->id)
                        continue;
                buffer->tell = false; /* railmuxd has forgotten it with the session */
                if (buffer_unused(buffer)) {
                        DL_DELETE(session->executor->retired, buffer);
                        buffer_gone(buffer);
                }
        }
        HASH_DEL(session->executor->sessions, session);
        free(session);
        return NULL;
}

/* Clients choose the numbers, and a request names many of them while all others wait for its worker. So that nobody can
 * choose numbers that share a bucket, the hash is one of a family, by a random number of this process (Dietzfelbinger
 * et al., A reliable randomized algorithm for the closest-pair problem, 1997: multiply-shift). */
static uint32_t buffer_hash(const struct session *session, uint32_t id) {
        uint64_t h = id * (session->executor->instance | 1);

        /* ... and mixed once more: numbers that follow one another would be spread as evenly, but not as a table likes
         * it that grows. */
        h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
        return (uint32_t)(h >> 32);
}

int session_buffer_import(struct session *session, uint32_t id, uint64_t bytes, int fd) {
        struct buffer *buffer;
        int r;

        if (session_buffer(session, id))
                return -EEXIST;
        buffer = calloc(1, sizeof(*buffer));
        if (!buffer)
                return -ENOMEM;
        buffer->executor = session->executor;
        buffer->session = session->id;
        buffer->id = id;
        buffer->bytes = bytes;
        r = memfd_map(fd, bytes, 1, 1, &buffer->address);
        if (r < 0) {
                free(buffer);
                return r;
        }
        HASH_ADD_BYHASHVALUE(hh, session->buffers, id, sizeof(buffer->id), buffer_hash(session, id), buffer);
        if (!buffer->hh.tbl) {
                buffer_free(buffer);
                return -ENOMEM;
        }
        return 0;
}

static struct buffer *retired_find(struct executor *executor, uint64_t session, uint32_t id) {
        struct buffer *buffer;

        DL_FOREACH(executor->retired, buffer) {
                if (buffer->session == session && buffer->id == id)
                        break;
        }
        return buffer;
}

/* The list is gone through only for what is not in the table: for a railmuxd that came back and asks again. It may be
 * long, and workers wait for the lock. */
bool session_buffer_retire(struct session *session, uint32_t id, bool tell) {
        struct buffer *buffer = session_buffer(session, id);

        if (buffer) {
                HASH_DEL(session->buffers, buffer);
                if (buffer_unused(buffer)) {
                        buffer_gone(buffer);
                        return false;
                }
                buffer->retired = true;
                DL_APPEND(session->executor->retired, buffer);
        } else {
                buffer = retired_find(session->executor, session->id, id);
        }
        if (buffer)
                buffer->tell = tell;
        return buffer != NULL;
}

bool session_buffer_released(struct executor *executor, uint64_t *ret_session, uint32_t *ret_id, bool *ret_tell) {
        struct buffer *buffer, *other;

        DL_FOREACH(executor->retired, buffer) {
                if (buffer_unused(buffer))
                        break;
        }
        if (!buffer)
                return false;
        *ret_session = buffer->session;
        *ret_id = buffer->id;
        *ret_tell = buffer->tell;
        DL_DELETE(executor->retired, buffer);
        buffer_free(buffer);
        /* A railmuxd that died, or did not wait for the first, may have given the number out again. */
        other = *ret_tell ? retired_find(executor, *ret_session, *ret_id) : NULL;
        if (other) {
                other->tell = true;
                *ret_tell = false;
        }
        return true;
}

struct buffer *session_buffer(struct session *session, uint32_t id) {
        struct buffer *buffer;

        HASH_FIND_BYHASHVALUE(hh, session->buffers, &id, sizeof(id), buffer_hash(session, id), buffer);
        return buffer;
}

void buffer_use(struct buffer *buffer) {
        if (buffer)
                /* relaxed: retiring needs the write lock, this runs under the read lock; partner: fetch_sub in
                 * buffer_unuse */
                atomic_fetch_add_explicit(&buffer->users, 1, memory_order_relaxed);
}

void buffer_unuse(struct buffer *buffer) {
        struct executor *executor;
        bool retired;

        if (!buffer)
                return;
        executor = buffer->executor;
        retired = buffer->retired; /* does not change under the read lock */
        /* acq_rel, with itself and the load in buffer_unused: all accesses come before the unmapping */
        if (atomic_fetch_sub_explicit(&buffer->users, 1, memory_order_acq_rel) == 1 && retired)
                executor_attention(executor);
}

struct comm_rank *session_rank(struct session *session, uint32_t handle) {
        struct comm_rank *rank;

        HASH_FIND(hh, session->ranks, &handle, sizeof(handle), rank);
        return rank;
}
