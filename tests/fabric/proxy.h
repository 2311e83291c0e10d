/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What lies between two fabrics: forwards connections to a port of loopback, and breaks them at random places.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum proxy_fault {
        PROXY_CUT = 1,     /* both ends see the end at once */
        PROXY_LATE = 2,    /* the sender sees the end, the receiver gets what was sent, later, and nothing else */
        PROXY_CORRUPT = 4, /* a bit */
        PROXY_STALL = 8,   /* nothing moves any more, nobody sees an end */
};

#define PROXY_PAIRS 64u

struct proxy {
        const char *address;
        uint16_t port, to_port;
        uint64_t seed;
        _Atomic unsigned int faults;  /* of enum proxy_fault, chosen among */
        _Atomic uint32_t bytes;       /* a fault after 1 to twice as many, 0: none */
        _Atomic bool refuse;          /* new connections are closed, old ones cut */
        _Atomic bool swallows;        /* see proxy_swallow() */
        _Atomic uint32_t longest;     /* of what is longer only so much passes, and nothing behind it; 0: all does */
        _Atomic uint32_t n_faults[4]; /* made: cut, late, corrupt, stall */
        _Atomic bool stop;
        int listen_fd, wake_fd, full_fd;
        pthread_t thread;
        struct proxy_pair *pairs[PROXY_PAIRS];
        uint32_t n_pairs;
};

void proxy_start(struct proxy *proxy, const char *address, uint16_t to_port, uint64_t seed);
void proxy_stop(struct proxy *proxy);
/* Who dials is not answered, not even by the kernel, as where packets vanish; and is again. */
void proxy_swallow(struct proxy *proxy, bool swallows);
/* To be seen at once. */
void proxy_wake(struct proxy *proxy);
