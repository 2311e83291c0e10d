/* SPDX-License-Identifier: MIT */
/*
 * The smallest railmux program: N processes add up their rank numbers.
 *
 *   hello [N]      (default 4; $RAILMUX_SOCKET names the daemon's client socket)
 */
#include <railmux/railmux.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* One rank. The first one makes the id and hands it to the others through their pipes; any other way would do. */
static int run_rank(uint32_t rank, uint32_t n, int pipes[][2]) {
        struct rmx_session *session;
        struct rmx_comm *comm;
        struct rmx_id id;
        float mine, sum;
        int r;

        r = rmx_session_open(NULL, &session);
        if (r)
                goto failed;
        if (rank == 0) {
                r = rmx_get_id(session, &id);
                if (r)
                        goto failed;
                for (uint32_t i = 1; i < n; i++)
                        if (write(pipes[i][1], &id, sizeof(id)) != sizeof(id))
                                return 1;
        } else if (read(pipes[rank][0], &id, sizeof(id)) != sizeof(id)) {
                return 1;
        }
        r = rmx_comm_create(session, &id, n, rank, NULL, &comm);
        if (r)
                goto failed;

        mine = (float)rank;
        r = rmx_all_reduce(comm, &mine, &sum, 1, RMX_FLOAT32, RMX_SUM, NULL);
        if (r)
                goto failed;
        printf("rank %u of %u: the sum of all ranks is %g\n", rank, n, (double)sum);

        rmx_comm_destroy(comm);
        rmx_session_close(session);
        return sum == (float)n * (float)(n - 1) / 2 ? 0 : 1;

failed:
        fprintf(stderr, "rank %u: %s: %s\n", rank, rmx_error_name(r), rmx_last_error());
        return 1;
}

int main(int argc, char **argv) {
        int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4, failed = 0, status;
        int pipes[64][2];

        if (n < 1 || n > 64) {
                fprintf(stderr, "usage: hello [1..64]\n");
                return 2;
        }
        for (int i = 0; i < n; i++)
                if (pipe(pipes[i]) != 0) {
                        perror("pipe");
                        return 1;
                }
        for (int i = 0; i < n; i++) {
                pid_t pid = fork(); /* before any session is opened: a session does not survive a fork */

                if (pid < 0) {
                        perror("fork");
                        return 1;
                }
                if (pid == 0) {
                        for (int k = 0; k < n; k++) /* so that a rank 0 that fails ends the others' reads */
                                if (i != 0)
                                        close(pipes[k][1]);
                        return run_rank((uint32_t)i, (uint32_t)n, pipes);
                }
        }
        for (int i = 0; i < n; i++)
                close(pipes[i][1]);
        while (wait(&status) > 0)
                failed |= status != 0;
        return failed;
}
