/* SPDX-License-Identifier: MIT */
/*
 * Requests over several nodes that are made of others (device_nodes.c): which, and of what. L ranks on each of N nodes;
 * "inside" is an exchange of a node's ranks, "across" a request of the executors among the ranks that have the same
 * place in their nodes.
 *
 * - all_reduce: reduce_scatter inside; all_reduce of each piece across; all_gather inside.
 * - reduce_scatter: inside, one for the results of each node; what comes of them is added up across.
 * - all_gather: across; inside, one for the pieces of each node.
 * - all_to_all: inside, one for what goes to each node, to the rank whose like there it is for; what each has then goes
 *   across. So a GPU sends to its likes only, over its own rail, and a message is of all ranks of a node.
 * - broadcast: inside, on the root's node; each rank there gives its part of what it has then to its like across; the
 *   other nodes' ranks all_gather these.
 *
 * So no executor sends inside a node, which takes them many times longer, and each byte crosses the network once for
 * each node that needs it. The first two round what a node has added up to the type.
 *
 * An all_gather has one piece of each node after it went across, and the ranks' results have them L blocks apart; a
 * reduce_scatter the same the other way round, and an all_to_all has L pieces for each node. So between its two halves
 * a request of these has memory of the library's own, N pieces or as much as it is called on: a region
 * (device_bounce.c) of the communicator `across`, for the direction in which no user's memory goes there. As with other
 * regions, one is enough for requests one after another, and each launch names its own, since a larger one may take its
 * place meanwhile. Its size is bounded, and so are the requests; a rank that cannot get it fails its call, and the
 * others wait as for any rank that does not call.
 *
 * The results' order is by rank, so these four are for communicators whose ranks are numbered node by node; and from
 * some size on, below which the executors' own plans do with fewer kernels.
 *
 * Where the first part is one across, and the request has to wait for one of before whose stream it cannot follow
 * (device_call.c), a kernel before it waits: a part's kernel waits for numbers of its own communicator.
 *
 * Ranks that disagree on the root of a broadcast are told if they are on one node, or name ranks of different nodes. If
 * all of a node name another rank of the root's own node, they have what that one's node gives, and nobody is told.
 */
#include "client/device_nodes_put.h"

#include <string.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_call.h"
#include "client/device_nodes.h"
#include "client/operation.h"
#include "ring/line.h"
#include "util/type.h"

#define UNIT_BYTES 16u

/* A hop more costs what 200 KB less on a rank's way out take, or there about: four nodes, all_reduce of 128, 256, 512
 * KB, 1 MB in one hop 169, 251, 407 and 814 us, in two requests 229, 264, 364 and 568 (docs/performance.md). */
#define HOP_BYTES (UINT64_C(200) << 10)
/* What a broadcast has to have to be made of others; the rest, what a node gives or gets of one, half as much, since
 * each is a kernel more (two nodes of two on one H200: from there on they are faster, docs/performance.md). */
#define PIECES_BYTES (UINT64_C(64) << 10)
/* And what it needs of the library's own memory. */
#define SCRATCH_BYTES (UINT64_C(32) << 20)

/* ---- which ------------------------------------------------------------------------------------------------------- */
/* An all_reduce of so many bytes, one rank on each node: in two requests? */
static bool in_two(const struct rmx_comm *across, uint64_t bytes) {
        const uint64_t n = across->n_ranks;

        return across->nodes && bytes % (UNIT_BYTES * n) == 0 && bytes / n * (n - 1) * (n - 2) > HOP_BYTES;
}

static bool reduces(const struct operation *o) {
        return o->redop == RMX_SUM || o->redop == RMX_PROD || o->redop == RMX_MAX || o->redop == RMX_MIN;
}

/* Such a request of a communicator that exchanges inside its nodes: `bytes` are what is exchanged there at a time,
 * `piece` what a rank gives or gets of it. */
static bool takes_pieces(const struct device_nodes *nodes, uint64_t bytes, uint64_t least, uint64_t piece) {
        return nodes->in_rows && bytes >= least && bytes >= nodes->min && bytes <= nodes->max &&
               piece % UNIT_BYTES == 0;
}

