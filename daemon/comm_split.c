/* SPDX-License-Identifier: MIT */
/*
 * Splitting. Rank r of the parent says (number, colour, key); when all have, the ranks of each colour become a comm,
 * ordered by (key, rank). All these comms are made, or none.
 *
 * Which splits of a parent are over is one 64-bit word, so that one store commits a split in the state memfd: the upper
 * half is a number up to which all are over, the lower half a bitmap of the 32 after it (threads may split one comm at
 * the same time, and the order in which they finish is open). A successor drops child comms whose number is not over; a
 * rank that asks again for one that is over gets the comm it is in.
 *
 * A rank that wanted none has nothing by which to tell a split that it has taken part in, and asks about once more
 * after a restart, from one that failed while it was on its way. So a second word has a bit for each of the 64 numbers
 * around the one up to which all are over, by number modulo 64: it has failed. Older ones can only have: what has been
 * answered is not asked again, and what has not is among the last 32.
 *
 * Over several nodes each has its part of a split, and the first of them decides: comm_split_far.c.
 */
#include "daemon/comm_split.h"

#include "daemon/call.h"
#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_split_far.h"
#include "daemon/comm_split_private.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_dispatch.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

bool comm_split_done(uint64_t word, uint32_t number) {
        uint32_t base = (uint32_t)(word >> 32);

        if (number <= base)
                return true;
        return number - base <= SPLIT_WINDOW && (word >> (number - base - 1) & 1) != 0;
}

bool comm_split_open(uint64_t word, uint32_t number) {
        uint32_t base = (uint32_t)(word >> 32);

        return number > base && number - base <= SPLIT_WINDOW && !comm_split_done(word, number);
}

void comm_split_mark(uint64_t *done, uint64_t *failed, uint32_t number, bool fails) {
        uint32_t base = (uint32_t)(*done >> 32), bits = (uint32_t)*done;

        *failed = (*failed & ~(UINT64_C(1) << number % 64)) | (uint64_t)fails << number % 64;
        bits |= 1u << (number - base - 1);
        while (bits & 1) {
                bits >>= 1;
                base++;
        }
        *done = (uint64_t)base << 32 | bits;
}

/* Its bit in the words is another one's by now. */
static bool comm_split_old(uint64_t done, uint32_t number) {
        uint32_t base = (uint32_t)(done >> 32);

        return number <= base && base - number >= SPLIT_WINDOW;
}

bool comm_split_failed(uint64_t done, uint64_t failed, uint32_t number) {
        return comm_split_old(done, number) || (failed >> number % 64 & 1) != 0;
}

struct comm_split *comm_split_find(const struct comm *parent, uint32_t number) {
        struct comm_split *split;

        DL_SEARCH_SCALAR(parent->splits, split, number, number);
        return split;
}

static void comm_split_commit(struct comm *parent, uint32_t number, bool fails) {
        comm_split_mark(&parent->splits_done, &parent->splits_failed, number, fails);
        record_splits_done(parent);
}

struct comm_split *comm_split_free(struct comm_split *split) {
        struct comm *child, *tmp;

        if (!split)
                return NULL;
        DL_FOREACH_SAFE(split->children, child, tmp) {
                DL_DELETE(split->children, child);
                child->split = NULL;
                comm_split_far_drop(split, child);
                comm_free(child);
        }
        for (uint32_t r = 0; r < split->parent->n_ranks; r++)
                call_drop(&split->places[r].calls, NULL);
        DL_DELETE(split->parent->splits, split);
        charge_release(&split->charge_bytes);
        free(split);
        return NULL;
}

void comm_split_end_unknown(struct comm *parent, uint32_t number, uint32_t code, const char *text) {
        comm_split_commit(parent, number, true);
        parent->split_code = code;
        snprintf(parent->split_text, sizeof(parent->split_text), "%s", text);
}

void comm_split_end(struct comm_split *split, uint32_t code, const char *text) {
        struct comm *parent = split->parent, *child;
        struct session *session;
        char number[24];
        uint64_t id;

        snprintf(number, sizeof(number), "%" PRIu64, parent->number);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, NULL},
                   "comm %s: split %u failed, %u of %u ranks had joined%s: %s", number, split->number, split->n_joined,
                   parent->n_ranks, comm_split_is_far(parent) ? " here" : "", text);
        /* First: a successor must not find children of a split that has failed. */
        DL_FOREACH(split->children, child)
                record_drop_comm(child);
        comm_split_end_unknown(parent, split->number, code, text);
        for (uint32_t r = 0; r < parent->n_ranks; r++) {
                while (call_pop(&split->places[r].calls, &session, &id))
                        session_send_failure(session, id, code, "%s", text);
        }
        comm_split_free(split);
}

