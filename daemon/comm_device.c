/* SPDX-License-Identifier: MIT */
/*
 * Staging on GPUs.
 *
 * Each executor of a GPU brings a pool of staging memory, which all other executors map. Which part of it belongs to
 * which rank is decided here, since several executors have to agree on it before the first of them attaches the comm.
 * (Ranks of other nodes have theirs there. What goes between nodes does not pass through pools, see comm_net.c.)
 *
 * Who writes into staging is not who owns it. So three things have to be waited for:
 *   - A comm is attached when all its executors are there: each has to know the others' pools before (PEER_ATTACH
 * stands in front of COMM_ATTACH in each executor's queue).
 *   - Staging of a comm that has gone is dealt out again when every executor that knew the comm has detached it, or has
 *     ended: until then its kernels may still write there (struct comm_leftover).
 *   - After a restart of this daemon executors may know comms of which only the predecessor knew. So no staging is
 *     dealt out before every executor of the predecessor is back, or has been away for long.
 *
 * An executor that ends as planned has its comms brought to a stand before (handover.c). One that dies takes its pool
 * with it, so all comms with a rank on that GPU are over: RMX_E_DEVICE_LOST for these ranks, RMX_E_LOST for the others.
 * The other executors still map the dead pool. When a new process comes with a new one, they have to let go of the old
 * one first; comms with a rank on that GPU are therefore detached and attached again with their error, which their
 * ranks go on to be answered with. Where ranks reach each other's memory this waits until all executors have ended the
 * comm (again, comm_device_ended), since to detach is to answer; and until then they hear of no new pool
 * (comm_device_keeps).
 */
#include "daemon/comm_device.h"

#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_unserved.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "gpu/plane.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#define DEVICE_BACK_NS  (UINT64_C(10) * 1000000000u) /* for the executors of a predecessor */
#define DEVICE_ABORT_NS (UINT64_C(4) * 1000000000u)  /* above PLANE_CALL_MS */
#define DEVICE_CLOSE_NS (UINT64_C(40) * 1000000000u) /* for one that ends: it waits for a GPU that stands still */
#define DEVICE_BUSY_US  10000

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static void comm_device_give(struct manager *manager, uint64_t number) {
        struct executor_link *link;

        DL_FOREACH(manager->links, link)
                pool_give(&link->pool, number);
}

/* Is an executor of the predecessor still to be waited for? */
static bool comm_device_early(const struct manager *manager) {
        const struct executor_link *link;

        if (clock_now_ns() - manager->started_ns > DEVICE_BACK_NS)
                return false;
        DL_FOREACH(manager->links, link) {
                if (link->adopted)
                        return true;
        }
        return manager->unserved != 0;
}

/* One that is going to end gets nothing new; but what waits for another one to be back goes on with it. */
static bool comm_device_complete(const struct comm *comm) {
        const bool handed = comm->handover.state == HANDOVER_HANDED;
        struct executor_link *link;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].away)
                        continue;
                link = manager_link_of_gpu(comm->manager, comm->members[r].gpu);
                if (!link && comm->code) /* its error is for the others */
                        continue;
                if (!link || !executor_link_connected(link) || (link->draining && (!handed || link->told_go)))
                        return false;
        }
        return true;
}

/* What the executor with the fewest workers wants. All ranks cut requests into parts by it, so it is settled once,
 * whoever serves them later. Over several nodes nobody knows, and all ranks use all lanes. */
static uint32_t comm_device_lanes(const struct comm *comm) {
        uint32_t least = UINT32_MAX;

        if (comm_spans(comm))
                return 0;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct executor_link *link = manager_link_of_gpu(comm->manager, comm->members[r].gpu);
                uint32_t workers = link->n_gpu_infos ? link->gpus[0].workers : 0; /* it serves this GPU alone */

                least = workers < least ? workers : least;
        }
        return plane_lanes(least);
}

int comm_device_place(struct comm *comm, char *text, size_t text_size) {
        uint64_t bytes = plane_staging_bytes(comm->n_ranks);

        if (comm->placed)
                return 0;
        if (!comm_device_complete(comm) || comm_device_early(comm->manager))
                return COMM_E_WAIT;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct comm_member *member = &comm->members[r];
                struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);
                int e = 0;

                if (!member->away && member->spare && link->pool.used + bytes > link->pool.bytes / 2)
                        e = POOL_E_FULL; /* what is left is for others */
                else if (!member->away)
                        e = pool_take(&link->pool, bytes, comm->number, &member->staging);
                if (!e)
                        continue;
                if (e == POOL_E_FULL)
                        snprintf(text, text_size,
                                 "GPU %u has no staging left for rank %u: %" PRIu64 " KiB are needed, %" PRIu64
                                 " of %" PRIu64 " KiB are in use",
                                 member->gpu, r, bytes / 1024, link->pool.used / 1024, link->pool.bytes / 1024);
                else
                        snprintf(text, text_size, "out of memory");
                comm_device_give(comm->manager, comm->number);
                return e == POOL_E_FULL ? COMM_E_LIMIT : COMM_E_RESOURCE;
        }
        comm->lanes = comm_device_lanes(comm);
        comm->placed = true;
        return 0;
}

