/* SPDX-License-Identifier: MIT */
/*
 * From a call to a line: check the arguments, find or copy the memory, ring.
 *
 * This is the fast path. It takes the ring's mutex to ring and once more to harvest, the bounce pool's if memory is not
 * shared, and makes no syscall but the wake-up and the sleep. Only an all_to_all_v in ordinary memory allocates, for
 * its list of copies.
 *
 * Memory that is not shared gets a region. A vector's region is packed: the pieces lie one after another, whatever lies
 * between them in the user's memory stays untouched, and the offsets in the argument block are those in the region.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/bounce.h"
#include "client/comm.h"
#include "client/device_call.h"
#include "client/error.h"
#include "client/group.h"
#include "client/operation.h"
#include "client/request.h"
#include "client/session.h"
#include "util/type.h"

/* How much memory a rank has, in counts. */
enum { NONE, ONE, EACH, ROOT_ONE, ROOT_EACH };

static const struct shape {
        unsigned char in, out;
        bool typed, reduces, rooted;
} shapes[RING_OP_COUNT] = {
        [RING_OP_ALL_REDUCE] = {ONE, ONE, .typed = true, .reduces = true},
        [RING_OP_REDUCE] = {ONE, ROOT_ONE, .typed = true, .reduces = true, .rooted = true},
        [RING_OP_BROADCAST] = {ROOT_ONE, ONE, .typed = true, .rooted = true},
        [RING_OP_ALL_GATHER] = {ONE, EACH, .typed = true},
        [RING_OP_REDUCE_SCATTER] = {EACH, ONE, .typed = true, .reduces = true},
        [RING_OP_ALL_TO_ALL] = {EACH, EACH, .typed = true},
        [RING_OP_ALL_TO_ALL_V] = {NONE, NONE, .typed = true}, /* in its vector */
        [RING_OP_GATHER] = {ONE, ROOT_EACH, .typed = true, .rooted = true},
        [RING_OP_SCATTER] = {ROOT_EACH, ONE, .typed = true, .rooted = true},
        [RING_OP_SEND] = {ONE, NONE, .typed = true},
        [RING_OP_RECV] = {NONE, ONE, .typed = true},
        [RING_OP_BARRIER] = {.in = NONE, .out = NONE},
};

