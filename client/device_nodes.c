/* SPDX-License-Identifier: MIT */
/*
 * Several nodes
 *
 * The executors carry out any request over several nodes, but what they do inside a node they do with the few blocks
 * that are resident, step by step. The ranks' own kernels take 5 us there for 1 MB, where a plan of the executors takes
 * hundreds. So an all_reduce is three requests, one after the other on the caller's stream: a reduce_scatter among the
 * ranks of each node, which they exchange (device_exchange.c); an all_reduce of each piece among the ranks that have
 * the same one, one on each node, by the executors; an all_gather in the node. For this the communicator has two of its
 * own, which come of splits: `local` and `across`. Other operations are made of their requests, too: of what, says
 * device_nodes_put.c.
 *
 * Where each node has one rank there is nothing to do inside. But three ranks and more send less with a reduce_scatter
 * and an all_gather than if each sent everything to all, and the executors have the large chunks for these that sums
 * which are passed on do not go by. So from some size on it is those two, on the communicator itself; and also between
 * the nodes of the three requests above.
 *
 * Sums of a node are rounded to the type before they go to others; so a sum of types that round is that of the rounded
 * sums of the nodes, in their order. (What executors do as a whole keeps such sums in float32.)
 *
 * Which requests these are is the same on all ranks, for the reason that device_exchange.c gives: operation, reduction
 * and size decide, and pieces have to be equal and of whole units of 16 bytes; also what the ranks have told each other
 * at the join: that all want it, with the same version of this, and that all nodes exchange; and how ranks are
 * numbered. Nodes with different numbers of ranks, or ranks that share a GPU, have none of it. If ranks call different
 * things of which one is such a request, they do not meet, and wait until one of them gives up, where executors would
 * have told them.
 *
 * For the order of the communicator's requests such a one is a launch with a number, as an exchange. Its parts have
 * none: nobody else makes requests of those communicators.
 *
 * Failure. When a part fails on a rank those behind it do nothing there (client_gpu_bell.gate): what that rank has is
 * no part of a result, and who waits for it goes on waiting until it hears of the failure. So a rank for which all
 * parts end well has the result, as if it were one request. When a rank or a node is lost the daemon says so of the
 * whole, to all its ranks, as of any communicator; each then has its parts ended, since ranks that wait in one may be
 * in good health otherwise. What is found in one of the others only ends the whole: of calls that do not match its
 * other ranks hear so from the daemon, which is told (CommAbort.status), of anything else that it was aborted. A part
 * that has failed is never used again, whatever it was, so the whole is over, too. And so it is when a part cannot be
 * put on the stream while others are there: the parts of a reduce_scatter are alike, so a second try could meet those
 * that other ranks wait with in the first.
 */
#include "client/device_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_exchange.h"
#include "client/device_gather.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/session.h"
#include "ring/line.h"
#include "util/clock.h"

#define NAME_BYTES 64u
#define CAUSE_NS   UINT64_C(1000000000) /* in which the daemon says why a part was ended */
#define LEAVE_NS   UINT64_C(300000000)  /* how long the daemon has for each that a join leaves behind */

/* ---- join -------------------------------------------------------------------------------------------------------- */
/* How many ranks each node has, 0 if that is not the same. */
static uint32_t ranks_of_each(const struct rmx_comm *comm) {
        uint32_t count[COMM_RANKS_MAX] = {0}, each;

        if (comm->n_placed != comm->n_ranks)
                return 0;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
                if (comm->node[rank] >= COMM_RANKS_MAX)
                        return 0;
                count[comm->node[rank]]++;
        }
        each = count[comm->node[0]];
        for (uint32_t node = 0; node < COMM_RANKS_MAX; node++)
                if (count[node] && count[node] != each)
                        return 0;
        return each;
}

/* The rank's place among those of its node. */
static uint32_t place_of(const struct rmx_comm *comm, uint32_t rank) {
        uint32_t place = 0;

        for (uint32_t r = 0; r < rank; r++)
                place += comm->node[r] == comm->node[rank];
        return place;
}

static bool in_rows(const struct rmx_comm *comm, uint32_t each) {
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                if (comm->node[rank] != comm->node[rank - rank % each])
                        return false;
        return true;
}

/* What each rank says of what it can do. */
struct word {
        uint64_t min, max;
};