bool device_nodes_takes(const struct operation *o) {
        const struct device_nodes *nodes = o->comm->nodes;
        uint64_t local, across, bytes;

        if (!nodes)
                return false;
        if (!nodes->local)
                return o->op == RING_OP_ALL_REDUCE && reduces(o) && in_two(nodes->across, o->in_bytes);
        local = nodes->local->n_ranks;
        across = nodes->across->n_ranks;
        switch (o->op) {
        case RING_OP_ALL_REDUCE:
                bytes = o->in_bytes;
                return reduces(o) && bytes && bytes >= nodes->min && bytes <= nodes->max &&
                       bytes % (UNIT_BYTES * local) == 0;
        case RING_OP_REDUCE_SCATTER:
                bytes = o->out_bytes;
                return reduces(o) && bytes * across <= SCRATCH_BYTES &&
                       takes_pieces(nodes, bytes * local, PIECES_BYTES / 2, bytes);
        case RING_OP_ALL_GATHER:
                bytes = o->in_bytes;
                return bytes * across <= SCRATCH_BYTES && takes_pieces(nodes, bytes * local, PIECES_BYTES / 2, bytes);
        case RING_OP_ALL_TO_ALL:
                bytes = o->in_bytes / (local * across);
                return o->in_bytes <= SCRATCH_BYTES && takes_pieces(nodes, bytes * local, PIECES_BYTES / 2, bytes);
        case RING_OP_BROADCAST:
                bytes = o->out_bytes;
                return bytes % local == 0 && takes_pieces(nodes, bytes, PIECES_BYTES, bytes / local);
        default:
                return false;
        }
}

/* ---- the part between nodes -------------------------------------------------------------------------------------- */
/* Of a broadcast: is the root on this rank's node? */
static bool has_root(const struct operation *o) {
        const uint32_t local = o->comm->nodes->local->n_ranks;

        return o->peer / local == o->comm->rank / local;
}

/* own: the library's memory, of what needs it. */
static void shape(const struct operation *o, void *own, struct operation *ret_between) {
        const struct device_nodes *nodes = o->comm->nodes;
        const uint32_t n = nodes->across->n_ranks;
        const struct rmx_comm *local = nodes->local;

        *ret_between = *o;
        ret_between->comm = nodes->across;
        if (!local)
                return;
        switch (o->op) {
        case RING_OP_REDUCE_SCATTER:
                ret_between->in_bytes = o->out_bytes * n;
                ret_between->in = own;
                return;
        case RING_OP_ALL_GATHER:
                ret_between->out_bytes = o->in_bytes * n;
                ret_between->out = own;
                return;
        case RING_OP_ALL_TO_ALL: /* what a rank has for each of a node's is one piece */
                ret_between->count = o->count * local->n_ranks;
                ret_between->in = own;
                return;
        default: /* of the piece that this rank's place stands for */
                ret_between->count = o->count / local->n_ranks;
                ret_between->in_bytes = ret_between->out_bytes = o->out_bytes / local->n_ranks;
                ret_between->out = (char *)o->out + ret_between->out_bytes * local->rank;
                ret_between->in = ret_between->out;
                break;
        }
        if (o->op == RING_OP_BROADCAST) {
                ret_between->peer = o->peer / local->n_ranks;
                if (!has_root(o))
                        ret_between->in_bytes = 0;
        }
}

