/* SPDX-License-Identifier: MIT */
/*
 * What a plan means
 *
 * A plan is a program without branches for all ranks of a communicator. Every rank runs the phases that are its own
 * (`who`), all at once: each phase has a cursor, and whoever executes the rank tries the cursors in any order, as often
 * as it likes. Whatever the executor does (a warp per phase, one thread for sixty-four ranks, a simulator), it must
 * keep to the following; the verifier assumes no more than this.
 *
 * Steps. A cursor walks through the steps of its phase in a fixed order, part by part and within a part from step 0 to
 * the last, and never skips or goes back. plan_step() says what a step does; what the kinds of phases mean is in step.c
 * and pass.c. A step is ready when every chunk that it takes has arrived and every channel that it sends on has a free
 * slot. A step that is not ready changes nothing and is tried again; it holds up its own phase and nothing else. A
 * ready step reads its sources, combines them in their order, writes outputs and slots, sets the slots' flags, and then
 * gives the chunks that it took back. A phase without steps (a single rank has no others) is done at once.
 *
 * `after` = q: step (part i, any k) waits until phase q of the same rank has done all steps of its part i, or, with
 * `after_whole`, of all its parts; a phase q with fewer parts, or one that this rank does not run, is waited for as a
 * whole (and is then at once done if it has no steps). Nothing else orders the phases of a request: everything more is
 * won from chunks and credits.
 *
 * Chunks. Chunk number c of a channel lies in slot c mod slots. The source may write it when chunk c - slots has been
 * released; a chunk is released as soon as it has been read. The destination knows which number comes next and takes
 * exactly that one. Chunks carry no length and no address: both ends derive the span from the plan and the request.
 * Therefore both ends of a channel count the same number of parts: those of the largest span that any rank has, where a
 * part that is empty here (ragged or empty shard) moves an empty chunk; with vectors, those of the pair, and there are
 * no empty ones.
 *
 * Memory where it lies. Steps of READ and FOLD, and of PASS over nodes, touch other ranks' inputs and outputs. They
 * must be ordered, by chunks, behind the beginning of that rank's request and before its end: nobody touches the memory
 * of a rank that has not called yet, or that has been told that it is done. The verifier proves it for each access.
 *
 * Nodes. With `nodes` that is further limited to ranks of the same node; chunks and credits go between any two ranks,
 * in the same order and with the same meaning, whatever carries them. A plan that never touches memory of others needs
 * to know nothing of nodes. Those that do are PASS phases of schedules over nodes (pass_node.c), which may touch other
 * ranks' memory like READ and FOLD. PLAN_RANKS_MAX counts the ranks of all nodes together.
 *
 * Values. A contribution is an element of an input (times the rank's factor for a pre-multiplied sum, rounded to the
 * type). Chunks carry elements, or accumulators where the step says so; `finish` divides an average by the number of
 * ranks and rounds to the type, and happens to every output element exactly once. The order of combination is the
 * plan's tree.
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
 * Point to point. A send and its receive are one plan (operation send) of which each of both ranks runs its half, at
 * whatever place in its own sequence of requests. Their channels are in regions that no collective uses, so the
 * argument holds for the pairs by themselves: what a pair exchanges is ordered by the order of sends on one side and of
 * receives on the other. Requests of a group run at once; those of the same pair and direction one after another.
 *
 * Numbers. Chunk numbers and credits are counters of 32 bits that wrap. A slot's flag before chunk c is written is the
 * number of the chunk before it in that slot, c - slots, and credits are never more than `slots` behind; so comparing
 * for equality, and by unsigned difference, is exact for every counter of b bits with slots < 2^b, however often it
 * wraps, if counting starts at 1 and flags at 0 (or flags are set when it starts elsewhere).
 *
 * In place, the output lies on the input (all_reduce, reduce, broadcast), around it (all_gather, gather: the own block)
 * or inside it (reduce_scatter, scatter); the verifier proves that nothing is overwritten before it was read. A step of
 * an operation that does not reduce, with one source that is memory and lies exactly where an output lies, leaves that
 * output alone: others may be reading it.
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
        [RING_OP_GROUP] = "group",
};

static const char *const algorithm_names[PLAN_ALGORITHM_COUNT] = {
        [PLAN_ALGORITHM_NONE] = "none",
        [PLAN_ONE_SHOT] = "one_shot",
        [PLAN_TWO_SHOT] = "two_shot",
        [PLAN_DIRECT] = "direct",
        [PLAN_ZERO_COPY] = "zero_copy",
        [PLAN_RING] = "ring",
        [PLAN_RECURSIVE_DOUBLING] = "recursive_doubling",
        [PLAN_HALVING_DOUBLING] = "halving_doubling",
        [PLAN_TREE] = "tree",
        [PLAN_HIERARCHICAL] = "hierarchical",
        [PLAN_HIERARCHICAL_SCATTER] = "hierarchical_scatter",
        [PLAN_HIERARCHICAL_DOUBLING] = "hierarchical_doubling",
        [PLAN_HIERARCHICAL_RING] = "hierarchical_ring",
        [PLAN_HIERARCHICAL_TREE] = "hierarchical_tree",
        [PLAN_HIERARCHICAL_RAIL] = "hierarchical_rail",
        [PLAN_HIERARCHICAL_STAGED] = "hierarchical_staged",
        [PLAN_HIERARCHICAL_STAGED_SCATTER] = "hierarchical_staged_scatter",
        [PLAN_HIERARCHICAL_DOUBLE_TREE] = "hierarchical_double_tree",
};

static const char *const kind_names[PLAN_KIND_COUNT] = {
        [0] = "none",
        [PLAN_PUSH] = "push",
        [PLAN_REDUCE] = "reduce",
        [PLAN_COPY] = "copy",
        [PLAN_SIGNAL] = "signal",
        [PLAN_WAIT] = "wait",
        [PLAN_NET_PUT] = "net_put",
        [PLAN_NET_WAIT] = "net_wait",
        [PLAN_QUANTISE] = "quantise",
        [PLAN_DEQUANTISE] = "dequantise",
        [PLAN_READ] = "read",
        [PLAN_FOLD] = "fold",
        [PLAN_PASS] = "pass",
};

static const char *const tree_names[PLAN_TREE_COUNT] = {
        [PLAN_TREE_NONE] = "none",
        [PLAN_TREE_RANK_ORDER] = "rank_order",
        [PLAN_TREE_ROTATED] = "rotated",
        [PLAN_TREE_DOUBLING] = "doubling",
        [PLAN_TREE_BINARY] = "binary",
        [PLAN_TREE_NODE_ORDER] = "node_order",
        [PLAN_TREE_NODE_ROTATED] = "node_rotated",
        [PLAN_TREE_NODE_DOUBLING] = "node_doubling",
        [PLAN_TREE_NODE_BINARY] = "node_binary",
        [PLAN_TREE_NODE_DOUBLE] = "node_double",
};

const char *plan_operation_name(uint32_t operation) {
        return operation < RING_OP_COUNT ? operation_names[operation] : "?";
}

const char *plan_algorithm_name(uint32_t algorithm) {
        return algorithm < PLAN_ALGORITHM_COUNT ? algorithm_names[algorithm] : "?";
}

const char *plan_kind_name(uint32_t kind) {
        return kind < PLAN_KIND_COUNT ? kind_names[kind] : "?";
}

const char *plan_tree_name(uint32_t tree) {
        return tree < PLAN_TREE_COUNT ? tree_names[tree] : "?";
}

bool plan_operation_reduces(uint32_t operation) {
        return operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
}

bool plan_operation_rooted(uint32_t operation) {
        return operation == RING_OP_BROADCAST || operation == RING_OP_REDUCE || operation == RING_OP_GATHER ||
               operation == RING_OP_SCATTER;
}

bool plan_operation_p2p(uint32_t operation) {
        return operation == RING_OP_SEND || operation == RING_OP_RECV;
}

int plan_request_elements(uint32_t operation, uint32_t n_ranks, uint64_t count, bool is_root, uint64_t *ret_in,
                          uint64_t *ret_out) {
        uint64_t in = count, out = count, all;

        if (__builtin_mul_overflow(count, (uint64_t)n_ranks, &all))
                return PLAN_E_INVALID;
        switch (operation) {
        case RING_OP_ALL_REDUCE:
                break;
        case RING_OP_REDUCE:
                out = is_root ? count : 0;
                break;
        case RING_OP_BROADCAST:
                in = is_root ? count : 0;
                break;
        case RING_OP_ALL_GATHER:
                out = all;
                break;
        case RING_OP_REDUCE_SCATTER:
                in = all;
                break;
        case RING_OP_ALL_TO_ALL:
                in = out = all;
                break;
        case RING_OP_GATHER:
                out = is_root ? all : 0;
                break;
        case RING_OP_SCATTER:
                in = is_root ? all : 0;
                break;
        case RING_OP_SEND:
                out = 0;
                break;
        case RING_OP_RECV:
                in = 0;
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

static int vector_end(const uint64_t *counts, const uint64_t *offsets, uint32_t n_ranks, uint64_t *ret_end) {
        uint64_t end = 0;

        for (uint32_t r = 0; r < n_ranks; r++) {
                uint64_t last;

                if (counts[r] == 0)
                        continue;
                if (__builtin_add_overflow(counts[r], offsets[r], &last))
                        return PLAN_E_INVALID;
                end = last > end ? last : end;
        }
        *ret_end = end;
        return PLAN_OK;
}

int plan_vector_elements(const struct plan_vector *vector, uint32_t n_ranks, uint64_t *ret_in, uint64_t *ret_out) {
        uint64_t in, out;

        if (vector_end(vector->send_count, vector->send_offset, n_ranks, &in) ||
            vector_end(vector->recv_count, vector->recv_offset, n_ranks, &out))
                return PLAN_E_INVALID;
        *ret_in = in;
        *ret_out = out;
        return PLAN_OK;
}
