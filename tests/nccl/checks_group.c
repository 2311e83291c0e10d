/* SPDX-License-Identifier: MIT */
/* Groups: nesting, many calls, several communicators, everything at once, errors. */
#include "tests/nccl/checks.h"

#define AT_ONCE 8u

static void run_nested(struct team *team) {
        const struct call_case c = {.op = CALL_ALL_REDUCE, .type = NCCL_FLOAT32, .count = 1234};
        struct exchange *x;

        team_case(team, "groups in groups");
        if (!team_comms_new(team))
                return;
        x = exchange_new(team);
        if (!exchange_prepare(x, &c, 1) || !team_need(team, team->api->GroupStart(), "ncclGroupStart") ||
            !team_need(team, team->api->GroupStart(), "ncclGroupStart, again") || !exchange_issue(x) ||
            !team_need(team, team->api->GroupEnd(), "ncclGroupEnd of the inner one"))
                return;
        if (team->options->memory != MEMORY_DEVICE)
                team_expect(team, exchange_is_untouched(x), "the inner group's end has begun the call");
        if (!team_need(team, team->api->GroupEnd(), "ncclGroupEnd of the outer one") || !team_wait(team))
                return;
        exchange_verify(x);

        team_case(team, "an empty group");
        team_result(team, team->api->GroupStart(), NCCL_SUCCESS, "ncclGroupStart");
        team_result(team, team->api->GroupEnd(), NCCL_SUCCESS, "ncclGroupEnd");
        team_case(team, "the end of no group");
        team_result(team, team->api->GroupEnd(), NCCL_INVALID_USAGE, "ncclGroupEnd");
        team_case(team, "a call after that");
        exchange_run(x, &c, 2);
        exchange_free(x);
        team_comms_free(team);
}

/* Issues all in one group, on whatever communicators, and looks at all. */
static bool run_at_once(struct team *team, struct exchange *const *x, const struct call_case *cases, uint32_t n,
                        uint64_t iteration) {
        bool good = true;

        for (uint32_t i = 0; i < n && good; i++)
                good = exchange_prepare(x[i], &cases[i], iteration + i);
        good = good && team_need(team, team->api->GroupStart(), "ncclGroupStart");
        for (uint32_t i = 0; i < n && good; i++)
                good = exchange_issue(x[i]);
        good = good && team_need(team, team->api->GroupEnd(), "ncclGroupEnd") && team_wait(team);
        for (uint32_t i = 0; i < n && good; i++)
                exchange_verify(x[i]);
        return good;
}

static const struct call_case mixed[AT_ONCE] = {
        {.op = CALL_ALL_REDUCE, .type = 9, .redop = NCCL_SUM, .count = 4099},
        {.op = CALL_RING, .type = NCCL_UINT8, .count = 321},
        {.op = CALL_ALL_GATHER, .type = NCCL_INT32, .count = 57, .in_place = true},
        {.op = CALL_EVERYONE, .type = NCCL_FLOAT32, .count = 91},
        {.op = CALL_REDUCE_SCATTER, .type = 6, .redop = NCCL_MAX, .count = 1021, .lead = 1},
        {.op = CALL_SELF, .type = 8, .count = 12},
        {.op = CALL_BROADCAST, .type = 0, .root = 1, .count = 10007},
        {.op = CALL_RING, .type = 5, .count = 0},
};

static void run_mixed(struct team *team) {
        struct exchange *x[AT_ONCE];
        bool good;

        team_case(team, "collectives, sends and receives in a group");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < AT_ONCE; i++)
                x[i] = exchange_new(team);
        good = run_at_once(team, x, mixed, AT_ONCE, 100);
        if (good) {
                team_case(team, "the same once more");
                good = run_at_once(team, x, mixed, AT_ONCE, 200);
        }
        for (uint32_t i = 0; i < AT_ONCE; i++)
                exchange_free(x[i]);
        if (good)
                team_comms_free(team);
}

