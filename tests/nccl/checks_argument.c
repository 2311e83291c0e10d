/* SPDX-License-Identifier: MIT */
/* Wrong arguments get the right result, and hurt nothing; texts and names. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/nccl/checks.h"

#define WRONG(call) team_result(team, (call), NCCL_INVALID_ARGUMENT, #call)

static void run_texts(struct team *team) {
        const struct nccl_api *api = team->api;
        int version = 0;

        team_case(team, "ncclGetVersion");
        team_result(team, api->GetVersion(&version), NCCL_SUCCESS, "ncclGetVersion");
        team_expect(team, version >= 22700 && version < 30000, "it is %d", version);
        WRONG(api->GetVersion(NULL));
        team_case(team, "ncclGetErrorString");
        for (int i = -2; i < 12; i++) {
                const char *text = api->GetErrorString(i);

                team_expect(team, text && text[0], "there is none for %d", i);
                for (int k = 0; text && k < i && i < 8; k++)
                        team_expect(team, strcmp(text, api->GetErrorString(k)) != 0, "%d and %d have the same", k, i);
        }
        team_case(team, "ncclGetLastError");
        team_expect(team, api->GetLastError(NULL) != NULL, "it is NULL");
        WRONG(api->AllReduce(NULL, NULL, 1, NCCL_INT32, NCCL_SUM, NULL, NULL));
        team_expect(team, api->GetLastError(NULL) && api->GetLastError(NULL)[0], "it says nothing after an error");
}

/* What frameworks bind or link to; a missing symbol keeps them from starting. */
static void run_symbols(struct team *team) {
        static const char *const more[] = {"CommSuspend",      "CommResume",          "CommMemStats",
                                           "GroupSimulateEnd", "CommQueryProperties", "DevCommCreate",
                                           "DevCommDestroy",   "PutSignal",           "Signal",
                                           "WaitSignal",       "AllReduceWithBias"};
        static const char *const prefixes[] = {"nccl", "pnccl"};
        char symbol[64];

        for (size_t p = 0; p < 2; p++) {
#define LOOK(name, arguments)                                                                                          \
        snprintf(symbol, sizeof(symbol), "%s%s", prefixes[p], #name);                                                  \
        team_case(team, "%s", symbol);                                                                                 \
        team_expect(team, dlsym(team->api->library, symbol) != NULL, "it is not exported");
                NCCL_CALLS(LOOK, LOOK)
#undef LOOK
                for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
                        snprintf(symbol, sizeof(symbol), "%s%s", prefixes[p], more[i]);
                        team_case(team, "%s", symbol);
                        team_expect(team, dlsym(team->api->library, symbol) != NULL, "it is not exported");
                }
        }
}

static void run_init(struct team *team) {
        const struct nccl_api *api = team->api;
        nccl_comm comm = NULL, two[2];
        struct nccl_id id, garbage;
        int same[] = {0, 0}, negative[] = {-1, 0};

        team_case(team, "making communicators");
        WRONG(api->GetUniqueId(NULL));
        if (!team_need(team, api->GetUniqueId(&id), "ncclGetUniqueId"))
                return;
        WRONG(api->CommInitRank(NULL, 1, id, 0));
        WRONG(api->CommInitRank(&comm, 0, id, 0));
        WRONG(api->CommInitRank(&comm, -1, id, 0));
        WRONG(api->CommInitRank(&comm, 2, id, 2));
        WRONG(api->CommInitRank(&comm, 2, id, -1));
        WRONG(api->CommInitRankConfig(NULL, 1, id, 0, NULL));
        WRONG(api->CommInitAll(NULL, 2, NULL));
        WRONG(api->CommInitAll(two, -3, NULL));
        team_expect(team, api->CommInitAll(two, 2, negative) != NCCL_SUCCESS, "device -1 was taken");
        team_case(team, "ncclCommInitAll with a device twice"); /* NCCL refuses it; who emulates devices may not */
        if (api->CommInitAll(two, 2, same) == NCCL_SUCCESS)
                for (int i = 0; i < 2; i++)
                        team_result(team, api->CommDestroy(two[i]), NCCL_SUCCESS, "ncclCommDestroy");
        team_case(team, "an id that nobody gave");
        memset(&garbage, 0x5b, sizeof(garbage));
        team_expect(team, api->CommInitRank(&comm, 1, garbage, 0) != NCCL_SUCCESS, "it was taken");
        team_case(team, "an id after all that");
        if (team_need(team, api->CommInitRank(&comm, 1, id, 0), "ncclCommInitRank"))
                team_need(team, api->CommDestroy(comm), "ncclCommDestroy");
}

