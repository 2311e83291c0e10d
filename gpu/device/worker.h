/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A worker's loop: look for lines, take them, work on tasks; until told to stop.
 *
 * Polling. The warp looks at the next line of the ring that spoke last, at the first cell of other rings' next lines,
 * and at the table's version and stop word, all with one load per thread, so a poll costs one access to memory.
 *
 * Order. Tasks of one rank and lane run in the order of their lines. Tasks of different ranks do not wait for each
 * other: one that is not ready is put aside. So ranks may ring two communicators in different orders.
 *
 * A worker may miss lines: a lane with no share in a request is not waited for, and the line may be overwritten before
 * it looks. It then goes on with what is there.
 *
 * Ending. As a rule at once, whatever there is to do; the next kernel goes on with it. With TABLE_STOP_SERVED, when no
 * task is left and no ring has had a line for so many looks that each has been looked at. Each says how far it has
 * looked in every ring; so the control thread knows whether there are lines that nobody will see.
 */
#include "gpu/device/hot.h"

DEVICE_OUTLINE void worker_restore(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        struct worker_scratch *from = w->scratch;
        bool saved = from->saved;

        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                s->next[i] = saved ? from->next[i] : 0;
                s->key[i] = saved ? from->key[i] : 0;
                s->area[i] = 0;
        }
        for (uint32_t i = warp_thread(); i < TASK_MAX; i += WARP_THREADS) {
                s->waiting[i] = from->waiting[i];
                s->order[i] = from->order[i];
        }
        for (uint32_t place = 0; place < TASK_NEAR; place++)
                for (uint32_t i = warp_thread(); i < sizeof(struct task) / 4; i += WARP_THREADS)
                        ((uint32_t *)(void *)&s->near[place])[i] =
                                ((const uint32_t *)(const void *)&from->tasks[place])[i];
        warp_sync();
        if (warp_thread() == 0) {
                w->n_tasks = saved ? from->n_tasks : 0;
                for (uint32_t i = 0; i < TASK_MASKS; i++)
                        w->taken[i] = saved ? from->taken[i] : 0;
                w->turn = 0;
                for (uint32_t i = 0; i < WORKER_COUNTERS; i++)
                        s->counter[i].home = 0;
                for (uint32_t i = 0; i < WORKER_MEMOS; i++)
                        s->memo[i].ring = TABLE_RINGS;
                s->rank.index = TABLE_RANKS;
                s->rank.n_ranks = 0;
                s->layout.n_ranks = 0;
                s->cached_plan = 0;
                s->cached_choices = ~0u;
                s->hot = 0;
                s->full = 0;
                s->vectors = 0;
                for (uint32_t i = 0; i < TABLE_RINGS; i++)
                        s->held[i] = s->held_vectors[i] = 0;
                for (uint32_t i = 0; i < w->n_tasks; i++)
                        list_count(w, worker_task(w, s->order[i]));
                for (uint32_t i = 0; i < WORKER_BUFFERS; i++)
                        s->buffer[i].id = 0;
        }
        warp_sync();
}

DEVICE_OUTLINE void worker_save(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        struct worker_scratch *to = w->scratch;

        counter_flush_all(w);
        for (uint32_t i = 0; i < w->n_tasks; i++)
                reach_take_back(w, worker_task(w, s->order[i]));
        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                to->next[i] = s->next[i];
                to->key[i] = s->key[i];
                word_store(&w->report->next[w->index][i], s->next[i]);
        }
        for (uint32_t i = warp_thread(); i < TASK_MAX; i += WARP_THREADS) {
                to->waiting[i] = s->waiting[i];
                to->order[i] = s->order[i];
        }
        for (uint32_t place = 0; place < TASK_NEAR; place++)
                for (uint32_t i = warp_thread(); i < sizeof(struct task) / 4; i += WARP_THREADS)
                        ((uint32_t *)(void *)&to->tasks[place])[i] =
                                ((const uint32_t *)(const void *)&s->near[place])[i];
        if (warp_thread() == 0) {
                uint32_t rings = 0;

                for (uint32_t i = 0; i < TABLE_RINGS; i++)
                        rings |= (uint32_t)(s->held[i] != 0) << i;
                to->version = w->version;
                to->n_tasks = w->n_tasks;
                for (uint32_t i = 0; i < TASK_MASKS; i++)
                        to->taken[i] = w->taken[i];
                to->saved = 1;
                word_store(&w->report->kept[w->index], w->n_tasks);
                word_store(&w->report->kept_rings[w->index], rings);
        }
        warp_sync();
}

/* The ring's next line stays where it is until a task has ended. */
DEVICE void worker_full(struct worker *w, uint32_t ring) {
        warp_sync();
        if (warp_thread() == 0)
                shared_of(w)->full |= 1u << ring;
        warp_sync();
}

