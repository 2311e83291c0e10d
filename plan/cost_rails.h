/* SPDX-License-Identifier: MIT */
#pragma once
/* What a model's messages cost on the rails of all nodes. See cost_rails.c. */
#include <stdbool.h>
#include <stdint.h>

#include "plan/cost.h"

struct cost_rails {
        const struct plan_net *net;
        const struct plan_nodes *nodes;
        uint32_t n_rails;       /* of a node, as far as they are told apart */
        struct plan_work *work; /* [node][rail][out, in] */
};
/* -ENOMEM. */
int cost_rails_init(struct cost_rails *rails, const struct plan_net *net, const struct plan_nodes *nodes);
void cost_rails_deinit(struct cost_rails *rails);
/* A chunk between nodes: one in every part, or one in all, with so many bytes for each element of a part. */
void cost_rails_add(struct cost_rails *rails, uint32_t from, uint32_t to, bool parts, double bytes);
/* Those rails that can be the busiest. */
void cost_rails_busiest(const struct cost_rails *rails, struct plan_model *model);