#define MANY 96u
#define MOST 301u

static void run_many_of(struct team *team, const struct call_case *kinds, uint32_t n_kinds, uint32_t n) {
        struct exchange *x[MOST];
        struct call_case cases[MOST];
        bool good;

        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < n; i++) {
                x[i] = exchange_new(team);
                cases[i] = kinds[i % n_kinds];
                cases[i].count = cases[i].count % 97 + i;
        }
        good = run_at_once(team, x, cases, n, 300);
        for (uint32_t i = 0; i < n; i++)
                exchange_free(x[i]);
        if (good)
                team_comms_free(team);
}

static void run_many(struct team *team) {
        team_case(team, "%u calls in a group", MANY);
        run_many_of(team, mixed, AT_ONCE, MANY);
}

/* As the exchange of many tensors between all ranks. */
static void run_many_transfers(struct team *team) {
        static const struct call_case everyone = {.op = CALL_EVERYONE, .type = NCCL_INT32, .count = 21};

        team_case(team, "%u sends and receives of a rank in a group", 2 * MANY * team->n_ranks);
        run_many_of(team, &everyone, 1, MANY);
}

/* More than a ring of the daemon has places for: by the sends and receives alone, and by themselves. */
static void run_many_collectives(struct team *team) {
        static const struct call_case collectives[] = {
                {.op = CALL_ALL_REDUCE, .type = 9, .redop = NCCL_SUM, .count = 40},
                {.op = CALL_ALL_REDUCE, .type = NCCL_FLOAT32, .redop = CALL_PREMUL_IMMEDIATE, .count = 1},
                {.op = CALL_ALL_GATHER, .type = NCCL_INT32, .count = 57},
                {.op = CALL_ALL_TO_ALL_V, .type = NCCL_INT32, .count = 12},
        };
        struct call_case cases[MOST];

        for (uint32_t n = 256; n < MOST; n += 44) {
                for (uint32_t i = 0; i < n; i++)
                        cases[i] = collectives[i % (sizeof(collectives) / sizeof(collectives[0]))];
                cases[n] = (struct call_case){.op = CALL_RING, .type = NCCL_INT32, .count = 3};
                team_case(team, "%u collectives in a group, a send and a receive", n);
                run_many_of(team, cases, n + 1, n + 1);
        }
}

/* More than the daemon has room for arguments. It is the same call each time, with the same result. */
static void run_many_vectors(struct team *team) {
        static const struct call_case vectors = {.op = CALL_ALL_TO_ALL_V, .type = NCCL_INT32, .count = 12};
        struct exchange *x;
        bool good;

        team_case(team, "256 calls with arrays in a group");
        if (!team_comms_new(team))
                return;
        x = exchange_new(team);
        good = exchange_prepare(x, &vectors, 1) && team_need(team, team->api->GroupStart(), "ncclGroupStart");
        for (uint32_t i = 0; i < 256 && good; i++)
                good = exchange_issue(x);
        good = good && team_need(team, team->api->GroupEnd(), "ncclGroupEnd") && team_wait(team) && exchange_verify(x);
        exchange_free(x);
        if (good)
                team_comms_free(team);
}

static bool split_all(struct team *team, struct member *children) {
        bool good = team_group_start(team);

        for (uint32_t i = 0; i < team->n_members && good; i++) {
                children[i] = team->member[i];
                children[i].comm = NULL;
                good = team_need(team,
                                 team->api->CommSplit(team->member[i].comm, 0, (int)team->member[i].rank,
                                                      &children[i].comm, NULL),
                                 "ncclCommSplit");
        }
        return team_group_end(team) && good;
}

