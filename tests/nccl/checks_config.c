/* SPDX-License-Identifier: MIT */
/* Config structs of all versions, and communicators that are made without waiting. */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/nccl/checks.h"

#define PAGE 4096u

struct version {
        size_t size;
        uint32_t version;
        const char *name;
};

static const struct version versions[] = {{72, 22707, "2.27"},       {80, 22807, "2.28"},
                                          {88, 22803, "RCCLX 2.28"}, {88, 22803, "RCCLX 2.28 without a description"},
                                          {96, 23007, "2.30"},       {128, 29900, "a future one"}};

static struct nccl_config config_default(const struct version *v) {
        struct nccl_config c = {.size = v->size,
                                .magic = NCCL_CONFIG_MAGIC,
                                .version = v->version,
                                .blocking = NCCL_UNDEFINED,
                                .cga_cluster_size = NCCL_UNDEFINED,
                                .min_ctas = NCCL_UNDEFINED,
                                .max_ctas = NCCL_UNDEFINED,
                                .split_share = NCCL_UNDEFINED,
                                .traffic_class = NCCL_UNDEFINED,
                                .collnet_enable = NCCL_UNDEFINED,
                                .cta_policy = NCCL_UNDEFINED,
                                .shrink_share = NCCL_UNDEFINED,
                                .nvls_ctas = NCCL_UNDEFINED,
                                .channels_per_peer = NCCL_UNDEFINED,
                                .nvlink_centric = NCCL_UNDEFINED};

        for (size_t i = 0; i < sizeof(c.later) / sizeof(c.later[0]); i++)
                c.later[i] = NCCL_UNDEFINED;
        if (v->size == 88) {
                c.at_80.description = strstr(v->name, "without") ? NULL : "described";
        } else { /* as a pointer this leads nowhere */
                c.at_80.numbers[0] = v->size == 96 ? 1 : NCCL_UNDEFINED;
                c.at_80.numbers[1] = v->size == 96 ? 4 : NCCL_UNDEFINED;
        }
        return c;
}

/* The last bytes before memory that cannot be read: who reads more than `size` does not survive. */
static struct nccl_config *config_at_edge(const struct nccl_config *c) {
        char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *at;

        if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE))
                return NULL;
        at = pages + PAGE - c->size;
        memcpy(at, c, c->size < sizeof(*c) ? c->size : sizeof(*c));
        return (void *)at;
}

static bool config_free(struct team *team, struct nccl_config *c) {
        return team_expect(team, munmap((void *)((uintptr_t)c & ~(uintptr_t)(PAGE - 1)), 2 * PAGE) == 0,
                           "the memory of the config cannot be given back");
}

/* All members with this config, made from id number `slot`. */
static bool init(struct team *team, struct nccl_config *config, uint32_t slot, int wanted, struct member *ret_members) {
        bool good = true;

        if (team->number == 0)
                good = team_need(team, team->api->GetUniqueId(&team->shared->id[slot]), "ncclGetUniqueId");
        if (!team_is_single(team))
                team_meet(team);
        if (!good || !team_group_start(team))
                return false;
        for (uint32_t i = 0; i < team->n_members; i++) {
                int result;

                ret_members[i] = team->member[i];
                ret_members[i].comm = NULL;
                memory_use(team->member[i].device);
                result = team->api->CommInitRankConfig(&ret_members[i].comm, (int)team->n_ranks, team->shared->id[slot],
                                                       (int)ret_members[i].rank, config);
                if (result != NCCL_IN_PROGRESS || !config || config->blocking != 0)
                        good = team_result(team, result, wanted, "ncclCommInitRankConfig") && good;
        }
        if (team->n_members > 1) {
                int result = team->api->GroupEnd();

                if (wanted == NCCL_SUCCESS && !(result == NCCL_IN_PROGRESS && config && config->blocking == 0))
                        good = team_result(team, result, NCCL_SUCCESS, "ncclGroupEnd") && good;
        }
        if (!team_is_single(team))
                team_meet(team); /* before the id's place is taken again */
        return good;
}

