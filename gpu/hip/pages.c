/* SPDX-License-Identifier: MIT */
/*
 * What pinned memory takes is mostly the operating system's time for giving pages: 60 MiB take 25 ms, 240 MiB 100.
 * To pin pages that are there already takes 2 and 8 ms, or 1.5 and 5 where they are huge ones, and to fill those 10 and
 * 40 (an H200's host, CUDA 13, with MPS and without; docs/performance.md, y, ab). So a thread fills what will be asked
 * for next while nobody waits for it: several pieces of one size, since who takes faster than they are filled has to
 * wait for one.
 *
 * The thread is started when it first has something to do. Whoever takes what it is about to fill waits for it; where
 * there is no thread to be had the caller fills it.
 */
#include "gpu/hip/pages.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "util/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

struct pages {
        pthread_mutex_t mutex; /* of what follows */
        pthread_cond_t cond;   /* something has changed */
        pthread_t thread;
        bool started, ending;
        size_t bytes;      /* of a piece, 0: nothing is wanted */
        uint32_t n_wanted; /* to be ready, */
        uint32_t n_ready;  /* of which so many are: */
        void *ready[PAGES_MOST];
};

/* Of whole pages. */
static size_t whole(size_t bytes) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);

        return (bytes + page - 1) / page * page;
}

/* Gives all of it pages. False: there are not enough. */
static bool memory_populate(char *memory, size_t bytes) {
        if (!madvise(memory, bytes, MADV_POPULATE_WRITE))
                return true;
        if (errno != EINVAL)
                return false;
        for (size_t at = 0; at < bytes; at += whole(1)) /* the system is older */
                ((volatile char *)memory)[at] = 0;
        return true;
}

static void *memory_fill(size_t wanted) {
        const size_t bytes = whole(wanted), all = bytes + PAGES_ALIGN;
        char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        size_t before;

        if (memory == MAP_FAILED)
                return NULL;
        before = (PAGES_ALIGN - (uintptr_t)memory % PAGES_ALIGN) % PAGES_ALIGN;
        if (before)
                (void)munmap(memory, before);
        (void)munmap(memory + before + bytes, PAGES_ALIGN - before);
        memory += before;
        (void)madvise(memory, bytes, MADV_HUGEPAGE);         /* which there may be none of */
        for (size_t at = 0; at < bytes; at += PAGES_ALIGN) { /* by steps: nobody else can map anything meanwhile */
                if (memory_populate(memory + at, bytes - at < PAGES_ALIGN ? bytes - at : PAGES_ALIGN))
                        continue;
                (void)munmap(memory, bytes);
                return NULL;
        }
        return memory;
}

void pages_give(void *memory, size_t bytes) {
        if (memory)
                (void)munmap(memory, whole(bytes));
}

/* With the mutex. */
static void pages_empty(struct pages *pages) {
        while (pages->n_ready)
                pages_give(pages->ready[--pages->n_ready], pages->bytes);
}

static void *pages_main(void *data) {
        struct pages *pages = data;

        (void)prctl(PR_SET_NAME, "rmx-pages");
        pthread_mutex_lock(&pages->mutex);
        while (!pages->ending) {
                const size_t bytes = pages->bytes;
                void *memory;

                if (pages->n_ready >= pages->n_wanted) {
                        pthread_cond_wait(&pages->cond, &pages->mutex);
                        continue;
                }
                pthread_mutex_unlock(&pages->mutex);
                memory = memory_fill(bytes);
                pthread_mutex_lock(&pages->mutex);
                if (pages->bytes != bytes || pages->n_ready >= pages->n_wanted) /* something else is wanted by now */
                        pages_give(memory, bytes);
                else if (memory)
                        pages->ready[pages->n_ready++] = memory;
                else
                        pages->n_wanted = pages->n_ready; /* who takes tries himself */
                pthread_cond_broadcast(&pages->cond);
        }
        pthread_mutex_unlock(&pages->mutex);
        return NULL;
}

struct pages *pages_new(void) {
        struct pages *pages = calloc(1, sizeof(*pages));

        if (!pages)
                return NULL;
        pthread_mutex_init(&pages->mutex, NULL);
        pthread_cond_init(&pages->cond, NULL);
        return pages;
}

void pages_free(struct pages *pages) {
        if (!pages)
                return;
        pthread_mutex_lock(&pages->mutex);
        pages->ending = true;
        pthread_cond_broadcast(&pages->cond);
        pthread_mutex_unlock(&pages->mutex);
        if (pages->started)
                (void)pthread_join(pages->thread, NULL);
        pages_empty(pages);
        pthread_cond_destroy(&pages->cond);
        pthread_mutex_destroy(&pages->mutex);
        free(pages);
}

void pages_prepare(struct pages *pages, size_t bytes, uint32_t n) {
        pthread_mutex_lock(&pages->mutex);
        if (pages->bytes != bytes)
                pages_empty(pages);
        if (!pages->started && bytes && n)
                pages->started = !thread_start(&pages->thread, NULL, pages_main, pages);
        pages->bytes = bytes;
        pages->n_wanted = !pages->started || !bytes ? 0 : n < PAGES_MOST ? n : PAGES_MOST;
        pthread_cond_broadcast(&pages->cond);
        pthread_mutex_unlock(&pages->mutex);
}

void *pages_take(struct pages *pages, size_t bytes) {
        void *memory = NULL;

        pthread_mutex_lock(&pages->mutex);
        while (pages->bytes == bytes && !pages->n_ready && pages->n_wanted)
                pthread_cond_wait(&pages->cond, &pages->mutex);
        if (pages->bytes == bytes && pages->n_ready) {
                memory = pages->ready[--pages->n_ready];
                pages->n_wanted -= pages->n_wanted > pages->n_ready;
        }
        pthread_mutex_unlock(&pages->mutex);
        return memory ? memory : memory_fill(bytes);
}
