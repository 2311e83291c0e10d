/* SPDX-License-Identifier: MIT */
/*
 * The collectives: check the arguments, find or copy the memory, ring.
 *
 * This is the fast path. It takes the ring's mutex to ring and once more to harvest, the bounce pool's if memory is not
 * shared, and makes no syscall but the wake-up and the sleep.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "client/comm.h"
#include "client/error.h"
#include "client/request.h"
#include "client/session.h"
#include "util/type.h"

struct collective {
        const char *what;
        const void *in; /* NULL with in_factor 0: this rank gives nothing */
        void *out;
        size_t count;
        uint32_t op; /* RING_OP_* */
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        uint32_t in_factor; /* in holds in_factor * count elements */
        uint32_t out_factor;
        bool has_type, has_redop, has_root;
};

static int collective_check(const struct rmx_comm *comm, const struct collective *c, const void *stream,
                            size_t *ret_in_bytes, size_t *ret_out_bytes) {
        size_t size, bytes, largest;
        int r;

        r = comm_check(comm, c->what);
        if (r)
                return r;
        if (stream)
                return error_set(RMX_E_INVALID, "%s: stream must be NULL for host memory", c->what);
        *ret_in_bytes = *ret_out_bytes = 0;
        if (!c->has_type)
                return RMX_OK;
        size = type_size(c->type);
        if (!size)
                return error_set(RMX_E_INVALID, "%s: type %u is unknown; types are 0..%u", c->what, c->type,
                                 RMX_TYPE_COUNT - 1);
        if (c->has_redop && c->redop >= RMX_REDOP_COUNT)
                return error_set(RMX_E_INVALID, "%s: redop %u is unknown; reductions are 0..%u", c->what, c->redop,
                                 RMX_REDOP_COUNT - 1);
        if (c->has_root && c->root >= comm->n_ranks)
                return error_set(RMX_E_INVALID, "%s: root %u is out of range; the communicator has ranks 0..%u",
                                 c->what, c->root, comm->n_ranks - 1);
        if (!c->count)
                return RMX_OK;
        largest = c->in_factor > c->out_factor ? c->in_factor : c->out_factor;
        if (__builtin_mul_overflow(c->count, size, &bytes) || __builtin_mul_overflow(bytes, largest, &largest) ||
            largest > PTRDIFF_MAX)
                return error_set(RMX_E_INVALID, "%s: count %zu is too large: %zu-byte elements of %u ranks overflow",
                                 c->what, c->count, size, comm->n_ranks);
        if (c->in_factor && !c->in)
                return error_set(RMX_E_INVALID, "%s: in is NULL with count %zu", c->what, c->count);
        if (!c->out)
                return error_set(RMX_E_INVALID, "%s: out is NULL with count %zu", c->what, c->count);
        *ret_in_bytes = bytes * c->in_factor;
        *ret_out_bytes = bytes * c->out_factor;
        return RMX_OK;
}

static void line_set_buffer(struct ring_request *line, unsigned int word, uint32_t id, uint64_t offset) {
        line->word[word] = id;
        ring_request_set_u64(line, word + 1, offset);
}

/* Names the memory in the line; memory that is not shared gets a region. */
static int collective_place(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                            struct ring_request *line, unsigned int word, struct bounce_region **ret_region) {
        uint64_t offset;
        uint32_t id;
        int r;

        *ret_region = NULL;
        r = buffer_table_find(&session->buffers, address, bytes, &id, &offset);
        if (r == BUFFER_E_RANGE)
                return error_set(RMX_E_INVALID, "%s: %s: %zu bytes at %p run over the end of memory from rmx_mem_alloc",
                                 what, word == RING_W_IN_BUFFER ? "in" : "out", bytes, address);
        if (r == BUFFER_E_UNKNOWN) {
                r = bounce_acquire(session, what, bytes, ret_region);
                if (r)
                        return r;
                id = (*ret_region)->buffer.id;
                offset = 0;
        }
        line_set_buffer(line, word, id, offset);
        return RMX_OK;
}

/* Regions of a request: [0] in, [1] out. In place they are one. */
static int collective_place_all(struct rmx_session *session, const struct collective *c, size_t in_bytes,
                                size_t out_bytes, struct ring_request *line, struct session_slot *slot) {
        bool in_place = c->in == c->out && in_bytes == out_bytes;
        const struct bounce_region *from;
        int r;

        if (in_bytes) {
                r = collective_place(session, c->what, c->in, in_bytes, line, RING_W_IN_BUFFER, &slot->regions[0]);
                if (r)
                        return r;
                if (slot->regions[0])
                        memcpy(slot->regions[0]->buffer.address, c->in, in_bytes);
        }
        if (!out_bytes)
                return RMX_OK;
        if (in_bytes && in_place) {
                line_set_buffer(line, RING_W_OUT_BUFFER, line->word[RING_W_IN_BUFFER],
                                ring_request_u64(line, RING_W_IN_LO));
        } else {
                r = collective_place(session, c->what, c->out, out_bytes, line, RING_W_OUT_BUFFER, &slot->regions[1]);
                if (r)
                        return r;
        }
        from = in_bytes && in_place ? slot->regions[0] : slot->regions[1];
        if (from) {
                slot->copy_from = from->buffer.address;
                slot->copy_to = c->out;
                slot->copy_bytes = out_bytes;
        }
        return RMX_OK;
}

