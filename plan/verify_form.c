/* SPDX-License-Identifier: MIT */
/* Are a plan's fields what they may be, so that the machine can execute it at all? */
#include "plan/nodes.h"
#include "plan/verify_machine.h"
#include "ring/ring.h"

static int malformed(struct plan_verdict *ret_verdict, uint32_t p, const char *text) {
        struct verify_place at = {.phase = p};

        return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, &at, "phase %u: %s", p, text);
}

/* What a kind has: ranges, channels at either end, peers. */
struct form {
        bool in, out;      /* ranges */
        bool takes, sends; /* chunks */
        uint32_t peers;    /* a bit for each of enum plan_peers */
};

#define SELF   (1u << PLAN_PEERS_SELF)
#define OTHERS (1u << PLAN_PEERS_OTHERS)
#define ROOT   (1u << PLAN_PEERS_ROOT)
#define PEER   (1u << PLAN_PEERS_PEER)

/* Ranges of a schedule; the others have both. */
static struct form form_of_schedule(uint32_t schedule) {
        struct form form = {true, true, true, true, SELF};

        switch (schedule) {
        case PLAN_DOUBLING_BARRIER:
        case PLAN_NODE_MEET:
        case PLAN_NODE_BARRIER:
                form.in = form.out = false;
                break;
        case PLAN_NODE_EXCHANGE:
        case PLAN_NODE_SCATTER:
        case PLAN_NODE_STAR_UP:
        case PLAN_NODE_DOUBLE_LEAF_UP:
        case PLAN_NODE_BLOCKS:
        case PLAN_NODE_ALL_TO_ALL_SEND:
        case PLAN_NODE_PAIR_SEND:
                form.out = form.takes = false;
                break;
        case PLAN_NODE_REDUCE:
        case PLAN_NODE_SCATTER_GATHER:
        case PLAN_NODE_STAR_REDUCE:
        case PLAN_NODE_DOUBLE_LEAF_DOWN:
        case PLAN_NODE_BLOCK_REDUCE:
        case PLAN_NODE_COLLECT:
        case PLAN_NODE_GATHER_TAKE:
        case PLAN_NODE_SCATTER_TAKE:
        case PLAN_NODE_ALL_TO_ALL_TAKE:
        case PLAN_NODE_PAIR_TAKE:
                form.in = form.sends = false;
                break;
        case PLAN_NODE_SCATTER_REDUCE:
                form.in = false;
                break;
        case PLAN_NODE_SPREAD:
        case PLAN_NODE_GATHER_SEND:
        case PLAN_NODE_SCATTER_SEND:
                form.takes = false;
                break;
        case PLAN_STAGED_SHARDS:
        case PLAN_STAGED_PIECES:
        case PLAN_STAGED_BLOCKS:
                form.out = form.takes = false;
                break;
        case PLAN_STAGED_SUM:
        case PLAN_STAGED_PIECE_SUM:
        case PLAN_STAGED_ROOT_SUM:
        case PLAN_STAGED_BLOCK_SUM:
                form.out = false;
                break;
        case PLAN_STAGED_COPY:
        case PLAN_STAGED_ROOT_COPY:
        case PLAN_STAGED_NEAR:
        case PLAN_STAGED_SHARE:
                form.in = form.sends = false;
                break;
        case PLAN_STAGED_REDUCE:
        case PLAN_STAGED_PIECE_REDUCE:
        case PLAN_STAGED_PIECE_COPY:
        case PLAN_STAGED_ROOT_REDUCE:
        case PLAN_STAGED_RELAY:
        case PLAN_STAGED_COLLECT:
                form.in = false;
                break;
        case PLAN_STAGED_DEAL:
        case PLAN_STAGED_SPREAD:
                form.takes = false;
                break;
        case PLAN_NODE_ALL_TO_ALL_READ:
                form.takes = form.sends = false;
                break;
        default:
                break;
        }
        return form;
}