/* *agreed: this rank's word, and then what holds for all; max 0: some rank cannot. */
static int agree(struct rmx_comm *comm, const struct device_gather *how, struct word *agreed) {
        struct word *words = how->memory;
        int r;

        _Static_assert(COMM_RANKS_MAX * sizeof(*words) <= CLIENT_GPU_OWN_BYTES, "they fit");
        memset(words, 0, comm->n_ranks * sizeof(*words));
        words[comm->rank] = *agreed;
        r = device_gather(comm, how, words, sizeof(*words));
        if (r)
                return r;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
                agreed->min = words[rank].min > agreed->min ? words[rank].min : agreed->min;
                agreed->max = words[rank].max < agreed->max ? words[rank].max : agreed->max;
        }
        return RMX_OK;
}

/* For operators: as much of the communicator's as there is room for, not cut within a character of UTF-8. */
static void name_part(const char *whole, const char *part, char *ret_name) {
        size_t n = whole ? strlen(whole) : 0, room = NAME_BYTES - strlen(part) - sizeof(", ");

        if (n > room)
                for (n = room; n && ((unsigned char)whole[n] & 0xc0) == 0x80;)
                        n--;
        snprintf(ret_name, NAME_BYTES, "%.*s%s%s", (int)n, whole ? whole : "", n ? ", " : "", part);
}

static int make(struct rmx_comm *comm, const char *what, const char *which, int32_t colour,
                const struct rmx_comm_options *options, uint64_t deadline_ns, struct rmx_comm **made) {
        char name[NAME_BYTES];
        struct rmx_comm_options part = {.size = sizeof(part),
                                        .gpu = (int32_t)comm->gpu,
                                        .name = name,
                                        .cancel = options->cancel,
                                        .max_blocks = options->max_blocks};
        const uint64_t now_ns = clock_now_ns();

        name_part(options->name, which, name);
        if (deadline_ns != RPC_NO_DEADLINE) /* what is left, and not 0, which would be for ever */
                part.timeout_ms = deadline_ns > now_ns ? (uint32_t)((deadline_ns - now_ns) / 1000000u) + 1 : 1;
        return comm_split_as(comm, what, colour, (int32_t)comm->rank, true, &part, made);
}

/* All ranks want it: makes what is needed. A rank that cannot goes on to where all hear of it: there may be no room for
 * more communicators, and this one can do without. */
static int nodes_make(struct rmx_comm *comm, const struct device_gather *how, const struct rmx_comm_options *options,
                      struct device_nodes *nodes) {
        struct word word = {0};
        int r;

        (void)make(comm, how->what, "in a node", comm->node[comm->rank], options, how->deadline_ns, &nodes->local);
        (void)make(comm, how->what, "between nodes", (int32_t)place_of(comm, comm->rank), options, how->deadline_ns,
                   &nodes->across);
        if (nodes->local && nodes->across) /* 0, 0 if it has no exchange */
                word = (struct word){.min = nodes->local->exchange_min, .max = nodes->local->exchange_max};
        r = agree(comm, how, &word);
        nodes->min = word.min;
        nodes->max = word.max;
        nodes->in_rows = in_rows(comm, ranks_of_each(comm));
        return r;
}

/* It is over for a communicator that this one is made of. */
static void part_end(struct rmx_comm *comm, struct rmx_comm *part, const char *what, bool sound, uint64_t deadline_ns) {
        if (!part || part == comm)
                return;
        pthread_mutex_lock(&comm->session->rpc.mutex);
        part->whole = NULL;
        pthread_mutex_unlock(&comm->session->rpc.mutex);
        part->adrift = part->adrift || !comm->finished; /* what there was of it had numbers of the whole */
        part->spoilt = !sound;                          /* others may still write to its area */
        (void)comm_destroy_as(part, what, deadline_ns);
}

static void nodes_end(struct rmx_comm *comm, const struct device_nodes *nodes, const char *what, bool sound,
                      uint64_t deadline_ns) {
        char text[ERROR_TEXT_BYTES];

        snprintf(text, sizeof(text), "%s", rmx_last_error()); /* stays */
        part_end(comm, nodes->across, what, sound, deadline_ns);
        part_end(comm, nodes->local, what, sound, deadline_ns);
        (void)error_set(RMX_OK, "%s", text);
}

