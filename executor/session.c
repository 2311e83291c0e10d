/* SPDX-License-Identifier: MIT */
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
                session_buffer_retire(session, buffer->id);
        }
        HASH_DEL(session->executor->sessions, session);
        free(session);
        return NULL;
}

int session_buffer_import(struct session *session, uint32_t id, uint64_t bytes, int fd) {
        struct buffer *buffer;
        int r;

        if (session_buffer(session, id))
                return -EEXIST;
        buffer = calloc(1, sizeof(*buffer));
        if (!buffer)
                return -ENOMEM;
        buffer->id = id;
        buffer->bytes = bytes;
        r = memfd_map(fd, bytes, 1, 1, &buffer->address);
        if (r < 0) {
                free(buffer);
                return r;
        }
        HASH_ADD(hh, session->buffers, id, sizeof(buffer->id), buffer);
        if (!buffer->hh.tbl) {
                buffer_free(buffer);
                return -ENOMEM;
        }
        return 0;
}

void session_buffer_retire(struct session *session, uint32_t id) {
        struct buffer *buffer = session_buffer(session, id);

        if (!buffer)
                return;
        HASH_DEL(session->buffers, buffer);
        buffer->retired = true;
        /* acquire, with the fetch_sub of buffer_unuse: the last user's accesses are done */
        if (!atomic_load_explicit(&buffer->users, memory_order_acquire))
                buffer_free(buffer);
}

struct buffer *session_buffer(struct session *session, uint32_t id) {
        struct buffer *buffer;

        HASH_FIND(hh, session->buffers, &id, sizeof(id), buffer);
        return buffer;
}

void buffer_use(struct buffer *buffer) {
        if (buffer)
                /* relaxed: retiring needs the write lock, this runs under the read lock; partner: fetch_sub in
                 * buffer_unuse */
                atomic_fetch_add_explicit(&buffer->users, 1, memory_order_relaxed);
}

void buffer_unuse(struct buffer *buffer) {
        if (!buffer)
                return;
        /* acq_rel, with itself and the load in session_buffer_retire: all accesses come before the unmapping */
        if (atomic_fetch_sub_explicit(&buffer->users, 1, memory_order_acq_rel) == 1 && buffer->retired)
                buffer_free(buffer);
}

struct comm_rank *session_rank(struct session *session, uint32_t handle) {
        struct comm_rank *rank;

        HASH_FIND(hh, session->ranks, &handle, sizeof(handle), rank);
        return rank;
}
