/* SPDX-License-Identifier: MIT */
/*
 * The scenario: sessions, an id handed over by pipes, memory, a comm of three ranks, collectives from shared and from
 * ordinary memory, a split, collectives in it, and everything destroyed again; meanwhile railmuxctl asks everything.
 *
 * Any step may fail: then the rank says so and leaves in good order, and the others must be told, not left waiting.
 * Only a rank that waits for ever, or that gets wrong data without an error, breaks the rules.
 */
#include "tests/inject/scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/e2e/proc.h"

#define COUNT      1000u
#define JOIN_MS    4000u
#define OPEN_MS    2000u
#define HANG_MS    30000u
#define EXIT_ERROR 1
#define EXIT_WRONG 2

static const char *const questions[] = {"status", "tenants", "sessions", "comms", "gpus", "metrics", "version"};

struct rank {
        uint32_t number;
        char *text;
        struct rmx_session *session;
};

/* Notes what is being done, so that a hanging rank can be asked about it. */
static void doing(struct rank *rank, const char *what) {
        snprintf(rank->text, SCENARIO_TEXT_MAX, "rank %u: %s", rank->number, what);
}

static int ended(struct rank *rank, int code) {
        size_t n = strlen(rank->text);

        if (code != RMX_OK)
                snprintf(rank->text + n, SCENARIO_TEXT_MAX - n, ": %s: %s", rmx_error_name(code), rmx_last_error());
        return code;
}

/* A sum over the ranks of the comm, from and to `in` and `out`. */
static int reduce(struct rank *rank, struct rmx_comm *comm, float *in, float *out, const char *what) {
        float n = (float)rmx_comm_size(comm), sum = n * (n - 1) / 2;
        int code;

        doing(rank, what);
        for (uint32_t i = 0; i < COUNT; i++) {
                in[i] = (float)rmx_comm_rank(comm) + (float)(i % 7);
                out[i] = -1;
        }
        code = ended(rank, rmx_all_reduce(comm, in, out, COUNT, RMX_FLOAT32, RMX_SUM, NULL));
        for (uint32_t i = 0; code == RMX_OK && i < COUNT; i++)
                if (out[i] != sum + n * (float)(i % 7)) {
                        doing(rank, "wrong data");
                        _exit(EXIT_WRONG);
                }
        return code;
}

static int use(struct rank *rank, struct rmx_comm *comm) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .timeout_ms = JOIN_MS};
        static float here[2][COUNT], all[SCENARIO_RANKS * COUNT];
        struct rmx_comm *part = NULL;
        void *memory = NULL;
        int code;

        doing(rank, "rmx_mem_alloc");
        code = ended(rank, rmx_mem_alloc(rank->session, sizeof(here), &memory));
        if (code == RMX_OK)
                code = reduce(rank, comm, memory, (float *)memory + COUNT, "all_reduce of shared memory");
        if (code == RMX_OK)
                code = reduce(rank, comm, here[0], here[1], "all_reduce of ordinary memory");
        if (code == RMX_OK) {
                doing(rank, "all_gather");
                code = ended(rank, rmx_all_gather(comm, here[1], all, COUNT, RMX_FLOAT32, NULL));
        }
        if (code == RMX_OK) {
                doing(rank, "split");
                code = ended(rank,
                             rmx_comm_split(comm, rank->number == 2 ? 1 : 0, -(int32_t)rank->number, &options, &part));
        }
        if (code == RMX_OK)
                code = reduce(rank, part, here[0], here[1], "all_reduce after the split");
        if (part) {
                int left;

                doing(rank, "destroy of the part");
                left = ended(rank, rmx_comm_destroy(part));
                code = code == RMX_OK ? left : code;
        }
        if (code == RMX_OK) {
                doing(rank, "barrier");
                code = ended(rank, rmx_barrier(comm, NULL));
        }
        if (code == RMX_OK) {
                doing(rank, "rmx_mem_free");
                code = ended(rank, rmx_mem_free(rank->session, memory));
        }
        return code;
}