/* From here on requests go this way. */
static int nodes_set(struct rmx_comm *comm, const struct device_gather *how, const struct device_nodes *nodes) {
        struct device_nodes *kept = malloc(sizeof(*kept));

        if (!kept)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", how->what);
        *kept = *nodes;
        pthread_mutex_lock(&comm->session->rpc.mutex);
        comm->nodes = kept;
        comm->aside.stream = how->stream;
        if (nodes->local)
                nodes->local->whole = nodes->across->whole = comm;
        if (nodes->local && (comm_status(nodes->local) || comm_status(nodes->across) || comm_status(comm)))
                device_nodes_failed(comm_status(comm)           ? comm
                                    : comm_status(nodes->local) ? nodes->local
                                                                : nodes->across); /* was read already */
        pthread_mutex_unlock(&comm->session->rpc.mutex);
        return RMX_OK;
}

int device_nodes_join(struct rmx_comm *comm, const char *what, bool wanted, const struct rmx_comm_options *options,
                      uint64_t deadline_ns) {
        struct device_gather how = {.what = what, .cancel = options->cancel, .deadline_ns = deadline_ns};
        struct device_nodes nodes = {0};
        /* Libraries of different versions have different requests that are made of others. */
        struct word word = {.min = CLIENT_GPU_EXCHANGE_VERSION, .max = wanted ? CLIENT_GPU_EXCHANGE_VERSION : 0};
        bool all;
        uint32_t each;
        int r;

        each = comm->device ? ranks_of_each(comm) : 0;
        if (!each || each == comm->n_ranks || comm->n_ranks == 2)
                return RMX_OK;
        r = device_gather_begin(comm, &how);
        if (!r)
                r = agree(comm, &how, &word);
        all = !r && word.max == word.min;
        if (all && each > 1)
                r = nodes_make(comm, &how, options, &nodes);
        else if (all)
                nodes = (struct device_nodes){.across = comm, .max = UINT64_MAX};
        device_streams_forget(comm);
        if (!r && nodes.max)
                r = nodes_set(comm, &how, &nodes);
        comm->finished = true; /* the gathers are over, or nothing came of them; parts have launched nothing besides */
        if (r || !nodes.max)   /* the daemon may be what does not answer */
                nodes_end(comm, &nodes, what, !r, clock_now_ns() + LEAVE_NS);
        comm->finished = false;
        return r;
}

void device_nodes_part(struct rmx_comm *comm, const char *what) {
        const bool sound = !comm_status(comm) && !device_nodes_look(comm);
        struct device_nodes *nodes;

        pthread_mutex_lock(&comm->session->rpc.mutex);
        nodes = comm->nodes;
        comm->nodes = NULL;
        pthread_mutex_unlock(&comm->session->rpc.mutex);
        if (nodes)
                nodes_end(comm, nodes, what, sound, RPC_NO_DEADLINE);
        free(nodes);
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */
/* A status of one of its communicators, with the rank's number in this one. */
static uint32_t status_of_part(const struct rmx_comm *comm, const struct rmx_comm *part, uint32_t status) {
        const int32_t there = ring_status_rank(status);
        int32_t n = 0;

        if (there < 0)
                return status;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
                const bool is = part == comm->nodes->local ? comm->node[rank] == comm->node[comm->rank]
                                                           : place_of(comm, rank) == place_of(comm, comm->rank);

                if (is && n++ == there)
                        return ring_status_mismatch(ring_status_code(status), ring_status_detail(status),
                                                    (int32_t)rank);
        }
        return ring_status(ring_status_code(status), -1);
}

/* Of a part, with the rank's number in the whole: it says that something has failed, and perhaps not what. Another rank
 * may have ended the part or left it since the whole has failed, or this one's library has told its kernels to give up.
 * Then the daemon is about to say what it was; of ranks of other nodes it hears from these. */
static bool is_vague(const struct rmx_comm *comm, uint32_t status) {
        const int32_t rank = ring_status_rank(status);

        switch (ring_status_code(status)) {
        case RMX_E_ABORTED:
        case RMX_E_DEVICE_LOST:
                return true;
        case RMX_E_PEER_LOST:
        case RMX_E_LOST:
                return rank < 0 || (uint32_t)rank >= comm->n_ranks || comm->node[rank] != comm->node[comm->rank];
        default:
                return false;
        }
}

bool device_nodes_waits(struct rmx_comm *comm, uint32_t status) {
        uint64_t now_ns, since_ns = 0;

        if (!is_vague(comm, status) || comm_status(comm) || rpc_lost(&comm->session->rpc))
                return false;
        now_ns = clock_now_ns();
        /* relaxed; partner: itself, in other threads. The first one says since when. */
        if (atomic_compare_exchange_strong_explicit(&comm->vague_ns, &since_ns, now_ns, memory_order_relaxed,
                                                    memory_order_relaxed))
                return true;
        return now_ns < since_ns + CAUSE_NS;
}

