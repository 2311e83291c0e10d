/* SPDX-License-Identifier: MIT */
/* Several threads of one rank. */
#include <sched.h>

#include "tests/nccl/checks.h"

/* ---- two threads of each rank ------------------------------------------------------------------------------------ */
struct half {
        struct team *team;
        struct member member;
        uint64_t iteration;
        bool good;
};

static void *run_half(void *argument) {
        struct half *h = argument;

        memory_use(h->team->member[0].device);
        h->good = true;
        for (uint64_t i = 0; i < 30 && h->good; i++)
                h->good = check_comm_works(h->team, h->team->n_ranks, &h->member, 1, h->iteration + i);
        return NULL;
}

/* A communicator for each thread, used at the same time, as pipelines do with tensor parallel stages. */
static void run_concurrent(struct team *team) {
        struct half first = {.team = team, .iteration = 100}, second = {.team = team, .iteration = 200};
        struct member child = team->member[0];
        pthread_t thread;

        team_case(team, "communicators");
        if (!team_comms_new(team) ||
            !team_need(team, team->api->CommSplit(team->member[0].comm, 0, (int)team->number, &child.comm, NULL),
                       "ncclCommSplit"))
                return;
        team_case(team, "two threads, a communicator each");
        first.member = team->member[0];
        second.member = child;
        if (!team_expect(team, memory_stream_new(&second.member.stream) == 0, "no stream") ||
            !team_expect(team, pthread_create(&thread, NULL, run_half, &second) == 0, "no thread"))
                return;
        run_half(&first);
        pthread_join(thread, NULL);
        memory_stream_free(second.member.stream);
        if (first.good && second.good && team_need(team, team->api->CommDestroy(child.comm), "ncclCommDestroy"))
                team_comms_free(team);
}

/* ---- a watchdog -------------------------------------------------------------------------------------------------- */
struct watch {
        struct team *team;
        _Atomic bool over;
        int error;
};

static void *run_watch(void *argument) {
        struct watch *w = argument;

        while (!atomic_load(&w->over) && w->error == NCCL_SUCCESS) { /* partner run_watched */
                int error = NCCL_SUCCESS;

                w->error = w->team->api->CommGetAsyncError(w->team->member[0].comm, &error);
                if (w->error == NCCL_SUCCESS && error != NCCL_IN_PROGRESS)
                        w->error = error;
                sched_yield();
        }
        return NULL;
}

/* One thread calls, another one asks for errors all the time. */
static void run_watched(struct team *team) {
        struct watch w = {.team = team};
        pthread_t thread;

        team_case(team, "calls while another thread asks for errors");
        if (!team_comms_new(team) || !team_expect(team, pthread_create(&thread, NULL, run_watch, &w) == 0, "no thread"))
                return;
        for (uint64_t i = 0; i < 40 && check_team_works(team, i); i++)
                ;
        atomic_store(&w.over, true);
        pthread_join(thread, NULL);
        team_result(team, w.error, NCCL_SUCCESS, "what the watchdog saw");
        team_comms_free(team);
}

const struct check checks_thread[] = {
        {"thread: concurrent", 3, IN_PROCESSES | IN_THREADS, run_concurrent},
        {"thread: watched", 3, IN_PROCESSES | IN_THREADS, run_watched},
        {0},
};
