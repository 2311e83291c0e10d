/* SPDX-License-Identifier: MIT */
#include "tools/sim/words.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
        char *at;
        size_t size, length;
};

static void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_add(struct text *text, const char *format, ...) {
        va_list arguments;
        int n;

        va_start(arguments, format);
        n = vsnprintf(text->at + text->length, text->size - text->length, format, arguments);
        va_end(arguments);
        if (n > 0)
                text->length += (size_t)n < text->size - text->length ? (size_t)n : text->size - text->length - 1;
}

const char *words_who(uint32_t who, bool p2p) {
        switch (who) {
        case PLAN_WHO_ALL:
                return "all ranks";
        case PLAN_WHO_ROOT:
                return p2p ? "the sender" : "the root";
        case PLAN_WHO_OTHERS:
                return "all but the root";
        case PLAN_WHO_PEER:
                return "the receiver";
        default:
                return "?";
        }
}

const char *words_peers(uint32_t peers, bool p2p) {
        switch (peers) {
        case PLAN_PEERS_SELF:
                return "itself";
        case PLAN_PEERS_OTHERS:
                return "each other rank";
        case PLAN_PEERS_ROOT:
                return p2p ? "the sender" : "the root";
        case PLAN_PEERS_PEER:
                return "the receiver";
        default:
                return "?";
        }
}

const char *words_range(uint32_t range) {
        static const char *const words[PLAN_RANGE_COUNT] = {
                [PLAN_RANGE_NONE] = "nothing",
                [PLAN_RANGE_WHOLE] = "everything",
                [PLAN_RANGE_SHARD_ME] = "the own shard",
                [PLAN_RANGE_SHARD_PEER] = "the shard in question",
                [PLAN_RANGE_BLOCK_ME] = "the own block",
                [PLAN_RANGE_BLOCK_PEER] = "the block in question",
                [PLAN_RANGE_VECTOR_SEND] = "the piece sent",
                [PLAN_RANGE_VECTOR_RECV] = "the piece received",
        };

        return range < PLAN_RANGE_COUNT ? words[range] : "?";
}

const char *words_schedule(uint32_t schedule) {
        static const char *const words[PLAN_SCHEDULE_COUNT] = {
                [PLAN_SCHEDULE_NONE] = "none",
                [PLAN_RING_ALL_REDUCE] = "ring_all_reduce",
                [PLAN_RING_REDUCE_SCATTER] = "ring_reduce_scatter",
                [PLAN_RING_ALL_GATHER] = "ring_all_gather",
                [PLAN_CHAIN_REDUCE] = "chain_reduce",
                [PLAN_CHAIN_BROADCAST] = "chain_broadcast",
                [PLAN_TREE_UP] = "tree_up",
                [PLAN_TREE_DOWN] = "tree_down",
                [PLAN_DOUBLING_ALL_REDUCE] = "doubling_all_reduce",
                [PLAN_DOUBLING_ALL_GATHER] = "doubling_all_gather",
                [PLAN_DOUBLING_BARRIER] = "doubling_barrier",
                [PLAN_HALVING_ALL_REDUCE] = "halving_all_reduce",
                [PLAN_HALVING_REDUCE_SCATTER] = "halving_reduce_scatter",
        };

        return schedule < PLAN_SCHEDULE_COUNT && words[schedule] ? words[schedule] : "?";
}

