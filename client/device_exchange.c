/* SPDX-License-Identifier: MIT */
/*
 * Exchange: a request may cost more when executors carry it out, with the few blocks that they keep resident, than when
 * each rank's own kernel does, with as many as it likes. So where the daemon grants it the ranks of
 * a communicator map areas of each other's memory, and such a request is one kernel on the caller's stream. No executor
 * takes part, nothing is rung, no memory is registered.
 *
 * Which requests these are must be the same on all ranks, or some would ring while others exchange, and all wait for
 * ever. So it depends on the operation, its size and what the daemon said, which every rank has alike; not on where the
 * memory lies, on streams, or on how the call is made. Calls that kernels make by themselves (railmux_device.h) cannot
 * go this way, and are refused where they would have to; ranks whose kernels make any say so at the join
 * (RMX_COMM_DEVICE_CALLS), and the daemon then grants no exchange to any rank of the communicator.
 *
 * For the order of a communicator's requests an exchange is a launch with a number like a call (device_call.c). One
 * that is started is a whole kernel as well, on a stream of the communicator's own (device_aside.c): a later wait finds
 * it under way, or done.
 *
 * No executor answers an exchange whose peer has died: it is stopped by whoever reads the daemon's event, a thread of
 * the library if nobody else (watch.c). A rank that leaves in good order is no event; if others exchange once more with
 * it, which no right program does, they wait until they are aborted.
 *
 * Whether all ranks can is settled at the end of the join, by two small requests of the communicator itself, which go
 * through the executors as ever: each rank's offer, then each one's word whether it has mapped all others. A rank that
 * cannot still takes part in both. They go on the communicator's own stream: ranks may join several at a time, in
 * different orders.
 */
#include "client/device_exchange.h"

#include <string.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_gather.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/operation.h"
#include "client/session.h"
#include "ring/line.h"

/* What a rank says when it has all it needs; and that its sends and receives may be exchanged. */
#define WORD_OK    UINT64_C(1)
#define WORD_PAIRS UINT64_C(2)

/* What the device writes and reads, in pinned memory. */
struct board {
        unsigned char offer[CLIENT_GPU_EXCHANGE_RANKS][CLIENT_GPU_OFFER_BYTES];
        uint64_t word[CLIENT_GPU_EXCHANGE_RANKS];
};
_Static_assert(sizeof(struct board) <= CLIENT_GPU_OWN_BYTES, "the board fits");

struct bootstrap {
        struct rmx_comm *comm;
        bool wanted;
        const struct rmx_comm_options *options;
        struct device_gather how;
        struct board *board;
};

/* ---- bootstrap --------------------------------------------------------------------------------------------------- */
/* *ret_agreed: what all ranks say. What this rank cannot do is no error. */
static int bootstrap_run(const struct bootstrap *b, struct client_gpu_exchange **exchange, uint64_t *ret_agreed) {
        const struct client_gpu_ops *ops = b->comm->device->ops;
        struct rmx_comm *comm = b->comm;
        char error[CLIENT_GPU_TEXT];
        int r;

        memset(b->board, 0, sizeof(*b->board));
        if (!b->wanted || ops->exchange_open(comm->device->handle, comm->slot, comm->handle, comm->n_ranks, comm->rank,
                                             b->options->max_blocks, exchange, b->board->offer[comm->rank], error)) {
                memset(b->board->offer[comm->rank], 0, CLIENT_GPU_OFFER_BYTES);
                *exchange = NULL;
        }
        r = device_gather(comm, &b->how, b->board->offer, CLIENT_GPU_OFFER_BYTES);
        if (r)
                return r;
        if (*exchange && !ops->exchange_connect(*exchange, b->board->offer[0], error) &&
            !watch_start(comm->session, b->how.what))
                b->board->word[comm->rank] =
                        WORD_OK | (b->options->flags & RMX_COMM_ORDERED_TRANSFERS ? WORD_PAIRS : 0);
        r = device_gather(comm, &b->how, b->board->word, sizeof(b->board->word[0]));
        if (r)
                return r;
        *ret_agreed = WORD_OK | WORD_PAIRS;
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                *ret_agreed &= b->board->word[rank];
        return RMX_OK;
}

