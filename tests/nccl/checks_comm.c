/* SPDX-License-Identifier: MIT */
/* The life of communicators: what they tell, how they are split and shrunk, made without waiting, and ended. */
#include <sched.h>
#include <string.h>

#include "tests/nccl/checks.h"

static void run_facts(struct team *team) {
        const struct nccl_api *api = team->api;

        team_case(team, "what a communicator tells");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < team->n_members; i++) {
                nccl_comm comm = team->member[i].comm;
                int count = -1, rank = -1, device = -1, error = -1;

                team_result(team, api->CommCount(comm, &count), NCCL_SUCCESS, "ncclCommCount");
                team_result(team, api->CommUserRank(comm, &rank), NCCL_SUCCESS, "ncclCommUserRank");
                team_result(team, api->CommCuDevice(comm, &device), NCCL_SUCCESS, "ncclCommCuDevice");
                team_result(team, api->CommGetAsyncError(comm, &error), NCCL_SUCCESS, "ncclCommGetAsyncError");
                team_expect(team, count == (int)team->n_ranks && rank == (int)team->member[i].rank && device >= 0,
                            "it is rank %d of %d on device %d", rank, count, device);
                team_expect(team, error == NCCL_SUCCESS, "its asynchronous error is %d", error);
        }
        team_comms_free(team);
}

/* ---- split ------------------------------------------------------------------------------------------------------- */
struct split {
        int colour[WORLD_RANKS_MAX], key[WORLD_RANKS_MAX];
};

/* The children of those members that have one. Returns their number, -1 after an error. */
static int split(struct team *team, const struct member *parents, uint32_t n_parents, const struct split *s,
                 struct member *ret_children) {
        nccl_comm comms[WORLD_RANKS_MAX];
        bool good = team_group_start(team);
        int n = 0;

        for (uint32_t i = 0; i < n_parents && good; i++) {
                comms[i] = (void *)1;
                memory_use(team->member[i].device);
                good = team_need(team,
                                 team->api->CommSplit(parents[i].comm, s->colour[parents[i].rank],
                                                      s->key[parents[i].rank], &comms[i], NULL),
                                 "ncclCommSplit");
        }
        if (!team_group_end(team) || !good)
                return -1;
        for (uint32_t i = 0; i < n_parents; i++) {
                bool in = s->colour[parents[i].rank] != NCCL_SPLIT_NOCOLOUR;

                if (!team_expect(team, (comms[i] != NULL) == in && comms[i] != (void *)1,
                                 "the child's communicator is %p", comms[i]))
                        return -1;
                if (!in)
                        continue;
                ret_children[n] = parents[i];
                ret_children[n].comm = comms[i];
                if (!team_need(team, team->api->CommUserRank(comms[i], (int *)&ret_children[n].rank),
                               "ncclCommUserRank"))
                        return -1;
                n++;
        }
        return n;
}

static uint32_t rank_expected(const struct split *s, uint32_t n_ranks, uint32_t rank, uint32_t *ret_size) {
        uint32_t before = 0, size = 0;

        for (uint32_t r = 0; r < n_ranks; r++) {
                if (s->colour[r] != s->colour[rank])
                        continue;
                size++;
                before += s->key[r] < s->key[rank] || (s->key[r] == s->key[rank] && r < rank);
        }
        *ret_size = size;
        return before;
}

/* Children one colour after the other: in one thread those of a colour must progress together. */
static bool children_work(struct team *team, const struct split *s, const struct member *children, int n,
                          const struct member *parents, uint32_t n_parents) {
        for (int colour = 0; colour < 4; colour++) {
                struct member same[WORLD_RANKS_MAX];
                uint32_t m = 0, child = 0, size = 0;

                for (uint32_t i = 0; i < n_parents && (int)child < n; i++) {
                        uint32_t expected;

                        if (s->colour[parents[i].rank] == NCCL_SPLIT_NOCOLOUR)
                                continue;
                        expected = rank_expected(s, team->n_ranks, parents[i].rank, &size);
                        if (!team_expect(team, children[child].rank == expected, "rank %u has become rank %u, not %u",
                                         parents[i].rank, children[child].rank, expected))
                                return false;
                        if (s->colour[parents[i].rank] == colour)
                                same[m++] = children[child];
                        child++;
                }
                for (uint32_t i = 0; i < m; i++) {
                        int count = 0;

                        team_result(team, team->api->CommCount(same[i].comm, &count), NCCL_SUCCESS, "ncclCommCount");
                        size = (uint32_t)count;
                }
                if (m &&
                    (!team_expect(team, team->mode == MODE_GROUPED ? size == m : size > 0, "it has %u ranks", size) ||
                     !check_comm_works(team, size, same, m, (uint64_t)colour + 1)))
                        return false;
        }
        return true;
}

