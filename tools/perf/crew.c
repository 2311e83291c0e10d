/* SPDX-License-Identifier: MIT */
/*
 * Rank processes of one program.
 *
 * The parent forks the ranks before anybody opens a session (a session does not survive a fork) and then does nothing
 * but wait for their ends. A rank that fails would leave the others in the barrier, or in a collective, for ever; so
 * the parent kills the rest as soon as one ends badly, and keeps the first reason: later ones are consequences.
 * Therefore the barrier may be a plain process-shared one: nobody is ever left to wait in it for the dead. Ranks die
 * with the parent.
 */
#include "tools/perf/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_BYTES ((sizeof(struct crew_shared) + 4095u) & ~(size_t)4095u)

int crew_init(struct crew *crew, uint32_t n, size_t data_bytes) {
        pthread_barrierattr_t attributes;
        void *memory;
        int r;

        if (n == 0 || n > CREW_RANKS_MAX)
                return -EINVAL;
        memory = mmap(NULL, SHARED_BYTES + data_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return -errno;
        *crew = (struct crew){.n = n, .parent = getpid(), .shared = memory, .data_bytes = data_bytes};
        crew->data = (char *)memory + SHARED_BYTES;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        r = pthread_barrier_init(&crew->shared->barrier, &attributes, n);
        pthread_barrierattr_destroy(&attributes);
        if (r)
                crew_deinit(crew);
        return -r;
}

void crew_deinit(struct crew *crew) {
        if (crew->shared) /* the barrier is not destroyed: killed ranks may still count as waiting in it */
                munmap(crew->shared, SHARED_BYTES + crew->data_bytes);
        crew->shared = NULL;
}

static void kill_rest(struct crew *crew) {
        for (uint32_t i = 0; i < crew->n; i++)
                if (crew->pid[i])
                        kill(crew->pid[i], SIGKILL);
}

static void describe(const struct crew *crew, uint32_t rank, int status, char ret_error[CREW_ERROR_MAX]) {
        if (WIFSIGNALED(status))
                snprintf(ret_error, CREW_ERROR_MAX, "rank %u (process %d) was killed by signal %d (%s)", rank,
                         (int)crew->pid[rank], WTERMSIG(status), strsignal(WTERMSIG(status)));
        else if (crew->shared->error[rank][0])
                snprintf(ret_error, CREW_ERROR_MAX, "rank %u: %.360s", rank, crew->shared->error[rank]);
        else
                snprintf(ret_error, CREW_ERROR_MAX, "rank %u (process %d) ended with status %d", rank,
                         (int)crew->pid[rank], WEXITSTATUS(status));
}

/* Waits for all ranks that run. 1 if any failed. */
static int reap(struct crew *crew, char ret_error[CREW_ERROR_MAX]) {
        int failed = 0, status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, 0)) > 0 || (pid < 0 && errno == EINTR)) {
                for (uint32_t i = 0; pid > 0 && i < crew->n; i++) {
                        if (crew->pid[i] != pid)
                                continue;
                        if (status != 0 && !failed) {
                                describe(crew, i, status, ret_error);
                                failed = 1;
                        }
                        crew->pid[i] = 0;
                        if (failed)
                                kill_rest(crew);
                }
        }
        return failed;
}

int crew_run(struct crew *crew, crew_rank_fn function, void *argument, char ret_error[CREW_ERROR_MAX]) {
        fflush(NULL);
        for (uint32_t i = 0; i < crew->n; i++) {
                pid_t pid = fork();

                if (pid < 0) {
                        int r = -errno;

                        kill_rest(crew);
                        reap(crew, ret_error);
                        return r;
                }
                if (pid == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() != crew->parent) /* it died before the line above */
                                _exit(CREW_EXIT_ERROR);
                        function(crew, i, argument);
                        fflush(NULL);
                        _exit(0);
                }
                crew->pid[i] = pid;
        }
        return reap(crew, ret_error);
}

void crew_barrier(struct crew *crew) {
        pthread_barrier_wait(&crew->shared->barrier);
}

void crew_fail(struct crew *crew, uint32_t rank, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(crew->shared->error[rank], CREW_ERROR_MAX, format, arguments);
        va_end(arguments);
        fflush(NULL);
        _exit(CREW_EXIT_ERROR);
}