bool comm_device_adopt(struct comm *comm, uint32_t rank) {
        struct comm_member *member = &comm->members[rank];
        struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);
        uint64_t bytes = plane_staging_bytes(comm->n_ranks);

        if (member->away)
                return true;
        if (!link) {
                if (!comm->code && comm->lost_gpu < 0)
                        comm->lost_gpu = (int32_t)member->gpu;
                return true;
        }
        return bytes && pool_take_at(&link->pool, member->staging, bytes, comm->number) == 0;
}

void comm_device_busy(struct comm *comm, uint64_t mask) {
        const struct timeval again = {.tv_usec = DEVICE_BUSY_US};

        attachment_forget(&comm->attachment, mask);
        comm->attachment.known &= ~mask;
        if (event_add(comm->manager->place_event, &again) < 0)
                log_warning("no memory for a timer: a communicator waits longer than it has to");
}

/* Does an executor still have a comm in which it may be using the pool that `other` had before? */
static bool comm_device_keeps(const struct executor_link *link, const struct executor_link *other) {
        const uint64_t mask = executor_link_mask(link);
        const struct comm *comm;

        for (comm = link->manager->comms; comm; comm = comm->hh.next)
                if (comm->again & mask && comm->attachment.sent & mask && comm_needed(comm) & executor_link_mask(other))
                        return true;
        return false;
}

/* Do all executors that a comm needs know, or may they hear, of each other's pools? */
static bool comm_device_may_meet(const struct comm *comm) {
        const uint64_t needed = comm_needed(comm);
        const struct executor_link *link, *other;

        if (!(needed & ~comm->attachment.sent) && comm->handover.state != HANDOVER_HANDED)
                return true; /* they have done so */
        DL_FOREACH(comm->manager->links, link) {
                if (!(needed & executor_link_mask(link)))
                        continue;
                DL_FOREACH(comm->manager->links, other) {
                        if (other != link && needed & executor_link_mask(other) &&
                            link->peers[other->index] != other->instance && comm_device_keeps(link, other))
                                return false;
                }
        }
        return true;
}

bool comm_device_ready(const struct comm *comm) {
        return comm->placed && comm_device_complete(comm) && comm_device_may_meet(comm);
}

void comm_device_gone(struct comm *comm) {
        struct manager *manager = comm->manager;
        struct comm_leftover *leftover;
        uint64_t mask;

        if (!manager->on_device || !comm->placed || manager->stopping)
                return;
        mask = (comm->attachment.known & comm_needed(comm) & ~comm_device_dead(manager)) | comm_unserved(comm);
        leftover = mask ? calloc(1, sizeof(*leftover)) : NULL;
        if (!leftover) { /* without memory: the executors are told in order, which is nearly as good */
                comm_device_give(manager, comm->number);
                return;
        }
        leftover->comm = comm->number;
        leftover->mask = mask;
        DL_APPEND(manager->leftovers, leftover);
}

uint32_t comm_device_code(const struct comm *comm, const struct executor_link *link, int32_t *ret_rank) {
        uint32_t code = comm->code;

        *ret_rank = comm->code ? comm->failed_rank : -1;
        if (!code && comm->aborting) {
                code = comm->abort_code;
                *ret_rank = comm->abort_rank;
        }
        if (code == RMX_E_LOST && comm->lost_gpu >= 0 && (uint32_t)comm->lost_gpu - link->first_gpu < link->n_gpus)
                code = RMX_E_DEVICE_LOST;
        return code;
}

/* One comm that may go on. true: it went wrong, and comms have been freed. (One of a split over several nodes stays
 * until that has been decided on.) */
static bool comm_device_go_on(struct comm *comm) {
        const struct manager *manager = comm->manager;
        const unsigned int n = HASH_COUNT(manager->comms);
        char text[160];
        int r;

        if (comm->state == COMM_JOINING)
                return false;
        if (comm->state == COMM_ATTACHING) {
                r = comm_device_place(comm, text, sizeof(text));
                if (r && r != COMM_E_WAIT) {
                        comm_join_fail(comm, r == COMM_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY, "%s", text);
                        return HASH_COUNT(manager->comms) != n;
                }
        }
        if (comm->handover.state != HANDOVER_HANDED)
                executor_attach_comm(comm);
        return false;
}

