/* SPDX-License-Identifier: MIT */
/*
 * Replacing the executor of a GPU
 *
 * Its staging goes with it, and with that what other ranks have pushed there. So before it ends, each communicator with
 * a rank on its GPU is brought to a stand: all ranks have finished the same last request and none has begun the next
 * (gpu/hip/hold.c says how an executor does its part).
 *
 *   1. The executor says DRAIN. COMM_HOLD goes to all executors of its communicators: begin nothing more.
 *   2. Each answers with levels: what its ranks have begun last, and whether that is settled. The farthest rank decides
 *      how far all have to go (COMM_HOLD with upto). Going on takes lines of other communicators along, which may be
 *      held too; so a communicator that stood may have to go on again, and it is all of them, of all executors that
 * want to end, that have to stand at one time. Then these are told to go. From here on (HANDED) nobody is told to go
 * on, and so nothing moves: a line that stands may be followed, but never passed.
 *   3. The process ends. Its communicators lose nothing: nobody is told anything, requests are rung and wait.
 *   4. A new process says HELLO. The others map its pool and begin anew with clean staging and channel counters
 *      (COMM_MOVE); it gets the communicators as new ones (COMM_ATTACH) that begin with the next sequence. Neither of
 *      them pushes before all have done so.
 *   5. COMM_RELEASE to the others; the new one gets the bell areas, and begins in each with the first line that nobody
 *      has served. It could not be given them earlier: it would take lines.
 *
 * A communicator over several nodes is none of this. What its ranks there have pushed nobody could bring to a stand
 * from here, and so it is lost as soon as one of its executors wants to end (RMX_E_LOST).
 *
 * What can go wrong. A rank never comes to the request that another one has begun: after STAND_US its communicator is
 * ended, as if the executor had died, and the others stand without it. Should that take too long, the executor's bound
 * ends the waiting, it goes without being told, and all its communicators that were not handed over are lost.
 * Another executor dies: the communicator is lost, and its abort ends the stand. An executor loses its connection: it
 * is told again what it has to do; each message may come twice. No new process comes: after AWAY_NS the communicator is
 * lost.
 *
 * This daemon is restarted. Executors that want to end say so again. Up to point 2 that is all: nothing is recorded,
 * what is held is let go (the inventory tells), and all begins anew. From there on the successor goes on with the
 * stand. It is recorded before anybody is told to go: first in each communicator where it stands, then, as the word
 * that commits these, in each executor's record which instance may end. Who is away follows from that. What has been
 * done for the next executor the inventory tells: one that holds such a communicator is the process that is still to
 * end, and one that has it without holding it has been given it anew. To begin anew is said once more to the others,
 * which changes nothing while all are held. The record is erased before the first one is released.
 */
#include "daemon/handover.h"

#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define AWAY_NS  (UINT64_C(60) * 1000000000u)
#define STAND_US 1500000 /* below LINK_DRAIN_BOUND of executor/link.c, with time to end what does not stand */

static bool in_force(const struct comm *comm) {
        return comm->state == COMM_READY && !comm->code && !comm->aborting;
}

/* A rank that still makes requests. */
static bool counts(const struct comm_member *member) {
        return member->session && !member->leaving;
}

static bool draining(const struct executor_link *link) {
        return link->draining && executor_link_connected(link);
}

static uint64_t draining_mask(const struct manager *manager) {
        const struct executor_link *link;
        uint64_t mask = 0;

        DL_FOREACH(manager->links, link)
                mask |= draining(link) ? executor_link_mask(link) : 0;
        return mask;
}

static void push(struct comm *comm, uint64_t mask, enum executor_op_kind kind) {
        struct executor_link *link;

        DL_FOREACH(comm->manager->links, link) {
                if (mask & executor_link_mask(link))
                        executor_op_push(link, kind, comm->number, 0);
        }
}

/* ---- coming to a stand ------------------------------------------------------------------------------------------- */

