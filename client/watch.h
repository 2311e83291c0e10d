/* SPDX-License-Identifier: MIT */
#pragma once
/* A thread that reads the daemon's events where no call of the library may come for long. See watch.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rmx_session;

struct watch {
        pthread_mutex_t mutex;
        pthread_t thread;
        bool running; /* under mutex */
        int stop_fd;  /* an eventfd; -1: none */
};

void watch_init(struct watch *watch);
/* Starts the thread if it is not running. Any thread. RMX_*; text set. */
int watch_start(struct rmx_session *session, const char *what);
/* Ends it and waits for it. Before the connection is closed; not in a child of fork(). */
void watch_stop(struct rmx_session *session);
void watch_deinit(struct watch *watch);