void comm_split_fail(struct comm_split *split, uint32_t code, const char *text) {
        if (comm_split_is_far(split->parent))
                comm_split_far_complain(split, code, text);
        else
                comm_split_end(split, code, text);
}

void comm_split_fail_all(struct comm *parent, uint32_t code, const char *text) {
        struct comm_split *split, *next;

        DL_FOREACH_SAFE(parent->splits, split, next)
                comm_split_fail(split, code, text);
}

void comm_split_end_all(struct comm *parent, uint32_t code, const char *text) {
        while (parent->splits)
                comm_split_end(parent->splits, code, text);
}

void comm_split_forget(struct comm_member *member) {
        struct comm_split *split;

        DL_FOREACH(member->comm->splits, split) {
                call_drop(&split->places[member->rank].calls, NULL);
                split->places[member->rank].session = NULL;
        }
}

void comm_split_leave(struct comm_member *member) {
        struct comm_split *split;
        struct session *session;
        uint64_t id;

        comm_split_fail_all(member->comm, RMX_E_PEER_LOST, "a rank has left the parent communicator");
        DL_FOREACH(member->comm->splits, split) { /* they wait for the first node */
                while (call_pop(&split->places[member->rank].calls, &session, &id))
                        session_send_failure(session, id, RMX_E_PEER_LOST, "the rank has left the communicator");
        }
}

static void comm_split_reply_none(struct session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommReply reply = RAILMUX__SESSION__COMM_REPLY__INIT;

        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY;
        message.comm_reply = &reply;
        session_send(session, &message);
}

void comm_split_check(struct comm_split *split) {
        struct comm *child;

        if (!split->formed)
                return;
        DL_FOREACH(split->children, child) {
                if (!comm_is_attached(child))
                        return;
        }
        if (comm_split_is_far(split->parent)) {
                comm_split_far_ready(split);
                return;
        }
        DL_FOREACH(split->children, child) {
                if (record_comm(child)) {
                        comm_split_fail(split, RMX_E_NO_MEMORY, "the daemon cannot record the communicator");
                        return;
                }
        }
        comm_split_finish(split);
}

/* What has happened to a child while it was not known yet whether there would be one. (Of ranks that have died the
 * executors tell.) */
static void comm_split_catch_up(struct comm *child, uint64_t gave_up) {
        if (child->remote)
                comm_remote_catch_up(child);
        for (uint32_t r = 0; r < child->n_ranks; r++) {
                if (gave_up >> r & 1 && child->members[r].session)
                        comm_member_give_up(&child->members[r]);
        }
        comm_settle(child);
}

void comm_split_finish(struct comm_split *split) {
        struct comm *parent = split->parent, *child, *tmp;
        struct session *session;
        uint64_t id;

        comm_split_commit(parent, split->number, false);
        record_barrier(parent->manager);
        for (uint32_t r = 0; r < parent->n_ranks; r++) {
                struct split_place *place = &split->places[r];

                while (call_pop(&place->calls, &session, &id)) {
                        if (place->member)
                                comm_reply(place->member, session, id);
                        else
                                comm_split_reply_none(session, id);
                }
        }
        DL_FOREACH_SAFE(split->children, child, tmp) {
                uint64_t gave_up = 0;

                for (uint32_t r = 0; r < parent->n_ranks; r++)
                        if (split->places[r].gave_up && split->places[r].member &&
                            split->places[r].member->comm == child)
                                gave_up |= UINT64_C(1) << split->places[r].member->rank;
                DL_DELETE(split->children, child);
                child->split = NULL;
                comm_answer(child);
                comm_split_catch_up(child, gave_up);
        }
        comm_split_free(split);
}

/* Insertion sort: at most 64, and equal keys keep the parent's order. */
uint32_t comm_split_group(struct split_place *places, uint32_t n_ranks, int32_t colour,
                          uint32_t ret_ranks[COMM_RANKS_MAX]) {
        uint32_t n = 0;

        for (uint32_t r = 0; r < n_ranks; r++) {
                uint32_t i = n;

                if (places[r].colour != colour)
                        continue;
                places[r].grouped = true;
                for (; i > 0 && places[ret_ranks[i - 1]].key > places[r].key; i--)
                        ret_ranks[i] = ret_ranks[i - 1];
                ret_ranks[i] = r;
                n++;
        }
        return n;
}

