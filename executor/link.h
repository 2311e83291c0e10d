/* SPDX-License-Identifier: MIT */
#pragma once
/* The executor's connection to railmuxd: connects for ever, tells what there is, does what it is told. Control thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "executor/dispatch.h"
#include "executor/report.h"

struct event_base;
struct link;

/* What is served: emulated GPUs (host_service.c) or one GPU (plane_service.c). All in the control thread. */
struct link_ops {
        /* Fills what HELLO says of the service; what it points to stays until the next call. */
        void (*hello)(void *service, Railmux__Executor__Hello *hello);
        int (*inventory)(void *service, report_send send, void *userdata);
        int (*statistics)(void *service, uint64_t id, report_send send, void *userdata);
        int (*failures)(void *service, report_send send, void *userdata); /* comms that failed since last time */
        int (*stalls)(void *service, report_send send, void *userdata);
        /* The attention_fd is readable. */
        void (*released)(void *service, report_send send, void *userdata);
        /* May the call be carried out now? If not, what it lacks is being made; it is asked for again whenever
         * attention_fd is readable. NULL: always. */
        bool (*ready)(void *service, const Railmux__Executor__Message *message);
        /* All calls that were not ready and are still there are asked for now. May be NULL. */
        void (*round)(void *service);
        /* Carries a call out. fds are taken over where they are needed and set to -1. */
        void (*call)(void *service, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                     struct dispatch_result *ret_result);
        void (*check)(void *service); /* a few times in each stall bound, connected or not; may be NULL */
        /* After tick_ms, and then each time after as many milliseconds as it returns (above 0); -errno ends the
         * executor. */
        int (*tick)(void *service);
        void (*drain)(void *service);   /* planned end: nothing is begun any more */
        bool (*drained)(void *service); /* what was begun is settled; asked until it is */
        void (*go)(void *service);      /* railmuxd needs nothing more of it, or will not be back; may be NULL */
};

struct link_service {
        const struct link_ops *ops;
        void *object;
        uint64_t stall_ns;
        int attention_fd; /* -1: none */
        uint32_t tick_ms; /* until the first tick; 0: there are none */
        bool tells_drain; /* railmuxd is told of a planned end */
};

struct link_options {
        const char *socket;    /* railmuxd's executor socket */
        const char *name;      /* "host", or the number of a GPU */
        bool exit_with_daemon; /* leave the loop when the connection ends instead of connecting again */
};

/* service stays the caller's. */
int link_new(struct event_base *base, const struct link_service *service, const struct link_options *options,
             struct link **ret_link);
struct link *link_free(struct link *link);
/* Planned end: no new sequence is begun; the loop is left when begun ones are settled, or after a bound. */
void link_drain(struct link *link);
/* 0, or what tick said. */
int link_result(const struct link *link);
