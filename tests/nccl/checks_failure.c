/* SPDX-License-Identifier: MIT */
/*
 * Peers that die or do not come, and programs that just exit.
 *
 * A victim says when it may be killed, and the parent does it. Nobody may hang: an error comes, stays, and the
 * communicator can be aborted within a second. Nothing here waits for time to pass; what takes too long is ended by the
 * world's deadline, and then it is wrong.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/proc.h"
#include "tests/nccl/checks.h"
#include "util/clock.h"

#define ABORT_MS 1000.0
#define COUNT    4096u

/* Until the asynchronous error is there; calls that only queue work return before. */
static int await_error(struct team *team, const struct member *m) {
        int error = NCCL_SUCCESS;

        while (error == NCCL_SUCCESS || error == NCCL_IN_PROGRESS) {
                if (team->api->CommGetAsyncError(m->comm, &error) != NCCL_SUCCESS)
                        return -1;
                sched_yield();
        }
        return error;
}

static void expect_abort(struct team *team, const struct member *m) {
        uint64_t begin = clock_now_ns();
        double ms;

        team_result(team, team->api->CommAbort(m->comm), NCCL_SUCCESS, "ncclCommAbort");
        ms = (double)(clock_now_ns() - begin) / 1e6;
        team_expect(team, ms <= ABORT_MS * proc_time_scale(), "ncclCommAbort took %.0f ms", ms);
        if (ms > team->shared->team[team->number].figure)
                team->shared->team[team->number].figure = ms;
}

static bool is_bad(int result) {
        return result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR || result == NCCL_INTERNAL_ERROR ||
               result == NCCL_CUDA_ERROR;
}

static bool prepare(struct team *team, void **ret_memory) {
        if (!team_comms_new(team))
                return false;
        if (!team_expect(team, memory_new(COUNT * sizeof(float), ret_memory) == 0, "no memory") ||
            !check_team_works(team, 1)) {
                team_stop(team);
                return false;
        }
        team_meet(team);
        return true;
}

static void lose_peer(struct team *team) {
        atomic_store(&team->shared->next_death, team->n_ranks); /* partner is_over in world.c */
        for (;;)
                pause();
}

/* The last rank is killed; `call` is what the others are in. */
static void run_killed(struct team *team, bool sends) {
        const struct member *m = &team->member[0];
        int result, first, second = NCCL_SUCCESS;
        void *memory = NULL;

        team_case(team, "communicators");
        if (!prepare(team, &memory))
                return;
        if (m->rank == team->n_ranks - 1)
                lose_peer(team);
        team_case(team, "the error of a call whose peer was killed");
        result = sends ? team->api->Recv(memory, COUNT, NCCL_FLOAT32, (int)team->n_ranks - 1, m->comm, m->stream)
                       : team->api->AllReduce(memory, memory, COUNT, NCCL_FLOAT32, NCCL_SUM, m->comm, m->stream);
        first = await_error(team, m);
        team_expect(team, (result == NCCL_SUCCESS || is_bad(result)) && is_bad(first),
                    "the call: %s, the asynchronous error: %s", nccl_result_name(result), nccl_result_name(first));
        if (team->options->memory != MEMORY_DEVICE)
                team_expect(team, result != NCCL_SUCCESS, "the call said nothing");
        team_case(team, "the error stays");
        team_result(team, team->api->CommGetAsyncError(m->comm, &second), NCCL_SUCCESS, "ncclCommGetAsyncError");
        team_expect(team, second == first, "it is %s, and was %s", nccl_result_name(second), nccl_result_name(first));
        result = team->api->AllReduce(memory, memory, 1, NCCL_FLOAT32, NCCL_SUM, m->comm, m->stream);
        team_expect(team, result != NCCL_SUCCESS, "the next call is taken");
        team_case(team, "ncclCommAbort after it");
        expect_abort(team, m);
        memory_free(memory);
}

static void run_killed_collective(struct team *team) {
        run_killed(team, false);
}

static void run_killed_sender(struct team *team) {
        run_killed(team, true);
}

/* Nothing is called after the death: the abort is the first to hear of it. */
static void run_killed_idle(struct team *team) {
        const struct member *m = &team->member[0];
        void *memory = NULL;

        team_case(team, "communicators");
        if (!prepare(team, &memory))
                return;
        if (m->rank == team->n_ranks - 1)
                lose_peer(team);
        team_case(team, "the asynchronous error without a call");
        team_expect(team, is_bad(await_error(team, m)), "it is another one");
        team_case(team, "ncclCommAbort after it");
        expect_abort(team, m);
        memory_free(memory);
}

