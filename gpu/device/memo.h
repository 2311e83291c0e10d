/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Lines that were valid before.
 *
 * A line says the same again when a model's step comes round, and while the tables are the same it means the same. So
 * what checking it came to is kept. A few memos are near, in shared memory; what has been pushed out from there is
 * found again in the worker's own global memory, where looking costs two trips instead of all that take_line() does. A
 * graph of dozens of layers rings as many different lines if each has memory of its own.
 *
 * Far memos count only as long as their epoch is the worker's. It changes with every whole refresh; a buffer that goes
 * takes those that name it out of both places. A kernel that finds the version of the tables with which the one before
 * it has ended goes on with its epoch: the first line after a silence (gpu/hip/park.c) then costs what one costs that
 * has been pushed out, and none of the code that checks lines, which no cache holds by then.
 */
#include "gpu/device/take.h"

/* What a word of a line has to do with the memo that the line may be in. Words that are the same in two places, as
 * those of a request in place, must not cancel each other out. */
DEVICE uint32_t memo_mix(uint32_t i, uint32_t word) {
        const uint32_t mixed = (word + 1) * 0x9e3779b1u * (2 * i + 1);

        return i < RING_W_SEQUENCE ? mixed ^ mixed >> 15 : 0;
}

/* Of a line, each thread having a word of it (host: it lies in shared memory). */
DEVICE uint32_t memo_hash(const struct worker *w, uint32_t ring, uint32_t word) {
#if TARGET_HOST
        uint32_t mix = ring;

        (void)word;
        for (uint32_t i = 0; i < RING_WORDS; i++)
                mix ^= memo_mix(i, shared_of(w)->line[i]);
#else
        const uint32_t mix = warp_xor(memo_mix(warp_thread(), word)) ^ ring;

        (void)w;
#endif
        const uint32_t mixed = (mix ^ mix >> 16) * 0x85ebca6bu; /* all bits take part in the low ones */

        return mixed ^ mixed >> 13;
}

/* Is it that line, but for its sequence? */
DEVICE bool memo_fits(const struct worker *w, const struct memo *m, uint32_t ring, uint32_t word) {
        bool same = m->ring == ring;

#if TARGET_HOST
        (void)word;
        for (uint32_t i = 0; i < RING_WORDS; i++)
                same = same && (i == RING_W_SEQUENCE || m->line[i] == shared_of(w)->line[i]);
#else
        const uint32_t i = warp_thread();

        (void)w;
        same = same && (i >= RING_WORDS || i == RING_W_SEQUENCE || m->line[i] == word);
#endif
        return warp_all(same);
}

DEVICE void memo_copy(struct memo *to, const struct memo *from) {
        static_assert(sizeof(struct memo) % 4 == 0, "whole words");
        warp_sync();
        for (uint32_t i = warp_thread(); i < sizeof(struct memo) / 4; i += WARP_THREADS)
                ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[i];
        warp_sync();
}

DEVICE struct far_memo *memo_far(const struct worker *w, uint32_t hash) {
        return &w->scratch->memos[(hash >> 8) % WORKER_FAR_MEMOS];
}

/* Into m, if the line's memo is far. All that there is of one at that place is asked for before any of it is looked at:
 * in a model's step others have swept it from the caches, and then each trip takes half a microsecond or more. */
DEVICE_OUTLINE bool memo_fetch(const struct worker *w, struct memo *m, uint32_t hash, uint32_t ring, uint32_t word) {
        SHARED_POINTER(w);
        SHARED_POINTER(m);
        constexpr uint32_t words = sizeof(struct memo) / 4, each = (words + WARP_THREADS - 1) / WARP_THREADS;
        const struct far_memo *f = memo_far(w, hash);
        const uint32_t epoch = word_load(&f->epoch);
        uint32_t value[each];

        UNROLL
        for (uint32_t k = 0; k < each; k++) {
                const uint32_t i = k * WARP_THREADS + warp_thread();

                value[k] = i < words ? word_load((const uint32_t *)(const void *)&f->memo + i) : 0;
        }
        if (!warp_all(epoch == w->epoch) || !memo_fits(w, &f->memo, ring, word))
                return false;
        warp_sync();
        UNROLL
        for (uint32_t k = 0; k < each; k++) {
                const uint32_t i = k * WARP_THREADS + warp_thread();

                if (i < words)
                        ((uint32_t *)(void *)m)[i] = value[k];
        }
        warp_sync();
        return true;
}

/* The place of a line's memo; *ret_fits: it is there. It may have come from afar, so what lay there before is gone. */
DEVICE struct memo *memo_of(const struct worker *w, uint32_t ring, uint32_t word, bool *ret_fits) {
        const uint32_t hash = memo_hash(w, ring, word);
        struct memo *m = &shared_of(w)->memo[hash % WORKER_MEMOS];

        *ret_fits = memo_fits(w, m, ring, word) || memo_fetch(w, m, hash, ring, word);
        return m;
}

/* The line in shared memory has been checked, and this is what it came to. */
DEVICE void memo_keep(const struct worker *w, const struct memo *m) {
        struct far_memo *f;

        if (m->ring == TABLE_RINGS)
                return;
        f = memo_far(w, memo_hash(w, m->ring, warp_thread() < RING_WORDS ? m->line[warp_thread()] : 0));
        memo_copy(&f->memo, m);
        if (warp_thread() == 0)
                f->epoch = w->epoch;
        warp_sync();
}

/* Nothing that is near counts any more, nor what is far, unless that is of the same tables. */
DEVICE void memo_forget(struct worker *w, bool same) {
        struct worker_shared *s = shared_of(w);

        warp_sync();
        for (uint32_t i = warp_thread(); i < WORKER_MEMOS; i += WARP_THREADS)
                s->memo[i].ring = TABLE_RINGS;
        if (warp_thread() == 0) {
                w->epoch = same ? w->scratch->epoch : ++w->scratch->epoch;
                w->memo = NULL;
        }
        warp_sync();
}

DEVICE bool memo_names(const struct memo *m, uint32_t ring, uint32_t buffer) {
        return m->ring == ring && (m->task.in_buffer == buffer || m->task.out_buffer == buffer);
}

/* Nor what names this buffer. */
DEVICE void memo_forget_buffer(struct worker *w, uint32_t ring, uint32_t buffer) {
        struct worker_shared *s = shared_of(w);

        warp_sync();
        for (uint32_t i = warp_thread(); i < WORKER_MEMOS; i += WARP_THREADS)
                if (memo_names(&s->memo[i], ring, buffer))
                        s->memo[i].ring = TABLE_RINGS;
        for (uint32_t i = warp_thread(); i < WORKER_FAR_MEMOS; i += WARP_THREADS)
                if (memo_names(&w->scratch->memos[i].memo, ring, buffer))
                        w->scratch->memos[i].memo.ring = TABLE_RINGS;
        warp_sync();
}