static bool form_of(const struct plan_phase *phase, struct form *ret_form) {
        switch (phase->kind) {
        case PLAN_PUSH:
                *ret_form = (struct form){.in = true, .sends = true, .peers = OTHERS | ROOT | PEER};
                return true;
        case PLAN_REDUCE:
                *ret_form = (struct form){true, true, .takes = true, .sends = phase->forward, .peers = OTHERS};
                return true;
        case PLAN_COPY:
                *ret_form = (struct form){.out = true, .takes = true, .peers = OTHERS | ROOT | PEER};
                if (phase->peers == PLAN_PEERS_SELF)
                        *ret_form = (struct form){true, true, .peers = SELF};
                return true;
        case PLAN_SIGNAL:
                *ret_form = (struct form){.sends = true, .peers = OTHERS | ROOT | PEER};
                return true;
        case PLAN_WAIT:
                *ret_form = (struct form){.takes = true, .peers = OTHERS | ROOT | PEER};
                return true;
        case PLAN_READ:
                *ret_form = (struct form){true, true, .peers = OTHERS | ROOT | PEER};
                return true;
        case PLAN_FOLD:
                *ret_form = (struct form){true, true, .peers = SELF | OTHERS | ROOT};
                return true;
        case PLAN_PASS:
                *ret_form = form_of_schedule(phase->schedule);
                return true;
        default:
                return false;
        }
}

static bool range_is_vector(uint32_t range) {
        return range == PLAN_RANGE_VECTOR_SEND || range == PLAN_RANGE_VECTOR_RECV;
}

/* all_to_all_v has only its vectors, and nothing else has any. */
static bool range_fits(const struct plan *plan, uint32_t range, bool used) {
        if (!used)
                return range == PLAN_RANGE_NONE;
        return range > PLAN_RANGE_NONE && range < PLAN_RANGE_COUNT &&
               range_is_vector(range) == (plan->operation == RING_OP_ALL_TO_ALL_V);
}

/* Data in the regions for it; point to point has the others for itself. */
static bool region_fits(const struct plan *plan, uint32_t region) {
        return plan_operation_p2p(plan->operation) == (region >= PLAN_REGIONS_DATA);
}

static bool schedule_combines(uint32_t schedule) {
        return schedule == PLAN_RING_ALL_REDUCE || schedule == PLAN_RING_REDUCE_SCATTER ||
               schedule == PLAN_CHAIN_REDUCE || schedule == PLAN_TREE_UP || schedule == PLAN_DOUBLING_ALL_REDUCE ||
               schedule == PLAN_HALVING_ALL_REDUCE || schedule == PLAN_HALVING_REDUCE_SCATTER ||
               schedule == PLAN_NODE_EXCHANGE || schedule == PLAN_NODE_REDUCE || schedule == PLAN_NODE_SCATTER ||
               schedule == PLAN_NODE_SCATTER_REDUCE || schedule == PLAN_NODE_DOUBLING || schedule == PLAN_NODE_RING ||
               schedule == PLAN_NODE_TREE_UP || schedule == PLAN_NODE_CHAIN_UP || schedule == PLAN_NODE_STAR_UP ||
               schedule == PLAN_NODE_STAR_REDUCE || schedule == PLAN_NODE_DOUBLE_LEAF_UP ||
               schedule == PLAN_NODE_DOUBLE_UP || schedule == PLAN_NODE_BLOCKS || schedule == PLAN_NODE_BLOCK_REDUCE ||
               schedule == PLAN_STAGED_SUM || schedule == PLAN_STAGED_REDUCE || schedule == PLAN_STAGED_PIECE_SUM ||
               schedule == PLAN_STAGED_PIECE_REDUCE || schedule == PLAN_STAGED_ROOT_SUM ||
               schedule == PLAN_STAGED_ROOT_REDUCE || schedule == PLAN_STAGED_BLOCK_SUM;
}

/* Its shards are cut into a piece for each node. */
static bool schedule_cuts(uint32_t schedule) {
        return schedule == PLAN_NODE_SCATTER || schedule == PLAN_NODE_SCATTER_REDUCE ||
               schedule == PLAN_NODE_SCATTER_GATHER || schedule == PLAN_NODE_RING || schedule == PLAN_STAGED_PIECES ||
               schedule == PLAN_STAGED_PIECE_SUM || schedule == PLAN_STAGED_PIECE_REDUCE ||
               schedule == PLAN_STAGED_PIECE_COPY;
}

