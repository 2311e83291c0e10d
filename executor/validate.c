/* SPDX-License-Identifier: MIT */
#include "executor/validate.h"

#include <stdbool.h>

#include "executor/bell.h"
#include "executor/executor.h"
#include "executor/session.h"
#include "plan/plan.h"
#include "railmux/railmux.h"
#include "util/type.h"

static const char text_memory[] = "an unknown buffer, or memory outside of it, or an address not aligned to its type";
static const char text_argument[] = "an argument block where none may be, or outside of the argument space";

struct validation {
        struct executor *executor;
        struct session *session;
        const struct validate_rank *rank;
        const struct ring_request *line;
        struct request *request;
        const char *text;
};

static uint32_t refuse(struct validation *v, uint32_t code, const char *text) {
        v->text = text;
        return code;
}

/* [offset, offset + elements * size) of a buffer, checked without overflow. elements 0: no memory is needed, none is
 * resolved. */
static bool resolve(struct session *session, uint32_t id, uint64_t offset, uint64_t elements, uint32_t element_bytes,
                    struct buffer **ret_buffer, void **ret_address) {
        struct buffer *buffer;
        uint64_t bytes;

        *ret_buffer = NULL;
        *ret_address = NULL;
        if (!elements)
                return true;
        buffer = session_buffer(session, id);
        if (!buffer || __builtin_mul_overflow(elements, (uint64_t)element_bytes, &bytes))
                return false;
        if (offset > buffer->bytes || bytes > buffer->bytes - offset || offset % element_bytes)
                return false;
        *ret_buffer = buffer;
        *ret_address = (char *)buffer->address + offset;
        return true;
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */
static uint32_t resolve_both(struct validation *v, uint64_t in_elements, uint64_t out_elements) {
        const struct ring_request *line = v->line;
        struct request *request = v->request;
        uint32_t element_bytes = request->one.shape.element_bytes;
        void *in, *out;

        if (!resolve(v->session, line->word[RING_W_IN_BUFFER], ring_request_u64(line, RING_W_IN_LO), in_elements,
                     element_bytes, &request->in_buffer, &in) ||
            !resolve(v->session, line->word[RING_W_OUT_BUFFER], ring_request_u64(line, RING_W_OUT_LO), out_elements,
                     element_bytes, &request->out_buffer, &out)) {
                request->in_buffer = request->out_buffer = NULL;
                return refuse(v, RMX_E_INVALID, text_memory);
        }
        request->one.in = in;
        request->one.out = out;
        return RMX_OK;
}

static uint32_t validate_scalar(struct validation *v) {
        uint32_t argument = v->line->word[RING_W_ARGUMENT], code;

        if (!plan_operation_reduces(v->request->operation) || v->request->one.redop != RMX_PREMUL_SUM)
                return argument ? refuse(v, RMX_E_INVALID, text_argument) : RMX_OK;
        code = bell_copy_argument(v->request, argument, sizeof(uint64_t), 0);
        if (code)
                return refuse(v, code, text_argument);
        v->request->one.scalar = *(const uint64_t *)v->request->memory;
        return RMX_OK;
}

static uint32_t validate_vector(struct validation *v) {
        uint32_t n = v->rank->n_ranks, code;
        struct request *request = v->request;
        uint64_t in_elements, out_elements, *words;

        if (request->one.shape.count)
                return refuse(v, RMX_E_INVALID, "a count beside the counts of an all_to_all_v");
        code = bell_copy_argument(request, v->line->word[RING_W_ARGUMENT], 4 * sizeof(uint64_t) * n, 0);
        if (code)
                return refuse(v, code, text_argument);
        words = request->memory;
        request->vector = (struct plan_vector){words, words + n, words + 2 * (size_t)n, words + 3 * (size_t)n};
        if (plan_vector_elements(&request->vector, n, &in_elements, &out_elements))
                return refuse(v, RMX_E_INVALID, "a count that overflows");
        if (request->vector.send_count[v->rank->rank] != request->vector.recv_count[v->rank->rank])
                return refuse(v, RMX_E_INVALID, "an all_to_all_v that sends itself another count than it receives");
        request->one.shape.vector = &request->vector;
        return resolve_both(v, in_elements, out_elements);
}

static uint32_t validate_collective(struct validation *v) {
        const struct ring_request *line = v->line;
        struct gpu_request *gpu = &v->request->one;
        uint32_t op = v->request->operation, root = line->word[RING_W_PEER], code;
        uint64_t in_elements, out_elements;
        bool reduces = plan_operation_reduces(op), rooted = plan_operation_rooted(op);

        if (rooted ? root >= v->rank->n_ranks : root != 0)
                return refuse(v, RMX_E_INVALID, "a root that is no rank of the comm");
        if (reduces ? gpu->redop >= RMX_REDOP_COUNT : gpu->redop != 0)
                return refuse(v, RMX_E_INVALID, "an unknown reduction");
        if (reduces && !v->executor->ops->reduces(v->executor->gpu, gpu->type, gpu->redop))
                return refuse(v, RMX_E_UNSUPPORTED, "a reduction that this backend has not for this type");
        if (op == RING_OP_BARRIER && gpu->shape.count)
                return refuse(v, RMX_E_INVALID, "a count for a barrier");
        gpu->shape.root = root;
        v->request->gpu = gpu;
        v->request->n_gpu = v->request->n_run = 1;
        if (op == RING_OP_ALL_TO_ALL_V)
                return validate_vector(v);
        if (plan_request_elements(op, v->rank->n_ranks, gpu->shape.count, rooted && root == v->rank->rank, &in_elements,
                                  &out_elements))
                return refuse(v, RMX_E_INVALID, "a count that overflows");
        code = validate_scalar(v);
        return code ? code : resolve_both(v, in_elements, out_elements);
}

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
static uint32_t validate_entry(struct validation *v, const struct ring_group_entry *from, struct p2p_entry *entry,
                               struct gpu_request *gpu) {
        uint32_t element_bytes = (uint32_t)type_size(from->type);
        bool sends = from->operation == RING_OP_SEND;
        void *address;

        if ((!sends && from->operation != RING_OP_RECV) || from->zero)
                return refuse(v, RMX_E_INVALID, "a group may hold sends and receives only");
        if (!element_bytes)
                return refuse(v, RMX_E_INVALID, "an unknown type");
        if (from->peer >= v->rank->n_ranks)
                return refuse(v, RMX_E_INVALID, "a peer that is no rank of the comm");
        if (!resolve(v->session, from->buffer, from->offset, from->count, element_bytes, &entry->buffer, &address))
                return refuse(v, RMX_E_INVALID, text_memory);
        entry->request = v->request;
        entry->sequence = from->sequence;
        entry->peer = from->peer;
        entry->sends = sends;
        *gpu = (struct gpu_request){
                .in = sends ? address : NULL,
                .out = sends ? NULL : address,
                .type = from->type,
                .sequence = from->sequence,
                .shape = {.count = from->count,
                          .element_bytes = element_bytes,
                          .partial_bytes = element_bytes,
                          .root = sends ? v->rank->rank : from->peer,
                          .peer = sends ? from->peer : v->rank->rank,
                          .role = sends ? PLAN_ROLE_SENDER : PLAN_ROLE_RECEIVER},
        };
        return RMX_OK;
}

/* A line with one send or receive is a group of one. */
static uint32_t validate_single(struct validation *v) {
        const struct ring_request *line = v->line;
        struct request *request = v->request;
        bool sends = request->operation == RING_OP_SEND;
        const struct ring_group_entry entry = {
                .operation = request->operation,
                .type = ring_request_type(line),
                .peer = line->word[RING_W_PEER],
                .sequence = line->word[RING_W_SEQUENCE],
                .count = ring_request_u64(line, RING_W_COUNT_LO),
                .offset = ring_request_u64(line, sends ? RING_W_IN_LO : RING_W_OUT_LO),
                .buffer = line->word[sends ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER],
        };
        uint32_t code;

        if (line->word[RING_W_ARGUMENT])
                return refuse(v, RMX_E_INVALID, text_argument);
        if (ring_request_redop(line))
                return refuse(v, RMX_E_INVALID, "an unknown reduction");
        code = validate_entry(v, &entry, &request->one_entry, &request->one);
        if (code)
                return code;
        request->gpu = &request->one;
        request->entries = &request->one_entry;
        request->n_gpu = request->n_run = 1;
        return RMX_OK;
}

static uint32_t validate_group(struct validation *v) {
        const struct ring_request *line = v->line;
        struct request *request = v->request;
        uint64_t n = ring_request_u64(line, RING_W_COUNT_LO), bytes, room;
        const struct ring_group_entry *from;
        struct p2p_entry *entries;
        struct gpu_request *gpu;
        uint32_t code;

        if (!n || n > RING_GROUP_MAX || ring_request_type(line) || ring_request_redop(line) ||
            line->word[RING_W_PEER] || line->word[RING_W_SEQUENCE])
                return refuse(v, RMX_E_INVALID, "a group without entries, with too many, or with words of its own");
        bytes = (n * sizeof(*from) + 7) & ~UINT64_C(7);
        room = n * (sizeof(*entries) + sizeof(*gpu));
        code = bell_copy_argument(request, line->word[RING_W_ARGUMENT], bytes, room);
        if (code)
                return refuse(v, code, text_argument);
        from = request->memory;
        gpu = (struct gpu_request *)(void *)((char *)request->memory + bytes);
        entries = (struct p2p_entry *)(void *)(gpu + n);
        for (uint32_t i = 0; i < n; i++) {
                code = validate_entry(v, &from[i], &entries[i], &gpu[i]);
                if (code)
                        return code;
        }
        request->gpu = gpu;
        request->entries = entries;
        request->n_gpu = (uint32_t)n;
        return RMX_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ */
static uint32_t validate(struct validation *v) {
        const struct ring_request *line = v->line;
        struct request *request = v->request;
        uint32_t type = ring_request_type(line), redop = ring_request_redop(line);

        request->operation = ring_request_op(line);
        if (line->word[RING_W_FLAGS] || line->word[RING_W_ZERO])
                return refuse(v, RMX_E_INVALID, "unknown flags or non-zero reserved words");
        if (ring_sequence_before(v->rank->epoch, line->word[RING_W_EPOCH]))
                return refuse(v, RMX_E_INVALID, "an epoch that does not exist yet");
        switch (request->operation) {
        case RING_OP_SEND:
        case RING_OP_RECV:
                return validate_single(v);
        case RING_OP_GROUP:
                return validate_group(v);
        case RING_OP_NONE:
                return refuse(v, RMX_E_INVALID, "an unknown operation");
        default:
                break;
        }
        if (request->operation >= RING_OP_COUNT)
                return refuse(v, RMX_E_INVALID, "an unknown operation");
        if (!type_size(type))
                return refuse(v, RMX_E_INVALID, "an unknown type");
        request->one = (struct gpu_request){
                .type = type,
                .redop = redop,
                .shape = {.count = ring_request_u64(line, RING_W_COUNT_LO),
                          .element_bytes = (uint32_t)type_size(type),
                          .partial_bytes = (uint32_t)type_accumulator_size(type, redop)},
        };
        return validate_collective(v);
}

uint32_t validate_request(struct executor *executor, struct session *session, const struct validate_rank *rank,
                          const struct ring_request *line, struct request *request, const char **ret_text) {
        struct validation v = {executor, session, rank, line, request, NULL};
        uint32_t code = validate(&v);

        if (code) {
                request->entries = NULL;
                *ret_text = v.text;
        }
        return code;
}
