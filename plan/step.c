/* SPDX-License-Identifier: MIT */
/* What the steps of a phase are. PASS, whose steps follow a schedule, is in pass.c. */
#include "plan/pass.h"
#include "plan/plan.h"

bool plan_phase_mine(const struct plan_phase *phase, const struct plan_shape *shape, uint32_t me) {
        switch (phase->who) {
        case PLAN_WHO_ROOT:
                return me == shape->root && shape->role != PLAN_ROLE_RECEIVER;
        case PLAN_WHO_OTHERS:
                return me != shape->root;
        case PLAN_WHO_PEER:
                return me == shape->peer && shape->role != PLAN_ROLE_SENDER;
        default:
                return true;
        }
}

static bool phase_sends(const struct plan_phase *phase) {
        return phase->kind == PLAN_PUSH || phase->kind == PLAN_SIGNAL;
}

uint32_t plan_phase_steps(const struct plan *plan, const struct plan_phase *phase, const struct plan_shape *shape,
                          uint32_t me) {
        if (!plan_phase_mine(phase, shape, me))
                return 0;
        if (phase->kind == PLAN_PASS && phase->schedule >= PLAN_SCHEDULE_NODES)
                return plan->nodes ? pass_node_steps(plan, phase->schedule, me, shape->root) : 0;
        if (phase->kind == PLAN_PASS)
                return pass_steps(phase->schedule, plan->n_ranks, me, shape->root);
        if (phase->kind == PLAN_REDUCE || phase->kind == PLAN_FOLD)
                return 1;
        return phase->peers == PLAN_PEERS_OTHERS ? plan->n_ranks - 1 : 1;
}

/* Sends start behind the own rank and go up, receives start before it and go down: what is sent first is received
 * first, and the ranks do not all start with the same one. */
static uint32_t phase_peer(const struct plan *plan, const struct plan_phase *phase, const struct plan_shape *shape,
                           uint32_t me, uint32_t k) {
        uint32_t n = plan->n_ranks;

        switch (phase->peers) {
        case PLAN_PEERS_OTHERS:
                return phase_sends(phase) ? (me + 1 + k) % n : (me + n - 1 - k) % n;
        case PLAN_PEERS_ROOT:
                return shape->root;
        case PLAN_PEERS_PEER:
                return shape->peer;
        default:
                return me;
        }
}

static void step_reduce(const struct plan *plan, const struct plan_phase *phase, uint32_t me, struct plan_step *step) {
        for (uint32_t r = 0; r < plan->n_ranks; r++) {
                if (r == me || phase->kind == PLAN_FOLD)
                        step_input(step, r, me);
                else
                        step_chunk(step, r);
        }
        step->finish = true;
}

static void step_fold_outputs(const struct plan *plan, const struct plan_phase *phase, const struct plan_shape *shape,
                              uint32_t me, struct plan_step *step) {
        if (phase->peers == PLAN_PEERS_OTHERS)
                for (uint32_t i = 0; i < plan->n_ranks; i++)
                        step_output(step, (me + i) % plan->n_ranks, me);
        else
                step_output(step, phase->peers == PLAN_PEERS_ROOT ? shape->root : me, me);
}

bool plan_step(const struct plan *plan, const struct plan_phase *phase, const struct plan_geometry *geometry,
               const struct plan_shape *shape, uint32_t me, uint64_t part, uint32_t k, struct plan_step *ret_step) {
        struct plan_step *step = ret_step;
        uint32_t n = plan->n_ranks, peer = phase_peer(plan, phase, shape, me, k);
        uint32_t range = phase->out_range != PLAN_RANGE_NONE ? phase->out_range : phase->in_range;
        uint32_t index = peer;

        step->n_sources = step->n_outputs = step->n_targets = 0;
        step->reduce = plan_operation_reduces(plan->operation);
        step->partial_in = step->partial_out = step->finish = false;
        step->data = range != PLAN_RANGE_NONE;
        switch (phase->kind) {
        case PLAN_PUSH:
                step_input(step, me, peer);
                step_target(step, peer);
                break;
        case PLAN_SIGNAL:
                step_target(step, peer);
                break;
        case PLAN_WAIT:
                step_chunk(step, peer);
                break;
        case PLAN_COPY:
                if (phase->peers == PLAN_PEERS_SELF)
                        step_input(step, me, me);
                else
                        step_chunk(step, peer);
                step_output(step, me, peer);
                break;
        case PLAN_READ:
                step_input(step, peer, me);
                step_output(step, me, peer);
                break;
        case PLAN_REDUCE:
                step_reduce(plan, phase, me, step);
                step_output(step, me, me);
                for (uint32_t i = 1; phase->forward && i < n; i++)
                        step_target(step, (me + i) % n);
                index = me;
                break;
        case PLAN_FOLD:
                step_reduce(plan, phase, me, step);
                step_fold_outputs(plan, phase, shape, me, step);
                index = me;
                break;
        case PLAN_PASS:
                index = phase->schedule >= PLAN_SCHEDULE_NODES
                                ? pass_node_step(plan, phase->schedule, me, shape->root, k, step)
                                : pass_step(phase->schedule, n, me, shape->root, k, step);
                break;
        default:
                break;
        }
        step->index = index;
        step->length = step->data ? plan_span(range, plan, geometry, shape, me, index, part).length : 0;
        return step->length > 0 || (range != PLAN_RANGE_VECTOR_SEND && range != PLAN_RANGE_VECTOR_RECV);
}
