/* SPDX-License-Identifier: MIT */
/* What railmuxd's messages on clients' memory do to a plane: that of the own GPU, and that of others which it reaches.
 */
#include "executor/plane_call.h"

#include <errno.h>
#include <stdlib.h>

#include "executor/plane_executor.h"
#include "railmux/railmux.h"

void plane_call_buffer(struct plane_executor *executor, const Railmux__Executor__BufferImport *m, const int *fds,
                       unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = plane_session_of(executor, m->session, result);
        char error[PLANE_TEXT] = "";
        struct plane_buffer *buffer;
        struct plane_memory memory;
        int r;

        if (!session)
                return;
        HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (buffer)
                return;
        if (!plane_memory_take(m->memory, n_fds ? fds[0] : -1, &memory)) {
                plane_result_set(result, RMX_E_UNSUPPORTED, "a GPU serves memory of its own only");
                return;
        }
        buffer = calloc(1, sizeof(*buffer));
        if (buffer) {
                buffer->id = m->buffer;
                HASH_ADD(hh, session->buffers, id, sizeof(buffer->id), buffer);
        }
        if (!buffer || !buffer->hh.tbl) {
                free(buffer);
                plane_result_set(result, RMX_E_NO_MEMORY, "importing a buffer: out of memory");
                return;
        }
        r = executor->ops->buffer_import(executor->plane, m->session, m->buffer, &memory, error);
        plane_result_of(result, r, "importing a buffer", error);
        if (r == -EBUSY)
                result->code = RMX_E_BUSY;
        if (r) {
                HASH_DEL(session->buffers, buffer);
                free(buffer);
        }
}

void plane_call_buffer_retire(struct plane_executor *executor, const Railmux__Executor__BufferRetire *m) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;

        if (session)
                HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (!buffer)
                return;
        executor->ops->buffer_retire(executor->plane, m->session, m->buffer);
        HASH_DEL(session->buffers, buffer);
        free(buffer);
}

/* ---- buffers of other GPUs --------------------------------------------------------------------------------------- */

void plane_call_buffer_reach(struct plane_executor *executor, const Railmux__Executor__BufferReach *m,
                             struct dispatch_result *result) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;
        char error[PLANE_TEXT] = "";

        if (session)
                HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (buffer && executor->ops->buffer_reach)
                plane_result_of(result,
                                executor->ops->buffer_reach(executor->plane, m->session, m->buffer, m->gpus, error),
                                "telling who reaches a buffer", error);
}

void plane_call_reach(struct plane_executor *executor, const Railmux__Executor__ReachImport *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = plane_session_of(executor, m->session, result);
        struct plane_buffer *buffer = NULL;
        char error[PLANE_TEXT] = "";
        struct plane_memory memory;
        int r;

        if (session)
                HASH_FIND(hh, session->reached, &m->buffer, sizeof(m->buffer), buffer);
        if (!session)
                return;
        if (buffer) {
                if (buffer->identity != m->identity)
                        plane_result_set(result, RMX_E_INVALID, "the buffer is there, in other memory");
                return;
        }
        if (!executor->ops->reach_import || !plane_memory_take(m->memory, n_fds ? fds[0] : -1, &memory)) {
                plane_result_set(result, RMX_E_UNSUPPORTED, "this executor does not reach such memory");
                return;
        }
        buffer = calloc(1, sizeof(*buffer));
        if (buffer) {
                buffer->id = m->buffer;
                buffer->identity = m->identity;
                HASH_ADD(hh, session->reached, id, sizeof(buffer->id), buffer);
        }
        if (!buffer || !buffer->hh.tbl) {
                free(buffer);
                plane_result_set(result, RMX_E_NO_MEMORY, "reaching a buffer: out of memory");
                return;
        }
        r = executor->ops->reach_import(executor->plane, m->session, m->buffer, &memory, error);
        plane_result_of(result, r, "reaching a buffer", error);
        if (r == -EBUSY)
                result->code = RMX_E_BUSY;
        if (r) {
                HASH_DEL(session->reached, buffer);
                free(buffer);
        }
}

void plane_call_reach_retire(struct plane_executor *executor, const Railmux__Executor__ReachRetire *m) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;

        if (session)
                HASH_FIND(hh, session->reached, &m->buffer, sizeof(m->buffer), buffer);
        if (!buffer)
                return;
        executor->ops->reach_retire(executor->plane, m->session, m->buffer);
        HASH_DEL(session->reached, buffer);
        free(buffer);
}