/* Carriers of a shard: on each node the rank that has its number among the ranks there. */
static const char *between_nodes(uint32_t schedule) {
        static const char *const words[PLAN_SCHEDULE_COUNT] = {
                [PLAN_NODE_MEET] = "ranks of a node wait for each other",
                [PLAN_NODE_BARRIER] = "a rank of each node signals others, 1, 2, 4, ... nodes further on",
                [PLAN_NODE_EXCHANGE] = "carriers read the node's sum of their shard, and push it to all nodes",
                [PLAN_NODE_REDUCE] = "carriers reduce the sums of all nodes into the outputs of the node",
                [PLAN_NODE_SCATTER] = "carriers read the node's sums, and push each piece to the node whose it is",
                [PLAN_NODE_SCATTER_REDUCE] = "carriers reduce their piece of all nodes into the outputs of the node, "
                                             "and push it to all nodes",
                [PLAN_NODE_SCATTER_GATHER] = "carriers copy results of other nodes to the outputs of the node",
                [PLAN_NODE_DOUBLING] = "carriers exchange the nodes' sums by recursive doubling",
                [PLAN_NODE_RING] = "pieces of the nodes' sums go around among carriers, reduced at each; then results",
                [PLAN_NODE_TREE_UP] = "the nodes' sums go up a binary tree of carriers, reduced at each",
                [PLAN_NODE_TREE_DOWN] = "carriers pass results down a binary tree, and write the outputs of the node",
                [PLAN_NODE_CHAIN_UP] = "the nodes' sums go from carrier to carrier, reduced at each, to the root's",
                [PLAN_NODE_CHAIN_DOWN] = "shards of the root's input go from carrier to carrier, and to the outputs",
                [PLAN_NODE_STAR_UP] = "carriers read the node's sum of their shard, and push it to the root's node",
                [PLAN_NODE_STAR_REDUCE] = "carriers of the root's node reduce the sums of all into the root's output",
                [PLAN_NODE_STAR_DOWN] = "carriers of the root's node read its input, and push their shard to all nodes",
                [PLAN_NODE_DOUBLE_LEAF_UP] = "carriers push each half of the node's sums to the tree where they are a "
                                             "leaf",
                [PLAN_NODE_DOUBLE_UP] =
                        "carriers reduce what comes up the tree where they have children, and pass it on",
                [PLAN_NODE_DOUBLE_DOWN] = "carriers pass results down the tree where they have children, and write the "
                                          "outputs of the node",
                [PLAN_NODE_DOUBLE_LEAF_DOWN] =
                        "carriers write results of the tree where they are a leaf to the outputs "
                        "of the node",
                [PLAN_NODE_BLOCKS] = "the node's sum of each block is read, and pushed to the block's rank",
                [PLAN_NODE_BLOCK_REDUCE] = "all ranks reduce the sums of their block into their output",
                [PLAN_NODE_SPREAD] = "all ranks write their block to the outputs of the node, and push it to a rank of "
                                     "each other node",
                [PLAN_NODE_COLLECT] = "blocks of other nodes are copied to the outputs of the node",
                [PLAN_NODE_GATHER_SEND] = "all ranks write their block to the root's output, or push it to a rank of "
                                          "its node",
                [PLAN_NODE_GATHER_TAKE] = "ranks of the root's node copy blocks of others to the root's output",
                [PLAN_NODE_SCATTER_SEND] = "ranks of the root's node read the root's input: the own block, and those "
                                           "that they push to other nodes",
                [PLAN_NODE_SCATTER_TAKE] = "ranks of other nodes copy their block to their output",
                [PLAN_NODE_ALL_TO_ALL_READ] = "all ranks read what ranks of the node have for them into their output",
                [PLAN_NODE_ALL_TO_ALL_SEND] = "all ranks read what the node has for those on their rail, and push it "
                                              "there",
                [PLAN_NODE_ALL_TO_ALL_TAKE] = "all ranks copy what comes from other nodes to their output",
                [PLAN_NODE_PAIR_SEND] = "all ranks push what they have for each rank of other nodes to it",
                [PLAN_NODE_PAIR_TAKE] = "all ranks copy what comes from ranks of other nodes to their output",
                [PLAN_STAGED_SHARDS] = "all ranks push each shard of their input to its carrier on the node",
                [PLAN_STAGED_SUM] = "carriers reduce their shard of the node, and push the sum to all nodes",
                [PLAN_STAGED_REDUCE] =
                        "carriers reduce the sums of all nodes into their output, and push the result to "
                        "ranks of the node",
                [PLAN_STAGED_COPY] = "all ranks copy what carriers of the node push to their output",
                [PLAN_STAGED_PIECES] = "all ranks push each piece of each shard of their input to its carrier on the "
                                       "node",
                [PLAN_STAGED_PIECE_SUM] =
                        "carriers reduce the node's pieces, and push each sum to the node whose it is",
                [PLAN_STAGED_PIECE_REDUCE] =
                        "carriers reduce their piece of all nodes, and push the result to all nodes",
                [PLAN_STAGED_PIECE_COPY] =
                        "carriers copy results of all pieces to their output, and push them to ranks "
                        "of the node",
                [PLAN_STAGED_ROOT_SUM] = "carriers reduce their shard of the node, and push the sum to the root's node",
                [PLAN_STAGED_ROOT_REDUCE] =
                        "carriers of the root's node reduce the sums of all, and push the result to "
                        "the root",
                [PLAN_STAGED_ROOT_COPY] = "the root copies results to its output",
                [PLAN_STAGED_DEAL] = "the root pushes each shard of its input to its carrier on the node",
                [PLAN_STAGED_CARRY] = "carriers of the root's node push their shard to all other nodes and to ranks of "
                                      "the node",
                [PLAN_STAGED_RELAY] = "carriers of other nodes push their shard to ranks of the node",
                [PLAN_STAGED_BLOCKS] = "all ranks push each block of their input to who stands for it on the node",
                [PLAN_STAGED_BLOCK_SUM] = "the node's sum of each block is reduced, and pushed to the block's rank",
                [PLAN_STAGED_SPREAD] =
                        "all ranks push their block to ranks of the node and to a rank of each other node",
                [PLAN_STAGED_NEAR] = "all ranks copy blocks of the own node to their output",
                [PLAN_STAGED_COLLECT] = "all ranks copy blocks of other nodes that come to them to their output, and "
                                        "push them to ranks of the node",
                [PLAN_STAGED_SHARE] = "all ranks copy blocks that others have got to their output",
        };

        return schedule < PLAN_SCHEDULE_COUNT && words[schedule] ? words[schedule] : "?";
}