static void no_communicator(struct team *team) {
        const struct nccl_api *api = team->api;
        nccl_comm child = NULL;
        char b[64] = {0};
        void *handle;
        int number;

        team_case(team, "no communicator");
        WRONG(api->AllReduce(b, b, 1, NCCL_INT32, NCCL_SUM, NULL, NULL));
        WRONG(api->Reduce(b, b, 1, NCCL_INT32, NCCL_SUM, 0, NULL, NULL));
        WRONG(api->ReduceScatter(b, b, 1, NCCL_INT32, NCCL_SUM, NULL, NULL));
        WRONG(api->AllGather(b, b, 1, NCCL_INT32, NULL, NULL));
        WRONG(api->Broadcast(b, b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->Bcast(b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->AlltoAll(b, b, 1, NCCL_INT32, NULL, NULL));
        WRONG(api->AllToAll(b, b, 1, NCCL_INT32, NULL, NULL));
        WRONG(api->AllToAllv(b, NULL, NULL, b, NULL, NULL, NCCL_INT32, NULL, NULL));
        WRONG(api->Gather(b, b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->Scatter(b, b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->Send(b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->Recv(b, 1, NCCL_INT32, 0, NULL, NULL));
        WRONG(api->CommSplit(NULL, 0, 0, &child, NULL));
        WRONG(api->CommShrink(NULL, NULL, 0, &child, NULL, 0));
        WRONG(api->CommCount(NULL, &number));
        WRONG(api->CommUserRank(NULL, &number));
        WRONG(api->CommCuDevice(NULL, &number));
        WRONG(api->CommGetAsyncError(NULL, &number));
        WRONG(api->CommRegister(NULL, b, sizeof(b), &handle));
        WRONG(api->CommWindowRegister(NULL, b, sizeof(b), &handle, 0));
        WRONG(api->RedOpDestroy(5, NULL));
        team_case(team, "the end of no communicator"); /* NCCL takes it */
        team_result(team, api->CommFinalize(NULL), NCCL_SUCCESS, "ncclCommFinalize(NULL)");
        team_result(team, api->CommDestroy(NULL), NCCL_SUCCESS, "ncclCommDestroy(NULL)");
        team_result(team, api->CommAbort(NULL), NCCL_SUCCESS, "ncclCommAbort(NULL)");
}

/* Alone, and in a group that is too small and one that is too large for what is started at once. */
static void to_oneself(struct team *team, nccl_comm comm, int rank, void *b, void *s) {
        const struct nccl_api *api = team->api;

        team_case(team, "sends to oneself without receives, and the reverse");
        team_result(team, api->Send(b, 1, NCCL_INT32, rank, comm, s), NCCL_INVALID_USAGE, "ncclSend");
        team_result(team, api->Recv(b, 1, NCCL_INT32, rank, comm, s), NCCL_INVALID_USAGE, "ncclRecv");
        for (int n = 1; n <= 601; n += 200) {
                int result = NCCL_SUCCESS;

                if (!team_need(team, api->GroupStart(), "ncclGroupStart"))
                        return;
                for (int i = 0; i < n && !result; i++)
                        result = i % 2 ? api->Recv(b, 1, NCCL_INT32, rank, comm, s)
                                       : api->Send(b, 1, NCCL_INT32, rank, comm, s);
                team_need(team, result, "ncclSend or ncclRecv");
                team_result(team, api->GroupEnd(), NCCL_INVALID_USAGE, "ncclGroupEnd");
        }
}

static void run_calls(struct team *team) {
        const struct nccl_api *api = team->api;
        const struct member *m = &team->member[0];
        nccl_comm comm, child = NULL;
        int root = (int)team->n_ranks;
        void *b = NULL, *s;

        no_communicator(team);
        team_case(team, "communicators");
        if (!team_comms_new(team) || !team_expect(team, memory_new(256, &b) == 0, "no memory"))
                return;
        comm = m->comm;
        s = m->stream;
        team_case(team, "types that there are not");
        for (int type = -1; type <= NCCL_TYPE_COUNT; type += NCCL_TYPE_COUNT + 1) {
                WRONG(api->AllReduce(b, b, 1, type, NCCL_SUM, comm, s));
                WRONG(api->AllGather(b, b, 1, type, comm, s));
                WRONG(api->Broadcast(b, b, 1, type, 0, comm, s));
                WRONG(api->Send(b, 1, type, 0, comm, s));
                WRONG(api->Recv(b, 1, type, 0, comm, s));
                WRONG(api->AlltoAll(b, b, 1, type, comm, s));
        }
        team_case(team, "reductions that there are not");
        for (int redop = -1; redop < 8; redop = redop < 0 ? NCCL_REDOP_BUILTIN : redop + 1) {
                WRONG(api->AllReduce(b, b, 1, NCCL_INT32, redop, comm, s));
                WRONG(api->Reduce(b, b, 1, NCCL_INT32, redop, 0, comm, s));
                WRONG(api->ReduceScatter(b, b, 1, NCCL_INT32, redop, comm, s));
        }
        WRONG(api->AllReduce(b, b, 1, NCCL_INT32, INT32_MAX, comm, s));
        team_case(team, "roots and peers that there are not");
        for (int i = 0; i < 2; i++, root = -1) {
                WRONG(api->Broadcast(b, b, 1, NCCL_INT32, root, comm, s));
                WRONG(api->Bcast(b, 1, NCCL_INT32, root, comm, s));
                WRONG(api->Reduce(b, b, 1, NCCL_INT32, NCCL_SUM, root, comm, s));
                WRONG(api->Gather(b, b, 1, NCCL_INT32, root, comm, s));
                WRONG(api->Scatter(b, b, 1, NCCL_INT32, root, comm, s));
                WRONG(api->Send(b, 1, NCCL_INT32, root, comm, s));
                WRONG(api->Recv(b, 1, NCCL_INT32, root, comm, s));
        }
        to_oneself(team, comm, (int)m->rank, b, s);
        team_case(team, "no buffers");
        WRONG(api->AllReduce(NULL, b, 1, NCCL_INT32, NCCL_SUM, comm, s));
        WRONG(api->AllReduce(b, NULL, 1, NCCL_INT32, NCCL_SUM, comm, s));
        WRONG(api->AllGather(NULL, b, 1, NCCL_INT32, comm, s));
        WRONG(api->ReduceScatter(b, NULL, 1, NCCL_INT32, NCCL_SUM, comm, s));
        WRONG(api->Bcast(NULL, 1, NCCL_INT32, 0, comm, s));
        WRONG(api->Send(NULL, 1, NCCL_INT32, 0, comm, s));
        WRONG(api->Recv(NULL, 1, NCCL_INT32, 0, comm, s));
        WRONG(api->AlltoAll(NULL, NULL, 1, NCCL_INT32, comm, s));
        WRONG(api->AllToAllv(b, NULL, NULL, b, NULL, NULL, NCCL_INT32, comm, s));
        team_case(team, "more elements than memory can hold");
        team_expect(team, api->AllGather(b, b, SIZE_MAX / 2, 8, comm, s) != NCCL_SUCCESS, "it was taken");
        team_case(team, "no place for what is asked");
        WRONG(api->CommCount(comm, NULL));
        WRONG(api->CommUserRank(comm, NULL));
        WRONG(api->CommCuDevice(comm, NULL));
        WRONG(api->CommGetAsyncError(comm, NULL));
        WRONG(api->CommSplit(comm, 0, 0, NULL, NULL));
        team_case(team, "shrinking wrongly");
        WRONG(api->CommShrink(comm, NULL, 1, &child, NULL, 0));
        WRONG(api->CommShrink(comm, (int[]){(int)team->n_ranks}, 1, &child, NULL, 0));
        team_case(team, "the communicator after all that");
        check_team_works(team, 4);
        memory_free(b);
        team_comms_free(team);
}

/* Empty tensors have no address. */
static void run_nothing(struct team *team) {
        const struct nccl_api *api = team->api;

        team_case(team, "communicators");
        if (!team_comms_new(team))
                return;
        for (uint32_t call = 0; call < 6; call++) {
                bool good = team_group_start(team);

                team_case(team, "nothing of no buffers, call %u", call);
                for (uint32_t i = 0; i < team->n_members && good; i++) {
                        nccl_comm comm = team->member[i].comm;
                        void *s = team->member[i].stream;
                        int result;

                        memory_use(team->member[i].device);
                        switch (call) {
                        case 0:
                                result = api->AllReduce(NULL, NULL, 0, NCCL_FLOAT32, NCCL_SUM, comm, s);
                                break;
                        case 1:
                                result = api->AllGather(NULL, NULL, 0, NCCL_FLOAT32, comm, s);
                                break;
                        case 2:
                                result = api->Broadcast(NULL, NULL, 0, NCCL_FLOAT32, 1, comm, s);
                                break;
                        case 3:
                                result = api->ReduceScatter(NULL, NULL, 0, NCCL_FLOAT32, NCCL_SUM, comm, s);
                                break;
                        case 4:
                                result = api->AlltoAll(NULL, NULL, 0, NCCL_FLOAT32, comm, s);
                                break;
                        default:
                                result = team->member[i].rank == 0   ? api->Send(NULL, 0, NCCL_FLOAT32, 1, comm, s)
                                         : team->member[i].rank == 1 ? api->Recv(NULL, 0, NCCL_FLOAT32, 0, comm, s)
                                                                     : NCCL_SUCCESS;
                                break;
                        }
                        good = team_need(team, result, "it");
                }
                if (!team_group_end(team) || !good || !team_wait(team))
                        return;
        }
        team_comms_free(team);
}

/* Nor has anybody to wait for a rank that has nothing: only sends and receives of nothing are calls. */
static void run_nothing_alone(struct team *team) {
        const struct nccl_api *api = team->api;
        bool grouped = false;

        team_case(team, "communicators");
        if (!team_comms_new(team))
                return;
        do {
                bool good = !grouped || team_need(team, api->GroupStart(), "ncclGroupStart");

                team_case(team, "nothing, of one rank only%s", grouped ? ", in a group" : "");
                for (uint32_t i = 0; i < team->n_members && good; i++) {
                        nccl_comm comm = team->member[i].comm;
                        void *s = team->member[i].stream;

                        if (team->member[i].rank != 1)
                                continue;
                        memory_use(team->member[i].device);
#define NOTHING(call) good = team_need(team, api->call, #call) && good
                        NOTHING(AllReduce(NULL, NULL, 0, NCCL_FLOAT32, NCCL_SUM, comm, s));
                        NOTHING(Reduce(NULL, NULL, 0, NCCL_FLOAT32, NCCL_MAX, 0, comm, s));
                        NOTHING(ReduceScatter(NULL, NULL, 0, NCCL_FLOAT32, NCCL_AVG, comm, s));
                        NOTHING(AllGather(NULL, NULL, 0, NCCL_FLOAT32, comm, s));
                        NOTHING(Broadcast(NULL, NULL, 0, NCCL_FLOAT32, 2, comm, s));
                        NOTHING(Bcast(NULL, 0, NCCL_FLOAT32, 1, comm, s));
                        if (api->Gather && api->Scatter && api->AlltoAll) {
                                NOTHING(Gather(NULL, NULL, 0, NCCL_FLOAT32, 0, comm, s));
                                NOTHING(Scatter(NULL, NULL, 0, NCCL_FLOAT32, 1, comm, s));
                                NOTHING(AlltoAll(NULL, NULL, 0, NCCL_FLOAT32, comm, s));
                        }
#undef NOTHING
                }
                good = (!grouped || team_need(team, api->GroupEnd(), "ncclGroupEnd")) && good;
                if (!good || !check_team_works(team, grouped))
                        return;
                grouped = !grouped;
        } while (grouped);
        team_case(team, "wrong arguments of nothing");
        WRONG(api->AllReduce(NULL, NULL, 0, NCCL_TYPE_COUNT, NCCL_SUM, team->member[0].comm, NULL));
        WRONG(api->AllReduce(NULL, NULL, 0, NCCL_INT32, -1, team->member[0].comm, NULL));
        WRONG(api->Broadcast(NULL, NULL, 0, NCCL_INT32, (int)team->n_ranks, team->member[0].comm, NULL));
        WRONG(api->Reduce(NULL, NULL, 0, NCCL_INT32, NCCL_SUM, -1, team->member[0].comm, NULL));
        team_case(team, "the communicator after that");
        if (check_team_works(team, 3))
                team_comms_free(team);
}

const struct check checks_argument[] = {
        {"argument: texts", 1, IN_ONE_THREAD, run_texts},
        {"argument: symbols", 1, IN_ONE_THREAD, run_symbols},
        {"argument: init", 1, IN_ONE_THREAD, run_init},
        {"argument: calls", 1, IN_ONE_THREAD, run_calls},
        {"argument: calls", 2, IN_ALL_WAYS, run_calls},
        {"argument: nothing", 3, IN_ALL_WAYS, run_nothing},
        {"argument: nothing alone", 3, IN_ALL_WAYS, run_nothing_alone},
        {0},
};
