/* SPDX-License-Identifier: MIT */
/*
 * What a plan means
 *
 * A plan is a program without branches for all ranks of a communicator. Every rank runs the phases that are its own
 * (`who`), all at once: each phase has a cursor, and whoever executes the rank tries the cursors in any order, as often
 * as it likes. Whatever the executor does (a warp per phase, one thread for sixty-four ranks, a simulator), it must
 * keep to the following; the verifier assumes no more than this.
 *
 * Steps. A cursor walks through the steps of its phase in a fixed order and never skips or goes back. A step that is
 * not ready changes nothing and is tried again; it holds up its own phase and nothing else.
 *
 *   kind       steps         needs                      then, in this order
 *   PUSH       (part, peer)  a free slot to the peer    copies input into the slot, sets its flag
 *   SIGNAL     (peer)        the same                   sets the flag of an empty chunk
 *   COPY       (part, peer)  the peer's next chunk      copies it into the output, releases it
 *   WAIT       (peer)        the same                   releases it
 *   COPY SELF  (part)        nothing                    copies input to output; nothing if they are the same
 *   REDUCE     (part)        every other rank's next    reduces own input and the chunks in rank order into
 *                            chunk; to forward, also    the output; copies the result into the slots and sets
 *                            a free slot to each: all   their flags; releases the chunks
 *                            of this before it writes
 *
 * (part, peer) goes part by part, and within a part through the peers in the order of plan_phase_peer(): sends start
 * behind the own rank and go up, receives start before it and go down, so that what is sent first is received first and
 * the ranks do not all start with the same one. A phase without peers (a single rank has no others) is done at once,
 * except REDUCE, which then has its own input to write out.
 *
 * `after` = q: step (part i, any peer) waits until phase q of the same rank has done all steps of its part i; a phase q
 * with fewer parts, or one that this rank does not run, is waited for as a whole (and is then at once done if it has no
 * steps). Nothing else orders the phases of a request: everything more is won from chunks and credits.
 *
 * Chunks. Chunk number c of a channel lies in slot c mod slots. The source may write it when chunk c - slots has been
 * released; a chunk is released as soon as it has been read. The destination knows which number comes next and takes
 * exactly that one. Chunks carry no length and no address: both ends derive the span from the plan and the request.
 * Therefore every rank counts the same number of parts for a phase, those of the largest span that any rank has, and a
 * part that is empty here (ragged or empty shard) moves an empty chunk.
 *
 * Requests. A rank begins its next request when all phases of the former one are done. Ranks may be at different
 * requests; chunks of a later one queue up behind those of the former. That is sound for any sequence of plans if each
 * of them takes as many chunks from each channel as it puts there. The argument, which lets the verifier look at one
 * plan at a time (it looks at pairs as well): let k be the earliest request that some rank has not finished. All ranks
 * have finished what came before, so the channels hold nothing older. A chunk that a step of request k needs is the
 * source's work in request k, since counts agree; a credit that it needs comes from releasing a chunk of request k or
 * older. So whether k gets stuck, and what it computes, depends on nothing but k; a rank that runs ahead only fills
 * slots that k has let go of, and that adds order, never removes any.
 *
 * Numbers. Chunk numbers and credits are counters of 32 bits that wrap. A slot's flag before chunk c is written is the
 * number of the chunk before it in that slot, c - slots, and credits are never more than `slots` behind; so comparing
 * for equality, and by unsigned difference, is exact for every counter of b bits with slots < 2^b, however often it
 * wraps, if counting starts at 1 and flags at 0 (or flags are set when it starts elsewhere).
 *
 * Buffers. A rank's input and output are touched by its own phases only, hence after its own bell. In place, the output
 * lies on the input (all_reduce, broadcast), around it (all_gather: the own block) or inside it (reduce_scatter); the
 * verifier proves that nothing is overwritten before it was read.
 */
#include "plan/plan.h"

#include "ring/ring.h"

static const char *const operation_names[RING_OP_COUNT] = {
        [RING_OP_NONE] = "none",
        [RING_OP_ALL_REDUCE] = "all_reduce",
        [RING_OP_REDUCE] = "reduce",
        [RING_OP_BROADCAST] = "broadcast",
        [RING_OP_ALL_GATHER] = "all_gather",
        [RING_OP_REDUCE_SCATTER] = "reduce_scatter",
        [RING_OP_ALL_TO_ALL] = "all_to_all",
        [RING_OP_ALL_TO_ALL_V] = "all_to_all_v",
        [RING_OP_GATHER] = "gather",
        [RING_OP_SCATTER] = "scatter",
        [RING_OP_SEND] = "send",
        [RING_OP_RECV] = "recv",
        [RING_OP_BARRIER] = "barrier",
};

static const char *const algorithm_names[PLAN_ALGORITHM_COUNT] = {
        [PLAN_ALGORITHM_NONE] = "none",
        [PLAN_ONE_SHOT] = "one_shot",
        [PLAN_TWO_SHOT] = "two_shot",
        [PLAN_DIRECT] = "direct",
};

const char *plan_operation_name(uint32_t operation) {
        return operation < RING_OP_COUNT ? operation_names[operation] : "?";
}

const char *plan_algorithm_name(uint32_t algorithm) {
        return algorithm < PLAN_ALGORITHM_COUNT ? algorithm_names[algorithm] : "?";
}

bool plan_operation_reduces(uint32_t operation) {
        return operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
}

bool plan_operation_rooted(uint32_t operation) {
        return operation == RING_OP_BROADCAST || operation == RING_OP_REDUCE || operation == RING_OP_GATHER ||
               operation == RING_OP_SCATTER;
}

int plan_request_elements(uint32_t operation, uint32_t n_ranks, uint64_t count, bool is_root, uint64_t *ret_in,
                          uint64_t *ret_out) {
        uint64_t in = count, out = count;

        switch (operation) {
        case RING_OP_ALL_REDUCE:
                break;
        case RING_OP_ALL_GATHER:
                if (__builtin_mul_overflow(count, (uint64_t)n_ranks, &out))
                        return PLAN_E_INVALID;
                break;
        case RING_OP_REDUCE_SCATTER:
                if (__builtin_mul_overflow(count, (uint64_t)n_ranks, &in))
                        return PLAN_E_INVALID;
                break;
        case RING_OP_BROADCAST:
                in = is_root ? count : 0;
                break;
        case RING_OP_BARRIER:
                in = out = 0;
                break;
        default:
                return PLAN_E_UNSUPPORTED;
        }
        *ret_in = in;
        *ret_out = out;
        return PLAN_OK;
}

bool plan_phase_mine(const struct plan_phase *phase, uint32_t me, uint32_t root) {
        switch (phase->who) {
        case PLAN_WHO_ROOT:
                return me == root;
        case PLAN_WHO_OTHERS:
                return me != root;
        default:
                return true;
        }
}

uint32_t plan_phase_peers(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root) {
        (void)me;
        (void)root;
        return phase->peers == PLAN_PEERS_OTHERS ? plan->n_ranks - 1 : 1;
}

uint32_t plan_phase_peer(const struct plan *plan, const struct plan_phase *phase, uint32_t me, uint32_t root,
                         uint32_t k) {
        uint32_t n = plan->n_ranks;

        switch (phase->peers) {
        case PLAN_PEERS_OTHERS:
                if (phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL)
                        return (me + 1 + k) % n;
                return (me + n - 1 - k) % n;
        case PLAN_PEERS_ROOT:
                return root;
        default:
                return me;
        }
}