/* Calls may be under way for a while; polls as frameworks do. */
static bool settled(struct team *team, const struct member *members) {
        for (uint32_t i = 0; i < team->n_members; i++) {
                int error = NCCL_IN_PROGRESS;

                while (error == NCCL_IN_PROGRESS) {
                        if (!team_need(team, team->api->CommGetAsyncError(members[i].comm, &error),
                                       "ncclCommGetAsyncError"))
                                return false;
                        sched_yield();
                }
                if (!team_need(team, error, "the asynchronous error"))
                        return false;
        }
        return true;
}

static bool destroy(struct team *team, struct member *members) {
        bool good = team_group_start(team);

        for (uint32_t i = 0; i < team->n_members && good; i++)
                good = team_need(team, team->api->CommDestroy(members[i].comm), "ncclCommDestroy");
        return team_group_end(team) && good;
}

static bool streams_new(struct team *team) {
        for (uint32_t i = 0; i < team->n_members; i++)
                if (memory_use(team->member[i].device) || memory_stream_new(&team->member[i].stream))
                        return team_expect(team, false, "no stream");
        return true;
}

static void run_sizes(struct team *team) {
        struct member members[WORLD_RANKS_MAX];

        team_case(team, "no config");
        if (!streams_new(team) || !init(team, NULL, 0, NCCL_SUCCESS, members) ||
            !check_comm_works(team, team->n_ranks, members, team->n_members, 1) || !destroy(team, members)) {
                team_stop(team);
                return;
        }
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
                struct nccl_config whole = config_default(&versions[i]), *config;

                team_case(team, "a config of %zu bytes (%s)", versions[i].size, versions[i].name);
                whole.comm_name = "named";
                config = config_at_edge(&whole);
                if (!team_expect(team, config != NULL, "no memory") ||
                    !init(team, config, (uint32_t)i % WORLD_IDS, NCCL_SUCCESS, members) || !config_free(team, config) ||
                    !check_comm_works(team, team->n_ranks, members, team->n_members, i) || !destroy(team, members)) {
                        team_stop(team);
                        return;
                }
        }
}

static void run_wrong(struct team *team) {
        struct nccl_config config = config_default(&versions[1]);
        struct member members[WORLD_RANKS_MAX];

        team_case(team, "a config with another magic number");
        config.magic = 0x12345678;
        init(team, &config, 0, NCCL_INVALID_ARGUMENT, members);
        team_case(team, "blocking neither 0 nor 1");
        config = config_default(&versions[1]);
        config.blocking = 5;
        init(team, &config, 1, NCCL_INVALID_ARGUMENT, members);
        team_case(team, "communicators after that");
        if (team_comms_new(team) && check_team_works(team, 1))
                team_comms_free(team);
}

/* Children get a config, too, or inherit the parent's. */
static void run_split(struct team *team) {
        struct member children[WORLD_RANKS_MAX];

        team_case(team, "communicators");
        if (!team_comms_new(team))
                return;
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
                struct nccl_config whole = config_default(&versions[i]), *config = config_at_edge(&whole);
                bool good = team_expect(team, config != NULL, "no memory") && team_group_start(team);

                team_case(team, "split with a config of %zu bytes (%s)", versions[i].size, versions[i].name);
                for (uint32_t k = 0; k < team->n_members && good; k++) {
                        children[k] = team->member[k];
                        children[k].comm = NULL;
                        good = team_need(team,
                                         team->api->CommSplit(team->member[k].comm, 0, (int)team->member[k].rank,
                                                              &children[k].comm, config),
                                         "ncclCommSplit");
                }
                if (!team_group_end(team) || !good || !config_free(team, config) ||
                    !check_comm_works(team, team->n_ranks, children, team->n_members, i) || !destroy(team, children))
                        return;
        }
        team_comms_free(team);
}