/* A line of the ring has come. */
DEVICE_OUTLINE void worker_serve(struct worker *w, uint32_t ring, uint32_t sequence, bool known) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        const uint32_t ring_sequence = s->next[ring];
        struct memo *m = w->memo;

        warp_sync();
        if (warp_thread() == 0)
                s->next[ring] = bell_sequence_next(ring_sequence);
        warp_sync();
        if (!known) {
                m = take_memo(w, ring, ring_sequence);
                warp_sync();
                if (warp_thread() == 0)
                        w->memo = m;
                warp_sync();
        } else if (s->rank.index != m->task.rank) {
                take_cache_rank(w, m->task.rank);
        }
        if (m)
                take(w, m, ring, ring_sequence, sequence);
}

/* On AMD in the kernel itself: a function would save and restore some 200 registers at each look at the tasks. */
#if TARGET_AMD
DEVICE
#else
DEVICE_OUTLINE
#endif
void worker_tasks(struct worker *w) {
        SHARED_POINTER(w);
        list_run(w);
}

/* So many lines after one ring has spoken behind another, they are thought to speak at the same time. */
#define WORKER_SHARED 16u

/* A line of the ring has come, the one before it was of ring *last. *shared: lines for which rings speak at the same
 * time. */
DEVICE void worker_share(struct worker *w, uint32_t ring, uint32_t *last, uint32_t *shared) {
        if (ring != *last)
                *shared = *last < TABLE_RINGS ? WORKER_SHARED : 0;
        else if (*shared)
                (*shared)--;
        *last = ring;
        if (w->spins != (*shared ? PHASE_SPINS_SHARED : PHASE_SPINS)) {
                warp_sync();
                if (warp_thread() == 0)
                        w->spins = *shared ? PHASE_SPINS_SHARED : PHASE_SPINS;
                warp_sync();
        }
}

/* Looks in which each ring has its turn, one for what the last of them found, and one that took in new tables. */
#if TARGET_HOST
#define WORKER_QUIET 3u
#else
#define WORKER_QUIET (2 + (TABLE_RINGS + POLL_OTHERS - 1) / POLL_OTHERS)
#endif

DEVICE void worker_main(struct worker_shared *shared, struct worker_scratch *scratch, struct table *table,
                        struct table_report *report, uint32_t index, uint32_t n_workers) {
        struct worker *w = &shared->w;
        uint32_t version, lanes, streak = 0; /* lines of one ring after another */
        const bool saved = scratch->saved;
        uint32_t last = saved ? scratch->last : TABLE_RINGS, both = saved ? scratch->both : 0;
        uint32_t quiet = 0; /* looks that found nothing, and no task */

        if (warp_thread() == 0) {
                w->scratch = scratch;
                w->table = table;
                w->report = report;
                w->index = index;
                w->n_workers = n_workers;
                w->stop = 0;
                w->memo = NULL;
                w->spins = both ? PHASE_SPINS_SHARED : PHASE_SPINS;
        }
        warp_sync();
        worker_restore(w);
        version = word_load(&table->version);
        /* All of it: what lies in shared memory is of another kernel. */
        worker_refresh(w, version, saved && scratch->version == version);
        worker_acknowledge(w);
        lanes = worker_lanes(w);
        for (uint32_t look = 0;; look++) {
                uint32_t ring, sequence = 0;
                bool known = false, found;

#if TARGET_HOST
                found = worker_poll(w, &ring, look, streak >= POLL_STREAK);
                sequence = shared->line[RING_W_SEQUENCE];
#else
                struct gaze g;
                uint64_t cell;

                gaze_aim(w, look, &g);
                for (uint32_t round = 1;; round++) { /* nothing happens most of the time */
                        cell = cell_load(g.at);
                        if (!warp_all(g.ring < TABLE_RINGS ? (int32_t)((uint32_t)(cell >> 32) - g.expect) < 0
                                                           : cell == g.expect) ||
                            w->n_tasks || round == 1024)
                                break;
#if TARGET_AMD /* 64 cycles; NVIDIA's shortest pause is longer than a look */
                        poll_pause();
#endif
                }
                found = worker_poll(w, &g, cell, &ring, &sequence, &known, streak >= POLL_STREAK);
#endif
                quiet = found || w->n_tasks ? 0 : quiet + 1;
                if (w->stop && (w->stop != TABLE_STOP_SERVED || quiet >= WORKER_QUIET))
                        break; /* tasks that wait are kept; the next kernel goes on with them */
                streak = found && streak < POLL_STREAK ? streak + 1 : 0;
                if (found && !(shared->limited && worker_limit(w, ring))) {
                        worker_share(w, ring, &last, &both);
                        if (w->n_tasks + lanes <= TASK_ALONE || list_room(w, ring, lanes))
                                worker_serve(w, ring, sequence, known);
                        else
                                worker_full(w, ring);
                        if (w->memo && !w->n_tasks && !both && !shared->limited)
                                hot_run(w);
                }
                if (w->n_tasks)
                        worker_tasks(w);
#if TARGET_HOST
                else if (!found)
                        poll_pause();
#endif
        }
        if (warp_thread() == 0) {
                scratch->last = last;
                scratch->both = both;
        }
        worker_save(w);
}
