/* SPDX-License-Identifier: MIT */
#include "tests/e2e/team.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/proc.h"
#include "util/clock.h"

#define TEAM_END_MS 20000u
#define TEAM_GO_MS  20000u
#define USE_COUNT   1000u

/* ---- the scripts ---- */
void team_must(struct team_rank *rank, int code, const char *what) {
        if (code == RMX_OK)
                return;
        snprintf(rank->notes->error, sizeof(rank->notes->error), "%s: %s: %.200s", what, rmx_error_name(code),
                 rmx_last_error());
        _exit(1);
}

void team_wrong(struct team_rank *rank, const char *what) {
        snprintf(rank->notes->error, sizeof(rank->notes->error), "%s", what);
        _exit(1);
}

void *team_memory(struct team_rank *rank, size_t bytes) {
        void *memory;

        team_must(rank, rmx_mem_alloc(rank->session, bytes, &memory), "rmx_mem_alloc");
        return memory;
}

struct rmx_comm *team_join(struct team_rank *rank, uint32_t id) {
        struct rmx_comm *comm;

        team_must(rank, rmx_comm_create(rank->session, &rank->shared->id[id], rank->n_ranks, rank->rank, NULL, &comm),
                  "rmx_comm_create");
        return comm;
}

void team_step(struct team_rank *rank) {
        atomic_fetch_add(&rank->notes->step, 1); /* partner: has_come */
}

void team_note(struct team_rank *rank, int code, struct rmx_comm *comm) {
        struct team_notes *notes = rank->notes;

        notes->at_ns = clock_now_ns();
        snprintf(notes->text, sizeof(notes->text), "%s", code == RMX_OK ? "" : rmx_last_error());
        notes->code = code;
        if (comm) {
                notes->failed_rank = rmx_comm_failed_rank(comm);
                notes->sticky = rmx_comm_error(comm);
        }
}

struct go_wait {
        struct team_rank *rank;
        uint32_t value;
};

static bool may_go(void *argument) {
        struct go_wait *w = argument;

        return atomic_load(&w->rank->shared->go) >= w->value; /* partner: whoever raises it */
}

void team_await_go(struct team_rank *rank, uint32_t value) {
        if (!proc_await(may_go, &(struct go_wait){rank, value}, TEAM_GO_MS))
                team_wrong(rank, "the script does not go on");
}

static void run_rank(const struct team *team, uint32_t number, team_script *script) {
        struct rmx_session_options options = {
                .size = sizeof(options), .socket = team->nodes[team_node(team, number)].socket, .name = "team"};
        struct team_rank rank = {.shared = team->shared,
                                 .notes = &team->shared->notes[number],
                                 .rank = number,
                                 .n_ranks = team->n_ranks,
                                 .random = proc_seed() * 64 + number};

        team_must(&rank, rmx_session_open(&options, &rank.session), "rmx_session_open");
        for (uint32_t i = 0; number == 0 && i < TEAM_IDS; i++)
                team_must(&rank, rmx_get_id(rank.session, &team->shared->id[i]), "rmx_get_id");
        pthread_barrier_wait(&team->shared->barrier);
        script(&rank);
        rmx_session_close(rank.session);
        exit(0);
}

/* ---- the parent ---- */
uint32_t team_node(const struct team *team, uint32_t rank) {
        return rank * team->n_nodes / team->n_ranks;
}

uint32_t team_ranks_of(const struct team *team, uint32_t node) {
        uint32_t ranks = 0;

        for (uint32_t r = 0; r < team->n_ranks; r++)
                ranks |= (uint32_t)(team_node(team, r) == node) << r;
        return ranks;
}

