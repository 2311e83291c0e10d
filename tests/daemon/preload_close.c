/* SPDX-License-Identifier: MIT */
/* Preloaded into railmuxd: its loop may not close memory of clients, which takes as long as there are pages to free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int close(int fd) {
        static const char buffer[] = "/memfd:railmux-buffer";
        char path[32], name[sizeof(buffer)] = "";

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (gettid() == getpid() && readlink(path, name, sizeof(name) - 1) > 0 && !strcmp(name, buffer))
                abort();
        return (int)syscall(SYS_close, fd);
}