static uint32_t factor_of(unsigned int extent, const struct rmx_comm *comm, bool root) {
        switch (extent) {
        case ONE:
                return 1;
        case EACH:
                return comm->n_ranks;
        case ROOT_ONE:
                return root ? 1 : 0;
        case ROOT_EACH:
                return root ? comm->n_ranks : 0;
        default:
                return 0;
        }
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */
static int check_redop(struct operation *o) {
        int r;

        if (o->redop < RMX_PREMUL_SUM)
                return RMX_OK;
        if (o->redop == RMX_PREMUL_SUM)
                return error_set(RMX_E_INVALID,
                                 "%s: RMX_PREMUL_SUM needs a factor: pass what rmx_redop_create_premul_sum gives",
                                 o->what);
        if (o->redop < REDOP_FIRST)
                return error_set(RMX_E_INVALID,
                                 "%s: redop %u is unknown; reductions are 0..%u and what rmx_redop_create_premul_sum "
                                 "gives",
                                 o->what, o->redop, RMX_PREMUL_SUM - 1);
        r = redop_find(o->comm, o->what, o->redop, o->type, &o->factor);
        if (!r)
                o->redop = RMX_PREMUL_SUM;
        return r;
}

static int check_ranks(const struct operation *o, const struct shape *shape) {
        const struct rmx_comm *comm = o->comm;

        if (shape->rooted && o->peer >= comm->n_ranks)
                return error_set(RMX_E_INVALID, "%s: root %u is out of range; the communicator has ranks 0..%u",
                                 o->what, o->peer, comm->n_ranks - 1);
        if (!operation_is_p2p(o))
                return RMX_OK;
        if (o->peer >= comm->n_ranks)
                return error_set(RMX_E_INVALID, "%s: peer %u is out of range; the communicator has ranks 0..%u",
                                 o->what, o->peer, comm->n_ranks - 1);
        if (o->peer == comm->rank && !group_is_open())
                return error_set(RMX_E_INVALID, "%s: peer %u is this rank itself, which is possible in a group only",
                                 o->what, o->peer);
        return RMX_OK;
}

static bool ranges_overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
        return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

static int check_memory(struct operation *o, const struct shape *shape) {
        bool root = shape->rooted && o->peer == o->comm->rank;
        uint32_t in_factor = factor_of(shape->in, o->comm, root), out_factor = factor_of(shape->out, o->comm, root);
        size_t size = type_size(o->type), bytes, most = in_factor > out_factor ? in_factor : out_factor;

        if (!o->count)
                return RMX_OK;
        if (__builtin_mul_overflow(o->count, size, &bytes) || __builtin_mul_overflow(bytes, most, &most) ||
            most > PTRDIFF_MAX)
                return error_set(RMX_E_INVALID, "%s: count %zu is too large: %zu-byte elements of %u ranks overflow",
                                 o->what, o->count, size, o->comm->n_ranks);
        if (in_factor && !o->in)
                return error_set(RMX_E_INVALID, "%s: in is NULL with count %zu", o->what, o->count);
        if (out_factor && !o->out)
                return error_set(RMX_E_INVALID, "%s: out is NULL with count %zu", o->what, o->count);
        o->in_bytes = bytes * in_factor;
        o->out_bytes = bytes * out_factor;
        if (o->op == RING_OP_ALL_TO_ALL && o->comm->n_ranks > 1 &&
            ranges_overlap((uintptr_t)o->in, o->in_bytes, (uintptr_t)o->out, o->out_bytes))
                return error_set(RMX_E_INVALID, "%s: in and out overlap; this operation cannot run in place", o->what);
        return RMX_OK;
}

/* One direction of a vector: *ret_bytes reaches to the end of its last piece. */
static int check_pieces(const struct operation *o, const char *name, const uint64_t *counts, const uint64_t *offsets,
                        const void *base, size_t *ret_bytes) {
        size_t size = type_size(o->type), total = 0, most = 0, end;

        for (uint32_t i = 0; i < o->comm->n_ranks; i++) {
                if (!counts[i])
                        continue;
                if (__builtin_add_overflow(counts[i], offsets[i], &end) || __builtin_mul_overflow(end, size, &end) ||
                    end > PTRDIFF_MAX || __builtin_add_overflow(total, counts[i] * size, &total) || total > PTRDIFF_MAX)
                        return error_set(RMX_E_INVALID,
                                         "%s: %s_counts[%u] %ju and %s_offsets[%u] %ju are too large: %zu-byte "
                                         "elements overflow",
                                         o->what, name, i, (uintmax_t)counts[i], name, i, (uintmax_t)offsets[i], size);
                if (end > most)
                        most = end;
        }
        if (most && !base)
                return error_set(RMX_E_INVALID, "%s: %s is NULL with %s_counts above 0", o->what,
                                 name[0] == 's' ? "in" : "out", name);
        *ret_bytes = most;
        return RMX_OK;
}

static int check_vector(struct operation *o) {
        uint32_t n = o->comm->n_ranks, rank = o->comm->rank;
        const uint64_t *send = o->vector, *recv = o->vector + 2 * (size_t)n;
        size_t size = type_size(o->type);
        int r;

        r = check_pieces(o, "send", send, send + n, o->in, &o->in_bytes);
        if (!r)
                r = check_pieces(o, "recv", recv, recv + n, o->out, &o->out_bytes);
        if (r)
                return r;
        if (send[rank] != recv[rank])
                return error_set(RMX_E_INVALID,
                                 "%s: send_counts[%u] is %ju and recv_counts[%u] is %ju; rank %u is this rank itself, "
                                 "so they must be equal",
                                 o->what, rank, (uintmax_t)send[rank], rank, (uintmax_t)recv[rank], rank);
        if (n == 1 || !ranges_overlap((uintptr_t)o->in, o->in_bytes, (uintptr_t)o->out, o->out_bytes))
                return RMX_OK;
        for (uint32_t i = 0; i < n * n; i++) {
                uint32_t to = i / n, from = i % n;

                if (ranges_overlap((uintptr_t)o->in + send[n + to] * size, send[to] * size,
                                   (uintptr_t)o->out + recv[n + from] * size, recv[from] * size))
                        return error_set(RMX_E_INVALID,
                                         "%s: what is sent to rank %u and what is received from rank %u overlap",
                                         o->what, to, from);
        }
        return RMX_OK;
}

int operation_check(struct operation *o, const void *stream) {
        const struct shape *shape = &shapes[o->op];
        int r;

        r = comm_check(o->comm, o->what);
        if (r)
                return r;
        if (stream && !o->comm->device)
                return error_set(RMX_E_INVALID, "%s: stream must be NULL for host memory", o->what);
        if (!shape->typed)
                return RMX_OK;
        if (!type_size(o->type))
                return error_set(RMX_E_INVALID, "%s: type %u is unknown; types are 0..%u", o->what, o->type,
                                 RMX_TYPE_COUNT - 1);
        if (shape->reduces) {
                r = check_redop(o);
                if (r)
                        return r;
        }
        r = check_ranks(o, shape);
        if (r)
                return r;
        return o->op == RING_OP_ALL_TO_ALL_V ? check_vector(o) : check_memory(o, shape);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
int operation_locate(const struct operation *o, const char *name, const void *address, size_t bytes, uint32_t *ret_id,
                     uint64_t *ret_offset) {
        size_t size = type_size(o->type);

        *ret_id = 0;
        *ret_offset = 0;
        switch (buffer_table_find(&o->comm->session->buffers, address, bytes, ret_id, ret_offset)) {
        case 0:
                break;
        case BUFFER_E_RANGE:
                return error_set(RMX_E_INVALID, "%s: %s: %zu bytes at %p run over the end of memory from rmx_mem_alloc",
                                 o->what, name, bytes, address);
        default:
                *ret_id = 0;
                return RMX_OK;
        }
        if (*ret_offset % size)
                return error_set(RMX_E_INVALID, "%s: %s: %p is not aligned to the %zu bytes of type %u", o->what, name,
                                 address, size, o->type);
        return RMX_OK;
}

static void line_set_buffer(struct ring_request *line, unsigned int word, uint32_t id, uint64_t offset) {
        line->word[word] = id;
        ring_request_set_u64(line, word + 1, offset);
}

/* Names the memory in the line; memory that is not shared gets a region of that many bytes. */
static int place(const struct operation *o, const void *address, size_t bytes, size_t region_bytes,
                 struct ring_request *line, unsigned int word, struct bounce_region **ret_region) {
        uint64_t offset;
        uint32_t id;
        int r;

        *ret_region = NULL;
        r = operation_locate(o, word == RING_W_IN_BUFFER ? "in" : "out", address, bytes, &id, &offset);
        if (r)
                return r;
        if (!id) {
                r = bounce_acquire(o->comm->session, o->what, address, region_bytes, o->comm->cancel, ret_region);
                if (r)
                        return r;
                id = (*ret_region)->buffer.id;
        }
        line_set_buffer(line, word, id, offset);
        return RMX_OK;
}

/* Is the inner range this rank's block of the outer one, which has one for each rank, or all of it? */
static bool is_block(const struct operation *o, const void *inner, size_t inner_bytes, const void *outer,
                     size_t outer_bytes) {
        if (inner == outer && inner_bytes == outer_bytes)
                return true;
        return inner_bytes && outer_bytes / o->comm->n_ranks == inner_bytes && outer_bytes % o->comm->n_ranks == 0 &&
               (uintptr_t)inner - (uintptr_t)outer == o->comm->rank * inner_bytes;
}

/* In place: one region, or none, for the larger of the two, in which the other one is. */
static int place_one(const struct operation *o, bool out_in_in, struct ring_request *line, struct session_slot *slot) {
        const unsigned int outer_word = out_in_in ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER,
                           inner_word = out_in_in ? RING_W_OUT_BUFFER : RING_W_IN_BUFFER;
        const char *outer = out_in_in ? o->in : o->out, *inner = out_in_in ? o->out : o->in;
        const size_t bytes = out_in_in ? o->in_bytes : o->out_bytes, at = (size_t)(inner - outer);
        char *region;
        int r;

        r = place(o, outer, bytes, bytes, line, outer_word, &slot->regions[0]);
        if (r)
                return r;
        line_set_buffer(line, inner_word, line->word[outer_word], ring_request_u64(line, outer_word + 1) + at);
        if (!slot->regions[0])
                return RMX_OK;
        region = slot->regions[0]->buffer.address;
        memcpy(region + (out_in_in ? 0 : at), o->in, o->in_bytes);
        slot->copy = (struct session_copy){o->out, region + (out_in_in ? at : 0), o->out_bytes};
        return RMX_OK;
}

/* Regions of a request: [0] in, [1] out. In place they are one. */
static int place_both(const struct operation *o, struct ring_request *line, struct session_slot *slot) {
        int r;

        if (o->in_bytes && o->out_bytes && is_block(o, o->out, o->out_bytes, o->in, o->in_bytes))
                return place_one(o, true, line, slot);
        if (o->in_bytes && o->out_bytes && is_block(o, o->in, o->in_bytes, o->out, o->out_bytes))
                return place_one(o, false, line, slot);
        if (o->in_bytes) {
                r = place(o, o->in, o->in_bytes, o->in_bytes, line, RING_W_IN_BUFFER, &slot->regions[0]);
                if (r)
                        return r;
                if (slot->regions[0])
                        memcpy(slot->regions[0]->buffer.address, o->in, o->in_bytes);
        }
        if (!o->out_bytes)
                return RMX_OK;
        r = place(o, o->out, o->out_bytes, o->out_bytes, line, RING_W_OUT_BUFFER, &slot->regions[1]);
        if (r)
                return r;
        if (slot->regions[1])
                slot->copy = (struct session_copy){o->out, slot->regions[1]->buffer.address, o->out_bytes};
        return RMX_OK;
}

static size_t pieces_bytes(const struct operation *o, const uint64_t *counts) {
        size_t bytes = 0;

        for (uint32_t i = 0; i < o->comm->n_ranks; i++)
                bytes += counts[i] * type_size(o->type);
        return bytes;
}

/* Copies the pieces into the region one after another; from here on the offsets are those in the region. */
static void pack_in(const struct operation *o, const struct bounce_region *region) {
        uint64_t *counts = o->vector, *offsets = counts + o->comm->n_ranks, at = 0;
        size_t size = type_size(o->type);

        for (uint32_t i = 0; i < o->comm->n_ranks; i++) {
                if (counts[i])
                        memcpy((char *)region->buffer.address + at * size, (const char *)o->in + offsets[i] * size,
                               counts[i] * size);
                offsets[i] = at;
                at += counts[i];
        }
}

static int pack_out(const struct operation *o, const struct bounce_region *region, struct session_slot *slot) {
        uint32_t n = o->comm->n_ranks;
        uint64_t *counts = o->vector + 2 * (size_t)n, *offsets = counts + n, at = 0;
        size_t size = type_size(o->type);

        slot->copies = calloc(n, sizeof(*slot->copies));
        if (!slot->copies)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", o->what);
        slot->n_copies = n;
        for (uint32_t i = 0; i < n; i++) {
                slot->copies[i] =
                        (struct session_copy){(char *)o->out + (counts[i] ? offsets[i] * size : 0),
                                              (const char *)region->buffer.address + at * size, counts[i] * size};
                offsets[i] = at;
                at += counts[i];
        }
        return RMX_OK;
}

static int place_vector(const struct operation *o, struct ring_request *line, struct session_slot *slot) {
        const uint64_t *recv_counts = o->vector + 2 * (size_t)o->comm->n_ranks;
        int r;

        if (o->in_bytes) {
                r = place(o, o->in, o->in_bytes, pieces_bytes(o, o->vector), line, RING_W_IN_BUFFER, &slot->regions[0]);
                if (r)
                        return r;
                if (slot->regions[0])
                        pack_in(o, slot->regions[0]);
        }
        if (!o->out_bytes)
                return RMX_OK;
        r = place(o, o->out, o->out_bytes, pieces_bytes(o, recv_counts), line, RING_W_OUT_BUFFER, &slot->regions[1]);
        if (r || !slot->regions[1])
                return r;
        return pack_out(o, slot->regions[1], slot);
}

int operation_prepare(struct operation *o, bool attended, struct session_item *ret_item, uint64_t *argument) {
        struct rmx_comm *comm = o->comm;
        struct session_item *item = ret_item;
        int r;

        *item = (struct session_item){.ring = comm->ring,
                                      .slot = {.comm = comm, .what = o->what, .attended = attended}};
        ring_request_set_head(&item->line, o->op, o->type, o->redop);
        item->line.word[RING_W_COMM] = comm->handle;
        ring_request_set_u64(&item->line, RING_W_COUNT_LO, o->count);
        item->line.word[RING_W_PEER] = o->peer;
        item->line.word[RING_W_EPOCH] = comm_epoch(comm);
        if (o->op == RING_OP_ALL_TO_ALL_V) {
                item->argument = o->vector;
                item->argument_bytes = 4 * comm->n_ranks * (uint32_t)sizeof(uint64_t);
                r = place_vector(o, &item->line, &item->slot);
        } else {
                if (o->redop == RMX_PREMUL_SUM) {
                        *argument = redop_factor_bits(&o->factor, o->type);
                        item->argument = argument;
                        item->argument_bytes = sizeof(*argument);
                }
                r = place_both(o, &item->line, &item->slot);
        }
        if (r)
                session_slot_drop(comm->session, &item->slot);
        return r;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */
static int operation_start(struct operation *o, bool attended, struct request *ret_request) {
        struct session_item item;
        uint64_t argument;
        int r;

        if (comm_status(o->comm))
                return comm_report(o->comm, o->what, comm_status(o->comm));
        r = operation_prepare(o, attended, &item, &argument);
        if (r)
                return r;
        r = requests_start(&item, 1, ret_request);
        if (r)
                session_slot_drop(o->comm->session, &item.slot);
        return r;
}

int operation_run(struct operation *o, void *stream) {
        struct request request;
        int r;

        r = operation_check(o, stream);
        if (!r && o->comm->device && !group_is_open())
                return device_run(o, stream);
        o->stream = stream;
        if (group_is_open())
                return r ? group_spoil(r) : group_record(o);
        if (!r)
                r = operation_start(o, true, &request);
        return r ? r : request_complete(&request);
}

int operation_begin(struct operation *o, void *stream, struct rmx_request *ret_request) {
        struct device_handle handle;
        struct request request;
        int r;

        r = group_refuse(o->what);
        if (r)
                return group_spoil(r);
        if (!ret_request)
                return error_set(RMX_E_INVALID, "%s: ret_request is NULL", o->what);
        r = operation_check(o, stream);
        if (!r && o->comm->device) {
                r = device_begin(o, stream, &handle);
                if (!r)
                        request_give_device(&handle, ret_request);
                return r;
        }
        if (!r)
                r = operation_start(o, false, &request);
        if (!r)
                request_give(&request, ret_request);
        return r;
}