static int form_pass(const struct plan *plan, uint32_t p, struct plan_verdict *ret_verdict) {
        const struct plan_phase *phase = &plan->phases[p];

        if (phase->kind != PLAN_PASS) {
                if (phase->schedule != PLAN_SCHEDULE_NONE)
                        return malformed(ret_verdict, p, "only PASS has a schedule");
                return 0;
        }
        if (phase->schedule == PLAN_SCHEDULE_NONE || phase->schedule >= PLAN_SCHEDULE_COUNT)
                return malformed(ret_verdict, p, "an unknown schedule");
        if (phase->who != PLAN_WHO_ALL)
                return malformed(ret_verdict, p, "a schedule is for all ranks");
        if (schedule_combines(phase->schedule) && !plan_operation_reduces(plan->operation))
                return malformed(ret_verdict, p, "a schedule that combines in an operation that does not reduce");
        if (phase->schedule == PLAN_HALVING_REDUCE_SCATTER && plan->n_ranks & (plan->n_ranks - 1))
                return malformed(ret_verdict, p, "a schedule for powers of two only");
        if (phase->schedule >= PLAN_SCHEDULE_NODES && !plan->nodes)
                return malformed(ret_verdict, p, "a schedule over nodes in a plan without nodes");
        if (schedule_cuts(phase->schedule) && plan->n_shards % plan->nodes->n_nodes != 0)
                return malformed(ret_verdict, p, "shards that cannot be cut for the nodes");
        return 0;
}

static int form_peers(const struct plan *plan, uint32_t p, const struct form *form, struct plan_verdict *ret_verdict) {
        const struct plan_phase *phase = &plan->phases[p];
        bool rooted = plan_operation_rooted(plan->operation), pair = plan_operation_p2p(plan->operation);

        if (phase->who >= PLAN_WHO_COUNT)
                return malformed(ret_verdict, p, "an unknown role");
        if (phase->peers >= PLAN_PEERS_COUNT || !(form->peers & 1u << phase->peers))
                return malformed(ret_verdict, p, "peers that this kind does not have");
        if (pair) {
                if ((phase->who != PLAN_WHO_ROOT && phase->who != PLAN_WHO_PEER) ||
                    (phase->peers != PLAN_PEERS_SELF && phase->peers != PLAN_PEERS_ROOT &&
                     phase->peers != PLAN_PEERS_PEER))
                        return malformed(ret_verdict, p, "a third rank between sender and receiver");
                return 0;
        }
        if (phase->who == PLAN_WHO_PEER || phase->peers == PLAN_PEERS_PEER)
                return malformed(ret_verdict, p, "a receiver in an operation of all ranks");
        if (!rooted && (phase->who != PLAN_WHO_ALL || phase->peers == PLAN_PEERS_ROOT))
                return malformed(ret_verdict, p, "a role in an operation without root");
        if (phase->peers == PLAN_PEERS_ROOT && phase->who != PLAN_WHO_OTHERS && phase->kind != PLAN_FOLD)
                return malformed(ret_verdict, p, "the root as its own peer");
        return 0;
}

static int form_phase(const struct plan *plan, uint32_t p, struct plan_verdict *ret_verdict) {
        const struct plan_phase *phase = &plan->phases[p];
        struct form form;
        int r;

        if (!form_of(phase, &form))
                return malformed(ret_verdict, p, "a kind that is not executed yet");
        r = form_peers(plan, p, &form, ret_verdict);
        if (!r)
                r = form_pass(plan, p, ret_verdict);
        if (r)
                return r;
        if (!range_fits(plan, phase->in_range, form.in))
                return malformed(ret_verdict, p, "an input range that this kind or operation does not have");
        if (!range_fits(plan, phase->out_range, form.out))
                return malformed(ret_verdict, p, "an output range that this kind or operation does not have");
        if (phase->forward > 1 || (phase->forward && phase->kind != PLAN_REDUCE))
                return malformed(ret_verdict, p, "only REDUCE forwards");
        if (phase->region_in >= plan->n_regions || phase->region_out >= plan->n_regions)
                return malformed(ret_verdict, p, "an unknown region");
        if ((form.takes && !region_fits(plan, phase->region_in)) ||
            (form.sends && !region_fits(plan, phase->region_out)))
                return malformed(ret_verdict, p, "a region that is not for this operation");
        if ((form.takes || form.sends) && (form.in || form.out) && plan_operation_p2p(plan->operation))
                return malformed(ret_verdict, p, "data in a region for signals");
        if (phase->after < -1 || phase->after >= (int)plan->n_phases || phase->after == (int)p)
                return malformed(ret_verdict, p, "`after` names no other phase");
        if (phase->after_whole > 1 || (phase->after_whole && phase->after < 0))
                return malformed(ret_verdict, p, "`after_whole` without `after`");
        if (phase->reserved != 0)
                return malformed(ret_verdict, p, "reserved bytes are not zero");
        return 0;
}