static void hold(struct comm *comm) {
        comm->handover = (struct handover){.state = HANDOVER_HOLDING};
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                comm->members[r].settled = comm->members[r].level_known = false;
        push(comm, comm_needed(comm), EXECUTOR_OP_COMM_HOLD);
}

/* Nothing has been pushed that was not pulled. */
static bool empty(const struct comm *comm) {
        for (uint32_t a = 0; a < comm->n_ranks; a++)
                for (uint32_t b = 0; b < comm->n_ranks; b++) {
                        const struct comm_member *from = &comm->members[a], *to = &comm->members[b];

                        if (a != b && counts(from) && counts(to) &&
                            (!from->chunks || !to->chunks || from->chunks[b] != to->chunks[comm->n_ranks + a]))
                                return false;
                }
        return true;
}

/* All at the same request, and nothing after it is begun. */
static bool stands(const struct comm *comm) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];

                if (counts(member) &&
                    (!member->settled || !comm->handover.has_upto || member->taken != comm->handover.upto))
                        return false;
                if (!counts(member) && member->leaving && comm->handover.has_upto &&
                    (int32_t)(member->last_sequence - comm->handover.upto) > 0) /* see catch_up */
                        return false;
        }
        return empty(comm);
}

/* One whose end would break something now. */
static bool needed(const struct comm *comm, uint64_t mask) {
        if (!(comm_needed(comm) & mask) || comm->code || comm->state == COMM_JOINING)
                return false;
        if (comm->state == COMM_ATTACHING) /* it will be answered soon, unless nobody knows of it */
                return (comm->attachment.known & mask) != 0;
        if (comm->handover.state == HANDOVER_HANDED) /* it stands, unless it is about to go on */
                return comm->handover.asked || comm->handover.moved || comm->attachment.sent & comm->handover.away;
        return comm->aborting || comm->handover.state != HANDOVER_HOLDING || !stands(comm);
}

/* Those behind go on to where the farthest rank is. */
static void catch_up(struct comm *comm, uint64_t mask) {
        uint64_t behind = 0;
        bool farther = false;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];
                /* What a rank that has left rang last may be over for it, and stand in the staging of the others. */
                const uint32_t at = counts(member) ? member->taken : member->last_sequence;

                if ((counts(member) ? !member->level_known : !member->leaving) ||
                    (comm->handover.has_upto && (int32_t)(at - comm->handover.upto) <= 0))
                        continue;
                comm->handover.upto = at;
                comm->handover.has_upto = farther = true;
        }
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];
                struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);

                if (counts(member) && link && member->level_known && member->taken != comm->handover.upto)
                        behind |= executor_link_mask(link);
        }
        push(comm, farther ? behind : behind & mask & ~comm->handover.asked, EXECUTOR_OP_COMM_HOLD);
        comm->handover.asked = farther ? behind : comm->handover.asked | (behind & mask);
}

void handover_left(struct comm *comm) {
        if (comm->handover.state == HANDOVER_HOLDING)
                catch_up(comm, 0);
}

static bool chunks_take(const struct comm *comm, struct comm_member *member,
                        const Railmux__Executor__RankLevel *level) {
        if (level->n_pushed != comm->n_ranks || level->n_pulled != comm->n_ranks)
                return false;
        if (!member->chunks)
                member->chunks = calloc(2 * (size_t)comm->n_ranks, sizeof(*member->chunks));
        if (!member->chunks)
                return false; /* without memory it does not stand */
        memcpy(member->chunks, level->pushed, comm->n_ranks * sizeof(*member->chunks));
        memcpy(member->chunks + comm->n_ranks, level->pulled, comm->n_ranks * sizeof(*member->chunks));
        return true;
}

