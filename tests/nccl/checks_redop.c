/* SPDX-License-Identifier: MIT */
/* Reductions that the caller makes. That their results are right is among the calls; here is their life. */
#include <string.h>

#include "tests/nccl/checks.h"

/* The communicator does not know it; that it is asked for nothing is no excuse. */
static void check_unknown(struct team *team, int redop, nccl_comm comm) {
        const struct nccl_api *api = team->api;
        void *stream = team->member[0].stream, *buffer;

        if (!team_expect(team, memory_new(64, &buffer) == 0, "no memory"))
                return;
        for (size_t count = 0; count < 2; count++) {
                team_result(team, api->AllReduce(buffer, buffer, count, NCCL_FLOAT32, redop, comm, stream),
                            NCCL_INVALID_ARGUMENT, "ncclAllReduce");
                team_result(team, api->Reduce(buffer, buffer, count, NCCL_FLOAT32, redop, 0, comm, stream),
                            NCCL_INVALID_ARGUMENT, "ncclReduce");
                team_result(team, api->ReduceScatter(buffer, buffer, count, NCCL_FLOAT32, redop, comm, stream),
                            NCCL_INVALID_ARGUMENT, "ncclReduceScatter");
        }
        memory_free(buffer);
}

static void check_foreign(struct team *team, int redop) {
        nccl_comm other;

        if (!team_need(team, team->api->CommSplit(team->member[0].comm, 0, 0, &other, NULL), "ncclCommSplit"))
                return;
        check_unknown(team, redop, other);
        team_need(team, team->api->CommDestroy(other), "ncclCommDestroy");
}

static void run_life(struct team *team) {
        const struct nccl_api *api = team->api;
        struct member *m = &team->member[0];
        int redop = -1, other = -1;
        float factor = 2;
        void *buffer;

        team_case(team, "a reduction");
        if (!team_comms_new(team) || !team_expect(team, memory_new(64, &buffer) == 0, "no memory"))
                return;
        team_need(team, api->RedOpCreatePreMulSum(&redop, &factor, NCCL_FLOAT32, NCCL_SCALAR_IMMEDIATE, m->comm),
                  "ncclRedOpCreatePreMulSum");
        team_expect(team, redop >= NCCL_REDOP_BUILTIN, "its number is %d", redop);
        team_case(team, "a second one");
        team_need(team, api->RedOpCreatePreMulSum(&other, &factor, NCCL_FLOAT32, NCCL_SCALAR_IMMEDIATE, m->comm),
                  "ncclRedOpCreatePreMulSum");
        team_expect(team, other != redop, "both have number %d", redop);
        team_case(team, "with another type than its own");
        team_result(team, api->AllReduce(buffer, buffer, 1, NCCL_INT32, redop, m->comm, m->stream),
                    NCCL_INVALID_ARGUMENT, "ncclAllReduce");
        team_case(team, "after its end");
        team_result(team, api->RedOpDestroy(redop, m->comm), NCCL_SUCCESS, "ncclRedOpDestroy");
        check_unknown(team, redop, m->comm);
        team_case(team, "of another communicator");
        check_foreign(team, other);
        team_case(team, "with a call of nothing");
        team_result(team, api->AllReduce(buffer, buffer, 0, NCCL_FLOAT32, other, m->comm, m->stream), NCCL_SUCCESS,
                    "ncclAllReduce");
        team_case(team, "destroyed twice");
        team_result(team, api->RedOpDestroy(redop, m->comm), NCCL_INVALID_ARGUMENT, "ncclRedOpDestroy");
        team_case(team, "a built-in one destroyed");
        team_result(team, api->RedOpDestroy(NCCL_SUM, m->comm), NCCL_INVALID_ARGUMENT, "ncclRedOpDestroy");
        team_case(team, "wrong arguments");
        team_result(team, api->RedOpCreatePreMulSum(NULL, &factor, NCCL_FLOAT32, NCCL_SCALAR_IMMEDIATE, m->comm),
                    NCCL_INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum without a place for it");
        team_result(team, api->RedOpCreatePreMulSum(&redop, NULL, NCCL_FLOAT32, NCCL_SCALAR_IMMEDIATE, m->comm),
                    NCCL_INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum without a factor");
        team_result(team, api->RedOpCreatePreMulSum(&redop, &factor, 12, NCCL_SCALAR_IMMEDIATE, m->comm),
                    NCCL_INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum of type 12");
        team_result(team, api->RedOpCreatePreMulSum(&redop, &factor, NCCL_FLOAT32, 7, m->comm), NCCL_INVALID_ARGUMENT,
                    "ncclRedOpCreatePreMulSum of residence 7");
        team_result(team, api->RedOpCreatePreMulSum(&redop, &factor, NCCL_FLOAT32, NCCL_SCALAR_IMMEDIATE, NULL),
                    NCCL_INVALID_ARGUMENT, "ncclRedOpCreatePreMulSum for no communicator");
        team_case(team, "the communicator after all that");
        check_team_works(team, 3);
        memory_free(buffer);
        team_comms_free(team);
}

/* Destroyed between its call and the group's end, for several calls at once. */
static void run_in_group(struct team *team) {
        struct call_case c = {.op = CALL_ALL_REDUCE, .type = NCCL_FLOAT32, .redop = CALL_PREMUL_IMMEDIATE, .count = 77};
        struct exchange *x[6];
        bool good = true;

        team_case(team, "destroyed before the group's end");
        if (!team_comms_new(team))
                return;
        for (uint32_t i = 0; i < 6 && good; i++) {
                c.redop = i % 2 ? CALL_PREMUL_MEMORY : CALL_PREMUL_IMMEDIATE;
                x[i] = exchange_new(team);
                good = exchange_prepare(x[i], &c, i + 1);
        }
        good = good && team_need(team, team->api->GroupStart(), "ncclGroupStart");
        for (uint32_t i = 0; i < 6 && good; i++)
                good = exchange_issue(x[i]);
        good = good && team_need(team, team->api->GroupEnd(), "ncclGroupEnd") && team_wait(team);
        for (uint32_t i = 0; i < 6 && good; i++) {
                exchange_verify(x[i]);
                exchange_free(x[i]);
        }
        if (good)
                team_comms_free(team);
}

/* As many as a long training run makes: each is gone when it is destroyed. */
static void run_many(struct team *team) {
        struct call_case c = {.op = CALL_ALL_REDUCE, .type = 9, .redop = CALL_PREMUL_IMMEDIATE, .count = 5};
        struct exchange *x;
        bool good = true;

        team_case(team, "one after another");
        if (!team_comms_new(team))
                return;
        x = exchange_new(team);
        for (uint32_t i = 0; i < 300 && good; i++)
                good = exchange_run(x, &c, i);
        exchange_free(x);
        if (good)
                team_comms_free(team);
}

const struct check checks_redop[] = {
        {"redop: life", 1, IN_ALL_WAYS, run_life},
        {"redop: in a group", 3, IN_ALL_WAYS, run_in_group},
        {"redop: many", 2, IN_PROCESSES | IN_ONE_THREAD, run_many},
        {0},
};