/* As it stands, and stays: a part that has failed never does anything again. */
static uint32_t status_now(const struct rmx_comm *part) {
        const uint32_t status = part->device->ops->comm_status(part->device->handle, part->slot, false);

        return status ? status : comm_status(part);
}

uint32_t device_nodes_look(const struct rmx_comm *comm) {
        const struct device_nodes *nodes = comm->nodes;
        uint32_t status;

        if (!nodes || !nodes->local)
                return 0;
        /* relaxed; partner: the thread itself, or one that is ordered behind it, as calls of one rank have to be. */
        status = atomic_load_explicit(&nodes->torn, memory_order_relaxed);
        if (status)
                return status;
        status = status_now(nodes->local);
        if (status)
                return status_of_part(comm, nodes->local, status);
        status = status_now(nodes->across);
        return status ? status_of_part(comm, nodes->across, status) : 0;
}

bool device_nodes_result(struct rmx_comm *comm, uint32_t *status) {
        uint32_t part;

        if (!comm->nodes->local) /* its parts are calls of its own */
                return true;
        part = device_nodes_look(comm);
        if (part && device_nodes_waits(comm, part))
                return false;
        if (part)
                *status = comm_status(comm) ? comm_status(comm) : part;
        else if (!ring_status_is_kept(*status)) /* of other calls */
                *status = RMX_OK;
        return true;
}

uint32_t device_nodes_found(struct rmx_comm *comm, uint32_t status) {
        const bool lost_here = ring_status_code(status) == RMX_E_PEER_LOST && !is_vague(comm, status);

        if (comm->nodes && comm->nodes->local && !comm_status(comm)) {
                pthread_mutex_lock(&comm->session->rpc.mutex);
                if (!comm_status(comm) && !lost_here) /* of which the daemon tells all ranks of the whole */
                        comm_abort_locked(comm, status);
                comm_fail(comm, status); /* before anybody can read the answer */
                pthread_mutex_unlock(&comm->session->rpc.mutex);
        }
        return comm_status(comm) ? comm_status(comm) : status;
}

uint32_t device_nodes_status(struct rmx_comm *comm) {
        const uint32_t status = device_nodes_look(comm);
        const uint64_t started_ns = clock_now_ns();

        if (!status)
                return 0;
        while (device_nodes_waits(comm, status))
                device_pause(comm->device, started_ns);
        return device_nodes_found(comm, status);
}

void device_nodes_tear(struct rmx_comm *comm, int error) {
        if (!comm->nodes->local) /* parts of its own: executors compare what comes with what others have called */
                return;
        atomic_store_explicit(&comm->nodes->torn, ring_status((uint32_t)error, -1), memory_order_relaxed);
        device_exchange_stop(comm->nodes->local);
}

void device_nodes_end(struct rmx_comm *comm) {
        const struct device_nodes *nodes = comm->nodes;

        if (!nodes || !nodes->local)
                return;
        device_end(nodes->local);
        device_end(nodes->across);
}

void device_nodes_failed(struct rmx_comm *comm) {
        struct rmx_comm *whole = comm->whole ? comm->whole : comm, *part[2];
        uint32_t status;

        if (!whole->nodes)
                return;
        part[0] = whole->nodes->local;
        part[1] = whole->nodes->across;
        if (part[0])
                device_exchange_stop(part[0]);
        if (whole == comm) {
                for (size_t i = 0; i < 2; i++)
                        if (part[i] && part[i] != whole && !comm_status(part[i]))
                                comm_abort_locked(part[i], 0);
                return;
        }
        status = status_of_part(whole, comm, comm_status(comm));
        if (is_vague(whole, status))
                return;
        /* The whole has lost the same rank, and all its ranks are told. */
        if (ring_status_code(status) != RMX_E_PEER_LOST && !comm_status(whole))
                comm_abort_locked(whole, status);
        comm_fail(whole, status);
}

void device_nodes_abort(struct rmx_comm *comm, const char *what) {
        const struct device_nodes *nodes = comm->nodes;

        if (!nodes || !nodes->local)
                return;
        (void)comm_abort_as(nodes->local, what);
        (void)comm_abort_as(nodes->across, what);
}
