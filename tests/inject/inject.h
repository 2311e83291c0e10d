/* SPDX-License-Identifier: MIT */
#pragma once
/* The page by which a test tells the preloaded library (preload.c) which call of which process is to fail. */
#include <stdatomic.h>
#include <stdint.h>

#define INJECT_ENVIRONMENT "RAILMUX_INJECT" /* path of a file that holds one struct inject_page */
#define INJECT_TRACE_MAX   1024u

enum inject_call {
        INJECT_MEMORY, /* malloc, calloc, realloc and what is built on them */
        INJECT_MMAP,
        INJECT_MREMAP,
        INJECT_MEMFD,
        INJECT_FTRUNCATE,
        INJECT_OPEN,
        INJECT_ACCEPT,
        INJECT_RECVMSG,
        INJECT_SENDMSG,
        INJECT_EVENTFD,
        INJECT_EPOLL_CTL,
        INJECT_EPOLL_WAIT,
        INJECT_FCNTL, /* F_DUPFD, seals; also dup */
        INJECT_SOCKET_OPTION,
        INJECT_PIDFD,
        INJECT_IOCTL,
        INJECT_WRITE, /* of eight bytes: wake-ups */
        INJECT_CALL_COUNT,
};

struct inject_page {
        /* the test's part; the pid is written last */
        _Atomic int32_t pid; /* 0: nothing is counted */
        _Atomic uint32_t call;
        _Atomic uint64_t first;   /* the number of the first call that fails, from 1; 0: none */
        _Atomic uint64_t length;  /* so many in a row */
        _Atomic uint32_t variant; /* which of the usual errors */
        /* the library's part */
        _Atomic uint64_t seen[INJECT_CALL_COUNT];
        _Atomic uint64_t failed;
        char trace[INJECT_TRACE_MAX]; /* of the first that failed: "program+0x1234 library+0x12 ..." */
};

/* "mmap" */
const char *inject_call_name(enum inject_call call);
