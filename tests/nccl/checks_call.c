/* SPDX-License-Identifier: MIT */
/* Right results: every operation, a sample of its cases or all of them. */
#include <stdio.h>
#include <string.h>

#include "tests/e2e/proc.h"
#include "tests/nccl/checks.h"

static const char *describe(const struct call_case *c, char *text, size_t size) {
        static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64",
                                            "fp16", "fp32",  "fp64",  "bf16",   "e4m3",  "e5m2"};
        static const char *const redops[] = {
                "sum", "prod", "max", "min", "avg", "premul (immediate)", "premul (memory)"};

        snprintf(text, size, "%s %s %s count %zu lead %zu root %u%s%s%s", call_name(c->op), types[c->type],
                 redops[c->redop], c->count, c->lead, c->root, c->in_place ? " in place" : "",
                 c->null_unused ? " null" : "", c->grouped ? " grouped" : "");
        return text;
}

static uint32_t common_divisor(uint32_t a, uint32_t b) {
        while (b) {
                uint32_t rest = a % b;

                a = b;
                b = rest;
        }
        return a;
}

/* Each number below `total` once, neighbours far apart: every type, reduction and root comes up early. */
static uint32_t spread(uint32_t k, uint32_t total, uint64_t start) {
        uint32_t stride = (uint32_t)((double)total * 0.6180339887) | 1u;

        while (common_divisor(stride, total) != 1)
                stride += 2;
        return (uint32_t)((start + (uint64_t)k * stride) % total);
}

static bool run_op(struct team *team, struct exchange *x, const struct call_plan *plan, enum call_op op) {
        uint32_t total = cases_number(op, team->n_ranks), n = plan->per_op ? plan->per_op : 12 * total;
        uint64_t random = team->options->seed * 1000003u + op * 131u + team->n_ranks, start = proc_random(&random);
        char text[160];

        for (uint32_t k = 0; k < n; k++) {
                uint32_t number = spread(k, total, start % total);
                uint64_t hash = cases_with_size(proc_random(&random), number + (uint32_t)(start >> 32) + k / total);
                struct call_case c =
                        plan->large ? cases_get_large(op, team->n_ranks, number, hash, plan->large >> (hash >> 44 & 3))
                                    : cases_get(op, team->n_ranks, number, hash);

                team_case(team, "%s", describe(&c, text, sizeof(text)));
                if (!exchange_run(x, &c, hash >> 8))
                        return false;
        }
        return true;
}

static bool is_wanted(const struct call_plan *plan, enum call_op op) {
        return !plan->operation || !strncmp(plan->operation, call_name(op), strlen(plan->operation));
}

void checks_call_run(struct team *team) {
        const struct call_plan *plan = team->argument;
        struct exchange *x;
        bool good;

        team_case(team, "communicators");
        good = team_comms_new(team);
        if (!good)
                return;
        x = exchange_new(team);
        for (enum call_op op = 0; op < CALL_COUNT && good; op++)
                if (exchange_is_there(team->api, op) && is_wanted(plan, op))
                        good = run_op(team, x, plan, op);
        exchange_free(x);
        if (!good)
                return;
        team_case(team, "the end");
        team_comms_free(team);
}

bool check_comm_works(struct team *team, uint32_t n_ranks, const struct member *members, uint32_t n_members,
                      uint64_t iteration) {
        const struct call_case cases[] = {
                {.op = CALL_ALL_REDUCE, .type = NCCL_FLOAT32, .redop = NCCL_SUM, .count = 1000 + iteration % 7},
                {.op = CALL_ALL_GATHER, .type = NCCL_INT32, .count = 33},
                {.op = CALL_RING, .type = NCCL_UINT8, .count = 77}};
        struct exchange *x = exchange_new_on(team, n_ranks, members, n_members);
        bool good = true;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && good; i++)
                good = exchange_prepare(x, &cases[i], iteration) && exchange_issue(x) && exchange_wait(x) &&
                       exchange_verify(x);
        exchange_free(x);
        return good;
}

bool check_team_works(struct team *team, uint64_t iteration) {
        return check_comm_works(team, team->n_ranks, team->member, team->n_members, iteration);
}
