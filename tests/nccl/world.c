/* SPDX-License-Identifier: MIT */
/*
 * Worlds.
 *
 * The library under test may crash, hang, or leave state behind, and must not take the suite along. So it is loaded in
 * children only: one for each rank, or one for all ranks where they are threads or share a thread. What they find goes
 * into memory that they share with the parent, which waits for all of them with a deadline. A child that dies, or is
 * killed at the deadline, makes the case wrong in which it was.
 *
 * After an error of a call the others may wait for that rank for ever. It says so (`stop`), and the parent gives them
 * a moment only. A case that was wrong in its data only is no reason to stop.
 */
#include "tests/nccl/world.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/proc.h"
#include "util/clock.h"

#define GRACE_MS 3000u

const char *world_mode_name(enum world_mode mode) {
        static const char *const names[MODE_COUNT] = {"processes", "threads", "one thread", "one thread, InitAll"};

        return names[mode];
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */
void team_case(struct team *team, const char *format, ...) {
        struct world_shared *shared = team->shared;
        uint32_t n = atomic_load_explicit(&shared->team[team->number].cases, memory_order_relaxed);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(shared->team[team->number].doing, sizeof(shared->team[0].doing), format, arguments);
        va_end(arguments);
        if (n + 1 < WORLD_CASES_MAX)
                atomic_store(&shared->team[team->number].cases, n + 1); /* partner world_sum */
}

static void note(struct world_shared *shared, uint32_t team, const char *what) {
        uint32_t cases = atomic_load(&shared->team[team].cases);
        uint32_t slot = atomic_fetch_add(&shared->n_messages, 1); /* each slot has one writer */
        char doing[sizeof(shared->team[0].doing)];

        atomic_store(&shared->wrong[cases ? cases - 1 : 0], 1); /* partner world_sum */
        if (slot >= WORLD_MESSAGES_MAX)
                return;
        memcpy(doing, shared->team[team].doing, sizeof(doing));
        snprintf(shared->messages[slot], WORLD_MESSAGE_MAX, "%.150s: rank %u: %.150s", doing, team, what);
}

bool team_expect(struct team *team, bool good, const char *format, ...) {
        char what[WORLD_MESSAGE_MAX];
        va_list arguments;

        if (good)
                return true;
        va_start(arguments, format);
        vsnprintf(what, sizeof(what), format, arguments);
        va_end(arguments);
        note(team->shared, team->number, what);
        return false;
}

bool team_result(struct team *team, int got, int wanted, const char *call) {
        const char *last = team->api->GetLastError && got != NCCL_SUCCESS ? team->api->GetLastError(NULL) : NULL;

        return team_expect(team, got == wanted, "%s: %s (%d), not %s%s%.100s", call, nccl_result_name(got), got,
                           nccl_result_name(wanted), last ? ": " : "", last ? last : "");
}

bool team_need(struct team *team, int got, const char *call) {
        bool good = team_result(team, got, NCCL_SUCCESS, call);

        if (!good)
                team_stop(team);
        return good;
}

void team_stop(struct team *team) {
        atomic_store(&team->shared->stop, 1); /* partner is_over */
}

void team_meet(struct team *team) {
        pthread_barrier_wait(&team->shared->barrier);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
bool team_group_start(struct team *team) {
        return team->n_members == 1 || team_need(team, team->api->GroupStart(), "ncclGroupStart");
}

bool team_group_end(struct team *team) {
        return team->n_members == 1 || team_need(team, team->api->GroupEnd(), "ncclGroupEnd");
}

static bool comms_init(struct team *team) {
        const struct nccl_api *api = team->api;
        nccl_comm comms[WORLD_RANKS_MAX];
        bool good = true;

        if (team->mode == MODE_ALL) {
                int devices[WORLD_RANKS_MAX];

                for (uint32_t i = 0; i < team->n_ranks; i++)
                        devices[i] = (int)i;
                if (!team_need(team, api->CommInitAll(comms, (int)team->n_ranks, devices), "ncclCommInitAll"))
                        return false;
                for (uint32_t i = 0; i < team->n_ranks; i++)
                        team->member[i].comm = comms[i];
                return true;
        }
        if (team->number == 0)
                good = team_need(team, api->GetUniqueId(&team->shared->id[0]), "ncclGetUniqueId");
        team_meet(team);
        if (!good || !team_group_start(team))
                return false;
        for (uint32_t i = 0; i < team->n_members && good; i++) {
                struct member *m = &team->member[i];

                if (!team_expect(team, memory_use(m->device) == 0, "the device cannot be used"))
                        return false;
                good = team_need(team,
                                 api->CommInitRank(&m->comm, (int)team->n_ranks, team->shared->id[0], (int)m->rank),
                                 "ncclCommInitRank");
        }
        return team_group_end(team) && good;
}

bool team_comms_new(struct team *team) {
        bool good = comms_init(team);

        for (uint32_t i = 0; i < team->n_members && good; i++) {
                struct member *m = &team->member[i];

                good = team_expect(team, m->comm != NULL, "the communicator is NULL") &&
                       team_expect(team,
                                   memory_use(m->device) == 0 && (m->stream || memory_stream_new(&m->stream) == 0),
                                   "no stream");
        }
        if (!good)
                team_stop(team);
        return good;
}

bool team_comms_free(struct team *team) {
        bool good = team_group_start(team);

        for (uint32_t i = 0; i < team->n_members; i++) {
                struct member *m = &team->member[i];

                memory_use(m->device);
                if (m->comm)
                        good = team_need(team, team->api->CommDestroy(m->comm), "ncclCommDestroy") && good;
                m->comm = NULL;
        }
        good = team_group_end(team) && good;
        for (uint32_t i = 0; i < team->n_members; i++) {
                memory_stream_free(team->member[i].stream);
                team->member[i].stream = NULL;
        }
        return good;
}

static bool member_wait(struct team *team, const struct member *m) {
        int error = team->patient ? NCCL_IN_PROGRESS : NCCL_SUCCESS, idle;

        while (!(idle = memory_stream_idle(m->stream)) || error == NCCL_IN_PROGRESS) {
                if (!team_need(team, team->api->CommGetAsyncError(m->comm, &error), "ncclCommGetAsyncError") ||
                    !(error == NCCL_IN_PROGRESS || team_need(team, error, "the asynchronous error")))
                        return false;
                sched_yield();
        }
        return team_expect(team, idle > 0, "the stream has failed");
}

bool team_wait_for(struct team *team, const struct member *members, uint32_t n_members) {
        bool good = true;

        for (uint32_t i = 0; i < n_members; i++) {
                memory_use(members[i].device);
                good = member_wait(team, &members[i]) && good;
        }
        return good;
}

/* ---- children ---------------------------------------------------------------------------------------------------- */
struct runner {
        const struct world *world;
        struct team team;
};

static void *run_team(void *argument) {
        struct runner *r = argument;

        memory_use(r->team.member[0].device);
        r->world->run(&r->team);
        atomic_store(&r->team.shared->team[r->team.number].done, 1); /* partner world_sum */
        return NULL;
}

static bool is_single(const struct world *w) {
        return w->mode == MODE_GROUPED || w->mode == MODE_ALL;
}

/* Each node has its part of the ranks; no more nodes than ranks. */
static uint32_t nodes_of(const struct world *w, const struct world_options *options) {
        if (options->n_sockets <= 1)
                return 1;
        return options->n_sockets < w->n_ranks ? options->n_sockets : w->n_ranks;
}

static uint32_t children_of(const struct world *w, const struct world_options *options) {
        return w->mode == MODE_PROCESSES ? w->n_ranks : nodes_of(w, options);
}

/* The first rank of a child; one behind the last child: the number of ranks. */
static uint32_t child_begin(const struct world *w, const struct world_options *options, uint32_t child) {
        uint32_t n = children_of(w, options);

        return (child * w->n_ranks + n - 1) / n;
}

static void run_child(const struct world *w, const struct world_options *options, struct world_shared *shared,
                      uint32_t child) {
        static struct runner runners[WORLD_RANKS_MAX];
        uint32_t begin = child_begin(w, options, child), n_here = child_begin(w, options, child + 1) - begin,
                 n = w->mode == MODE_THREADS ? n_here : 1;
        pthread_t threads[WORLD_RANKS_MAX];
        struct nccl_api api;

        if (options->n_sockets)
                setenv("RAILMUX_SOCKET", options->socket[begin * nodes_of(w, options) / w->n_ranks], 1);
        if (nccl_api_load(&api, options->library) || memory_init(options->memory, &api))
                exit(1);
        for (uint32_t i = 0; i < n; i++) {
                struct team *team = &runners[i].team;

                runners[i].world = w;
                *team = (struct team){.api = &api,
                                      .options = options,
                                      .shared = shared,
                                      .mode = w->mode,
                                      .argument = w->argument,
                                      .number = is_single(w) ? child : begin + i,
                                      .n_ranks = w->n_ranks,
                                      .n_members = is_single(w) ? n_here : 1};
                for (uint32_t k = 0; k < team->n_members; k++)
                        team->member[k].rank = team->member[k].device = begin + i + k;
        }
        for (uint32_t i = 1; i < n; i++)
                if (pthread_create(&threads[i], NULL, run_team, &runners[i]))
                        exit(1);
        run_team(&runners[0]);
        for (uint32_t i = 1; i < n; i++)
                pthread_join(threads[i], NULL);
        exit(0); /* with what the library does at exit, and leak checkers */
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */
struct children {
        struct world_shared *shared;
        uint32_t n;
        uint32_t team[WORLD_RANKS_MAX + 1]; /* the first of each */
        pid_t pid[WORLD_RANKS_MAX];
        int status[WORLD_RANKS_MAX];
        uint32_t murdered; /* 1 + the child that was killed because the test wants it */
};

static bool children_are_gone(struct children *c) {
        uint32_t left = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                if (c->pid[i] && waitpid(c->pid[i], &c->status[i], WNOHANG) == c->pid[i])
                        c->pid[i] = 0;
                left += c->pid[i] != 0;
        }
        return left == 0;
}

static bool is_over(void *argument) {
        struct children *c = argument;
        uint32_t death = atomic_load(&c->shared->next_death); /* partner: the test that wants it */

        if (death && !c->murdered && c->pid[death - 1]) {
                c->murdered = death;
                atomic_store(&c->shared->killed_ns, clock_now_ns());
                kill(c->pid[death - 1], SIGKILL);
        }
        return children_are_gone(c) || atomic_load(&c->shared->stop);
}

static bool are_gone(void *argument) {
        return children_are_gone(argument);
}

static void children_end(struct children *c, uint32_t timeout_ms) {
        bool over = proc_await(is_over, c, timeout_ms);

        if (over && proc_await(are_gone, c, GRACE_MS))
                return;
        for (uint32_t i = 0; i < c->n; i++) {
                if (!c->pid[i])
                        continue;
                /* Those that wait for one that has failed are not to blame. */
                if (!over)
                        for (uint32_t k = 0; k < WORLD_RANKS_MAX; k++)
                                if (k >= c->team[i] && k < c->team[i + 1] && c->shared->team[k].cases &&
                                    !atomic_load(&c->shared->team[k].done))
                                        note(c->shared, k, "does not come to an end");
                kill(c->pid[i], SIGKILL);
                waitpid(c->pid[i], &c->status[i], 0);
                c->pid[i] = 0;
                c->status[i] = 0;
        }
}

static void judge_status(struct children *c, uint32_t child) {
        int status = c->status[child];
        char what[80];

        if (status == 0 || c->murdered == child + 1)
                return;
        if (WIFSIGNALED(status))
                snprintf(what, sizeof(what), "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
                snprintf(what, sizeof(what), "exit status %d", WEXITSTATUS(status));
        note(c->shared, c->team[child], what);
}

static struct world_result world_sum(const struct world_shared *shared) {
        struct world_result result = {0};

        for (uint32_t i = 0; i < WORLD_RANKS_MAX; i++) {
                uint32_t cases = atomic_load(&shared->team[i].cases);

                result.cases = cases > result.cases ? cases : result.cases;
                result.figure = shared->team[i].figure > result.figure ? shared->team[i].figure : result.figure;
        }
        if (result.cases == 0)
                result.cases = 1; /* not even begun */
        for (uint32_t i = 0; i < result.cases; i++)
                result.wrong += atomic_load(&shared->wrong[i]);
        return result;
}

static void show_messages(const struct world_shared *shared, bool all) {
        uint32_t n = atomic_load(&shared->n_messages), most = all ? WORLD_MESSAGES_MAX : WORLD_SHOWN;

        for (uint32_t i = 0; i < n && i < most; i++)
                printf("    wrong: %s\n", shared->messages[i]);
        if (n > most)
                printf("    ... and %u more messages\n", n - most);
}

static struct world_shared *shared_new(uint32_t n_teams) {
        struct world_shared *shared =
                mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_barrierattr_t attributes;

        if (shared == MAP_FAILED) {
                fprintf(stderr, "nccl_conformance: mmap: %s\n", strerror(errno));
                exit(2);
        }
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, n_teams);
        pthread_barrierattr_destroy(&attributes);
        return shared;
}

struct world_result world_run(const struct world *w, const struct world_options *options) {
        uint32_t n = children_of(w, options);
        struct children c = {.shared = shared_new(is_single(w) ? n : w->n_ranks), .n = n};
        uint64_t begin = clock_now_ns();
        struct world_result result;
        pid_t parent = getpid();

        for (uint32_t i = 0; i <= n; i++)
                c.team[i] = is_single(w) ? i : child_begin(w, options, i);
        fflush(NULL);
        for (uint32_t i = 0; i < c.n; i++) {
                c.pid[i] = fork();
                if (c.pid[i] == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() == parent)
                                run_child(w, options, c.shared, i);
                        _exit(1);
                }
                if (c.pid[i] < 0) {
                        fprintf(stderr, "nccl_conformance: fork: %s\n", strerror(errno));
                        exit(2); /* the children die with us */
                }
        }
        children_end(&c, w->timeout_ms);
        for (uint32_t i = 0; i < c.n; i++)
                judge_status(&c, i);
        if (atomic_load(&c.shared->stop) && !atomic_load(&c.shared->n_messages))
                note(c.shared, 0, "a rank could not go on, and did not say why");
        result = world_sum(c.shared);
        printf("%-24s %-20s %u ranks: %6u cases, %u wrong", w->name, world_mode_name(w->mode), w->n_ranks, result.cases,
               result.wrong);
        if (result.figure > 0)
                printf(", %.2f ms", result.figure);
        if (options->verbose)
                printf(" (%.1f s)", (double)(clock_now_ns() - begin) / 1e9);
        printf("\n");
        show_messages(c.shared, options->all_messages);
        munmap(c.shared, sizeof(*c.shared));
        return result;
}
