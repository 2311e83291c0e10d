/* SPDX-License-Identifier: MIT */
/* Are a plan's fields what they may be, so that the machine can execute it at all? */
#include "plan/verify_machine.h"

static int malformed(struct plan_verdict *ret_verdict, uint32_t p, const char *text) {
        struct verify_place at = {.phase = p};

        return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, &at, "phase %u: %s", p, text);
}

static bool range_known(uint32_t range) {
        return range > PLAN_RANGE_NONE && range <= PLAN_RANGE_BLOCK_PEER;
}

/* Each kind has exactly the ranges and peers that it uses. */
static int form_kind(const struct plan_phase *phase, uint32_t p, struct plan_verdict *ret_verdict) {
        bool self = phase->peers == PLAN_PEERS_SELF, in = false, out = false;

        switch (phase->kind) {
        case PLAN_PUSH:
                in = true;
                break;
        case PLAN_REDUCE:
                in = out = true;
                break;
        case PLAN_COPY:
                in = self;
                out = true;
                break;
        case PLAN_SIGNAL:
        case PLAN_WAIT:
                break;
        default:
                return malformed(ret_verdict, p, "a kind that is not executed yet");
        }
        if (phase->peers > PLAN_PEERS_ROOT || (self && phase->kind != PLAN_COPY) ||
            (phase->kind == PLAN_REDUCE && phase->peers != PLAN_PEERS_OTHERS))
                return malformed(ret_verdict, p, "peers that this kind does not have");
        if (in ? !range_known(phase->in_range) : phase->in_range != PLAN_RANGE_NONE)
                return malformed(ret_verdict, p, "an input range that this kind does not have");
        if (out ? !range_known(phase->out_range) : phase->out_range != PLAN_RANGE_NONE)
                return malformed(ret_verdict, p, "an output range that this kind does not have");
        if (phase->forward > 1 || (phase->forward && phase->kind != PLAN_REDUCE))
                return malformed(ret_verdict, p, "only REDUCE forwards");
        return 0;
}

static int form_phase(const struct plan *plan, uint32_t p, struct plan_verdict *ret_verdict) {
        const struct plan_phase *phase = &plan->phases[p];

        if (phase->who > PLAN_WHO_OTHERS)
                return malformed(ret_verdict, p, "an unknown role");
        if (phase->who != PLAN_WHO_ALL && !plan_operation_rooted(plan->operation))
                return malformed(ret_verdict, p, "a role in an operation without root");
        if (phase->peers == PLAN_PEERS_ROOT && phase->who != PLAN_WHO_OTHERS)
                return malformed(ret_verdict, p, "the root as its own peer");
        if (phase->region_in >= plan->n_regions || phase->region_out >= plan->n_regions)
                return malformed(ret_verdict, p, "an unknown region");
        if (phase->after < -1 || phase->after >= (int)plan->n_phases || phase->after == (int)p)
                return malformed(ret_verdict, p, "`after` names no other phase");
        for (uint32_t i = 0; i < sizeof(phase->reserved); i++)
                if (phase->reserved[i] != 0)
                        return malformed(ret_verdict, p, "reserved bytes are not zero");
        return form_kind(phase, p, ret_verdict);
}

int verify_form(const struct plan *plan, struct plan_verdict *ret_verdict) {
        uint64_t in, out;
        int r = 0;

        if (plan->n_ranks < 1 || plan->n_ranks > PLAN_RANKS_MAX || plan->n_phases < 1 ||
            plan->n_phases > PLAN_PHASES_MAX || plan->n_regions < 1 || plan->n_regions > PLAN_REGIONS_MAX)
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL,
                                    "the numbers of ranks, phases or regions are out of bounds");
        if (plan->algorithm == PLAN_ALGORITHM_NONE || plan->algorithm >= PLAN_ALGORITHM_COUNT ||
            plan_request_elements(plan->operation, plan->n_ranks, 0, false, &in, &out))
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "an operation or algorithm without plans");
        if (plan->tree != (plan_operation_reduces(plan->operation) ? PLAN_TREE_RANK_ORDER : PLAN_TREE_NONE))
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL,
                                    "the declared tree does not fit the operation");
        for (uint32_t p = 0; !r && p < plan->n_phases; p++)
                r = form_phase(plan, p, ret_verdict);
        return r;
}

int verify_form_case(const struct plan *plan, const struct plan_case *pcase, struct plan_verdict *ret_verdict) {
        const struct plan_geometry *geometry = &pcase->geometry;

        if (geometry->slots < 1 || geometry->slots > VERIFY_SLOTS_MAX || pcase->element_bytes < 1 ||
            geometry->part_bytes < pcase->element_bytes || pcase->root >= plan->n_ranks)
                return verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL, "the case is out of bounds");
        return 0;
}