static int comm_split_make_child(struct comm_split *split, const uint32_t *ranks, uint32_t n,
                                 const Railmux__Peer__SplitChild *over, char *text, size_t text_size) {
        struct comm *parent = split->parent, *child;
        struct manager *manager = parent->manager;
        int r;

        r = comm_new(manager, parent->tenant, n, split->places[ranks[0]].name, text, text_size, &child);
        if (r)
                return r;
        child->parent = parent->number;
        child->split_number = split->number;
        child->split = split;
        DL_APPEND(split->children, child);
        if (over) { /* first: who is away is told by it, also of a child that gets no further */
                r = comm_split_far_child(child, parent, ranks, over, text, text_size);
                if (r)
                        return r;
        }
        for (uint32_t i = 0; i < n; i++) {
                struct split_place *place = &split->places[ranks[i]];
                uint32_t gpu = place->gpu < 0 ? i % manager->n_gpus : (uint32_t)place->gpu;

                place->member = &child->members[i];
                place->member->parent_rank = ranks[i];
                place->member->exchange = place->exchange;
                place->member->spare = place->spare;
                if (parent->members[ranks[i]].away) {
                        place->member->away = place->member->joined = true;
                        place->member->gpu = gpu;
                        continue;
                }
                r = comm_member_join(child, i, place->session, gpu, text, text_size);
                if (r)
                        return r;
        }
        return comm_attach(child, text, text_size);
}

void comm_split_form(struct comm_split *split, const Railmux__Peer__SplitForm *over) {
        uint32_t ranks[COMM_RANKS_MAX];
        size_t n_over = 0;
        char text[160];

        split->formed = true;
        for (uint32_t r = 0; r < split->parent->n_ranks; r++) {
                const Railmux__Peer__SplitChild *child = NULL;
                enum comm_split_where where;
                uint32_t n;
                int error;

                if (split->places[r].grouped || split->places[r].colour < 0)
                        continue;
                n = comm_split_group(split->places, split->parent->n_ranks, split->places[r].colour, ranks);
                where = comm_split_place(split->parent, ranks, n);
                if (where == COMM_SPLIT_OVER || where == COMM_SPLIT_WITHOUT)
                        child = over->children[n_over++];
                if (where == COMM_SPLIT_ELSEWHERE || where == COMM_SPLIT_WITHOUT)
                        continue;
                error = comm_split_make_child(split, ranks, n, child, text, sizeof(text));
                if (error) {
                        comm_split_fail(split, error == COMM_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY, text);
                        return;
                }
        }
        comm_split_check(split); /* if nobody wanted a comm, there is nothing to wait for */
}

/* The rank's own communicator of a split that is over. NULL: there is none. */
static struct comm_member *comm_split_child(struct session *session, const struct comm_member *parent,
                                            uint32_t number) {
        struct comm_member *member;

        DL_FOREACH(session->members, member) {
                if (member->comm->parent == parent->comm->number && member->comm->split_number == number &&
                    member->parent_rank == parent->rank && !member->leaving)
                        return member;
        }
        return NULL;
}

/* The split is over: the same answer again. */
static void comm_split_again(struct session *session, uint64_t call, struct comm_member *parent,
                             const Railmux__Session__CommSplit *body) {
        struct comm_member *member = body->colour < 0 ? NULL : comm_split_child(session, parent, body->number);
        const struct comm *comm = parent->comm;
        bool failed = comm_split_failed(comm->splits_done, comm->splits_failed, body->number);

        if (member)
                comm_reply(member, session, call);
        else if (body->colour < 0 && !failed)
                comm_split_reply_none(session, call);
        else if (comm->split_code)
                session_send_failure(session, call, comm->split_code, "%s", comm->split_text);
        else if (failed && !comm_split_old(comm->splits_done, body->number)) /* why, nobody knows any more */
                session_send_failure(session, call, RMX_E_LOST, "split %u failed before railmuxd was restarted",
                                     body->number);
        else
                session_send_failure(session, call, RMX_E_INVALID, "split %u of this communicator is over",
                                     body->number);
}

/* 0, or RMX_E_* with a text. */
static uint32_t comm_split_new(struct comm *parent, uint32_t number, char *text, size_t text_size,
                               struct comm_split **ret_split) {
        size_t size = sizeof(**ret_split) + parent->n_ranks * sizeof((*ret_split)->places[0]);
        struct charge charge = CHARGE_INIT;
        struct comm_split *split;

        if (tenant_charge(parent->tenant, &charge, CHARGE_BYTES, size, text, text_size))
                return RMX_E_LIMIT;
        split = calloc(1, size);
        if (!split) {
                charge_release(&charge);
                snprintf(text, text_size, "out of memory");
                return RMX_E_NO_MEMORY;
        }
        split->charge_bytes = charge;
        split->parent = parent;
        split->number = number;
        DL_APPEND(parent->splits, split);
        *ret_split = split;
        return 0;
}

