/* SPDX-License-Identifier: MIT */
/*
 * Linux has a table of descriptors for each process, which it doubles when it is full: for the 65th, the 129th, the
 * 257th, .. descriptor. Where threads share the table, whoever needs that one waits until all processors have stopped
 * to look at the old table (synchronize_rcu() in expand_fdtable(), fs/file.c): 10 to 15 ms on two processors that have
 * nothing to do, 30 on 32 (Linux 6.18). In a daemon that is a client which waits 30 ms longer for its communicator than
 * the ones before and after it. A process with one thread waits for nothing, and tables never shrink; so whoever will
 * have many descriptors takes the room before it has threads.
 */
#include "util/fds.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

void fds_raise(void) {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                setrlimit(RLIMIT_NOFILE, &limit);
        }
}

void fds_reserve(unsigned int n) {
        struct rlimit limit;
        int fd, last;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < n)
                n = (unsigned int)limit.rlim_cur;
        fd = n ? eventfd(0, EFD_CLOEXEC) : -1;
        if (fd < 0)
                return;
        last = fcntl(fd, F_DUPFD_CLOEXEC, (int)n - 1); /* or one that is free behind it */
        if (last >= 0)
                close(last);
        close(fd);
}
