/* SPDX-License-Identifier: MIT */
#include "executor/prepare.h"

#include <stdint.h>

#include "executor/comm.h"
#include "executor/executor.h"

/* Whatever is wrong with the call shows again, and is reported, when it is carried out. */
static bool prepare_comm(struct executor *executor, const Railmux__Executor__CommAttach *m) {
        struct plans_shape shape = {.n_ranks = m->n_ranks, .geometry = {m->part_bytes, m->slots}};
        uint8_t node[PLAN_RANKS_MAX] = {0};
        struct plan_nodes nodes;
        bool ready = true;

        if (m->n_members != m->n_ranks || m->n_ranks > PLAN_RANKS_MAX || m->n_choices > PLAN_CHOICES_MAX)
                return true;
        for (size_t i = 0; i < m->n_members; i++)
                node[i] = m->members[i]->node < PLAN_RANKS_MAX ? (uint8_t)m->members[i]->node : UINT8_MAX;
        if (m->n_nodes > 1 && plan_nodes_init(&nodes, m->n_ranks, node))
                return true;
        shape.nodes = m->n_nodes > 1 ? &nodes : NULL;
        for (size_t i = 0; i < m->n_choices; i++) {
                shape.operation = m->choices[i]->operation;
                shape.algorithm = m->choices[i]->algorithm;
                if (plans_want(&executor->plans, &shape) == PLANS_E_LATER)
                        ready = false;
        }
        return ready;
}

bool prepare_call(struct executor *executor, const Railmux__Executor__Message *message) {
        if (message->body_case != RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH ||
            comm_find(executor, message->comm_attach->comm))
                return true;
        return prepare_comm(executor, message->comm_attach);
}