void comm_device_retry(struct manager *manager) {
        struct comm *comm, *next;

again:
        for (comm = manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (comm_device_go_on(comm))
                        goto again;
        }
        handover_retry(manager);
        handover_check(manager);
}

/* ---- executors come and go --------------------------------------------------------------------------------------- */

uint64_t comm_device_dead(const struct manager *manager) {
        const struct executor_link *link;
        uint64_t mask = 0;

        DL_FOREACH(manager->links, link) {
                if (link->dead)
                        mask |= executor_link_mask(link);
        }
        return mask;
}

/* Has it had the time to end a comm that is being ended? Its time begins when it has been told and is done with what it
 * was told before, which others may have made much of; until then it has to get on with that. One that has come back is
 * told anew, after whatever else it has to be told, and the same goes for that. */
static bool comm_device_slow(const struct executor_link *link, const struct comm *comm, uint64_t now_ns) {
        uint64_t limit_ns = link->draining                  ? DEVICE_CLOSE_NS
                            : link->state == EXECUTOR_READY ? DEVICE_ABORT_NS
                                                            : DEVICE_BACK_NS;
        uint64_t since_ns = comm->abort_ns > link->progress_ns ? comm->abort_ns : link->progress_ns;
        const struct executor_op *told;

        if (now_ns <= since_ns || now_ns - since_ns <= limit_ns)
                return false;
        told = executor_op_pending(link, EXECUTOR_OP_COMM_ABORT, comm->number);
        if (told)
                since_ns = told->turn_ns;
        else if (executor_op_queued(link, EXECUTOR_OP_COMM_ABORT, comm->number))
                since_ns = link->heard_ns;
        return now_ns > since_ns && now_ns - since_ns > limit_ns;
}

static void comm_device_kill(struct manager *manager) {
        uint64_t now_ns = clock_now_ns(), guilty = 0;
        struct executor_link *link;
        struct comm *comm;

        for (comm = manager->comms; comm; comm = comm->hh.next) {
                if (!comm->aborting)
                        continue;
                DL_FOREACH(manager->links, link) {
                        if (comm_needed(comm) & ~comm->abort_acked & executor_link_mask(link) &&
                            comm_device_slow(link, comm, now_ns))
                                guilty |= executor_link_mask(link);
                }
        }
        DL_FOREACH(manager->links, link) {
                if (!(guilty & executor_link_mask(link)) || link->pidfd < 0)
                        continue;
                log_fields(LOG_LEVEL_ERROR, (const char *const[]){"EXECUTOR", link->name, NULL},
                           "executor %s (pid %d) does not end a communicator; killing it", link->name, (int)link->pid);
                syscall(SYS_pidfd_send_signal, link->pidfd, SIGKILL, NULL, 0); /* its pidfd tells the rest */
        }
}

void comm_device_overdue(struct manager *manager) {
        struct executor_link *link;
        char reason[64];

        comm_device_kill(manager);
        handover_overdue(manager);
        if (clock_now_ns() - manager->started_ns <= DEVICE_BACK_NS)
                return;
        comm_unserved_overdue(manager);
        DL_FOREACH(manager->links, link) {
                if (!link->adopted || executor_link_connected(link))
                        continue;
                snprintf(reason, sizeof(reason), "the executor of GPU %u has not come back", link->first_gpu);
                comm_device_lost(link, reason);
        }
}

void comm_device_leftovers(struct manager *manager, uint64_t mask, uint64_t only_comm) {
        struct comm_leftover *leftover, *tmp;

        DL_FOREACH_SAFE(manager->leftovers, leftover, tmp) {
                if (only_comm && leftover->comm != only_comm)
                        continue;
                leftover->mask &= ~mask;
                if (leftover->mask)
                        continue;
                comm_device_give(manager, leftover->comm);
                DL_DELETE(manager->leftovers, leftover);
                free(leftover);
        }
}

/* It is over, or (one of a split over several nodes, which others may be about to have) has its error from now on. */
static void comm_device_break(struct comm *comm, const struct executor_link *link, const char *reason) {
        uint64_t mask = executor_link_mask(link);

        if (comm->code || comm->aborting) { /* it ends for another reason */
                comm_aborted(comm, mask);
                return;
        }
        comm->lost_gpu = (int32_t)link->first_gpu;
        comm_abort(comm, RMX_E_LOST, -1, reason, mask);
}

