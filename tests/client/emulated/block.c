/* SPDX-License-Identifier: MIT */
#include "tests/client/emulated/block.h"

#include "tests/client/fake.h"

struct start {
        struct block *block;
        uint32_t thread;
};

static _Thread_local struct block *current;
static _Thread_local uint32_t number;

static void *thread_main(void *userdata) {
        struct start *start = userdata;

        current = start->block;
        number = start->thread;
        free(start);
        current->kernel(current->userdata);
        return NULL;
}

void block_launch(struct block *block, uint32_t n_threads, void (*kernel)(void *userdata), void *userdata) {
        must(n_threads >= BLOCK_WARP && n_threads <= BLOCK_THREADS_MAX);
        *block = (struct block){.n_threads = n_threads, .kernel = kernel, .userdata = userdata};
        must(!pthread_barrier_init(&block->all, NULL, n_threads));
        must(!pthread_barrier_init(&block->warp, NULL, BLOCK_WARP));
        for (uint32_t i = 0; i < n_threads; i++) {
                struct start *start = malloc(sizeof(*start));

                must(start);
                *start = (struct start){.block = block, .thread = i};
                must(!pthread_create(&block->thread[i], NULL, thread_main, start));
        }
}

void block_join(struct block *block) {
        for (uint32_t i = 0; i < block->n_threads; i++)
                must(!pthread_join(block->thread[i], NULL));
        pthread_barrier_destroy(&block->all);
        pthread_barrier_destroy(&block->warp);
}

uint32_t block_thread(void) {
        return number;
}

uint32_t block_threads(void) {
        return current->n_threads;
}

void block_sync(void) {
        (void)pthread_barrier_wait(&current->all);
}

void block_count(uint32_t what) {
        __atomic_fetch_add(&current->counts[what], 1, __ATOMIC_SEQ_CST);
}

void block_warp_sync(void) {
        (void)pthread_barrier_wait(&current->warp);
}

uint32_t block_warp_read(uint32_t value, uint32_t from) {
        uint32_t result;

        current->exchange[number] = value;
        block_warp_sync();
        result = current->exchange[from];
        block_warp_sync();
        return result;
}