/* The orderly end must not wait for the dead either. */
static void run_killed_destroy(struct team *team) {
        const struct member *m = &team->member[0];
        void *memory = NULL;

        team_case(team, "communicators");
        if (!prepare(team, &memory))
                return;
        if (m->rank == team->n_ranks - 1)
                lose_peer(team);
        await_error(team, m);
        team_case(team, "ncclCommFinalize and ncclCommDestroy with a dead peer");
        team->api->CommFinalize(m->comm);
        team->api->CommDestroy(m->comm);
        memory_free(memory);
}

/* Those that are left go on among themselves. */
static void run_shrink(struct team *team) {
        struct member rest = team->member[0];
        int excluded = (int)team->n_ranks - 1;
        void *memory = NULL;

        team_case(team, "communicators");
        if (!prepare(team, &memory))
                return;
        memory_free(memory);
        rest = team->member[0];
        if (rest.rank == team->n_ranks - 1)
                lose_peer(team);
        await_error(team, &team->member[0]);
        team_case(team, "ncclCommShrink without a dead peer");
        if (!team_need(team,
                       team->api->CommShrink(team->member[0].comm, &excluded, 1, &rest.comm, NULL, NCCL_SHRINK_ABORT),
                       "ncclCommShrink"))
                return;
        check_comm_works(team, team->n_ranks - 1, &rest, 1, 3);
        team_case(team, "the old communicator's end");
        expect_abort(team, &team->member[0]);
        team_need(team, team->api->CommDestroy(rest.comm), "ncclCommDestroy");
}

