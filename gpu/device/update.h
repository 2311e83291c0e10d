/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The tables have a new version: what was cached of them is dropped, what they no longer name is answered, and then the
 * version is acknowledged. Nothing of what the old ones named is touched after that.
 */
#include "gpu/device/serve.h"

/* same: the kernel before has ended with this version, and what it has kept in memory counts. */
DEVICE_OUTLINE void worker_refresh(struct worker *w, uint32_t version, bool same) {
        struct worker_shared *s = shared_of(w);

        uint32_t n_rings;

        SHARED_POINTER(w);
        counter_flush_all(w);
        n_rings = word_load(&w->table->n_rings);
        warp_sync();
        memo_forget(w, same);
        if (warp_thread() == 0) {
                w->version = version;
                w->n_rings = n_rings < TABLE_RINGS ? n_rings : TABLE_RINGS;
                s->limited = 0;
                s->full = 0;
        }
        warp_sync();
        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                const struct table_ring *ring = &w->table->rings[i];
                uint32_t key = i < w->n_rings ? word_load(&ring->key) : 0;

                if (key != s->key[i]) {
                        s->key[i] = key;
                        s->next[i] = word_load(&ring->first);
                }
                s->area[i] = key ? cell_load(&ring->area) : 0;
                if (key && word_load(&ring->limited))
                        s->limited = 1; /* whoever stores, stores the same */
        }
        if (warp_thread() == 0) {
                s->rank.index = TABLE_RANKS;
                s->cached_plan = 0;
                s->cached_choices = ~0u;
                for (uint32_t i = 0; i < WORKER_BUFFERS; i++)
                        s->buffer[i].id = 0;
        }
        warp_sync();
}

/* The same where all that the versions since the last one did was to take out buffers. False: they did more, or
 * somebody counts on what only a whole refresh does: while a ring is limited, counters are looked at after each
 * version, and areas of such rings are looked for again. */
DEVICE_OUTLINE bool worker_refresh_few(struct worker *w, uint32_t version) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        const uint32_t first = w->version + 1, n = version - w->version;

        if (version < first || n > TABLE_CHANGES || s->limited)
                return false;
        for (uint32_t i = 0; i < n; i++) {
                const struct quad change =
                        quad_load((const struct quad *)(const void *)&w->table->changes[(first + i) % TABLE_CHANGES]);

                if (!warp_all(change.x == first + i && change.w == first + i))
                        return false;
                if (change.y < TABLE_RINGS)
                        memo_forget_buffer(w, change.y, change.z);
                for (uint32_t k = warp_thread(); k < WORKER_BUFFERS; k += WARP_THREADS)
                        if (s->buffer[k].ring == change.y && s->buffer[k].id == change.z)
                                s->buffer[k].id = 0;
                warp_sync();
        }
        if (warp_thread() == 0) {
                if (w->memo && w->memo->ring == TABLE_RINGS)
                        w->memo = NULL;
                w->version = version;
        }
        warp_sync();
        return true;
}

/* How far this worker has come in rings that are limited. */
DEVICE void worker_level(const struct worker *w) {
        for (uint32_t i = warp_thread(); i < w->n_rings; i += WARP_THREADS) {
                uint32_t n = 0;

                if (!word_load(&w->table->rings[i].limited))
                        continue;
                for (uint32_t k = 0; k < w->n_tasks; k++) {
                        const struct task *t = worker_task(w, shared_of(w)->order[k]);

                        n += t->ring == i && word_load(&w->table->ranks[t->rank].held);
                }
                cell_store(&w->report->level[w->index][i], (uint64_t)n << 32 | shared_of(w)->next[i]);
        }
}

/* Is the ring's next line one that is to stay? Then it is not looked at either, until the tables change: other rings
 * have their turn. */
