/* SPDX-License-Identifier: MIT */
#include "tests/e2e/idlers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <railmux/railmux.h>
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

struct idlers_shared {
        pthread_barrier_t barrier;
        struct rmx_id id;
        char error[IDLERS_MAX][240];
};

static void must(struct idlers_shared *shared, uint32_t rank, int code, const char *what) {
        if (code == RMX_OK)
                return;
        snprintf(shared->error[rank], sizeof(shared->error[rank]), "%s: %s: %.180s", what, rmx_error_name(code),
                 rmx_last_error());
        _exit(1);
}

static int reduce_once(struct idlers_shared *shared, struct rmx_comm *comm, uint32_t n, uint32_t rank) {
        float mine = (float)(rank + 1), sum = 0;
        int code = rmx_all_reduce(comm, &mine, &sum, 1, RMX_FLOAT32, RMX_SUM, NULL);

        if (code == RMX_OK && sum != (float)n * (float)(n + 1) / 2) {
                snprintf(shared->error[rank], sizeof(shared->error[rank]), "the sum is %g", (double)sum);
                _exit(1);
        }
        return code;
}

static void run(struct idlers_shared *shared, const char *socket, uint32_t n, uint32_t rank, int command, int answer) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .name = "idler"};
        struct rmx_session *session;
        struct rmx_comm *comm;
        char byte = 0;

        must(shared, rank, rmx_session_open(&options, &session), "rmx_session_open");
        if (rank == 0)
                must(shared, rank, rmx_get_id(session, &shared->id), "rmx_get_id");
        pthread_barrier_wait(&shared->barrier);
        must(shared, rank, rmx_comm_create(session, &shared->id, n, rank, NULL, &comm), "rmx_comm_create");
        must(shared, rank, reduce_once(shared, comm, n, rank), "rmx_all_reduce");
        do {
                if (write(answer, &byte, 1) != 1)
                        _exit(1);
                if (read(command, &byte, 1) != 1)
                        break;
                byte = (char)reduce_once(shared, comm, n, rank);
        } while (1);
        rmx_comm_destroy(comm);
        rmx_session_close(session);
        exit(0);
}

void idlers_start(struct idlers *idlers, const char *socket, uint32_t n) {
        pthread_barrierattr_t attributes;
        pid_t parent = getpid();
        void *memory =
                mmap(NULL, sizeof(struct idlers_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(memory != MAP_FAILED);
        *idlers = (struct idlers){.n = n, .shared = memory};
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&idlers->shared->barrier, &attributes, n);
        pthread_barrierattr_destroy(&attributes);
        fflush(NULL);
        for (uint32_t i = 0; i < n; i++) {
                int command[2], answer[2];

                assert_int_equal(pipe2(command, O_CLOEXEC), 0);
                assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
                idlers->pid[i] = fork();
                assert_true(idlers->pid[i] >= 0);
                if (idlers->pid[i] == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() != parent)
                                _exit(1);
                        close(command[1]);
                        for (uint32_t k = 0; k < i; k++) /* else the end of file would never come to the others */
                                close(idlers->command[k]);
                        run(idlers->shared, socket, n, i, command[0], answer[1]);
                }
                close(command[0]);
                close(answer[1]);
                idlers->command[i] = command[1];
                idlers->answer[i] = answer[0];
        }
        for (uint32_t i = 0; i < n; i++)
                if (idlers_answer(idlers, i, 20000) != RMX_OK)
                        fail_msg("rank %u is not ready: %s", i, idlers->shared->error[i]);
}

void idlers_call(struct idlers *idlers, uint32_t i) {
        assert_int_equal(write(idlers->command[i], "c", 1), 1);
}

int idlers_answer(struct idlers *idlers, uint32_t i, uint32_t timeout_ms) {
        struct pollfd poller = {.fd = idlers->answer[i], .events = POLLIN};
        unsigned char byte;

        if (poll(&poller, 1, (int)(timeout_ms * proc_time_scale())) <= 0)
                return -1;
        if (read(idlers->answer[i], &byte, 1) != 1)
                fail_msg("rank %u has ended: %s", i, idlers->shared->error[i]);
        return byte;
}

void idlers_stop(struct idlers *idlers) {
        for (uint32_t i = 0; i < idlers->n; i++) {
                close(idlers->command[i]);
                idlers->command[i] = -1;
        }
        for (uint32_t i = 0; i < idlers->n; i++) {
                int status;

                if (proc_wait(idlers->pid[i], 20000, &status) != 0)
                        fail_msg("rank %u does not end", i);
                idlers->pid[i] = 0;
                if (status != 0)
                        fail_msg("rank %u ended with status 0x%x: %s", i, (unsigned int)status,
                                 idlers->shared->error[i]);
        }
}

void idlers_cleanup(struct idlers *idlers) {
        int status;

        for (uint32_t i = 0; i < idlers->n; i++) {
                if (idlers->pid[i] > 0) {
                        kill(idlers->pid[i], SIGKILL);
                        waitpid(idlers->pid[i], &status, 0);
                }
                if (idlers->command[i] > 0)
                        close(idlers->command[i]);
                if (idlers->answer[i] > 0)
                        close(idlers->answer[i]);
        }
        if (idlers->shared)
                munmap(idlers->shared, sizeof(*idlers->shared));
        *idlers = (struct idlers){0};
}