static void phase_does(const struct plan_phase *phase, bool p2p, struct text *text) {
        const char *peers = words_peers(phase->peers, p2p);
        const char *in = words_range(phase->in_range), *result = words_range(phase->out_range);

        switch (phase->kind) {
        case PLAN_PUSH:
                text_add(text, "push %s of the input to %s", in, peers);
                break;
        case PLAN_REDUCE:
                text_add(text, "reduce %s of the input and a chunk of each other rank into %s of the output%s", in,
                         result, phase->forward ? ", and push the result to each other rank" : "");
                break;
        case PLAN_COPY:
                if (phase->peers == PLAN_PEERS_SELF)
                        text_add(text, "copy %s of the own input to %s of the own output", in, result);
                else
                        text_add(text, "copy chunks from %s to %s of the output", peers, result);
                break;
        case PLAN_SIGNAL:
                text_add(text, "signal %s", peers);
                break;
        case PLAN_WAIT:
                text_add(text, "wait for the signal of %s", peers);
                break;
        case PLAN_READ:
                text_add(text, "read %s of the input of %s, where it lies, into %s of the output", in, peers, result);
                break;
        case PLAN_FOLD:
                text_add(text, "reduce %s of all ranks' inputs, where they lie, into %s of the output of %s", in,
                         result, phase->peers == PLAN_PEERS_OTHERS ? "every rank" : peers);
                break;
        case PLAN_PASS:
                text_add(text, "pass on as %s says: %s of the input, %s of the output", words_schedule(phase->schedule),
                         in, result);
                break;
        default:
                text_add(text, "%s", plan_kind_name(phase->kind));
        }
}

const char *words_phase(const struct plan *plan, uint32_t p, char out[WORDS_PHASE_MAX]) {
        const struct plan_phase *phase = &plan->phases[p];
        bool p2p = plan_operation_p2p(plan->operation), pass = phase->kind == PLAN_PASS;
        struct text text = {.at = out, .size = WORDS_PHASE_MAX};
        bool sends = pass || phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL || phase->forward;
        bool takes = pass || phase->kind == PLAN_REDUCE || phase->kind == PLAN_WAIT ||
                     (phase->kind == PLAN_COPY && phase->peers != PLAN_PEERS_SELF);

        out[0] = '\0';
        if (pass && phase->schedule >= PLAN_SCHEDULE_NODES) { /* it says who, and not all do both */
                text_add(&text, "%s", between_nodes(phase->schedule));
                takes = sends = false;
        } else {
                text_add(&text, "%s: ", words_who(phase->who, p2p));
                phase_does(phase, p2p, &text);
        }
        if (takes)
                text_add(&text, "; from region %u", phase->region_in);
        if (sends)
                text_add(&text, "%s to region %u", takes ? "," : ";", phase->region_out);
        if (phase->after >= 0)
                text_add(&text, "; %s after phase %d", phase->after_whole ? "all of it" : "each part", phase->after);
        return out;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */
/* first, first + 1, ..., n of them, modulo `modulo`, from left to right. */
static void tree_fold(struct text *text, uint32_t first, uint32_t n, uint32_t modulo) {
        for (uint32_t i = 2; i < n; i++)
                text_add(text, "(");
        for (uint32_t i = 0; i < n; i++)
                text_add(text, "%sx%u%s", i ? " + " : "", (first + i) % modulo, i > 0 && i + 1 < n ? ")" : "");
}

static void tree_binary(struct text *text, uint32_t n, uint32_t v, uint32_t root) {
        uint32_t child = 2 * v + 1, children = child >= n ? 0 : child + 1 >= n ? 1 : 2;

        for (uint32_t i = 0; i < children; i++)
                text_add(text, "(");
        text_add(text, "x%u", (v + root) % n);
        for (uint32_t i = 0; i < children; i++) {
                text_add(text, " + ");
                tree_binary(text, n, child + i, root);
                text_add(text, ")");
        }
}

static void tree_doubling(struct text *text, uint32_t n, uint32_t p, uint32_t first, uint32_t size) {
        if (size == 1) {
                if (first + p < n)
                        text_add(text, "(x%u + x%u)", first, first + p);
                else
                        text_add(text, "x%u", first);
                return;
        }
        text_add(text, "(");
        tree_doubling(text, n, p, first, size / 2);
        text_add(text, " + ");
        tree_doubling(text, n, p, first + size / 2, size / 2);
        text_add(text, ")");
}

const char *words_tree(const struct plan *plan, uint32_t root, char out[WORDS_TREE_MAX]) {
        struct text text = {.at = out, .size = WORDS_TREE_MAX};
        uint32_t n = plan->n_ranks, p = 1;

        out[0] = '\0';
        root = plan_operation_rooted(plan->operation) ? root : 0;
        switch (plan->tree) {
        case PLAN_TREE_RANK_ORDER:
                tree_fold(&text, 0, n, n);
                break;
        case PLAN_TREE_ROTATED:
                tree_fold(&text, root + 1, n, n);
                break;
        case PLAN_TREE_DOUBLING:
                while (2 * p <= n)
                        p *= 2;
                tree_doubling(&text, n, p, 0, p);
                break;
        case PLAN_TREE_BINARY:
                tree_binary(&text, n, 0, root);
                break;
        default:
                break;
        }
        return out;
}
