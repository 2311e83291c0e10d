/* SPDX-License-Identifier: MIT */
#include "daemon/call.h"

#include "daemon/session.h"
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

int call_add(struct call **list, struct session *session, uint64_t id) {
        struct call *call;

        DL_FOREACH(*list, call) {
                if (call->session == session && call->id == id)
                        return 0;
        }
        if (session->n_calls >= SESSION_CALLS_MAX)
                return CALL_E_TOO_MANY;
        call = calloc(1, sizeof(*call));
        if (!call)
                return -ENOMEM;
        call->session = session;
        call->id = id;
        session->n_calls++;
        DL_APPEND(*list, call);
        return 0;
}

bool call_pop(struct call **list, struct session **ret_session, uint64_t *ret_id) {
        struct call *call = *list;

        if (!call)
                return false;
        DL_DELETE(*list, call);
        call->session->n_calls--;
        *ret_session = call->session;
        *ret_id = call->id;
        free(call);
        return true;
}

void call_drop(struct call **list, struct session *session) {
        struct call *call, *tmp;

        DL_FOREACH_SAFE(*list, call, tmp) {
                if (session && call->session != session)
                        continue;
                DL_DELETE(*list, call);
                call->session->n_calls--;
                free(call);
        }
}