void handover_level(struct executor_link *link, const Railmux__Executor__CommLevel *level) {
        struct comm *comm = manager_comm(link->manager, level->comm);

        if (!comm || comm->handover.state != HANDOVER_HOLDING)
                return;
        for (size_t i = 0; i < level->n_levels; i++) {
                struct comm_member *member;

                if (level->levels[i]->rank >= comm->n_ranks)
                        continue;
                member = &comm->members[level->levels[i]->rank];
                if (manager_link_of_gpu(comm->manager, member->gpu) != link)
                        continue;
                member->taken = level->levels[i]->taken;
                member->settled = level->levels[i]->settled && chunks_take(comm, member, level->levels[i]);
                member->level_known = true;
        }
        catch_up(comm, executor_link_mask(link));
        handover_check(link->manager);
}

static void go(struct manager *manager, uint64_t mask) {
        struct executor_link *link;
        struct comm *comm;

        for (comm = manager->comms; comm; comm = comm->hh.next) {
                if (!(comm_needed(comm) & mask) || comm->handover.state == HANDOVER_NONE)
                        continue;
                if (comm->handover.state == HANDOVER_HOLDING)
                        comm->handover.away = comm->handover.asked = comm->handover.moved = 0;
                comm->handover.state = HANDOVER_HANDED;
                comm->handover.away |= comm_needed(comm) & mask;
                record_comm_stand(comm);
        }
        DL_FOREACH(manager->links, link) {
                if (!(mask & executor_link_mask(link)))
                        continue;
                link->leaving = link->instance;
                executor_link_record(link);
        }
        DL_FOREACH(manager->links, link) {
                if (mask & executor_link_mask(link) && !link->told_go)
                        executor_op_push(link, EXECUTOR_OP_DRAIN, 0, EXECUTOR_DRAIN_GO);
                if (mask & executor_link_mask(link))
                        link->told_go = true;
        }
}

/* One that is lost with an executor which wants to end. Its failure may free others. */
static struct comm *spanning(struct manager *manager, uint64_t mask) {
        struct comm *comm = manager->comms;

        while (comm && !(comm_needed(comm) & mask && in_force(comm) && comm_spans(comm)))
                comm = comm->hh.next;
        return comm;
}

void handover_check(struct manager *manager) {
        uint64_t mask = manager->on_device ? draining_mask(manager) : 0;
        struct executor_link *link;
        struct comm *comm;

        DL_FOREACH(manager->links, link)
                mask &= link->told_go ? ~executor_link_mask(link) : UINT64_MAX;
        if (!mask)
                return;
        while ((comm = spanning(manager, mask)))
                comm_broken(comm, 0, RMX_E_LOST, -1,
                            "one of its executors is being replaced, which it does not survive over several nodes");
        for (comm = manager->comms; comm; comm = comm->hh.next)
                if (comm_needed(comm) & mask && in_force(comm) && comm->handover.state == HANDOVER_NONE)
                        hold(comm);
        for (comm = manager->comms; comm; comm = comm->hh.next)
                if (needed(comm, mask))
                        return;
        go(manager, mask);
}

/* The executor goes soon whatever we say: one communicator must not cost the others theirs. */
static struct comm *in_the_way(struct manager *manager, uint64_t mask) {
        struct comm *comm = manager->comms;

        while (comm && !(comm_needed(comm) & mask && in_force(comm) && comm->handover.state == HANDOVER_HOLDING &&
                         !stands(comm)))
                comm = comm->hh.next;
        return comm;
}

static void clear_the_way(struct executor_link *link) {
        struct comm *comm;
        char text[96];

        snprintf(text, sizeof(text), "the executor of GPU %u was stopped, and not all ranks came to a stand",
                 link->first_gpu);
        while ((comm = in_the_way(link->manager, executor_link_mask(link)))) {
                comm->lost_gpu = (int32_t)link->first_gpu;
                comm_broken(comm, 0, RMX_E_LOST, -1, text);
        }
}

/* Others that drain, too, are told to go together with this one. */
static void stand_late(evutil_socket_t fd, short what, void *data) {
        struct executor_link *late = data, *link;

        (void)fd, (void)what;
        if (!draining(late) || late->told_go)
                return;
        DL_FOREACH(late->manager->links, link) {
                if (draining(link) && !link->told_go)
                        clear_the_way(link);
        }
        handover_check(late->manager);
}

