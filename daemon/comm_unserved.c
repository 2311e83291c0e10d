/* SPDX-License-Identifier: MIT */
/*
 * GPUs that are served no more.
 *
 * After a restart with fewer GPUs there are executors for the others, which a predecessor has started, and
 * communicators with ranks on them. These are over, but not before those executors have ended: until then their kernels
 * may write to the memory of all ranks. So leaves, the ends of buffers and staging wait for that, too. The executors
 * are told to end when they connect (executor_hello.c), and their processes are watched; of those that never come it is
 * taken for granted after a while. Their records stay until then, for there may be another restart.
 */
#include "daemon/comm_unserved.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/state.h"
#include "railmux/railmux.h"
#include <stdbool.h>
#include <stdio.h>
#include <utlist.h>

uint64_t comm_unserved(const struct comm *comm) {
        uint64_t gpus = 0;

        for (uint32_t r = 0; comm->manager->unserved && r < comm->n_ranks; r++)
                if (!comm->members[r].away && comm->members[r].gpu < MANAGER_LINKS_MAX)
                        gpus |= UINT64_C(1) << comm->members[r].gpu;
        return gpus & comm->manager->unserved;
}

/* Ranks that wait to leave, and for nobody else (all that is needed has answered). true: comms have been freed. */
static bool comm_let_go(struct comm *comm) {
        const struct manager *manager = comm->manager;
        const unsigned int n = HASH_COUNT(manager->comms);

        if (comm_unserved(comm))
                return false;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                comm_member_left(&comm->members[r], 0);
                if (HASH_COUNT(manager->comms) != n)
                        return true;
        }
        return false;
}

void comm_unserved_ended(struct manager *manager, uint64_t mask) {
        struct session *session, *next_session;
        struct buffer *buffer, *next_buffer;
        struct comm *comm, *next;
        unsigned int n;

        mask &= manager->unserved;
        if (!mask)
                return;
        for (uint32_t gpu = 0; gpu < MANAGER_LINKS_MAX; gpu++)
                if (mask >> gpu & 1)
                        state_remove(manager->state, manager->unserved_slot[gpu]);
        manager->unserved &= ~mask;
        comm_device_leftovers(manager, mask, 0);
again:
        n = HASH_COUNT(manager->comms);
        for (comm = manager->comms; comm; comm = next) {
                next = comm->hh.next;
                comm_aborted(comm, 0);
                if (HASH_COUNT(manager->comms) != n || comm_let_go(comm))
                        goto again;
        }
        HASH_ITER(hh, manager->sessions, session, next_session) {
                HASH_ITER(hh, session->buffers, buffer, next_buffer) {
                        if (!buffer_needed(buffer))
                                buffer_retired(buffer, 0);
                }
        }
        manager_place_later(manager); /* what has waited for them */
}

void comm_unserved_adopted(struct manager *manager) {
        struct comm *comm, *next;
        char reason[64];
        unsigned int n;

again:
        n = HASH_COUNT(manager->comms);
        for (comm = manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (comm->lost_gpu < 0 || comm->code || comm->aborting)
                        continue;
                snprintf(reason, sizeof(reason), "GPU %d is served no more", (int)comm->lost_gpu);
                comm_abort(comm, RMX_E_LOST, -1, reason, 0);
                if (HASH_COUNT(manager->comms) != n)
                        goto again;
        }
}

/* GPUs whose executors have been told to end, and are seen to do so (executor_hello.c has a bound). */
static uint64_t dismissed(const struct manager *manager) {
        const struct executor_link *link;
        uint64_t gpus = 0;

        DL_FOREACH(manager->strangers, link) {
                if (link->dismissed && link->pidfd >= 0)
                        gpus |= UINT64_C(1) << link->first_gpu;
        }
        return gpus;
}

void comm_unserved_overdue(struct manager *manager) {
        comm_unserved_ended(manager, ~dismissed(manager));
}