void comm_device_lost(struct executor_link *link, const char *reason) {
        struct manager *manager = link->manager;
        uint64_t mask = executor_link_mask(link);
        struct comm *comm, *next;
        unsigned int n;

        if (link->dead)
                return;
        link->dead = true;
        link->adopted = false;
again:
        n = HASH_COUNT(manager->comms);
        for (comm = manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (!(comm_needed(comm) & mask) || comm->state == COMM_JOINING || handover_survives(comm, link))
                        continue;
                if (comm->state == COMM_ATTACHING && !comm->attachment.known)
                        continue; /* nobody knows of it: it waits for the next one */
                if (comm->state == COMM_ATTACHING)
                        comm_join_fail(comm, RMX_E_DEVICE_LOST, "%s", reason);
                if (HASH_COUNT(manager->comms) == n)
                        comm_device_break(comm, link, reason);
                if (HASH_COUNT(manager->comms) != n) /* those of a split have gone with it */
                        goto again;
        }
        reach_lost(link); /* after the aborts, which are waited for, and before anything that its successor is in */
        comm_device_leftovers(manager, mask, 0);
        manager_place_later(manager);
        handover_check(manager); /* others may have waited for its end */
}

/* The executor lets go of a comm that it is to have again, with its error, when all are there. */
static void comm_device_again(struct comm *comm, struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);

        if (!(comm->attachment.sent & mask))
                return;
        executor_op_push(link, EXECUTOR_OP_COMM_DETACH, comm->number, 0);
        attachment_forget(&comm->attachment, mask);
}

void comm_device_ended(struct comm *comm) {
        struct executor_link *link;

        if (!comm->again)
                return;
        DL_FOREACH(comm->manager->links, link) {
                if (comm->again & executor_link_mask(link))
                        comm_device_again(comm, link);
        }
        comm->again = 0;
        manager_place_later(comm->manager);
}

/* Noted before it is said: saying it may end the connection, and then it has not been said. */
static void comm_device_introduce(struct executor_link *link, const struct executor_link *other) {
        const bool known = link->peers[other->index] == other->instance;

        link->peers[other->index] = other->instance;
        if (!known)
                executor_op_push(link, EXECUTOR_OP_PEER_ATTACH, other->index, 0);
}

/* One that could not map another's pool tries again for each comm that needs it. */
void comm_device_acquaint(const struct comm *comm) {
        const bool moves = comm->handover.state == HANDOVER_HANDED; /* for those that have it, too */
        const uint64_t needed = comm_needed(comm);
        struct executor_link *link, *other;

        DL_FOREACH(comm->manager->links, link) {
                const uint64_t mask = executor_link_mask(link);

                if (!(needed & mask) || (!moves && comm->attachment.sent & mask) || !executor_link_connected(link))
                        continue;
                DL_FOREACH(comm->manager->links, other) {
                        if (other != link && needed & executor_link_mask(other) && executor_link_connected(other))
                                comm_device_introduce(link, other);
                }
        }
}

void comm_device_join(struct executor_link *link, bool fresh) {
        struct manager *manager = link->manager;
        uint64_t mask = executor_link_mask(link);
        struct executor_link *other;
        struct comm *comm;

        for (comm = manager->comms; comm; comm = comm->hh.next) {
                if (comm->state == COMM_JOINING || !(comm_needed(comm) & mask) || (!comm->code && !comm->aborting))
                        continue;
                comm->again |= fresh ? UINT64_MAX : mask; /* it may have been away when another died */
                /* To detach is to answer what others may still be reaching. */
                if (!comm->aborting || !comm->reach_bytes)
                        comm_device_ended(comm);
        }
        DL_FOREACH(manager->links, other) {
                if (other == link || !executor_link_connected(other))
                        continue;
                if (!comm_device_keeps(link, other))
                        comm_device_introduce(link, other);
                if (!comm_device_keeps(other, link))
                        comm_device_introduce(other, link);
        }
        manager_place_later(manager);
}

void comm_device_detached(struct executor_link *link, uint64_t comm) {
        comm_device_leftovers(link->manager, executor_link_mask(link), comm);
}

void comm_device_settle(struct executor_link *link) {
        uint64_t mask = executor_link_mask(link);
        struct comm_leftover *leftover, *tmp;

        DL_FOREACH_SAFE(link->manager->leftovers, leftover, tmp) {
                if (leftover->mask & mask && !executor_op_queued(link, EXECUTOR_OP_COMM_DETACH, leftover->comm))
                        comm_device_leftovers(link->manager, mask, leftover->comm);
        }
}

void comm_device_free_leftovers(struct manager *manager) {
        struct comm_leftover *leftover, *tmp;

        DL_FOREACH_SAFE(manager->leftovers, leftover, tmp) {
                DL_DELETE(manager->leftovers, leftover);
                free(leftover);
        }
}