/* Without memory for it the executor's bound ends all. */
static void expect_stand(struct executor_link *link) {
        const struct timeval bound = {.tv_sec = STAND_US / 1000000, .tv_usec = STAND_US % 1000000};

        if (!link->stand_event)
                link->stand_event = evtimer_new(link->manager->base, stand_late, link);
        if (!link->stand_event || evtimer_add(link->stand_event, &bound) < 0)
                log_warning("no memory for a timer: communicators that do not stand may cost others theirs");
}

void handover_ask(struct executor_link *link) {
        executor_op_push(link, EXECUTOR_OP_DRAIN, 0, EXECUTOR_DRAIN_ASK);
        if (!link->manager->on_device) /* it does not say so itself */
                handover_begin(link);
}

void handover_begin(struct executor_link *link) {
        if (link->draining && link->told_go) /* it may not have heard it */
                executor_op_push(link, EXECUTOR_OP_DRAIN, 0, EXECUTOR_DRAIN_GO);
        if (link->draining)
                return;
        link->draining = true;
        link->told_go = false;
        if (link->manager->on_device)
                expect_stand(link);
        handover_check(link->manager);
}

/* Some communicator stands for a process that is away: nobody may be told to go on. */
bool handover_any(const struct manager *manager) {
        for (const struct comm *comm = manager->comms; comm; comm = comm->hh.next)
                if (comm->handover.state == HANDOVER_HANDED)
                        return true;
        return false;
}

/* Those that waited for that. */
static void hold_again(struct manager *manager) {
        for (struct comm *comm = manager->comms; comm; comm = comm->hh.next)
                if (comm->handover.state == HANDOVER_HOLDING)
                        push(comm, comm_needed(comm), EXECUTOR_OP_COMM_HOLD);
}

bool handover_leaves(struct comm *comm, struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);

        if (comm->handover.state != HANDOVER_HANDED || !(comm->handover.away & mask) || comm->handover.moved & mask)
                return false;
        link->draining = link->told_go = true;
        return true;
}

/* No stand waits for the successors of these any more. */
static void forget_leaving(struct manager *manager) {
        struct executor_link *link;
        uint64_t away = 0;

        for (const struct comm *comm = manager->comms; comm; comm = comm->hh.next)
                away |= comm->handover.state == HANDOVER_HANDED ? comm->handover.away : 0;
        DL_FOREACH(manager->links, link) {
                if (!link->leaving || link->leaving == link->instance || away & executor_link_mask(link))
                        continue;
                link->leaving = 0;
                executor_link_record(link);
        }
}

void handover_arrived(struct executor_link *link) {
        forget_leaving(link->manager);
}

void handover_adopt(struct comm *comm) {
        const struct state_comm *from = &state_at(comm->manager->state, comm->state_slot)->comm;
        /* Partner: the store in record_comm_stand() of the predecessor. */
        uint64_t stand = atomic_load_explicit(&from->stand, memory_order_acquire), away = 0;
        const struct executor_link *link;

        if (!(stand & STATE_STANDS))
                return;
        DL_FOREACH(comm->manager->links, link)
                away |= link->leaving ? executor_link_mask(link) & comm_needed(comm) : 0;
        if (away && !comm->code && comm->manager->on_device)
                comm->handover = (struct handover){
                        .state = HANDOVER_HANDED, .upto = (uint32_t)stand, .has_upto = true, .away = away};
        else /* nobody had been told to go */
                record_comm_stand(comm);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

bool handover_survives(struct comm *comm, const struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);

        return comm->handover.state == HANDOVER_HANDED && comm->handover.away & mask && !(comm->handover.moved & mask);
}

bool handover_blocks(const struct session_ring *ring) {
        const struct comm_member *member;

        DL_FOREACH(ring->session->members, member) {
                const struct comm *comm = member->comm;
                struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);

                if (member->gpu == ring->gpu && comm->handover.state == HANDOVER_HANDED && link &&
                    comm->handover.away & executor_link_mask(link))
                        return true;
        }
        return false;
}