static bool members_free(struct team *team, const struct member *members, int n) {
        bool good = team_group_start(team);

        for (int i = 0; i < n && good; i++)
                good = team_need(team, team->api->CommDestroy(members[i].comm), "ncclCommDestroy");
        return team_group_end(team) && good;
}

static void run_split(struct team *team) {
        static const struct split splits[] = {
                {.colour = {0, 0, 0, 0, 0}, .key = {0, 0, 0, 0, 0}},
                {.colour = {0, 1, 0, 1, 0}, .key = {5, 4, 3, 2, 1}},
                {.colour = {2, 2, -1, 2, 3}, .key = {-7, 100, 0, -7, 0}},
                {.colour = {-1, -1, -1, -1, 0}, .key = {0}},
        };
        struct member children[WORLD_RANKS_MAX];

        team_case(team, "communicators");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
                int n;

                team_case(team, "split %u", i);
                n = split(team, team->member, team->n_members, &splits[i], children);
                if (n < 0 || !children_work(team, &splits[i], children, n, team->member, team->n_members) ||
                    !members_free(team, children, n)) {
                        team_stop(team);
                        return;
                }
        }
        team_case(team, "the parent after all that");
        check_team_works(team, 9);
        team_comms_free(team);
}

/* A child outlives its parent, and is split itself. */
static void run_generations(struct team *team) {
        static const struct split all = {.colour = {0}, .key = {0, 1, 2, 3}};
        struct member children[WORLD_RANKS_MAX], grandchildren[WORLD_RANKS_MAX];
        int n;

        team_case(team, "a child of a child");
        if (!team_comms_new(team))
                return;
        n = split(team, team->member, team->n_members, &all, children);
        if (n < 0 || split(team, children, (uint32_t)n, &all, grandchildren) != n)
                return;
        team_case(team, "the youngest without the others");
        if (!members_free(team, team->member, n) || !members_free(team, children, n) ||
            !check_comm_works(team, team->n_ranks, grandchildren, (uint32_t)n, 8))
                return;
        team_case(team, "its end");
        members_free(team, grandchildren, n);
}

/* Many, to see that each is really gone. */
static void run_many(struct team *team) {
        static const struct split all = {.colour = {0}, .key = {3, 2, 1, 0}};
        struct member children[WORLD_RANKS_MAX];

        team_case(team, "communicators");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < 40; i++) {
                int n;

                team_case(team, "child number %u", i);
                n = split(team, team->member, team->n_members, &all, children);
                if (n < 0 || !check_comm_works(team, team->n_ranks, children, (uint32_t)n, i) ||
                    !members_free(team, children, n))
                        return;
        }
        team_comms_free(team);
}

/* ---- shrink ------------------------------------------------------------------------------------------------------ */
static void run_shrink(struct team *team) {
        struct member rest[WORLD_RANKS_MAX];
        int excluded[] = {1, 3};
        uint32_t n = 0;
        bool good;

        team_case(team, "ncclCommShrink");
        if (!team_comms_new(team) || !team_group_start(team))
                return;
        good = true;
        for (uint32_t i = 0; i < team->n_members && good; i++) {
                if (team->member[i].rank == 1 || team->member[i].rank == 3)
                        continue; /* those who go do not call */
                rest[n] = team->member[i];
                rest[n].comm = NULL;
                good = team_need(team,
                                 team->api->CommShrink(team->member[i].comm, excluded, 2, &rest[n].comm, NULL,
                                                       NCCL_SHRINK_DEFAULT),
                                 "ncclCommShrink");
                n++;
        }
        if (!team_group_end(team) || !good)
                return;
        team_case(team, "what is left");
        for (uint32_t i = 0; i < n; i++) {
                int count = 0, rank = -1, old = (int)rest[i].rank;

                team_result(team, team->api->CommCount(rest[i].comm, &count), NCCL_SUCCESS, "ncclCommCount");
                team_result(team, team->api->CommUserRank(rest[i].comm, &rank), NCCL_SUCCESS, "ncclCommUserRank");
                if (!team_expect(team, count == 3 && rank == old / 2, "rank %d is rank %d of %d", old, rank, count))
                        return;
                rest[i].rank = (uint32_t)rank;
        }
        if (n && !check_comm_works(team, 3, rest, n, 6))
                return;
        if (!members_free(team, rest, (int)n))
                return;
        team_case(team, "the parent after that");
        check_team_works(team, 9);
        team_comms_free(team);
}