/* ids: rank 0 writes to them, rank n reads from ids[n - 1]. */
static int hand_over(struct rank *rank, int ids[SCENARIO_RANKS - 1][2], struct rmx_id *id) {
        int code = RMX_OK;

        doing(rank, "id");
        if (rank->number > 0) {
                if (read(ids[rank->number - 1][0], id, sizeof(*id)) != sizeof(*id))
                        code = RMX_E_PEER_LOST; /* rank 0 had no luck */
                return code;
        }
        code = ended(rank, rmx_get_id(rank->session, id));
        for (uint32_t i = 0; code == RMX_OK && i < SCENARIO_RANKS - 1; i++)
                if (write(ids[i][1], id, sizeof(*id)) != sizeof(*id))
                        code = RMX_E_PEER_LOST;
        return code;
}

static void rank_run(const struct node *node, struct rank *rank, int ids[SCENARIO_RANKS - 1][2]) {
        struct rmx_session_options options = {
                .size = sizeof(options), .socket = node->socket, .name = "scenario", .timeout_ms = OPEN_MS};
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options), .gpu = -1, .timeout_ms = JOIN_MS};
        struct rmx_comm *comm = NULL;
        struct rmx_id id;
        int code, left;

        signal(SIGPIPE, SIG_IGN);
        for (uint32_t i = 0; i < SCENARIO_RANKS - 1; i++) /* each end of a pipe for those alone that use it */
                for (uint32_t end = 0; end < 2; end++)
                        if (end == 1 ? rank->number != 0 : rank->number != i + 1)
                                close(ids[i][end]);
        doing(rank, "rmx_session_open");
        code = ended(rank, rmx_session_open(&options, &rank->session));
        if (code != RMX_OK)
                _exit(EXIT_ERROR);
        code = hand_over(rank, ids, &id);
        if (code == RMX_OK) {
                doing(rank, "rmx_comm_create");
                code = ended(rank,
                             rmx_comm_create(rank->session, &id, SCENARIO_RANKS, rank->number, &comm_options, &comm));
        }
        if (code == RMX_OK) {
                code = use(rank, comm);
                if (code == RMX_OK)
                        doing(rank, "destroy");
                left = rmx_comm_destroy(comm);
                if (code == RMX_OK)
                        code = ended(rank, left);
        }
        rmx_session_close(rank->session);
        _exit(code == RMX_OK ? 0 : EXIT_ERROR);
}

static void ask(const struct node *node) {
        for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
                const char *argv[] = {
                        node_program("railmuxctl"), "--control", node->control, "--json", questions[i], NULL};

                (void)proc_run_quiet(argv, 10000, NULL); /* may be refused */
        }
}

struct scenario_result scenario_run(const struct node *node) {
        static char(*text)[SCENARIO_TEXT_MAX];
        int ids[SCENARIO_RANKS - 1][2], status;
        struct scenario_result result = {0};
        pid_t pids[SCENARIO_RANKS], parent = getpid();

        if (!text)
                text = mmap(NULL, sizeof(result.text), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (text == MAP_FAILED)
                abort();
        memset(text, 0, sizeof(result.text));
        for (uint32_t i = 0; i < SCENARIO_RANKS - 1; i++)
                if (pipe2(ids[i], O_CLOEXEC) != 0)
                        abort();
        fflush(NULL);
        for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        struct rank rank = {.number = i, .text = text[i]};

                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() != parent)
                                _exit(1);
                        rank_run(node, &rank, ids);
                }
        }
        for (uint32_t i = 0; i < SCENARIO_RANKS - 1; i++) {
                close(ids[i][0]);
                close(ids[i][1]);
        }
        ask(node);
        for (uint32_t i = 0; i < SCENARIO_RANKS; i++) {
                if (proc_wait(pids[i], HANG_MS, &status) != 0) {
                        result.hanging++;
                        kill(pids[i], SIGKILL);
                        waitpid(pids[i], &status, 0);
                } else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ERROR) {
                        result.failed++;
                } else if (status != 0) {
                        result.wrong++;
                }
        }
        memcpy(result.text, text, sizeof(result.text));
        return result;
}
