/* SPDX-License-Identifier: MIT */
#pragma once
/* A block of a kernel as threads of the host. */
#include <pthread.h>
#include <stdint.h>

#define BLOCK_WARP        32u
#define BLOCK_THREADS_MAX 160u

enum { BLOCK_RELEASES, BLOCK_ACQUIRES, BLOCK_FENCES, BLOCK_COUNTS };

struct block {
        uint32_t n_threads;
        void (*kernel)(void *userdata);
        void *userdata;
        pthread_t thread[BLOCK_THREADS_MAX];
        pthread_barrier_t all, warp;
        uint32_t exchange[BLOCK_WARP];
        uint32_t counts[BLOCK_COUNTS]; /* how often a fence was executed, by all threads */
};

/* Runs the kernel in n threads, at least a warp. */
void block_launch(struct block *block, uint32_t n_threads, void (*kernel)(void *userdata), void *userdata);
void block_join(struct block *block);

/* In the kernel. */
uint32_t block_thread(void);
uint32_t block_threads(void);
void block_sync(void);
void block_count(uint32_t what);
/* In its first warp. */
void block_warp_sync(void);
uint32_t block_warp_read(uint32_t value, uint32_t from);
