/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <pthread.h>
#include <railmux/railmux.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the processes share; a real program would hand the id over by its own means (a socket, MPI, a file). */
struct shared {
        pthread_barrier_t id_ready;
        struct rmx_id id;
        uint64_t different[MODEL_HEADS];
        uint64_t nanoseconds, checksum;
};

struct rank {
        const struct ranks_run *run;
        struct shared *shared;
        uint32_t number;
        struct rmx_session *session;
        struct rmx_comm *comm;
        float *stream; /* shared memory of the daemon: all_reduce works on it in place, without a copy */
};

static int failed(const struct rank *rank, const char *what, int r) {
        fprintf(stderr, "transformer: rank %u: %s: %s: %s\n", rank->number, what, rmx_error_name(r), rmx_last_error());
        return 1;
}

static int link_all_reduce(void *context, float *values, uint32_t count) {
        struct rank *rank = context;
        int r;

        memcpy(rank->stream, values, count * sizeof(*values));
        r = rmx_all_reduce(rank->comm, rank->stream, rank->stream, count, RMX_FLOAT32, RMX_SUM, NULL);
        memcpy(values, rank->stream, count * sizeof(*values));
        return r ? failed(rank, "rmx_all_reduce", r) : 0;
}

/* Ordinary memory: the library copies through a buffer that it keeps. */
static int link_all_gather(void *context, const float *mine, float *all, uint32_t count) {
        struct rank *rank = context;
        int r = rmx_all_gather(rank->comm, mine, all, count, RMX_FLOAT32, NULL);

        return r ? failed(rank, "rmx_all_gather", r) : 0;
}

static uint64_t now_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t ranks_checksum(const float *logits, uint32_t n_tokens) {
        const unsigned char *bytes = (const unsigned char *)logits;
        uint64_t sum = 0xcbf29ce484222325u;

        for (size_t i = 0; i < (size_t)n_tokens * MODEL_VOCABULARY * sizeof(*logits); i++)
                sum = (sum ^ bytes[i]) * 0x100000001b3u;
        return sum;
}

static int connect_rank(struct rank *rank) {
        struct rmx_session_options options = {
                .size = sizeof(options), .socket = rank->run->socket, .name = "transformer"};
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options), .gpu = -1, .name = "transformer"};
        void *memory;
        int r;

        r = rmx_session_open(&options, &rank->session);
        if (r)
                return failed(rank, "rmx_session_open", r);
        if (rank->number == 0) {
                r = rmx_get_id(rank->session, &rank->shared->id);
                if (r)
                        return failed(rank, "rmx_get_id", r);
        }
        pthread_barrier_wait(&rank->shared->id_ready);
        r = rmx_comm_create(rank->session, &rank->shared->id, rank->run->n_ranks, rank->number, &comm_options,
                            &rank->comm);
        if (r)
                return failed(rank, "rmx_comm_create", r);
        r = rmx_mem_alloc(rank->session, MODEL_WIDTH * sizeof(float), &memory);
        if (r)
                return failed(rank, "rmx_mem_alloc", r);
        rank->stream = memory;
        return 0;
}

static int generate(struct rank *rank, struct model *model, float *logits) {
        uint32_t token = MODEL_FIRST_TOKEN;
        uint64_t start = now_ns();

        for (uint32_t t = 0; t < rank->run->n_tokens; t++) {
                float *row = logits + (size_t)t * MODEL_VOCABULARY;

                if (model_step(model, token, row) != 0)
                        return 1;
                token = model_choose(row);
        }
        if (rank->number == 0) {
                rank->shared->nanoseconds = now_ns() - start;
                rank->shared->checksum = ranks_checksum(logits, rank->run->n_tokens);
        }
        return 0;
}

static int run_rank(struct rank *rank) {
        const struct model_links links = {link_all_reduce, link_all_gather, rank};
        size_t n = (size_t)rank->run->n_tokens * MODEL_VOCABULARY;
        float *logits = calloc(n, sizeof(*logits));
        struct model *model =
                model_new(rank->run->n_layers, rank->run->n_tokens, rank->number, rank->run->n_ranks, &links);
        int r = 1;

        if (!logits || !model)
                fprintf(stderr, "transformer: rank %u: out of memory\n", rank->number);
        else if (connect_rank(rank) == 0)
                r = generate(rank, model, logits);
        for (size_t i = 0; r == 0 && i < n; i++) /* bits, not values: -0 and 0 would compare equal */
                rank->shared->different[rank->number] +=
                        memcmp(&logits[i], &rank->run->reference[i], sizeof(float)) != 0;
        model_free(model);
        free(logits);
        if (r == 0)
                rmx_comm_destroy(rank->comm);
        rmx_session_close(rank->session);
        return r;
}

/* Waits for all ranks; a failed one ends the others, which might wait for it for ever. */
static int reap(const pid_t *pids, uint32_t n) {
        int failures = 0, status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, 0)) > 0) {
                if (status == 0)
                        continue;
                if (WIFSIGNALED(status) && !failures)
                        fprintf(stderr, "transformer: process %d was killed by signal %d\n", (int)pid,
                                WTERMSIG(status));
                if (!failures++)
                        for (uint32_t i = 0; i < n; i++)
                                if (pids[i] != pid)
                                        kill(pids[i], SIGKILL);
        }
        return failures != 0;
}

int ranks_execute(const struct ranks_run *run, struct ranks_result *ret_result) {
        pthread_barrierattr_t attributes;
        pid_t pids[MODEL_HEADS], parent = getpid();
        struct shared *shared;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) {
                perror("transformer: mmap");
                return 1;
        }
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->id_ready, &attributes, run->n_ranks);
        pthread_barrierattr_destroy(&attributes);
        fflush(NULL);
        for (uint32_t i = 0; i < run->n_ranks; i++) {
                pids[i] = fork();
                if (pids[i] < 0) {
                        perror("transformer: fork");
                        for (uint32_t k = 0; k < i; k++)
                                kill(pids[k], SIGKILL);
                        reap(pids, i);
                        munmap(shared, sizeof(*shared));
                        return 1;
                }
                if (pids[i] == 0) {
                        struct rank rank = {.run = run, .shared = shared, .number = i};

                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        _exit(getppid() == parent ? run_rank(&rank) : 1);
                }
        }
        if (reap(pids, run->n_ranks) != 0) {
                munmap(shared, sizeof(*shared));
                return 1;
        }
        *ret_result = (struct ranks_result){.nanoseconds = shared->nanoseconds, .checksum = shared->checksum};
        for (uint32_t i = 0; i < run->n_ranks; i++)
                ret_result->different += shared->different[i];
        munmap(shared, sizeof(*shared));
        return 0;
}