void team_init(struct team *team, const struct node *nodes, uint32_t n_nodes, uint32_t n_ranks) {
        void *memory = mmap(NULL, sizeof(*team->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(memory != MAP_FAILED && n_ranks <= TEAM_RANKS_MAX);
        *team = (struct team){.shared = memory, .nodes = nodes, .n_nodes = n_nodes, .n_ranks = n_ranks};
}

/* Codes that no rank can have noted. */
static void poison(struct team_notes *notes) {
        memset(notes, 0, sizeof(*notes));
        notes->code = notes->next_code = notes->sticky = -1;
        notes->failed_rank = -2;
}

void team_start(struct team *team, team_script *script) {
        pthread_barrierattr_t attributes;
        pid_t parent = getpid();

        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&team->shared->barrier, &attributes, team->n_ranks);
        pthread_barrierattr_destroy(&attributes);
        atomic_store(&team->shared->go, 0); /* before there is a partner */
        proc_seed();
        for (uint32_t r = 0; r < team->n_ranks; r++)
                poison(&team->shared->notes[r]);
        fflush(NULL);
        for (uint32_t r = 0; r < team->n_ranks; r++) {
                team->pid[r] = fork();
                assert_true(team->pid[r] >= 0);
                if (team->pid[r] == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() == parent)
                                run_rank(team, r, script);
                        _exit(1);
                }
        }
}

struct step_wait {
        struct team *team;
        uint32_t step, ranks;
};

static bool has_come(void *argument) {
        const struct step_wait *w = argument;

        for (uint32_t r = 0; r < w->team->n_ranks; r++)
                if (w->ranks >> r & 1 &&
                    atomic_load(&w->team->shared->notes[r].step) < w->step) /* partner: team_step */
                        return false;
        return true;
}

static void show_steps(const struct team *team) {
        for (uint32_t r = 0; r < team->n_ranks; r++)
                fprintf(stderr, "rank %u: step %u, %s\n", r, atomic_load(&team->shared->notes[r].step),
                        team->shared->notes[r].error[0] ? team->shared->notes[r].error : "no error");
}

void team_await_step(struct team *team, uint32_t step, uint32_t ranks, uint32_t timeout_ms) {
        struct step_wait w = {team, step, ranks};

        if (proc_await(has_come, &w, timeout_ms))
                return;
        show_steps(team);
        fail_msg("not all ranks of 0x%x have come to step %u", ranks, step);
}

void team_kill(struct team *team, uint32_t rank) {
        int status;

        kill(team->pid[rank], SIGKILL);
        waitpid(team->pid[rank], &status, 0);
        team->pid[rank] = 0;
}

void team_end(struct team *team, const char *what) {
        for (uint32_t r = 0; r < team->n_ranks; r++) {
                int status;

                if (team->pid[r] == 0)
                        continue;
                if (proc_wait(team->pid[r], TEAM_END_MS, &status) != 0) {
                        show_steps(team);
                        fail_msg("%s: rank %u hangs", what, r);
                }
                team->pid[r] = 0;
                if (status != 0)
                        fail_msg("%s: rank %u ended with status 0x%x: %s", what, r, (unsigned int)status,
                                 team->shared->notes[r].error);
        }
}

void team_run(struct team *team, team_script *script, uint32_t kind, const char *what) {
        team->shared->kind = kind;
        team_start(team, script);
        team_end(team, what);
}

void team_cleanup(struct team *team) {
        for (uint32_t r = 0; r < team->n_ranks; r++)
                if (team->pid[r] > 0)
                        team_kill(team, r);
        if (team->shared)
                munmap(team->shared, sizeof(*team->shared));
        *team = (struct team){0};
}

void team_use(struct team_rank *rank, struct rmx_comm *comm, uint32_t salt) {
        uint32_t n = rmx_comm_size(comm), me = rmx_comm_rank(comm);
        uint32_t *memory = team_memory(rank, (USE_COUNT + (size_t)TEAM_RANKS_MAX * 2) * sizeof(*memory)),
                 *all = memory + USE_COUNT;

        for (uint32_t i = 0; i < USE_COUNT; i++)
                memory[i] = (me + 1) * (i + salt);
        team_must(rank, rmx_all_reduce(comm, memory, memory, USE_COUNT, RMX_UINT32, RMX_SUM, NULL), "rmx_all_reduce");
        for (uint32_t i = 0; i < USE_COUNT; i++)
                if (memory[i] != n * (n + 1) / 2 * (i + salt))
                        team_wrong(rank, "a wrong sum");
        memory[0] = me * 100 + salt;
        team_must(rank, rmx_all_gather(comm, memory, all, 1, RMX_UINT32, NULL), "rmx_all_gather");
        for (uint32_t r = 0; r < n; r++)
                if (all[r] != r * 100 + salt)
                        team_wrong(rank, "a wrong element was gathered");
        team_must(rank, rmx_mem_free(rank->session, memory), "rmx_mem_free");
}