static int collective_start(struct rmx_comm *comm, const struct collective *c, const void *stream, bool attended,
                            struct request *ret_request) {
        struct session_slot slot = {.comm = comm, .what = c->what, .attended = attended};
        struct ring_request line = {0};
        struct rmx_session *session;
        size_t in_bytes, out_bytes;
        int r;

        r = collective_check(comm, c, stream, &in_bytes, &out_bytes);
        if (r)
                return r;
        if (comm_status(comm))
                return comm_report(comm, c->what, comm_status(comm));
        session = comm->session;
        ring_request_set_head(&line, c->op, c->type, c->redop);
        line.word[RING_W_COMM] = comm->handle;
        ring_request_set_u64(&line, RING_W_COUNT_LO, c->count);
        line.word[RING_W_PEER] = c->root;
        line.word[RING_W_EPOCH] = comm_epoch(comm);
        r = collective_place_all(session, c, in_bytes, out_bytes, &line, &slot);
        if (!r)
                r = request_start(comm->ring, &line, &slot, ret_request);
        if (r) {
                bounce_release(&session->bounce, slot.regions[0]);
                bounce_release(&session->bounce, slot.regions[1]);
        }
        return r;
}

static int collective_run(struct rmx_comm *comm, const struct collective *c, const void *stream) {
        struct request request;
        int r;

        r = collective_start(comm, c, stream, true, &request);
        return r ? r : request_complete(&request);
}

static int collective_begin(struct rmx_comm *comm, const struct collective *c, const void *stream,
                            struct rmx_request *ret_request) {
        struct request request;
        int r;

        if (!ret_request)
                return error_set(RMX_E_INVALID, "%s: ret_request is NULL", c->what);
        r = collective_start(comm, c, stream, false, &request);
        if (!r)
                memcpy(ret_request->opaque, &request, sizeof(request));
        return r;
}

/* ---- the operations -------------------------------------------------------------------------------------------------
 */
static uint32_t comm_ranks(const struct rmx_comm *comm) {
        return comm ? comm->n_ranks : 1; /* a NULL comm is refused in collective_check */
}

static struct collective all_reduce(const char *what, const void *in, void *out, size_t count, uint32_t type,
                                    uint32_t redop) {
        return (struct collective){.what = what,
                                   .op = RING_OP_ALL_REDUCE,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .type = type,
                                   .redop = redop,
                                   .in_factor = 1,
                                   .out_factor = 1,
                                   .has_type = true,
                                   .has_redop = true};
}

static struct collective all_gather(const char *what, const struct rmx_comm *comm, const void *in, void *out,
                                    size_t count, uint32_t type) {
        return (struct collective){.what = what,
                                   .op = RING_OP_ALL_GATHER,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .type = type,
                                   .in_factor = 1,
                                   .out_factor = comm_ranks(comm),
                                   .has_type = true};
}

static struct collective reduce_scatter(const char *what, const struct rmx_comm *comm, const void *in, void *out,
                                        size_t count, uint32_t type, uint32_t redop) {
        return (struct collective){.what = what,
                                   .op = RING_OP_REDUCE_SCATTER,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .type = type,
                                   .redop = redop,
                                   .in_factor = comm_ranks(comm),
                                   .out_factor = 1,
                                   .has_type = true,
                                   .has_redop = true};
}

static struct collective broadcast(const char *what, const struct rmx_comm *comm, const void *in, void *out,
                                   size_t count, uint32_t type, uint32_t root) {
        bool is_root = comm && comm->rank == root;

        return (struct collective){.what = what,
                                   .op = RING_OP_BROADCAST,
                                   .in = is_root ? in : NULL,
                                   .out = out,
                                   .count = count,
                                   .type = type,
                                   .root = root,
                                   .in_factor = is_root ? 1 : 0,
                                   .out_factor = 1,
                                   .has_type = true,
                                   .has_root = true};
}

static struct collective barrier(const char *what) {
        return (struct collective){.what = what, .op = RING_OP_BARRIER};
}

int rmx_all_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                   void *stream) {
        struct collective c = all_reduce(__func__, in, out, count, type, redop);

        return collective_run(comm, &c, stream);
}

int rmx_all_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream) {
        struct collective c = all_gather(__func__, comm, in, out, count, type);

        return collective_run(comm, &c, stream);
}

int rmx_reduce_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                       void *stream) {
        struct collective c = reduce_scatter(__func__, comm, in, out, count, type, redop);

        return collective_run(comm, &c, stream);
}

int rmx_broadcast(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                  void *stream) {
        struct collective c = broadcast(__func__, comm, in, out, count, type, root);

        return collective_run(comm, &c, stream);
}

int rmx_barrier(struct rmx_comm *comm, void *stream) {
        struct collective c = barrier(__func__);

        return collective_run(comm, &c, stream);
}

int rmx_all_reduce_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                         void *stream, struct rmx_request *ret_request) {
        struct collective c = all_reduce(__func__, in, out, count, type, redop);

        return collective_begin(comm, &c, stream, ret_request);
}

int rmx_all_gather_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream,
                         struct rmx_request *ret_request) {
        struct collective c = all_gather(__func__, comm, in, out, count, type);

        return collective_begin(comm, &c, stream, ret_request);
}

int rmx_reduce_scatter_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                             uint32_t redop, void *stream, struct rmx_request *ret_request) {
        struct collective c = reduce_scatter(__func__, comm, in, out, count, type, redop);

        return collective_begin(comm, &c, stream, ret_request);
}

int rmx_broadcast_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                        void *stream, struct rmx_request *ret_request) {
        struct collective c = broadcast(__func__, comm, in, out, count, type, root);

        return collective_begin(comm, &c, stream, ret_request);
}

int rmx_barrier_start(struct rmx_comm *comm, void *stream, struct rmx_request *ret_request) {
        struct collective c = barrier(__func__);

        return collective_begin(comm, &c, stream, ret_request);
}