/* Is the declared tree one that the operation can have? */
static bool tree_fits(const struct plan *plan) {
        if (!plan_operation_reduces(plan->operation))
                return plan->tree == PLAN_TREE_NONE;
        if (plan->tree >= PLAN_TREE_NODE_ORDER && !plan->nodes)
                return false;
        if (plan->tree == PLAN_TREE_BINARY || plan->tree == PLAN_TREE_NODE_BINARY ||
            plan->tree == PLAN_TREE_NODE_DOUBLE)
                return plan->operation != RING_OP_REDUCE_SCATTER; /* it has no root */
        return plan->tree > PLAN_TREE_NONE && plan->tree < PLAN_TREE_COUNT;
}

/* Parts are made smaller for accumulators exactly if there are any in chunks. */
static bool partials_fit(const struct plan *plan) {
        uint32_t partials = 0;

        for (uint32_t p = 0; p < plan->n_phases; p++)
                if (plan->phases[p].kind == PLAN_PASS && schedule_combines(plan->phases[p].schedule))
                        partials = 1;
        return plan->partials == partials;
}

int verify_form(const struct plan *plan, struct plan_verdict *ret_verdict) {
        const char *text = NULL;
        uint64_t in, out;
        int r = 0;

        if (plan->n_ranks < 1 || plan->n_ranks > PLAN_RANKS_MAX || plan->n_phases < 1 ||
            plan->n_phases > PLAN_PHASES_MAX || plan->n_regions < 1 || plan->n_regions > PLAN_REGIONS_MAX)
                text = "the numbers of ranks, phases or regions are out of bounds";
        else if (plan->algorithm == PLAN_ALGORITHM_NONE || plan->algorithm >= PLAN_ALGORITHM_COUNT ||
                 plan->operation == RING_OP_RECV || /* a receive is a half of a send */
                 (plan->operation != RING_OP_ALL_TO_ALL_V &&
                  plan_request_elements(plan->operation, plan->n_ranks, 0, false, &in, &out)))
                text = "an operation or algorithm without plans";
        else if (plan->n_shards < 1 || plan->n_shards > plan->n_ranks)
                text = "the number of shards is out of bounds";
        else if (plan->nodes && !plan_nodes_valid(plan->nodes, plan->n_ranks))
                text = "the ranks do not lie on nodes as it says";
        else if (!tree_fits(plan))
                text = "the declared tree does not fit the operation";
        if (text)
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "%s", text);
        for (uint32_t p = 0; !r && p < plan->n_phases; p++)
                r = form_phase(plan, p, ret_verdict);
        if (!r && !partials_fit(plan))
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL,
                                    "`partials` does not say whether chunks carry accumulators");
        return r;
}

int verify_form_case(const struct plan *plan, const struct plan_case *pcase, struct plan_verdict *ret_verdict) {
        const struct plan_geometry *geometry = &pcase->geometry;
        bool pair = plan_operation_p2p(plan->operation);

        if (geometry->slots < 1 || geometry->slots > VERIFY_SLOTS_MAX || pcase->element_bytes < 1 ||
            geometry->part_bytes < pcase->element_bytes || geometry->part_bytes < pcase->partial_bytes ||
            pcase->root >= plan->n_ranks || pcase->peer >= (pair ? plan->n_ranks : 1) ||
            pcase->count > VERIFY_ELEMENTS_MAX || (pcase->in_place && !plan_case_in_place(plan->operation)))
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "the case is out of bounds");
        return 0;
}