/* ---- grow -------------------------------------------------------------------------------------------------------- */
/* Two ranks that are together take in the other two. Only one of them has the id, and the new ones. */
static void run_grow(struct team *team) {
        static const struct split first_two = {.colour = {0, 0, -1, -1}, .key = {0, 1, 2, 3}};
        struct member old, grown = team->member[0];
        uint32_t rank = team->number;
        int n, result;

        team_case(team, "communicators");
        if (!team->api->CommGrow || !team->api->CommGetUniqueId || !team_comms_new(team))
                return;
        n = split(team, team->member, 1, &first_two, &old);
        if (n < 0)
                return;
        team_case(team, "ncclCommGetUniqueId");
        if (rank == 0 &&
            !team_need(team, team->api->CommGetUniqueId(old.comm, &team->shared->id[3]), "ncclCommGetUniqueId"))
                return;
        team_meet(team);
        team_case(team, "ncclCommGrow");
        result = rank < 2 ? team->api->CommGrow(old.comm, 4, rank == 0 ? &team->shared->id[3] : NULL, -1, &grown.comm,
                                                NULL)
                          : team->api->CommGrow(NULL, 4, &team->shared->id[3], (int)rank, &grown.comm, NULL);
        if (!team_need(team, result, "ncclCommGrow"))
                return;
        grown.rank = rank;
        grown.stream = team->member[0].stream;
        if (!check_comm_works(team, 4, &grown, 1, 5))
                return;
        team_case(team, "the old ones after that");
        if ((n == 1 && !check_comm_works(team, 2, &old, 1, 6)) || !members_free(team, &old, n) ||
            !members_free(team, &grown, 1))
                return;
        check_team_works(team, 7);
        team_comms_free(team);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */
static void run_finalize(struct team *team) {
        const struct nccl_api *api = team->api;
        int place = 0;

        team_case(team, "ncclCommFinalize");
        if (!team_comms_new(team) || !check_team_works(team, 1) || !team_group_start(team))
                return;
        for (uint32_t i = 0; i < team->n_members; i++)
                team_need(team, api->CommFinalize(team->member[i].comm), "ncclCommFinalize");
        if (!team_group_end(team))
                return;
        for (uint32_t i = 0; i < team->n_members; i++) {
                int error = -1;

                team_result(team, api->CommGetAsyncError(team->member[i].comm, &error), NCCL_SUCCESS,
                            "ncclCommGetAsyncError");
                team_expect(team, error == NCCL_SUCCESS, "the asynchronous error is %s", nccl_result_name(error));
        }
        team_case(team, "ncclCommFinalize again");
        team_result(team, api->CommFinalize(team->member[0].comm), NCCL_INVALID_ARGUMENT, "ncclCommFinalize");
        team_case(team, "a call after it");
        team_expect(team,
                    api->AllReduce(&place, &place, 0, NCCL_INT32, NCCL_SUM, team->member[0].comm,
                                   team->member[0].stream) != NCCL_SUCCESS,
                    "it was taken");
        team_case(team, "ncclCommDestroy after it");
        team_comms_free(team);
}

static void run_abort(struct team *team) {
        team_case(team, "ncclCommAbort of one that is idle");
        if (!team_comms_new(team) || !check_team_works(team, 1))
                return;
        if (team->mode != MODE_GROUPED)
                team_meet(team);
        for (uint32_t i = 0; i < team->n_members; i++)
                team_result(team, team->api->CommAbort(team->member[i].comm), NCCL_SUCCESS, "ncclCommAbort");
        if (team->mode != MODE_GROUPED)
                team_meet(team);
        team_case(team, "another communicator after that");
        for (uint32_t i = 0; i < team->n_members; i++)
                team->member[i].comm = NULL;
        if (!team_comms_new(team) || !check_team_works(team, 2))
                return;
        team_comms_free(team);
}

static bool revoke(struct team *team) {
        int place = 0, state = NCCL_IN_PROGRESS;

        team_case(team, "ncclCommRevoke");
        if (!team->api->CommRevoke || !team_comms_new(team) || !check_team_works(team, 1))
                return false;
        team_meet(team);
        team_need(team, team->api->CommRevoke(team->member[0].comm, 0), "ncclCommRevoke");
        team_meet(team);
        while (state == NCCL_IN_PROGRESS &&
               team_need(team, team->api->CommGetAsyncError(team->member[0].comm, &state), "ncclCommGetAsyncError"))
                sched_yield();
        team_result(team, state, NCCL_SUCCESS, "the asynchronous error of what all have revoked");
        return team_result(team,
                           team->api->AllReduce(&place, &place, 1, NCCL_INT32, NCCL_SUM, team->member[0].comm,
                                                team->member[0].stream),
                           NCCL_INVALID_USAGE, "ncclAllReduce");
}

static void run_revoke(struct team *team) {
        if (!revoke(team))
                return;
        team_case(team, "ncclCommDestroy after it");
        team_comms_free(team);
}

/* No call is taken any more, but the communicator is there to derive others from. */
static void run_revoke_split(struct team *team) {
        static const struct split all = {.colour = {0}, .key = {0, 1, 2}};
        struct member child;

        if (!revoke(team))
                return;
        team_case(team, "split after it");
        if (split(team, team->member, 1, &all, &child) == 1 && check_comm_works(team, team->n_ranks, &child, 1, 2) &&
            members_free(team, &child, 1))
                team_comms_free(team);
}

static void run_revoke_shrink(struct team *team) {
        struct member child;
        int excluded = 1;

        if (!revoke(team))
                return;
        team_case(team, "shrink after it");
        child = team->member[0];
        child.rank = team->number / 2;
        if (team->number == 1 || (team_need(team,
                                            team->api->CommShrink(team->member[0].comm, &excluded, 1, &child.comm, NULL,
                                                                  NCCL_SHRINK_DEFAULT),
                                            "ncclCommShrink") &&
                                  check_comm_works(team, 2, &child, 1, 3) && members_free(team, &child, 1)))
                team_comms_free(team);
}

/* Two communicators at once, made in one group by each rank. */
static void run_two(struct team *team) {
        struct member first[WORLD_RANKS_MAX], second[WORLD_RANKS_MAX];
        bool good = true;

        team_case(team, "two made in a group");
        if (team->number == 0)
                good = team_need(team, team->api->GetUniqueId(&team->shared->id[1]), "ncclGetUniqueId") &&
                       team_need(team, team->api->GetUniqueId(&team->shared->id[2]), "ncclGetUniqueId");
        if (!good)
                return;
        if (team->mode != MODE_GROUPED)
                team_meet(team);
        team_expect(team, memcmp(&team->shared->id[1], &team->shared->id[2], sizeof(struct nccl_id)) != 0,
                    "two ids are equal");
        if (!team_need(team, team->api->GroupStart(), "ncclGroupStart"))
                return;
        for (uint32_t i = 0; i < team->n_members; i++) {
                if (!team_expect(team,
                                 memory_use(team->member[i].device) == 0 &&
                                         memory_stream_new(&team->member[i].stream) == 0,
                                 "no stream"))
                        return;
                first[i] = second[i] = team->member[i];
                team_need(team,
                          team->api->CommInitRank(&first[i].comm, (int)team->n_ranks, team->shared->id[1],
                                                  (int)first[i].rank),
                          "ncclCommInitRank");
                team_need(team,
                          team->api->CommInitRank(&second[i].comm, (int)team->n_ranks, team->shared->id[2],
                                                  (int)second[i].rank),
                          "ncclCommInitRank");
        }
        if (!team_need(team, team->api->GroupEnd(), "ncclGroupEnd"))
                return;
        for (uint32_t i = 0; i < team->n_members; i++)
                if (!team_expect(team, first[i].comm && second[i].comm, "one is NULL"))
                        return;
        team_case(team, "both work");
        if (!check_comm_works(team, team->n_ranks, first, team->n_members, 1) ||
            !check_comm_works(team, team->n_ranks, second, team->n_members, 2))
                return;
        members_free(team, second, (int)team->n_members);
        members_free(team, first, (int)team->n_members);
        for (uint32_t i = 0; i < team->n_members; i++)
                memory_stream_free(team->member[i].stream);
}

/* ---- again and again ----------------------------------------------------------------------------------------------
 */
/* Made and destroyed again and again, as by tests of frameworks. */
static void run_again(struct team *team) {
        for (uint32_t i = 0; i < 25; i++) {
                team_case(team, "number %u from the beginning", i);
                if (!team_comms_new(team) || !check_team_works(team, i) || !team_comms_free(team))
                        return;
                if (!team_is_single(team))
                        team_meet(team); /* before the id's place is taken again */
        }
}

const struct check checks_comm[] = {
        {"comm: facts", 3, IN_ALL_WAYS, run_facts},
        {"comm: facts", 1, IN_ALL_WAYS, run_facts},
        {"comm: split", 5, IN_ALL_WAYS, run_split},
        {"comm: generations", 4, IN_ALL_WAYS, run_generations},
        {"comm: many", 4, IN_PROCESSES | IN_ONE_THREAD, run_many},
        {"comm: again", 3, IN_ALL_WAYS, run_again},
        {"comm: shrink", 5, IN_PROCESSES | IN_THREADS, run_shrink},
        {"comm: grow", 4, IN_PROCESSES | IN_THREADS, run_grow},
        {"comm: revoke", 3, IN_PROCESSES | IN_THREADS, run_revoke},
        {"comm: revoke and shrink", 3, IN_PROCESSES | IN_THREADS, run_revoke_shrink},
        {"comm: revoke and split", 3, IN_PROCESSES | IN_THREADS, run_revoke_split},
        {"comm: finalize", 3, IN_ALL_WAYS, run_finalize},
        {"comm: abort", 3, IN_ALL_WAYS, run_abort},
        {"comm: two at once", 3, IN_ALL_WAYS, run_two},
        {0},
};
