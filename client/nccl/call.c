/* SPDX-License-Identifier: MIT */
/*
 * Most calls go to librailmux at once. On communicators of the host backend that do not block, some have to wait for
 * earlier ones that are not started yet (pending.c), and are kept until then. When a call returns, its arguments are
 * the caller's again but for the buffers: so arrays are copied, and a reduction with a factor is made once more, since
 * NCCL lets a program destroy it as soon as it has been used in a call.
 */
#include "client/nccl/call.h"

#include <stdlib.h>
#include <string.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/redop.h"
#include "railmux/railmux.h"

/* rmx_NAME or rmx_NAME_start. */
#define ISSUE(name, ...)                                                                                               \
        (request ? rmx_##name##_start(rmx, __VA_ARGS__, stream, request) : rmx_##name(rmx, __VA_ARGS__, stream))

int call_issue(const struct call *c, void *stream, struct rmx_request *request) {
        struct rmx_comm *rmx = c->comm->rmx;

        switch (c->kind) {
        case CALL_ALL_REDUCE:
                return ISSUE(all_reduce, c->in, c->out, c->count, c->type, c->redop);
        case CALL_REDUCE:
                return ISSUE(reduce, c->in, c->out, c->count, c->type, c->redop, c->peer);
        case CALL_REDUCE_SCATTER:
                return ISSUE(reduce_scatter, c->in, c->out, c->count, c->type, c->redop);
        case CALL_ALL_GATHER:
                return ISSUE(all_gather, c->in, c->out, c->count, c->type);
        case CALL_BROADCAST:
                return ISSUE(broadcast, c->in, c->out, c->count, c->type, c->peer);
        case CALL_GATHER:
                return ISSUE(gather, c->in, c->out, c->count, c->type, c->peer);
        case CALL_SCATTER:
                return ISSUE(scatter, c->in, c->out, c->count, c->type, c->peer);
        case CALL_ALL_TO_ALL:
                return ISSUE(all_to_all, c->in, c->out, c->count, c->type);
        case CALL_ALL_TO_ALL_V:
                return ISSUE(all_to_all_v, c->in, c->vector[0], c->vector[1], c->out, c->vector[2], c->vector[3],
                             c->type);
        case CALL_SEND:
                return ISSUE(send, c->in, c->count, c->type, c->peer);
        case CALL_RECV:
                return ISSUE(recv, c->out, c->count, c->type, c->peer);
        }
        return RMX_E_INTERNAL;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */
static ncclResult_t no_memory(const char *what) {
        return error_raise(ncclSystemError, "%s: out of memory", what);
}

static void call_free(struct call *call) {
        if (call->redop_made)
                (void)rmx_redop_destroy(call->comm->rmx, call->redop);
        free(call->numbers);
}

/* Replaces what is the caller's. */
static ncclResult_t call_own(struct call *call, const char *what) {
        size_t n = (size_t)call->comm->n_ranks;
        bool reduces = call->kind == CALL_ALL_REDUCE || call->kind == CALL_REDUCE || call->kind == CALL_REDUCE_SCATTER;
        ncclResult_t result;

        if (call->kind == CALL_ALL_TO_ALL_V) {
                call->numbers = malloc(4 * n * sizeof(*call->numbers));
                if (!call->numbers)
                        return no_memory(what);
                for (uint32_t i = 0; i < 4; i++) {
                        memcpy(call->numbers + i * n, call->vector[i], n * sizeof(*call->numbers));
                        call->vector[i] = call->numbers + i * n;
                }
        }
        if (!reduces || call->redop < ncclNumOps)
                return ncclSuccess;
        result = redop_copy(call->comm, what, call->redop, &call->redop);
        call->redop_made = !result;
        return result;
}

ncclResult_t calls_keep(struct calls *calls, const char *what, const struct call *call) {
        struct call own = *call;
        ncclResult_t result;

        if (calls->n == calls->capacity) {
                uint32_t capacity = calls->capacity ? 2 * calls->capacity : 8;
                struct call *list = reallocarray(calls->list, capacity, sizeof(*list));

                if (!list)
                        return no_memory(what);
                calls->list = list;
                calls->capacity = capacity;
        }
        result = call_own(&own, what);
        if (result)
                call_free(&own);
        else
                calls->list[calls->n++] = own;
        return result;
}

ncclResult_t calls_take(struct calls *from, const char *what, const struct ncclComm *comm, struct calls *to) {
        uint32_t n = 0, left = 0;

        for (uint32_t i = 0; i < from->n; i++)
                n += from->list[i].comm == comm;
        if (!n)
                return ncclSuccess;
        to->list = calloc(n, sizeof(*to->list));
        if (!to->list)
                return no_memory(what);
        to->capacity = n;
        for (uint32_t i = 0; i < from->n; i++) {
                if (from->list[i].comm == comm)
                        to->list[to->n++] = from->list[i];
                else
                        from->list[left++] = from->list[i];
        }
        from->n = left;
        return ncclSuccess;
}

void calls_free(struct calls *calls) {
        for (uint32_t i = 0; i < calls->n; i++)
                call_free(&calls->list[i]);
        free(calls->list);
        *calls = (struct calls){0};
}
