/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into every process of a node: makes chosen calls fail as they do when the system is short of something.
 *
 * Only the process that the page names counts and fails; all others pass through. Calls go to the kernel by number and
 * to the allocator by its own names, so nothing here needs the dynamic linker, which itself allocates.
 */
#include "tests/inject/inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRAMES 20
#define WRAP   __attribute__((visibility("default")))

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

static struct inject_page *page;
static __thread bool inside __attribute__((tls_model("initial-exec")));

/* The errors that callers may see, in turn by variant. */
static const int errors[INJECT_CALL_COUNT][4] = {
        [INJECT_MEMORY] = {ENOMEM},
        [INJECT_MMAP] = {ENOMEM, ENFILE},
        [INJECT_MREMAP] = {ENOMEM},
        [INJECT_MEMFD] = {EMFILE, ENFILE, ENOMEM},
        [INJECT_FTRUNCATE] = {ENOMEM, EFBIG},
        [INJECT_OPEN] = {EMFILE, ENFILE, ENOMEM},
        [INJECT_ACCEPT] = {EMFILE, ENFILE, ECONNABORTED, EINTR},
        [INJECT_RECVMSG] = {EINTR, ENOMEM, ENOBUFS},
        [INJECT_SENDMSG] = {ENOBUFS, ENOMEM, EINTR, ETOOMANYREFS},
        [INJECT_EVENTFD] = {EMFILE, ENFILE, ENOMEM},
        [INJECT_EPOLL_CTL] = {ENOMEM, ENOSPC},
        [INJECT_EPOLL_WAIT] = {EINTR},
        [INJECT_FCNTL] = {EMFILE, ENOMEM},
        [INJECT_SOCKET_OPTION] = {ENOBUFS, ENOMEM},
        [INJECT_PIDFD] = {EMFILE, ENFILE, ENOMEM},
        [INJECT_IOCTL] = {ENOMEM},
        [INJECT_WRITE] = {EINTR, EAGAIN},
};

