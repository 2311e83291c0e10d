/* SPDX-License-Identifier: MIT */
#pragma once
/* The worker threads: scan bells and comms, sleep when there is nothing. See worker.c for the sleep handshake. */
#include <stdint.h>

struct executor;
struct worker_pool;

/* n_workers >= 1. Threads start at once and sleep. */
int worker_pool_new(struct executor *executor, uint32_t n_workers, struct worker_pool **ret_pool);
void worker_pool_stop(struct worker_pool *pool);                /* joins the threads; NULL is fine */
struct worker_pool *worker_pool_free(struct worker_pool *pool); /* stops, too */
uint32_t worker_pool_size(const struct worker_pool *pool);
/* An eventfd that clients write; watched edge-triggered, never read. */
int worker_pool_watch(struct worker_pool *pool, int event_fd);
void worker_pool_unwatch(struct worker_pool *pool, int event_fd);
/* There may be work that no client announces (after an attach). Any thread. */
void worker_pool_kick(struct worker_pool *pool);