/* Others need not call it, and in a group there may be nothing else. */
static bool call_nothing(struct team *team) {
        const struct nccl_api *api = team->api;

        for (uint32_t i = 0; i < team->n_members; i++) {
                const struct member *m = &team->member[i];
                int result;

                if (m->rank != 0)
                        continue;
                if (!team_need(team, api->AllReduce(NULL, NULL, 0, NCCL_INT32, NCCL_SUM, m->comm, m->stream),
                               "ncclAllReduce") ||
                    !team_need(team, api->GroupStart(), "ncclGroupStart") ||
                    !team_need(team, api->AllReduce(NULL, NULL, 0, NCCL_INT32, NCCL_SUM, m->comm, m->stream),
                               "ncclAllReduce in a group"))
                        return false;
                result = api->GroupEnd();
                if (result != NCCL_IN_PROGRESS && !team_need(team, result, "ncclGroupEnd"))
                        return false;
        }
        return settled(team, team->member);
}

/* As torch does it: what is not finished says so, and the parent is asked until it is. */
static void run_non_blocking(struct team *team) {
        struct nccl_config config = config_default(&versions[1]);
        struct member members[WORLD_RANKS_MAX], children[WORLD_RANKS_MAX];

        config.blocking = 0;
        team->patient = true;
        team_case(team, "made without waiting");
        if (!streams_new(team) || !init(team, &config, 0, NCCL_SUCCESS, members) || !settled(team, members))
                return;
        team_case(team, "a call");
        for (uint32_t i = 0; i < team->n_members; i++)
                team->member[i].comm = members[i].comm;
        if (!check_team_works(team, 1))
                return;
        team_case(team, "nothing, of one rank only");
        if (!call_nothing(team) || !check_team_works(team, 3))
                return;
        team_case(team, "split without waiting");
        if (!team_group_start(team))
                return;
        for (uint32_t i = 0; i < team->n_members; i++) {
                int result;

                children[i] = members[i];
                children[i].comm = NULL;
                result = team->api->CommSplit(members[i].comm, 0, (int)members[i].rank, &children[i].comm, NULL);
                if (result != NCCL_IN_PROGRESS && !team_need(team, result, "ncclCommSplit"))
                        return;
        }
        if (team->n_members > 1) {
                int result = team->api->GroupEnd();

                if (result != NCCL_IN_PROGRESS && !team_need(team, result, "ncclGroupEnd"))
                        return;
        }
        if (!settled(team, members))
                return;
        for (uint32_t i = 0; i < team->n_members; i++)
                if (!team_expect(team, *(nccl_comm volatile *)&children[i].comm != NULL, "the child is NULL"))
                        return;
        if (!settled(team, children) || !check_comm_works(team, team->n_ranks, children, team->n_members, 2))
                return;
        team_case(team, "finalized without waiting");
        for (uint32_t i = 0; i < team->n_members; i++) {
                int result = team->api->CommFinalize(children[i].comm);

                if (result != NCCL_IN_PROGRESS && !team_need(team, result, "ncclCommFinalize"))
                        return;
        }
        if (!settled(team, children))
                return;
        team_case(team, "and destroyed");
        if (destroy(team, children))
                destroy(team, members);
}

#define MANY   96u /* exchanges of all with all: more sends and receives than are started at once */
#define BEHIND 4u

/* Calls one after another without waiting for any, in groups and not, on two communicators, behind what cannot be
 * started at once: each has what it should. */