__attribute__((constructor)) static void start(void) {
        const char *path = getenv(INJECT_ENVIRONMENT);
        void *frames[FRAMES], *memory;
        int fd;

        (void)backtrace(frames, FRAMES); /* loads what it needs, now */
        fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
        if (fd < 0)
                return;
        memory = (void *)syscall(SYS_mmap, NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        syscall(SYS_close, fd);
        if (memory != MAP_FAILED)
                page = memory;
}

static void note_trace(void) {
        void *frames[FRAMES];
        int n = backtrace(frames, FRAMES);
        size_t used = 0;

        for (int i = 2; i < n && used < INJECT_TRACE_MAX; i++) {
                const char *name;
                Dl_info info;

                if (!dladdr(frames[i], &info) || !info.dli_fname)
                        continue;
                name = strrchr(info.dli_fname, '/');
                /* minus one: the call, not what comes after it */
                used += (size_t)snprintf(page->trace + used, INJECT_TRACE_MAX - used, "%s%s+0x%lx", used ? " " : "",
                                         name ? name + 1 : info.dli_fname,
                                         (unsigned long)((char *)frames[i] - (char *)info.dli_fbase - 1));
        }
}

/* true: this one fails, errno is set. */
static bool fails(enum inject_call call) {
        uint64_t number, first;
        uint32_t variant, n = 0;

        /* acquire, with the release of the test, which writes the pid last */
        if (!page || inside || atomic_load_explicit(&page->pid, memory_order_acquire) != getpid())
                return false;
        number = 1 + atomic_fetch_add(&page->seen[call], 1);              /* with the same in other threads */
        first = atomic_load_explicit(&page->first, memory_order_relaxed); /* ordered by the pid */
        if (atomic_load_explicit(&page->call, memory_order_relaxed) != call || !first || number < first ||
            number >= first + atomic_load_explicit(&page->length, memory_order_relaxed))
                return false;
        inside = true;
        if (atomic_fetch_add(&page->failed, 1) == 0) /* with the same in other threads */
                note_trace();
        inside = false;
        while (n < 4 && errors[call][n])
                n++;
        variant = atomic_load_explicit(&page->variant, memory_order_relaxed); /* ordered by the pid */
        errno = errors[call][(variant + (number - first)) % n];
        return true;
}

WRAP void *malloc(size_t size) {
        return fails(INJECT_MEMORY) ? NULL : __libc_malloc(size);
}

WRAP void *calloc(size_t n, size_t size) {
        return fails(INJECT_MEMORY) ? NULL : __libc_calloc(n, size);
}

WRAP void *realloc(void *memory, size_t size) {
        return fails(INJECT_MEMORY) ? NULL : __libc_realloc(memory, size);
}

WRAP void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
        return fails(INJECT_MMAP) ? MAP_FAILED
                                  : (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

WRAP void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...) {
        return fails(INJECT_MREMAP) ? MAP_FAILED
                                    : (void *)syscall(SYS_mremap, address, old_size, new_size, flags, NULL);
}

WRAP int memfd_create(const char *name, unsigned int flags) {
        return fails(INJECT_MEMFD) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

WRAP int ftruncate(int fd, off_t size) {
        return fails(INJECT_FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

WRAP int open(const char *path, int flags, ...) {
        va_list arguments;
        int mode;

        va_start(arguments, flags);
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
        va_end(arguments);
        return fails(INJECT_OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

WRAP int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict size, int flags) {
        return fails(INJECT_ACCEPT) ? -1 : (int)syscall(SYS_accept4, fd, address.__sockaddr__, size, flags);
}

WRAP ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
        return fails(INJECT_RECVMSG) ? -1 : syscall(SYS_recvmsg, fd, message, flags);
}

WRAP ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
        return fails(INJECT_SENDMSG) ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

WRAP int eventfd(unsigned int value, int flags) {
        return fails(INJECT_EVENTFD) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

WRAP int epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event) {
        /* Taking away needs nothing and does not fail. */
        return operation != EPOLL_CTL_DEL && fails(INJECT_EPOLL_CTL)
                       ? -1
                       : (int)syscall(SYS_epoll_ctl, epoll_fd, operation, fd, event);
}

WRAP int epoll_wait(int epoll_fd, struct epoll_event *events, int n_events, int timeout) {
        return fails(INJECT_EPOLL_WAIT) ? -1
                                        : (int)syscall(SYS_epoll_pwait, epoll_fd, events, n_events, timeout, NULL, 8);
}

WRAP int fcntl(int fd, int command, ...) {
        va_list arguments;
        long argument;

        va_start(arguments, command);
        argument = va_arg(arguments, long);
        va_end(arguments);
        if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC || command == F_ADD_SEALS) && fails(INJECT_FCNTL))
                return -1;
        return (int)syscall(SYS_fcntl, fd, command, argument);
}

WRAP int dup(int fd) {
        return fails(INJECT_FCNTL) ? -1 : (int)syscall(SYS_dup, fd);
}

WRAP int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size) {
        if (fails(level == SOL_SOCKET && name == SO_PEERPIDFD ? INJECT_PIDFD : INJECT_SOCKET_OPTION))
                return -1;
        return (int)syscall(SYS_getsockopt, fd, level, name, value, size);
}

WRAP int ioctl(int fd, unsigned long request, ...) {
        va_list arguments;
        void *argument;

        va_start(arguments, request);
        argument = va_arg(arguments, void *);
        va_end(arguments);
        return fails(INJECT_IOCTL) ? -1 : (int)syscall(SYS_ioctl, fd, request, argument);
}

WRAP ssize_t write(int fd, const void *bytes, size_t size) {
        return size == 8 && fails(INJECT_WRITE) ? -1 : syscall(SYS_write, fd, bytes, size);
}
