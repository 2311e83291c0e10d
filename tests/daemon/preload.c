/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into railmuxd: ends it in place of one of its messages, as SIGKILL would. Which one says the file that
 * $RAILMUX_TEST_DIE names: the n-th from when the file is there.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned int left;

static void look(void) {
        const char *path = getenv("RAILMUX_TEST_DIE");
        FILE *file = left == 0 && path ? fopen(path, "re") : NULL;

        if (!file)
                return;
        if (fscanf(file, "%u", &left) != 1)
                left = 0;
        fclose(file);
        unlink(path);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
        static ssize_t (*next)(int fd, const struct msghdr *message, int flags);

        if (!next)
                next = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
        look();
        if (left > 0 && --left == 0)
                kill(getpid(), SIGKILL);
        return next(fd, message, flags);
}
