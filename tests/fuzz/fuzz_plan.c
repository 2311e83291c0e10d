/* SPDX-License-Identifier: MIT */
/* Random plans and cases: the verifier returns a verdict and touches nothing else. What it accepts is bound to be
 * small. */
#include <assert.h>
#include <string.h>

#include "plan/nodes.h"
#include "plan/verify.h"
#include "plan/verify_machine.h"
#include "ring/ring.h"

#define COUNT_MAX 512u /* elements: so that an input does not take seconds */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next bytes of the input; zeros when it is used up. */
static void take(const uint8_t **data, size_t *size, void *into, size_t length) {
        size_t n = *size < length ? *size : length;

        memset(into, 0, length);
        memcpy(into, *data, n);
        *data += n;
        *size -= n;
}

/* A plan over nodes, or nothing; `nodes` has to outlive it. */
static void take_nodes(const uint8_t choice[4], struct plan_nodes *nodes, struct plan *ret_plan) {
        uint32_t n_ranks = 2 + choice[2] % 7u, n_nodes = 2 + choice[2] / 7u % (n_ranks - 1);
        uint8_t node[PLAN_RANKS_MAX];

        for (uint32_t r = 0; r < n_ranks; r++)
                node[r] = (uint8_t)(r < n_nodes ? r : (r * r + choice[3] / 8u) % n_nodes);
        if (plan_nodes_init(nodes, n_ranks, node) == PLAN_OK)
                (void)plan_build_nodes(choice[0] % RING_OP_COUNT, choice[1] % PLAN_ALGORITHM_COUNT, n_ranks, nodes,
                                       ret_plan);
}

static void take_plan(const uint8_t **data, size_t *size, struct plan_nodes *nodes, struct plan *ret_plan) {
        uint8_t mode, choice[4];

        take(data, size, &mode, 1);
        if (mode & 1) { /* raw */
                take(data, size, ret_plan, offsetof(struct plan, nodes));
                ret_plan->nodes = NULL;
        } else { /* a plan that exists, with some bytes of its phases changed */
                take(data, size, choice, sizeof(choice));
                memset(ret_plan, 0, sizeof(*ret_plan));
                if (mode & 64)
                        take_nodes(choice, nodes, ret_plan);
                else
                        (void)plan_build(choice[0] % RING_OP_COUNT, choice[1] % PLAN_ALGORITHM_COUNT,
                                         choice[2] % (PLAN_RANKS_MAX + 2), ret_plan);
                for (uint32_t i = 0; i < choice[3] % 4u; i++) {
                        uint8_t edit[2];

                        take(data, size, edit, sizeof(edit));
                        ((uint8_t *)ret_plan->phases)[edit[0] % sizeof(ret_plan->phases)] = edit[1];
                }
                if (choice[3] & 128) { /* and a field of the plan itself */
                        uint8_t edit[2];

                        take(data, size, edit, sizeof(edit));
                        ((uint8_t *)ret_plan)[edit[0] % offsetof(struct plan, phases)] = edit[1];
                }
        }
        if (ret_plan->n_ranks > 8 && (mode & 30) != 0) /* many ranks take long, and show little that few do not */
                ret_plan->n_ranks %= 9;
}

static void take_case(const uint8_t **data, size_t *size, struct plan_case *ret_case) {
        uint16_t words[4];
        uint8_t flags, more[3];

        take(data, size, words, sizeof(words));
        take(data, size, &flags, 1);
        take(data, size, more, sizeof(more));
        *ret_case = (struct plan_case){
                .geometry = {words[0], words[1] % 8},
                .count = words[2] % COUNT_MAX,
                .element_bytes = words[3] % 32,
                .partial_bytes = more[0] % 64,
                .root = flags >> 2,
                .peer = more[1] % 128 < 64 ? 0 : more[1] % 64,
                .vector = more[2],
                .in_place = flags & 1,
        };
        if (flags & 2)
                ret_case->count <<= flags >> 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct verify_options options = VERIFY_OPTIONS_NULL;
        struct plan_verdict verdict = {0};
        struct plan_nodes nodes, next_nodes;
        struct plan plan, next;
        struct plan_case c, next_case;
        uint8_t mode, mutation[3];
        int r;

        take(&data, &size, &mode, 1);
        take(&data, &size, mutation, sizeof(mutation));
        take_plan(&data, &size, &nodes, &plan);
        take_case(&data, &size, &c);
        next = plan;
        next_case = c;
        if (mode & 1) {
                take_plan(&data, &size, &next_nodes, &next);
                take_case(&data, &size, &next_case);
                next_case.geometry = c.geometry;
        }
        if (mode & 4)
                options.mutation = (struct verify_mutation){
                        .kind = mutation[0] % VERIFY_MUTATION_COUNT,
                        .rank = mutation[0] & 128 ? VERIFY_EVERY_RANK : mutation[1] / PLAN_PHASES_MAX,
                        .phase = mutation[1] % PLAN_PHASES_MAX,
                        .arg = mutation[2],
                };
        r = verify_pair(&plan, &c, mode & 2 ? &next : NULL, &next_case, &options, &verdict);
        assert(r == 0 || r == PLAN_E_INVALID);
        if (r) {
                assert(verdict.condition > PLAN_FAULT_NONE && verdict.condition < PLAN_FAULT_COUNT);
                assert(memchr(verdict.text, 0, sizeof(verdict.text)) != NULL && verdict.text[0] != 0);
        } else {
                assert(verdict.condition == PLAN_FAULT_NONE);
        }
        return 0;
}
