/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What it takes to wait for another request like the last one (hot.h): its form, and a look at the ring's next line
 * that sees everything else, too.
 */
#include "gpu/device/poll.h"

#ifndef HOT_STAYED /* for whoever counts requests that were served so */
#define HOT_STAYED(w) ((void)(w))
#endif

enum hot_seen {
        HOT_ELSE = 0, /* not a line that can be served here */
        HOT_LINE = 1,
        HOT_LAST = 2, /* a line, and somebody else's, too */
};

/* What requests have in common that are served one after the other without anything being worked out anew but where
 * memory is. (And the root: hot_root.h.) */
struct hot_form {
        uint32_t rank, quick, inlined;
        uint32_t stride, total, part_bytes;
};

DEVICE struct hot_form hot_form_of(const struct memo *m) {
        return {m->task.rank, m->task.quick, m->task.inlined, m->task.stride, m->task.total, m->task.part_bytes};
}

DEVICE bool hot_like(const struct memo *m, const struct hot_form *form) {
        return m->task.rank == form->rank && m->task.quick == form->quick && m->task.inlined == form->inlined &&
               m->task.stride == form->stride && m->task.total == form->total && m->task.part_bytes == form->part_bytes;
}

#if TARGET_HOST
struct gaze {
        uint32_t ring, expect;
};

/* Has another ring a line? */
DEVICE bool hot_others(const struct worker *w, uint32_t ring) {
        const struct worker_shared *s = shared_of(w);
        bool others = false;

        for (uint32_t i = 0; i < w->n_rings; i++)
                others = others || (i != ring && poll_wants(w, i) &&
                                    (int32_t)((uint32_t)(cell_load((const uint64_t *)(s->area[i] + BELL_OFFSET_LINES) +
                                                                   s->next[i] % BELL_LINES * RING_WORDS) >>
                                                         32) -
                                              s->next[i]) >= 0);
        return others;
}

DEVICE void gaze_aim(const struct worker *w, uint32_t round, struct gaze *g) {
        (void)round;
        g->ring = shared_of(w)->hot;
}

DEVICE void hot_aim(const struct worker *w, uint32_t next, struct gaze *g) {
        (void)w;
        g->expect = next;
}

/* Waits for the next line of the ring; *memo becomes the memo of what came. */
DEVICE enum hot_seen hot_wait(const struct worker *w, uint32_t ring, const struct hot_form *form, struct gaze *g,
                              const struct memo **memo, uint32_t *ret_sequence) {
        struct worker_shared *s = shared_of(w);
        const uint64_t *cells =
                (const uint64_t *)(s->area[ring] + BELL_OFFSET_LINES) + g->expect % BELL_LINES * RING_WORDS;

        for (;; poll_pause()) {
                bool whole = true, others, fits;
                const struct memo *m;

                if (cell_load((const uint64_t *)(const void *)&w->table->version) != w->version)
                        return HOT_ELSE;
                for (uint32_t i = 0; i < RING_WORDS; i++) {
                        const uint64_t cell = cell_load(cells + i);

                        if ((int32_t)((uint32_t)(cell >> 32) - g->expect) > 0)
                                return HOT_ELSE;
                        whole = whole && (uint32_t)(cell >> 32) == g->expect;
                        s->line[i] = (uint32_t)cell;
                }
                others = hot_others(w, ring);
                if (!whole && others)
                        return HOT_ELSE;
                if (!whole)
                        continue;
                m = memo_of(w, ring, 0, &fits);
                if (!fits || !hot_like(m, form))
                        return HOT_ELSE;
                *memo = m;
                *ret_sequence = s->line[RING_W_SEQUENCE];
                return others ? HOT_LAST : HOT_LINE;
        }
}

/* Has anything come at all? */
DEVICE bool hot_news(const struct worker *w, const struct gaze *g) {
        const uint64_t *cells = (const uint64_t *)(shared_of(w)->area[g->ring] + BELL_OFFSET_LINES) +
                                g->expect % BELL_LINES * RING_WORDS;
        bool news =
                cell_load((const uint64_t *)(const void *)&w->table->version) != w->version || hot_others(w, g->ring);

        for (uint32_t i = 0; i < RING_WORDS; i++)
                news = news || (int32_t)((uint32_t)(cell_load(cells + i) >> 32) - g->expect) >= 0;
        poll_pause();
        return news;
}
#else
DEVICE void hot_aim(const struct worker *w, uint32_t next, struct gaze *g) {
        const uint32_t t = warp_thread();

        g->expect = t < RING_WORDS ? next : g->expect;
        if (t < RING_WORDS)
                g->at = (const uint64_t *)(shared_of(w)->area[g->ring] + BELL_OFFSET_LINES) +
                        next % BELL_LINES * RING_WORDS + t;
}

/* Waits for the next line of the ring; *memo becomes the memo of what came. */
DEVICE enum hot_seen hot_wait(const struct worker *w, uint32_t ring, const struct hot_form *form, struct gaze *g,
                              const struct memo **memo, uint32_t *ret_sequence) {
        const uint32_t t = warp_thread();
        const bool line = t < RING_WORDS;

        for (;;) {
                const uint64_t cell = cell_load(g->at);
                const uint32_t low = (uint32_t)cell, high = (uint32_t)(cell >> 32);
                const bool looks = g->ring < TABLE_RINGS;
                const bool news = looks ? (int32_t)(high - g->expect) >= 0 : cell != g->expect;
                bool others, fits;

                if (!warp_any(news)) {
#if TARGET_AMD
                        poll_pause();
#endif
                        continue;
                }
                others = warp_any(news && !line);
                if (warp_any(news && (!looks || (line && high != g->expect))))
                        return HOT_ELSE;
                if (!warp_all(news || !line)) { /* the rest of it is on its way */
                        if (others)
                                return HOT_ELSE;
                        continue;
                }
                *ret_sequence = warp_read(low, RING_W_SEQUENCE);
                if (!warp_all(!line || low == g->word || t == RING_W_SEQUENCE)) {
                        const struct memo *m = memo_of(w, ring, low, &fits);

                        if (!fits || !hot_like(m, form))
                                return HOT_ELSE;
                        *memo = m;
                        g->word = line ? low : 0;
                }
                return others ? HOT_LAST : HOT_LINE;
        }
}

/* Has anything come at all? */
DEVICE bool hot_news(const struct worker *w, const struct gaze *g) {
        const uint64_t cell = cell_load(g->at);

        (void)w;
        return warp_any(g->ring < TABLE_RINGS ? (int32_t)((uint32_t)(cell >> 32) - g->expect) >= 0 : cell != g->expect);
}
#endif

/* The line has been taken: the ring's next one. */
DEVICE uint32_t hot_next(struct worker *w, uint32_t ring, const struct memo *m, uint32_t next) {
        const uint32_t after = bell_sequence_next(next);

        HOT_STAYED(w);
        warp_sync();
        if (warp_thread() == 0) {
                shared_of(w)->next[ring] = after;
                w->memo = const_cast<struct memo *>(m);
        }
        warp_sync();
        return after;
}

/* Completion words of own lanes, from `first` on, all of which are done or have nothing to do. */
DEVICE void hot_done(const struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t first) {
        uint64_t *done = (uint64_t *)(m->task.area + BELL_OFFSET_DONE) + ring_sequence % BELL_DEPTH * BELL_LANES;

        for (uint32_t lane = first + warp_thread() * w->n_workers; lane < m->lanes; lane += WARP_THREADS * w->n_workers)
                cell_store(done + lane, ring_sequence);
}