/* A rank that never comes to the beginning: the others give up. */
static void run_abort_init(struct team *team) {
        struct nccl_config config = {.size = 80,
                                     .magic = NCCL_CONFIG_MAGIC,
                                     .version = 22807,
                                     .blocking = 0,
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
        struct member *m = &team->member[0];
        int result;

        team_case(team, "ncclCommAbort before all ranks are there");
        if (team->number == 0 && !team_need(team, team->api->GetUniqueId(&team->shared->id[0]), "ncclGetUniqueId"))
                return;
        team_meet(team);
        if (team->number != team->n_ranks - 1) {
                result = team->api->CommInitRankConfig(&m->comm, (int)team->n_ranks, team->shared->id[0], (int)m->rank,
                                                       &config);
                team_expect(team, result == NCCL_IN_PROGRESS || result == NCCL_SUCCESS, "ncclCommInitRankConfig: %s",
                            nccl_result_name(result));
                if (team_expect(team, m->comm != NULL, "the communicator is NULL"))
                        expect_abort(team, m);
        }
        team_meet(team);
        team_case(team, "communicators after that");
        m->comm = NULL;
        if (team_comms_new(team) && check_team_works(team, 1))
                team_comms_free(team);
}

/* ---- abort from another thread ----------------------------------------------------------------------------------- */
struct stuck {
        struct team *team;
        void *memory;
        _Atomic int returned;
        int result;
};

/* In a group, what is sent to the last rank tells it that the receive beside it waits. On a GPU calls return. */
static int call_in_vain(struct stuck *s) {
        const struct nccl_api *api = s->team->api;
        const struct member *m = &s->team->member[0];
        const int last = (int)s->team->n_ranks - 1;
        int result, ended;

        if (s->team->options->memory == MEMORY_DEVICE)
                return api->AllReduce(s->memory, s->memory, COUNT, NCCL_FLOAT32, NCCL_SUM, m->comm, m->stream);
        result = api->GroupStart();
        if (result == NCCL_SUCCESS)
                result = api->Send(s->memory, 1, NCCL_FLOAT32, last, m->comm, m->stream);
        if (result == NCCL_SUCCESS)
                result = api->Recv((float *)s->memory + 1, COUNT - 1, NCCL_FLOAT32, last, m->comm, m->stream);
        ended = api->GroupEnd();
        return result == NCCL_SUCCESS ? ended : result;
}

static void *stuck_call(void *argument) {
        struct stuck *s = argument;

        memory_use(s->team->member[0].device);
        s->result = call_in_vain(s);
        atomic_store(&s->returned, 1); /* partner await_stuck */
        return NULL;
}

/* Until all ranks but the last are in their calls. False: they will not be. */
static bool await_stuck(struct team *team, struct stuck *s) {
        const struct member *m = &team->member[0];
        bool good = true;

        if (team->options->memory == MEMORY_DEVICE)
                while (team->number != team->n_ranks - 1 && !atomic_load(&s->returned))
                        sched_yield();
        else if (team->number == team->n_ranks - 1)
                for (uint32_t rank = 0; rank + 1 < team->n_ranks && good; rank++)
                        good = team_need(team,
                                         team->api->Recv(s->memory, 1, NCCL_FLOAT32, (int)rank, m->comm, m->stream),
                                         "ncclRecv");
        if (good)
                team_meet(team);
        return good;
}

/* As a watchdog does: one thread is in a call whose peer never comes, another one aborts. */
static void run_abort_stuck(struct team *team) {
        struct stuck s = {.team = team};
        pthread_t thread;

        team_case(team, "communicators");
        if (!prepare(team, &s.memory))
                return;
        if (team->number == team->n_ranks - 1) { /* does not come, but lives */
                if (!await_stuck(team, &s))
                        return;
                team_meet(team);
                team_case(team, "ncclCommAbort while a thread is in a call");
                expect_abort(team, &team->member[0]);
                memory_free(s.memory);
                return;
        }
        if (!team_expect(team, pthread_create(&thread, NULL, stuck_call, &s) == 0, "no thread"))
                return;
        if (!await_stuck(team, &s))
                return;
        team_case(team, "ncclCommAbort while a thread is in a call");
        expect_abort(team, &team->member[0]);
        pthread_join(thread, NULL);
        team_result(team, s.result, team->options->memory == MEMORY_DEVICE ? NCCL_SUCCESS : NCCL_REMOTE_ERROR,
                    "the call");
        memory_free(s.memory);
        team_meet(team);
}

/* Several communicators, one after the other in the same thread: no abort may need another communicator's peers. */
static void run_abort_several(struct team *team) {
        struct member second = team->member[0];
        void *memory = NULL;

        team_case(team, "communicators");
        if (!prepare(team, &memory) ||
            !team_need(team, team->api->CommSplit(team->member[0].comm, 0, (int)team->number, &second.comm, NULL),
                       "ncclCommSplit"))
                return;
        second.stream = team->member[0].stream;
        team_meet(team);
        if (team->number == team->n_ranks - 1)
                lose_peer(team);
        await_error(team, &team->member[0]);
        team_case(team, "ncclCommAbort of one after the other");
        expect_abort(team, team->number % 2 ? &team->member[0] : &second);
        expect_abort(team, team->number % 2 ? &second : &team->member[0]);
        memory_free(memory);
}

/* ---- exits ------------------------------------------------------------------------------------------------------- */
/* Of what these leave a leak checker shall not complain. */
extern void __lsan_disable(void) __attribute__((weak));

static void allow_leaks(void) {
        if (__lsan_disable)
                __lsan_disable();
}

/* Programs that end without a word. What the daemon keeps of them is seen from outside. */
static void run_exit(struct team *team) {
        void *memory = NULL, *handle = NULL, *own = NULL;
        nccl_comm child = NULL;

        allow_leaks();
        team_case(team, "an exit without ncclCommDestroy");
        if (!prepare(team, &memory))
                return;
        team_need(team, team->api->CommSplit(team->member[0].comm, 0, 0, &child, NULL), "ncclCommSplit");
        team_need(team, team->api->CommRegister(team->member[0].comm, memory, COUNT, &handle), "ncclCommRegister");
        team_need(team, team->api->MemAlloc(&own, COUNT), "ncclMemAlloc");
        team_meet(team);
}

static void run_exit_in_group(struct team *team) {
        void *memory = NULL;

        allow_leaks();
        team_case(team, "an exit in a group");
        if (!prepare(team, &memory))
                return;
        team_need(team, team->api->GroupStart(), "ncclGroupStart");
        team_need(team,
                  team->api->AllReduce(memory, memory, COUNT, NCCL_FLOAT32, NCCL_SUM, team->member[0].comm,
                                       team->member[0].stream),
                  "ncclAllReduce");
        team_meet(team);
}

const struct check checks_failure[] = {
        {"failure: in a collective", 4, IN_PROCESSES, run_killed_collective},
        {"failure: in a receive", 3, IN_PROCESSES, run_killed_sender},
        {"failure: idle", 3, IN_PROCESSES, run_killed_idle},
        {"failure: destroy", 3, IN_PROCESSES, run_killed_destroy},
        {"failure: abort of a call", 3, IN_PROCESSES | IN_THREADS, run_abort_stuck},
        {"failure: abort of several", 3, IN_PROCESSES, run_abort_several},
        {"failure: shrink", 4, IN_PROCESSES, run_shrink},
        {"failure: abort of init", 3, IN_PROCESSES | IN_THREADS, run_abort_init},
        {"failure: exit", 3, IN_PROCESSES | IN_THREADS, run_exit},
        {"failure: exit in a group", 3, IN_PROCESSES | IN_THREADS, run_exit_in_group},
        {0},
};