DEVICE bool worker_limit(struct worker *w, uint32_t ring) {
        const struct table_ring *from = &w->table->rings[ring];

        if (!word_load(&from->limited) || (int32_t)(shared_of(w)->next[ring] - word_load(&from->limit)) < 0)
                return false;
        warp_sync();
        if (warp_thread() == 0)
                shared_of(w)->area[ring] = 0;
        warp_sync();
        return true;
}

/* Is memory that the task names no longer in the tables, or is something else there under its number? */
DEVICE bool worker_memory_gone(const struct worker *w, const struct task *t) {
        const struct table_rank *rank = &w->table->ranks[t->rank];
        const uint32_t n = word_load(&rank->n_ranks);
        const uint64_t *words = (const uint64_t *)t->vector;
        struct take k;

        k.operation = t->operation;
        k.count = t->count;
        k.element_bytes = t->element_bytes;
        k.in_bytes = k.out_bytes = 0;
        (void)take_sizes(&k, n, t->root == word_load(&rank->rank)); /* as when the line came */
        if (words) {
                (void)vector_end(words, words + n, n, &k.in_bytes);
                (void)vector_end(words + 2 * n, words + 3 * n, n, &k.out_bytes);
                k.in_bytes *= t->element_bytes;
                k.out_bytes *= t->element_bytes;
        }
        return take_buffer_gone(w, t->ring, t->in_buffer, t->in_offset, k.in_bytes, t->in) ||
               take_buffer_gone(w, t->ring, t->out_buffer, t->out_offset, k.out_bytes, t->out);
}

/*
 * Tasks whose rank has been aborted or taken out, or whose memory has been, are answered; then nothing of what the old
 * tables named is touched.
 *
 * A worker that has not begun is not waited for (gpu/hip/table.c). So what it goes on with, of the kernel before, may
 * find that a rank or a buffer has not only gone: its place, or its number, may be another's.
 */
DEVICE_OUTLINE void worker_acknowledge(struct worker *w) {
        SHARED_POINTER(w);
        for (uint32_t i = 0; i < w->n_tasks;) {
                struct task *t = worker_task(w, shared_of(w)->order[i]);
                const struct table_rank *rank = &w->table->ranks[t->rank];
                const uint32_t key = word_load(&rank->key);
                const bool same = key == t->key;
                uint32_t abort = word_load(&rank->abort);

                reach_take_back(w, t);
                if (!same) /* (while the place is empty it says what it said) */
                        abort = key || !abort ? status_of(RMX_E_ABORTED, -1) : abort;
                else if (word_load(&rank->has_last) &&
                         (t->role || (int32_t)(t->sequence - word_load(&rank->last)) <= 0))
                        abort = 0;

                if (!abort && shared_of(w)->area[t->ring] == t->area && worker_memory_gone(w, t)) {
                        abort = status_of(RMX_E_INVALID, -1);
                        report_status(w, t->rank, abort); /* the ranks are out of step from here on */
                }
                if (abort && same && shared_of(w)->area[t->ring] == t->area &&
                    reach_keeps(w, t, abort, word_load(&rank->abort) && !word_load(&rank->has_last),
                                word_load(&rank->freeze))) {
                        i++;
                        continue;
                }
                if (shared_of(w)->area[t->ring] != t->area) { /* nobody is left to be told */
                        list_remove(w, i);
                } else if (abort) {
                        lane_done(t->area, t->ring_sequence, t->lane, abort);
                        if (same && t->role && t->lane == 0)
                                pair_report(w, t, t->sequence, true);
                        list_remove(w, i);
                } else {
                        i++;
                }
        }
        if (shared_of(w)->limited)
                worker_level(w);
        fence_release_system();
        warp_sync();
        if (warp_thread() == 0)
                word_store(&w->report->acknowledged[w->index], w->version);
}

DEVICE void worker_update(struct worker *w, uint32_t version) {
        if (!worker_refresh_few(w, version))
                worker_refresh(w, version, false);
        worker_acknowledge(w);
}
