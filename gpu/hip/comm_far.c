/* SPDX-License-Identifier: MIT */
/*
 * Communicators over several nodes
 *
 * To ranks elsewhere each rank here has a wire, which stands in its entry in place of their staging; a proxy for each
 * strand works on it from before the entry is there until the communicator ends.
 *
 * The end. What the proxy works on is not all ours: the net area belongs to the executor, which unmaps it when the
 * communicator has been detached. So whatever else goes wrong with a detach, or went wrong before it, it begins with
 * taking the wires away from the proxies. Requests that are finished here may have chunks in the wires that others
 * still wait for, as kernels do not wait for proxies; so the control thread itself looks once more. Wires hold more
 * than may be on its way at a time. For the rest it waits until the others have taken something, but not for long:
 * nobody knows whether they are still there, and all other communicators wait meanwhile.
 *
 * Leaving. A rank elsewhere that has left has finished all that it had called, but what it sent last may still be on
 * its way. So receives from it are given up only after a while, the same as on the host.
 */
#include "gpu/hip/comm_private.h"

#include <errno.h>
#include <time.h>

#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/wires.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "util/clock.h"

#define PAUSE_NS 50000
#define PAUSES   100u /* with what a pause takes longer than it is told to, about 10 ms */

static void wires_fill(struct plane *plane, struct comm *comm, const struct plane_comm *what) {
        uint32_t n = 0;

        for (uint32_t rank = 0; rank < what->n_ranks; rank++)
                for (uint32_t p = 0; member_here(what, rank) && p < what->n_ranks; p++) {
                        uint64_t device;
                        struct wire *wire;

                        if (!what->members[p].far)
                                continue;
                        wire = slabs_take(plane, &device);
                        for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                                struct wire_end *end = &comm->wires[k]->end[n];

                                end->rank = rank;
                                end->peer = p;
                                end->wire = wire;
                                end->device = device;
                        }
                        n++;
                }
}

static void wires_step_all(const struct comm *comm) {
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                (void)wires_step(comm->wires[k]);
}

static bool wires_pending_any(const struct comm *comm) {
        bool pending = false;

        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                pending = pending || wires_pending(comm->wires[k]);
        return pending;
}

int comm_far_attach(struct plane *plane, struct comm *comm, const struct plane_comm *what, char *error) {
        uint8_t node[STAGING_RANKS_MAX];
        uint32_t n_here = 0, n_far = 0;
        struct plan_nodes nodes;
        int r = 0;

        if (what->code)
                return 0; /* it only answers */
        for (uint32_t rank = 0; rank < what->n_ranks; rank++) {
                node[rank] = what->members[rank].node;
                n_here += member_here(what, rank);
                n_far += what->members[rank].far;
                comm->far |= (uint64_t)what->members[rank].far << rank;
        }
        if (!n_here || (!what->net && !n_far))
                return 0;
        if (!what->net || !n_far)
                return error_set(-EINVAL, error, "a net area, and ranks on other nodes, go together");
        if (plan_nodes_init(&nodes, what->n_ranks, node))
                return error_set(-EINVAL, error, "the communicator's nodes are not numbered without gaps");
        /* What is wrong with the area is said before memory is had for it, for which the kernel may be stopped. */
        for (uint32_t k = 0; !r && k < WIRE_STRANDS; k++)
                r = wires_new(what->net, what->n_ranks, &nodes, n_here * n_far, k, &comm->wires[k], error);
        if (!r)
                r = slabs_reserve(plane, n_here * n_far, error);
        if (r)
                return r;
        wires_fill(plane, comm, what);
        for (uint32_t k = 0; !r && k < WIRE_STRANDS; k++)
                r = proxy_add(&plane->proxy[k], comm->wires[k], error);
        return r;
}

void comm_far_rank(const struct comm *comm, uint32_t rank, struct table_rank *entry) {
        entry->far = comm->far;
        for (uint32_t p = 0; p < comm->n_ranks; p++)
                if (comm->far >> p & 1)
                        entry->peer[p] = wires_end(comm->wires[0], rank, p)->device;
}

void comm_far_stop(struct plane *plane, const struct comm *comm) {
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        bool worked = comm->wires[0] != NULL;

        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                worked = comm->wires[k] && proxy_remove(&plane->proxy[k], comm->wires[k]) && worked;
        if (!worked || plane->fault)
                return;
        wires_step_all(comm);
        for (uint32_t i = 0; i < PAUSES && wires_pending_any(comm); i++) {
                nanosleep(&pause, NULL);
                wires_step_all(comm);
        }
}

void comm_far_detach(struct plane *plane, struct comm *comm) {
        comm_far_stop(plane, comm);
        for (uint32_t i = 0; comm->wires[0] && i < comm->wires[0]->n_ends; i++)
                slabs_give(plane, comm->wires[0]->end[i].wire);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                comm->wires[k] = wires_free(comm->wires[k]);
}

void comm_far_leave(struct comm *comm, uint32_t rank) {
        comm->leaving |= UINT64_C(1) << rank;
        comm->leaving_ns = clock_now_ns();
}

int comm_far_tick(struct plane *plane, struct comm *comm) {
        struct shadow *shadow = &plane->tables.shadow;
        int r = 0;

        if (!comm->leaving || clock_now_ns() - comm->leaving_ns <= plane->left_ns)
                return 0;
        for (uint32_t p = 0; p < comm->n_ranks; p++)
                for (uint32_t i = 0; !r && (comm->leaving >> p & 1) && i < TABLE_RANKS; i++)
                        if (plane->ranks[i].comm == comm)
                                r = plane_changed(plane, shadow_rank_left(shadow, i, p), "a rank that has left", NULL);
        comm->leaving = 0;
        return r ? r : plane_commit(plane, NULL);
}

uint32_t comm_far_status(const struct comm *comm, const char **ret_why) {
        const struct wire_end *end = NULL;

        for (uint32_t k = 0; !end && k < WIRE_STRANDS; k++)
                end = comm->wires[k] ? wires_broken(comm->wires[k]) : NULL;
        if (!end)
                return 0;
        *ret_why = end->broken;
        return ring_status(RMX_E_LOST, (int32_t)end->peer);
}
