/* SPDX-License-Identifier: MIT */
/*
 * Calls that wait
 *
 * railmuxd's calls are idempotent and each names its object, so what waits keeps up only what speaks of the same comm,
 * and rings of the sessions in it: lines may stand in those that name the comm already, as they do after a restart.
 * Everything else goes ahead. That is so for the end of a session above all: the comm that is attached later finds the
 * rank's session gone, and fails as if it had ended afterwards. A rank that had left by then must not be missed,
 * though, and its leave waits behind the comm while its session ends before it; nor may an abort become the loss of a
 * rank. So a leave or an abort that has to wait is entered in what attaches the comm, which then says what railmuxd
 * would say now; carried out afterwards they change nothing but to be answered.
 */
#include "executor/held.h"

#include <stdlib.h>

#include <utlist.h>

struct held_call *held_call_new(void) {
        struct held_call *call = calloc(1, sizeof(*call));

        if (call)
                frame_arena_init(&call->arena, FRAME_UNPACK_BYTES_MAX);
        return call;
}

struct held_call *held_call_free(struct held_call *call) {
        if (!call)
                return NULL;
        if (call->message) {
                frame_close_fds(call->fds, call->n_fds);
                protobuf_c_message_free_unpacked((ProtobufCMessage *)call->message, &call->arena.allocator);
        }
        free(call);
        return NULL;
}

static void attach_note(Railmux__Executor__CommAttach *attach, const Railmux__Executor__Message *m) {
        if (m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT && attach->comm == m->comm_abort->comm &&
            !attach->code) {
                attach->code = m->comm_abort->code;
                attach->failed_rank = m->comm_abort->rank;
        } else if (m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE && attach->comm == m->rank_leave->comm &&
                   m->rank_leave->rank < attach->n_members) {
                attach->members[m->rank_leave->rank]->left = true;
                attach->members[m->rank_leave->rank]->last_sequence = m->rank_leave->last_sequence;
        }
}

void held_add(struct held *held, struct held_call *call) {
        struct held_call *earlier;

        DL_FOREACH(held->calls, earlier) {
                if (earlier->message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH)
                        attach_note(earlier->message->comm_attach, call->message);
        }
        DL_APPEND(held->calls, call);
        held->n++;
}

void held_remove(struct held *held, struct held_call *call) {
        DL_DELETE(held->calls, call);
        held->n--;
}

void held_clear(struct held *held) {
        while (held->calls) {
                struct held_call *call = held->calls;

                held_remove(held, call);
                held_call_free(call);
        }
}

/* The comm that a message speaks of; 0: none. */
static uint64_t comm_of(const Railmux__Executor__Message *m) {
        switch (m->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH:
                return m->comm_attach->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT:
                return m->comm_abort->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH:
                return m->comm_detach->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE:
                return m->rank_leave->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD:
                return m->comm_hold->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE:
                return m->comm_move->comm;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE:
                return m->comm_release->comm;
        default:
                return 0;
        }
}

static bool has_session(const Railmux__Executor__CommAttach *m, uint64_t session) {
        for (size_t i = 0; i < m->n_members; i++)
                if (m->members[i]->session == session)
                        return true;
        return false;
}

static bool follows(const Railmux__Executor__Message *earlier, const Railmux__Executor__Message *m) {
        if (m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH)
                return earlier->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH &&
                       has_session(earlier->comm_attach, m->ring_attach->session);
        return comm_of(m) != 0 && comm_of(m) == comm_of(earlier);
}

bool held_before(const struct held *held, const struct held_call *until, const Railmux__Executor__Message *message) {
        const struct held_call *call;

        DL_FOREACH(held->calls, call) {
                if (call == until)
                        return false;
                if (follows(call->message, message))
                        return true;
        }
        return false;
}