/* Areas that new executors were not given. */
static void rings_go_on(struct comm *comm, uint64_t away) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];
                struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);
                struct session_ring *ring = member->session ? session_ring_find(member->session, member->gpu) : NULL;

                if (ring && link && away & executor_link_mask(link))
                        executor_attach_ring(ring);
        }
}

void handover_moved(struct comm *comm, uint64_t mask) {
        uint64_t away = comm->handover.away;

        if (comm->handover.state != HANDOVER_HANDED)
                return;
        comm->handover.moved |= mask;
        if (comm_needed(comm) & ~comm->handover.moved)
                return;
        comm->handover = (struct handover){0};
        record_comm_stand(comm);
        forget_leaving(comm->manager);
        push(comm, comm_needed(comm) & ~away, EXECUTOR_OP_COMM_RELEASE);
        rings_go_on(comm, away);
        if (!handover_any(comm->manager))
                hold_again(comm->manager);
        comm_log(comm, LOG_LEVEL_INFO, "goes on with a new executor");
        handover_check(comm->manager); /* for the next one that waits to end */
}

static void go_on(struct comm *comm) {
        uint64_t ask = comm_needed(comm) & ~comm->handover.away & ~comm->handover.asked;

        if (comm->handover.state != HANDOVER_HANDED || !comm_device_ready(comm))
                return;
        reach_settle(comm);
        comm_device_acquaint(comm); /* those that have it, too: they may not have been told yet (comm_device_keeps) */
        comm->handover.asked |= ask;
        push(comm, ask, EXECUTOR_OP_COMM_MOVE);
        executor_attach_comm(comm);
}

void handover_retry(struct manager *manager) {
        for (struct comm *comm = manager->comms; comm; comm = comm->hh.next)
                go_on(comm);
}

void handover_join(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);

        for (struct comm *comm = link->manager->comms; comm; comm = comm->hh.next) {
                if (!(comm_needed(comm) & mask))
                        continue;
                if (comm->handover.state == HANDOVER_HOLDING)
                        executor_op_push(link, EXECUTOR_OP_COMM_HOLD, comm->number, 0);
                else if (comm->handover.state == HANDOVER_HANDED && !(comm->handover.away & mask))
                        comm->handover.asked &= ~mask; /* it may not have heard of it */
                else if (comm->handover.state == HANDOVER_HANDED && comm->attachment.acked & mask)
                        handover_moved(comm, mask); /* a predecessor has given it to the new process */
        }
        handover_retry(link->manager);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void handover_forget(struct comm *comm) {
        uint64_t away = comm->handover.state == HANDOVER_HANDED ? comm->handover.away : 0;

        if (comm->manager->stopping)
                return; /* a successor goes on with it */
        comm->handover = (struct handover){0};
        if (!away)
                return;
        record_comm_stand(comm);
        forget_leaving(comm->manager);
        rings_go_on(comm, away);
        if (!handover_any(comm->manager))
                hold_again(comm->manager);
}

void handover_overdue(struct manager *manager) {
        uint64_t now_ns = clock_now_ns();
        struct executor_link *link;
        char reason[64];

        DL_FOREACH(manager->links, link) {
                uint64_t mask = executor_link_mask(link);

                if (executor_link_connected(link) || now_ns - link->gone_ns < AWAY_NS)
                        continue;
                snprintf(reason, sizeof(reason), "the executor of GPU %u was stopped", link->first_gpu);
                for (struct comm *comm = manager->comms; comm; comm = comm->hh.next) {
                        if (!(comm_needed(comm) & mask) || comm->handover.state != HANDOVER_HANDED)
                                continue;
                        comm->lost_gpu = (int32_t)link->first_gpu;
                        comm_broken(comm, mask, RMX_E_LOST, -1, reason);
                }
        }
}
