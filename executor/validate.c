/* SPDX-License-Identifier: MIT */
#include "executor/validate.h"

#include <stdbool.h>

#include "executor/executor.h"
#include "executor/session.h"
#include "plan/plan.h"
#include "railmux/railmux.h"
#include "util/type.h"

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

uint32_t validate_request(struct executor *executor, struct session *session, const struct validate_rank *rank,
                          const struct ring_request *line, struct request *request, const char **ret_text) {
        uint32_t op = ring_request_op(line), type = ring_request_type(line), redop = ring_request_redop(line);
        uint32_t root = line->word[RING_W_PEER], element_bytes;
        uint64_t count = ring_request_u64(line, RING_W_COUNT_LO), in_elements, out_elements;
        void *in, *out;

        if (line->word[RING_W_FLAGS] || line->word[RING_W_ZERO] || line->word[RING_W_ARGUMENT]) {
                *ret_text = "unknown flags or non-zero reserved words";
                return RMX_E_INVALID;
        }
        if (ring_sequence_before(rank->epoch, line->word[RING_W_EPOCH])) {
                *ret_text = "an epoch that does not exist yet";
                return RMX_E_INVALID;
        }
        if (op == RING_OP_NONE || op >= RING_OP_COUNT) {
                *ret_text = "an unknown operation";
                return RMX_E_INVALID;
        }
        element_bytes = (uint32_t)type_size(type);
        if (!element_bytes) {
                *ret_text = "an unknown type";
                return RMX_E_INVALID;
        }
        if (plan_operation_rooted(op) ? root >= rank->n_ranks : root != 0) {
                *ret_text = "a root that is no rank of the comm";
                return RMX_E_INVALID;
        }
        if (plan_operation_reduces(op) ? redop >= RMX_REDOP_COUNT : redop != 0) {
                *ret_text = "an unknown reduction";
                return RMX_E_INVALID;
        }
        if (plan_operation_reduces(op) && !executor->ops->reduces(executor->gpu, type, redop)) {
                *ret_text = "a reduction that this backend has not for this type";
                return RMX_E_UNSUPPORTED;
        }
        if (op == RING_OP_BARRIER && count) {
                *ret_text = "a count for a barrier";
                return RMX_E_INVALID;
        }
        if (plan_request_elements(op, rank->n_ranks, count, plan_operation_rooted(op) && root == rank->rank,
                                  &in_elements, &out_elements)) {
                *ret_text = "a count that overflows";
                return RMX_E_INVALID;
        }
        if (!resolve(session, line->word[RING_W_IN_BUFFER], ring_request_u64(line, RING_W_IN_LO), in_elements,
                     element_bytes, &request->in_buffer, &in) ||
            !resolve(session, line->word[RING_W_OUT_BUFFER], ring_request_u64(line, RING_W_OUT_LO), out_elements,
                     element_bytes, &request->out_buffer, &out)) {
                request->in_buffer = request->out_buffer = NULL;
                *ret_text = "an unknown buffer, or memory outside of it, or an address not aligned to its type";
                return RMX_E_INVALID;
        }
        request->operation = op;
        request->gpu = (struct gpu_request){
                .in = in,
                .out = out,
                .count = count,
                .type = type,
                .redop = redop,
                .root = root,
        };
        return RMX_OK;
}