int device_nodes_between(const struct operation *o, struct operation *ret_between) {
        const bool gathers = o->op == RING_OP_ALL_GATHER;
        struct device_region *region;
        int r;

        shape(o, NULL, ret_between);
        if (!gathers && o->op != RING_OP_REDUCE_SCATTER && o->op != RING_OP_ALL_TO_ALL)
                return RMX_OK;
        r = device_bounce_get(ret_between->comm, o->what, gathers ? DEVICE_BOUNCE_OUT : DEVICE_BOUNCE_IN,
                              gathers ? ret_between->out_bytes : ret_between->in_bytes, &region);
        if (!r)
                shape(o, (void *)(uintptr_t)region->memory.base, ret_between);
        return r;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */
struct putting {
        const struct operation *o;
        struct operation between;
        const struct device_launch *launch;
        void *stream;
        char *error;
        uint32_t after; /* of the first part */
        bool some;      /* is on the stream, */
        bool parts;     /* also of what other ranks meet */
};

/* One that is exchanged inside the node. count: of a piece, or of a broadcast. */
static int put_local(struct putting *p, uint32_t op, const void *in, void *out, size_t count) {
        const struct rmx_comm *local = p->o->comm->nodes->local;
        struct client_gpu_bell bell = {.slot = p->o->comm->slot, /* whose number `after` is */
                                       .captured = p->launch->bell.captured,
                                       .in = in,
                                       .out = out,
                                       .after = p->after,
                                       .gate = local->exchange};
        /* (An all_gather has no root, but the ranks compare what they say of it: the end of a broadcast has that
         * one's.) */
        const uint32_t root = op == RING_OP_BROADCAST         ? p->o->peer % local->n_ranks
                              : p->o->op == RING_OP_BROADCAST ? p->o->peer
                                                              : 0;
        const size_t bytes = count * type_size(p->o->type);
        struct ring_request line = {0};
        int r;

        bell.in_bytes = op == RING_OP_REDUCE_SCATTER || op == RING_OP_ALL_TO_ALL ? bytes * local->n_ranks
                        : op == RING_OP_BROADCAST && root != local->rank         ? 0
                                                                                 : bytes;
        bell.out_bytes = op == RING_OP_ALL_GATHER || op == RING_OP_ALL_TO_ALL ? bytes * local->n_ranks : bytes;
        ring_request_set_head(&line, op, p->o->type, op == RING_OP_REDUCE_SCATTER ? p->o->redop : 0);
        line.word[RING_W_COMM] = local->handle;
        line.word[RING_W_PEER] = root;
        ring_request_set_u64(&line, RING_W_COUNT_LO, count);
        line.word[RING_W_EPOCH] = comm_epoch(local);
        memcpy(bell.word, line.word, sizeof(bell.word));
        p->after = 0;
        r = local->device->ops->exchange_call(local->exchange, &bell, p->stream, p->error);
        p->some = p->some || !r;
        p->parts = p->parts || !r;
        return r;
}

/* One of the executors: what the launch has. */
static int put_whole_between(struct putting *p, struct client_gpu_bell *bell) {
        const struct device *device = p->o->comm->device;
        int r;

        bell->number = bell->cell = 0;
        bell->started = false;
        bell->after = p->after;
        bell->gate = p->o->comm->nodes->local ? p->o->comm->nodes->local->exchange : NULL;
        p->after = 0;
        r = device->ops->call(device->handle, bell, p->stream, p->error);
        p->some = p->some || !r;
        p->parts = p->parts || !r;
        return r;
}

/* The same of a piece of it, which begins at these bytes on either side: one of the two that an all_reduce is. */
static int put_piece_between(struct putting *p, uint32_t op, size_t count, size_t from, size_t to) {
        const size_t bytes = count * type_size(p->o->type), all = bytes * p->between.comm->n_ranks;
        struct client_gpu_bell bell = p->launch->bell;
        struct ring_request line;

        memcpy(line.word, bell.word, sizeof(bell.word));
        ring_request_set_head(&line, op, p->o->type, op == RING_OP_REDUCE_SCATTER ? p->o->redop : 0);
        ring_request_set_u64(&line, RING_W_COUNT_LO, count);
        if (op == RING_OP_ALL_GATHER) { /* of what the first of the two has left */
                memcpy(&line.word[RING_W_IN_BUFFER], &line.word[RING_W_OUT_BUFFER], 3 * sizeof(line.word[0]));
                bell.in = bell.out;
        }
        ring_request_set_u64(&line, RING_W_IN_BUFFER + 1, ring_request_u64(&line, RING_W_IN_BUFFER + 1) + from);
        ring_request_set_u64(&line, RING_W_OUT_BUFFER + 1, ring_request_u64(&line, RING_W_OUT_BUFFER + 1) + to);
        bell.in = (const char *)bell.in + from;
        bell.out = (char *)bell.out + to;
        bell.in_bytes = op == RING_OP_REDUCE_SCATTER ? all : bytes;
        bell.out_bytes = op == RING_OP_REDUCE_SCATTER ? bytes : all;
        memcpy(bell.word, line.word, sizeof(bell.word));
        return put_whole_between(p, &bell);
}

/* What goes across, with the copies of memory that no other process can map. */
static int put_between(struct putting *p) {
        const struct operation *between = &p->between;
        const struct rmx_comm *across = between->comm;
        struct client_gpu_bell bell = p->launch->bell;
        const size_t count = between->count / across->n_ranks, own = count * type_size(between->type) * across->rank;
        int r;

        r = device_bounce_copy_in(between, p->launch->region[DEVICE_BOUNCE_IN], p->stream);
        p->some = p->some || (!r && p->launch->region[DEVICE_BOUNCE_IN]);
        if (!r && between->op == RING_OP_ALL_REDUCE && in_two(across, between->in_bytes)) {
                r = put_piece_between(p, RING_OP_REDUCE_SCATTER, count, 0, own);
                if (!r)
                        r = put_piece_between(p, RING_OP_ALL_GATHER, count, own, 0);
        } else if (!r) {
                r = put_whole_between(p, &bell);
        }
        return r ? r : device_bounce_copy_out(between, p->launch->region[DEVICE_BOUNCE_OUT], p->stream);
}

/* As put_between, of a request that begins with it. */
static int put_between_first(struct putting *p) {
        const struct device *device = p->o->comm->device;
        int r = RMX_OK;

        if (p->after)
                r = device->ops->behind(device->handle, p->o->comm->slot, p->after, p->stream, p->error);
        p->some = p->some || (!r && p->after);
        p->after = 0;
        return r ? r : put_between(p);
}

static int put_all_reduce(struct putting *p) {
        const struct operation *o = p->o, *between = &p->between;
        int r;

        r = put_local(p, RING_OP_REDUCE_SCATTER, o->in, between->out, between->count);
        if (!r)
                r = put_between(p);
        return r ? r : put_local(p, RING_OP_ALL_GATHER, between->out, o->out, between->count);
}

/* Of what is for each node a reduce_scatter or an all_to_all inside, which leaves so many bytes. */
static int put_nodes_first(struct putting *p, size_t left) {
        const struct device_nodes *nodes = p->o->comm->nodes;
        const size_t block = p->o->in_bytes / nodes->across->n_ranks;
        char *own = (char *)(uintptr_t)p->between.in;
        int r = RMX_OK;

        for (uint32_t node = 0; node < nodes->across->n_ranks && !r; node++)
                r = put_local(p, p->o->op, (const char *)p->o->in + node * block, own + node * left, p->o->count);
        return r ? r : put_between(p);
}

static int put_all_gather(struct putting *p) {
        const struct device_nodes *nodes = p->o->comm->nodes;
        const size_t piece = p->o->in_bytes, block = piece * nodes->local->n_ranks;
        const char *own = p->between.out;
        int r;

        r = put_between_first(p);
        for (uint32_t node = 0; node < nodes->across->n_ranks && !r; node++)
                r = put_local(p, RING_OP_ALL_GATHER, own + node * piece, (char *)p->o->out + node * block, p->o->count);
        return r;
}

static int put_broadcast(struct putting *p) {
        const struct operation *o = p->o, *between = &p->between;
        int r;

        if (has_root(o)) {
                r = put_local(p, RING_OP_BROADCAST, o->in, o->out, o->count);
                return r ? r : put_between(p);
        }
        r = put_between_first(p);
        return r ? r : put_local(p, RING_OP_ALL_GATHER, between->out, o->out, between->count);
}

static int put(struct putting *p) {
        if (!p->o->comm->nodes->local) /* whose own numbers they are, so the kernel itself can wait, but no copy */
                return p->launch->region[DEVICE_BOUNCE_IN] ? put_between_first(p) : put_between(p);
        switch (p->o->op) {
        case RING_OP_REDUCE_SCATTER:
                return put_nodes_first(p, p->o->out_bytes);
        case RING_OP_ALL_TO_ALL:
                return put_nodes_first(p, p->o->in_bytes / p->o->comm->nodes->across->n_ranks);
        case RING_OP_ALL_GATHER:
                return put_all_gather(p);
        case RING_OP_BROADCAST:
                return put_broadcast(p);
        default:
                return put_all_reduce(p);
        }
}

int device_nodes_put(const struct operation *o, const struct device_launch *launch, void *stream, char *error) {
        struct putting p = {.o = o, .launch = launch, .stream = stream, .error = error, .after = launch->bell.after};
        const struct client_gpu_ops *ops = o->comm->device->ops;
        int r;

        /* The launch knows the own memory: the communicator may have a larger piece of it by now. */
        shape(o, o->op == RING_OP_ALL_GATHER ? launch->bell.out : (void *)(uintptr_t)launch->bell.in, &p.between);
        r = put(&p);
        if (r) {
                o->comm->adrift = o->comm->adrift || p.some;
                if (p.parts && !launch->bell.captured)
                        device_nodes_tear(o->comm, r);
                return r;
        }
        if (!launch->bell.number)
                return RMX_OK;
        r = ops->mark(o->comm->device->handle, o->comm->slot, launch->bell.number, launch->bell.started, stream, error);
        if (!r || !launch->bell.started)
                return r ? CLIENT_GPU_UNTOLD : RMX_OK;
        /* A start has to be waited for, and cannot be: others have it, this rank does not. */
        o->comm->adrift = true;
        device_nodes_tear(o->comm, r);
        return r;
}
