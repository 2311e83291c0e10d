/* SPDX-License-Identifier: MIT */
/*
 * Pricing rails
 *
 * A message takes the rail of the rank that it comes from at both ends (rails.h): what many ranks send to one comes in
 * over as many rails as they have. With any_rail all rails of a node are alike, and each has its share of what the node
 * has in all, so one is enough.
 *
 * A node can have messages on as many rails as the largest node has ranks, and a model has no room for all of them. But
 * only the busiest one is ever asked for, and one that has no more of anything than another is never that one. What is
 * left are a few; should they be more than there is room for, the last place is as busy as all that share it.
 */
#include "plan/cost_rails.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "plan/nodes.h"

int cost_rails_init(struct cost_rails *rails, const struct plan_net *net, const struct plan_nodes *nodes) {
        uint32_t most = plan_nodes_largest(nodes);

        *rails = (struct cost_rails){.net = net, .nodes = nodes};
        rails->n_rails = net->any_rail ? 1 : net->n_rails < most ? net->n_rails : most;
        rails->work = calloc((size_t)nodes->n_nodes * rails->n_rails * 2, sizeof(*rails->work));
        return rails->work ? 0 : -ENOMEM;
}

void cost_rails_deinit(struct cost_rails *rails) {
        free(rails->work);
        rails->work = NULL;
}

void cost_rails_add(struct cost_rails *rails, uint32_t from, uint32_t to, bool parts, double bytes) {
        const struct plan_nodes *nodes = rails->nodes;
        double share = rails->net->any_rail ? 1.0 / rails->net->n_rails : 1;
        uint32_t ends[2] = {from, to}, rail = nodes->local[from] % rails->n_rails;

        for (uint32_t in = 0; in < 2; in++) {
                struct plan_work *work = &rails->work[2 * (nodes->node[ends[in]] * rails->n_rails + rail) + in];

                *(parts ? &work->part : &work->fixed) += share * rails->net->ns_per_chunk;
                work->element += share * bytes * rails->net->ns_per_byte;
        }
}

/* Has a no more of anything than b? */
static bool no_busier(const struct plan_work *a, const struct plan_work *b) {
        return a->fixed <= b->fixed && a->part <= b->part && a->element <= b->element;
}

static void keep(const struct plan_work *work, struct plan_model *model) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < model->n_rails; i++)
                if (no_busier(work, &model->rail[i]))
                        return;
        for (uint32_t i = 0; i < model->n_rails; i++)
                if (!no_busier(&model->rail[i], work))
                        model->rail[n++] = model->rail[i];
        model->n_rails = n;
        if (n < PLAN_MODEL_RAILS) {
                model->rail[model->n_rails++] = *work;
        } else {
                struct plan_work *last = &model->rail[n - 1];

                last->fixed = fmax(last->fixed, work->fixed);
                last->part = fmax(last->part, work->part);
                last->element = fmax(last->element, work->element);
        }
}

void cost_rails_busiest(const struct cost_rails *rails, struct plan_model *model) {
        model->n_rails = 0;
        for (uint32_t i = 0; i < rails->nodes->n_nodes * rails->n_rails * 2; i++)
                keep(&rails->work[i], model);
}