static void run_communicators(struct team *team) {
        struct member children[WORLD_RANKS_MAX];
        struct exchange *x[AT_ONCE];
        bool good;

        team_case(team, "a second communicator");
        if (!team_comms_new(team) || !split_all(team, children))
                return;
        team_case(team, "two communicators in a group");
        for (uint32_t i = 0; i < AT_ONCE; i++)
                x[i] = i % 3 == 1 ? exchange_new(team)
                                  : exchange_new_on(team, team->n_ranks, children, team->n_members);
        good = run_at_once(team, x, mixed, AT_ONCE, 400);
        for (uint32_t i = 0; i < AT_ONCE; i++)
                exchange_free(x[i]);
        if (!good)
                return;
        team_case(team, "both destroyed in a group");
        if (!team_need(team, team->api->GroupStart(), "ncclGroupStart"))
                return;
        for (uint32_t i = 0; i < team->n_members; i++) {
                team_result(team, team->api->CommDestroy(children[i].comm), NCCL_SUCCESS, "ncclCommDestroy");
                team_result(team, team->api->CommDestroy(team->member[i].comm), NCCL_SUCCESS, "ncclCommDestroy");
        }
        team_result(team, team->api->GroupEnd(), NCCL_SUCCESS, "ncclGroupEnd");
}

/* A call that is wrong spoils its group, on the rank where it is wrong, and nothing else. */
static void run_spoilt(struct team *team) {
        const struct call_case c = {.op = CALL_ALL_REDUCE, .type = NCCL_INT32, .count = 99};
        struct exchange *x;
        int result;

        team_case(team, "a group with a wrong call");
        if (!team_comms_new(team))
                return;
        x = exchange_new(team);
        if (!exchange_prepare(x, &c, 1) || !team_need(team, team->api->GroupStart(), "ncclGroupStart") ||
            !exchange_issue(x))
                return;
        result = team->api->AllReduce(x->side[0].in.there, x->side[0].out.there, 1, 77, NCCL_SUM, team->member[0].comm,
                                      team->member[0].stream);
        team_result(team, result, NCCL_INVALID_ARGUMENT, "ncclAllReduce of type 77");
        team_result(team, team->api->GroupEnd(), NCCL_INVALID_ARGUMENT, "ncclGroupEnd");
        if (team->options->memory != MEMORY_DEVICE)
                team_expect(team, exchange_is_untouched(x), "the group was not given up as a whole");
        team_case(team, "a call after that");
        exchange_run(x, &c, 2);
        exchange_free(x);
        team_comms_free(team);
}

/* One thread's group is not another's. */
static void run_threads_apart(struct team *team) {
        const struct call_case c = {.op = CALL_ALL_REDUCE, .type = NCCL_INT32, .count = 512};
        struct exchange *x;

        team_case(team, "one rank in a group, the others not");
        if (!team_comms_new(team))
                return;
        x = exchange_new(team);
        if (!exchange_prepare(x, &c, 7) ||
            (team->number == 0 && !team_need(team, team->api->GroupStart(), "ncclGroupStart")))
                return;
        team_meet(team);
        if (!exchange_issue(x) || (team->number == 0 && !team_need(team, team->api->GroupEnd(), "ncclGroupEnd")) ||
            !team_wait(team))
                return;
        exchange_verify(x);
        exchange_free(x);
        team_comms_free(team);
}

const struct check checks_group[] = {
        {"group: nested", 3, IN_ALL_WAYS, run_nested},
        {"group: mixed", 4, IN_ALL_WAYS, run_mixed},
        {"group: many calls", 3, IN_ALL_WAYS, run_many},
        {"group: many collectives", 2, IN_ALL_WAYS, run_many_collectives},
        {"group: many vectors", 8, IN_PROCESSES, run_many_vectors},
        {"group: many transfers", 6, IN_ALL_WAYS, run_many_transfers},
        {"group: communicators", 3, IN_ALL_WAYS, run_communicators},
        {"group: wrong call", 2, IN_ALL_WAYS, run_spoilt},
        {"group: threads", 4, IN_THREADS | IN_PROCESSES, run_threads_apart},
        {0},
};