/* A rank cannot take part, though it should; so there is no such split, for the others either. split: what there is of
 * it, or NULL. */
static void comm_split_refuse(struct session *session, uint64_t call, struct comm *parent, uint32_t number,
                              struct comm_split *split, uint32_t code, const char *text) {
        session_send_failure(session, call, code, "%s", text);
        if (split)
                comm_split_fail(split, code, text);
        else if (comm_split_is_far(parent))
                comm_split_far_refuse(parent, number, code, text);
        else
                comm_split_end_unknown(parent, number, code, text);
}

/* What the rank wants cannot be: RMX_E_* with a text. */
static uint32_t comm_split_wrong(const struct manager *manager, const Railmux__Session__CommSplit *body, char *text,
                                 size_t text_size) {
        if (body->gpu >= -1 && body->gpu < (int32_t)manager->n_gpus)
                return 0;
        snprintf(text, text_size, "gpu is %d; allowed: -1 .. %u", body->gpu, manager->n_gpus - 1);
        return RMX_E_INVALID;
}

/* Can the parent be split at all? Tells the client if not. */
static bool comm_split_valid(struct session *session, uint64_t call, struct comm_member *parent,
                             const Railmux__Session__CommSplit *body) {
        struct comm *comm = parent->comm;
        uint32_t base = (uint32_t)(comm->splits_done >> 32);

        if (comm->code) {
                session_send_failure(session, call, comm->code, "the communicator has failed");
                return false;
        }
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if ((!comm->members[r].session && !comm->members[r].away) || comm->members[r].leaving) {
                        session_send_failure(session, call, RMX_E_PEER_LOST, "rank %u has left the communicator", r);
                        return false;
                }
        }
        if (body->number - base > SPLIT_WINDOW) {
                session_send_failure(session, call, RMX_E_INVALID, "split %u comes too early: %u is not over yet",
                                     body->number, base + 1);
                return false;
        }
        return true;
}

void comm_split_call(struct session *session, uint64_t call, const Railmux__Session__CommSplit *body) {
        struct comm_member *parent = comm_member_of_handle(session, body->parent);
        struct comm_split *split;
        struct split_place *place;
        char text[160];
        uint32_t code;

        if (!parent || parent->comm->state != COMM_READY || parent->leaving || body->number == 0) {
                session_send_failure(session, call, RMX_E_INVALID, "handle %u names no communicator to split",
                                     body->parent);
                return;
        }
        split = comm_split_find(parent->comm, body->number);
        if (!split && comm_split_done(parent->comm->splits_done, body->number)) {
                comm_split_again(session, call, parent, body);
                return;
        }
        if (!comm_split_valid(session, call, parent, body))
                return;
        if (split && split->places[parent->rank].joined) { /* it calls again */
                session_wait_for(session, call, &split->places[parent->rank].calls);
                return;
        }
        code = comm_split_wrong(session->manager, body, text, sizeof(text));
        if (!code && !split)
                code = comm_split_new(parent->comm, body->number, text, sizeof(text), &split);
        if (code) {
                comm_split_refuse(session, call, parent->comm, body->number, split, code, text);
                return;
        }
        place = &split->places[parent->rank];
        session_wait_for(session, call, &place->calls);
        place->joined = true;
        place->colour = body->colour;
        place->key = body->key;
        place->gpu = body->gpu;
        place->exchange = body->exchange;
        place->spare = body->spare;
        place->session = session;
        session_clean_name(place->name, body->name);
        split->n_joined++;
        if (comm_split_is_far(parent->comm))
                comm_split_far_join(split, parent->rank);
        else if (split->n_joined == parent->comm->n_ranks)
                comm_split_form(split, NULL);
}

void comm_split_cancel(struct session *session, uint64_t call, const Railmux__Session__CommAbort *body) {
        struct comm_member *parent = comm_member_of_handle(session, body->parent), *child;
        struct comm_split *split = NULL;
        char text[160];

        if (parent) {
                split = comm_split_find(parent->comm, body->number);
                child = split ? NULL : comm_split_child(session, parent, body->number);
                if (split && split->places[parent->rank].joined) {
                        snprintf(text, sizeof(text), "rank %u (pid %d) gave up before all ranks had joined",
                                 parent->rank, (int)session->pid);
                        split->places[parent->rank].gave_up = true;
                        comm_split_fail(split, RMX_E_ABORTED, text);
                } else if (child) {
                        comm_member_give_up(child);
                }
        }
        session_send_ack(session, call);
}