static bool call_in_order(struct team *team, const struct member *children) {
        static const struct call_case everyone = {.op = CALL_EVERYONE, .type = NCCL_INT32, .count = 21};
        static const struct call_case behind[BEHIND] = {
                {.op = CALL_ALL_REDUCE, .type = NCCL_FLOAT32, .redop = CALL_PREMUL_IMMEDIATE, .count = 333},
                {.op = CALL_ALL_TO_ALL_V, .type = NCCL_UINT8, .count = 45},
                {.op = CALL_RING, .type = NCCL_INT32, .count = 7},
                {.op = CALL_ALL_GATHER, .type = NCCL_INT32, .count = 57, .in_place = true, .grouped = true}};
        struct exchange *x[MANY + 2 * BEHIND];
        bool good = true;
        int result;

        for (uint32_t i = 0; i < MANY + 2 * BEHIND; i++) {
                x[i] = i % 2 ? exchange_new_on(team, team->n_ranks, children, team->n_members) : exchange_new(team);
                good = good && exchange_prepare(x[i], i < MANY ? &everyone : &behind[(i - MANY) / 2], 500 + i);
        }
        good = good && team_need(team, team->api->GroupStart(), "ncclGroupStart");
        for (uint32_t i = 0; i < MANY && good; i++)
                good = exchange_issue(x[i]);
        result = team->api->GroupEnd();
        good = good && (result == NCCL_IN_PROGRESS || team_need(team, result, "ncclGroupEnd"));
        for (uint32_t i = MANY; i < MANY + 2 * BEHIND && good; i++)
                good = exchange_issue(x[i]);
        good = good && team_wait(team) && team_wait_for(team, children, team->n_members);
        for (uint32_t i = 0; i < MANY + 2 * BEHIND; i++) {
                if (good)
                        exchange_verify(x[i]);
                exchange_free(x[i]);
        }
        return good;
}

static void run_non_blocking_order(struct team *team) {
        struct nccl_config config = config_default(&versions[1]);
        struct member members[WORLD_RANKS_MAX], children[WORLD_RANKS_MAX];

        config.blocking = 0;
        team->patient = true;
        team_case(team, "two communicators, made without waiting");
        if (!streams_new(team) || !init(team, &config, 0, NCCL_SUCCESS, members) || !settled(team, members) ||
            !init(team, &config, 1, NCCL_SUCCESS, children) || !settled(team, children))
                return;
        for (uint32_t i = 0; i < team->n_members; i++)
                team->member[i].comm = members[i].comm;
        team_case(team, "calls that are not waited for keep their order");
        if (call_in_order(team, children) && destroy(team, children))
                destroy(team, members);
}

/* Bootstrap with several ids: the first one will do. */
static void run_scalable(struct team *team) {
        struct nccl_id ids[2];
        bool good = true;

        team_case(team, "ncclCommInitRankScalable");
        if (team->number == 0)
                good = team_need(team, team->api->GetUniqueId(&team->shared->id[0]), "ncclGetUniqueId") &&
                       team_need(team, team->api->GetUniqueId(&team->shared->id[1]), "ncclGetUniqueId");
        team_meet(team);
        if (!good || !streams_new(team))
                return;
        memcpy(ids, team->shared->id, sizeof(ids));
        for (int n = 1; n <= 2; n++) {
                if (n == 2)
                        team_case(team, "with two ids");
                /* Another id for each n, as its first one. */
                if (!team_need(team,
                               team->api->CommInitRankScalable(&team->member[0].comm, (int)team->n_ranks,
                                                               (int)team->number, n, n == 1 ? &ids[1] : ids, NULL),
                               "ncclCommInitRankScalable") ||
                    !check_team_works(team, 1) ||
                    !team_need(team, team->api->CommDestroy(team->member[0].comm), "ncclCommDestroy"))
                        return;
        }
}

const struct check checks_config[] = {
        {"config: sizes", 3, IN_ALL_WAYS, run_sizes},
        {"config: wrong", 2, IN_ALL_WAYS, run_wrong},
        {"config: split", 3, IN_ALL_WAYS, run_split},
        {"config: non-blocking", 3, IN_ALL_WAYS, run_non_blocking},
        {"config: calls in order", 6, IN_ALL_WAYS, run_non_blocking_order},
        {"config: scalable", 3, IN_PROCESSES | IN_THREADS, run_scalable},
        {0},
};