int device_exchange_join(struct rmx_comm *comm, const char *what, bool wanted, const struct rmx_comm_options *options,
                         uint64_t deadline_ns) {
        struct bootstrap b = {.comm = comm,
                              .wanted = wanted,
                              .options = options,
                              .how = {.what = what, .cancel = options->cancel, .deadline_ns = deadline_ns}};
        struct client_gpu_exchange *exchange = NULL;
        const struct client_gpu_ops *ops;
        uint64_t agreed = 0;
        int r;

        if (!comm->exchange_max || !comm->device)
                return RMX_OK;
        ops = comm->device->ops;
        if (comm->n_ranks < 2 || comm->n_ranks > CLIENT_GPU_EXCHANGE_RANKS)
                return error_set(RMX_E_INTERNAL, "%s: the daemon grants exchange to %u ranks; it is for 2 to %u", what,
                                 comm->n_ranks, CLIENT_GPU_EXCHANGE_RANKS);
        r = device_gather_begin(comm, &b.how);
        if (r)
                return r;
        b.board = b.how.memory;
        r = bootstrap_run(&b, &exchange, &agreed);
        device_streams_forget(comm); /* perhaps nothing will go on that one again */
        if (!r && agreed & WORD_OK) {
                pthread_mutex_lock(&comm->session->rpc.mutex);
                comm->exchange = exchange;
                comm->exchange_pairs = agreed & WORD_PAIRS && comm->exchange_min <= 1;
                comm->aside.stream = b.how.stream;
                if (comm_status(comm)) /* the event has been read already */
                        ops->exchange_stop(exchange);
                pthread_mutex_unlock(&comm->session->rpc.mutex);
                return RMX_OK;
        }
        comm->exchange_min = comm->exchange_max = 0;
        /* After an error other ranks may be about to write to the area. */
        ops->exchange_close(exchange, !r);
        return r;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
bool device_exchange_takes(const struct operation *o) {
        const size_t bytes = o->in_bytes > o->out_bytes ? o->in_bytes : o->out_bytes;
        const uint64_t min = o->comm->exchange_min;

        if (!o->comm->exchange)
                return false;
        switch (o->op) { /* their bytes are not the same on all ranks, or need not be */
        case RING_OP_GATHER:
        case RING_OP_SCATTER:
        case RING_OP_ALL_TO_ALL_V:
                return min <= 1;
        case RING_OP_SEND:
        case RING_OP_RECV:
                return o->comm->exchange_pairs && o->peer != o->comm->rank;
        default:
                break;
        }
        /* From one byte on is all, nothing too: a rank that has none where others have some meets them, and is told. */
        if ((bytes < min && min > 1) || bytes > o->comm->exchange_max)
                return false;
        switch (o->op) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_ALL_GATHER:
        case RING_OP_REDUCE_SCATTER:
        case RING_OP_ALL_TO_ALL:
        case RING_OP_BROADCAST:
        case RING_OP_REDUCE:
        case RING_OP_BARRIER: /* if calls of nothing are */
                return true;
        default:
                return false;
        }
}

void device_exchange_stop(struct rmx_comm *comm) {
        if (comm->exchange)
                comm->device->ops->exchange_stop(comm->exchange);
}

void device_exchange_part(struct rmx_comm *comm, bool over) {
        if (!comm->exchange)
                return;
        /* Of a communicator that has failed, other ranks may still write what this one did not wait for. */
        comm->device->ops->exchange_close(comm->exchange, over && !device_status(comm, false) && !comm_status(comm));
        comm->exchange = NULL;
}
