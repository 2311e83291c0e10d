/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * One look at everything that may have happened: the next lines of all rings, and the tables' control words.
 *
 * The ring that spoke last is looked at first, since it is the most likely to speak again. But lines of others that are
 * there have their turn after POLL_STREAK of its lines: each may take some 10 us, more if it is a new one.
 */
#include "gpu/device/update.h"

/* What can be seen of other rings is looked at in turns, by the threads that the line and the control words leave. */
#define POLL_OTHERS (WARP_THREADS - RING_WORDS - 1)
#define POLL_STREAK 1u

/* Is there a ring, and is its next line one to look for? */
DEVICE bool poll_wants(const struct worker *w, uint32_t ring) {
        const struct worker_shared *s = shared_of(w);

        return ring < w->n_rings && s->area[ring] && !(s->full >> ring & 1);
}

#if TARGET_HOST
/* One look. True: shared->line holds the next line of *ret_ring. */
DEVICE bool worker_poll(struct worker *w, uint32_t *ret_ring, uint32_t round, bool others_first) {
        struct worker_shared *s = shared_of(w);
        uint32_t ring = s->hot;
        uint64_t control = cell_load((const uint64_t *)(const void *)&w->table->version);
        bool whole = true, newer = true;
        const uint64_t *cells;
        uint32_t next;

        if (!poll_wants(w, ring))
                ring = TABLE_RINGS;
        next = ring < TABLE_RINGS ? s->next[ring] : 0;
        cells = ring < TABLE_RINGS
                        ? (const uint64_t *)(s->area[ring] + BELL_OFFSET_LINES) + (next % BELL_LINES) * RING_WORDS
                        : NULL;
        for (uint32_t i = 0; cells && i < RING_WORDS; i++) {
                uint64_t cell = cell_load(cells + i);

                whole = whole && (uint32_t)(cell >> 32) == next;
                newer = newer && (int32_t)((uint32_t)(cell >> 32) - next) > 0;
                s->line[i] = (uint32_t)cell;
        }
        for (uint32_t k = 0; k < w->n_rings && (!whole || !cells || others_first); k++) {
                const uint32_t i = (round + k) % w->n_rings;

                if (i != ring && poll_wants(w, i) &&
                    (uint32_t)(cell_load((const uint64_t *)(s->area[i] + BELL_OFFSET_LINES) +
                                         (s->next[i] % BELL_LINES) * RING_WORDS) >>
                               32) == s->next[i]) {
                        s->hot = i;
                        whole = newer = false;
                        break;
                }
        }
        w->stop = (uint32_t)(control >> 32);
        if ((uint32_t)control != w->version) {
                worker_update(w, (uint32_t)control);
                return false; /* what was read may be of a ring that has gone */
        }
        if (!cells)
                return false;
        *ret_ring = ring;
        if (!whole && newer) /* overwritten: it was not for this worker, or its client does not mind */
                s->next[ring] = bell_sequence_next(next);
        return whole;
}
#else
/* What a thread looks at: a cell of the next line of the ring that spoke last, the table's control words, or the first
 * cell of the next line of another ring. */
struct gaze {
        const uint64_t *at;
        uint32_t ring;   /* TABLE_RINGS: the control words */
        uint32_t expect; /* the sequence to come; control words: the version */
        uint32_t word;   /* of the line that is probably next */
};

DEVICE void gaze_aim(const struct worker *w, uint32_t round, struct gaze *g) {
        const struct worker_shared *s = shared_of(w);
        const uint32_t t = warp_thread(), hot = s->hot;
        const bool aimed = poll_wants(w, hot);

        g->ring = t < RING_WORDS && aimed ? hot : TABLE_RINGS;
        g->word = t < RING_WORDS && w->memo ? w->memo->line[t] : 0;
        if (t > RING_WORDS && (w->n_rings > 1 || !aimed)) {
                const uint32_t turns = (w->n_rings + POLL_OTHERS - 1) / POLL_OTHERS;
                const uint32_t i = (turns > 1 ? round % turns * POLL_OTHERS : 0) + t - RING_WORDS - 1;

                if (i != hot && poll_wants(w, i))
                        g->ring = i;
        }
        if (g->ring < TABLE_RINGS) {
                g->expect = s->next[g->ring];
                g->at = (const uint64_t *)(s->area[g->ring] + BELL_OFFSET_LINES) +
                        (g->expect % BELL_LINES) * RING_WORDS + (t < RING_WORDS ? t : 0);
        } else {
                g->expect = w->version;
                g->at = (const uint64_t *)(const void *)&w->table->version;
        }
}

/* The line with number `next` was overwritten: so may be those behind it, if the ring was not looked at for long.
 * Returns the first one that was not, as far as a warp sees. */
DEVICE_OUTLINE uint32_t poll_overtaken(const struct worker *w, uint32_t ring, uint32_t next) {
        SHARED_POINTER(w);
        const uint32_t number = next + warp_thread();
        uint64_t cell, over;

        if (next > UINT32_MAX - BELL_DEPTH) /* no number is 0 */
                return bell_sequence_next(next);
        cell = cell_load((const uint64_t *)(shared_of(w)->area[ring] + BELL_OFFSET_LINES) +
                         (number % BELL_LINES) * RING_WORDS);
        over = ~warp_ballot((int32_t)((uint32_t)(cell >> 32) - number) > 0);
        return next + (over ? first_bit(over) : WARP_THREADS);
}

/* Something has happened: what? True: there is a line of *ret_ring. It is w->memo's (*ret_known), or else lies in
 * shared memory. */
DEVICE bool worker_poll(struct worker *w, const struct gaze *g, uint64_t cell, uint32_t *ret_ring,
                        uint32_t *ret_sequence, bool *ret_known, bool others_first) {
        struct worker_shared *s = shared_of(w);
        const uint32_t t = warp_thread(), low = (uint32_t)cell, high = (uint32_t)(cell >> 32);
        const bool looks = g->ring < TABLE_RINGS, same = looks || (low == g->expect && high == 0);
        uint64_t others, late, after;
        bool whole, newer;

        *ret_ring = s->hot;
        *ret_sequence = warp_read(low, RING_W_SEQUENCE);
        *ret_known = warp_all(t < RING_WORDS ? looks && high == g->expect && (low == g->word || t == RING_W_SEQUENCE)
                                             : same) &&
                     w->memo && w->memo->ring == s->hot;
        if (*ret_known && !others_first)
                return true;
        if (!warp_all(same)) {
                const uint32_t stop = warp_read(high, RING_WORDS), version = warp_read(low, RING_WORDS);

                warp_sync();
                if (t == 0)
                        w->stop = stop;
                warp_sync();
                if (version != w->version) {
                        worker_update(w, version);
                        return false; /* what was read may be of a ring that has gone */
                }
        }
        others = warp_ballot(t > RING_WORDS && looks && high == g->expect);
        whole = warp_all(t >= RING_WORDS || (looks && high == g->expect)) && !(others_first && others);
        newer = warp_all(t >= RING_WORDS || (looks && (int32_t)(high - g->expect) > 0));
        late = warp_ballot(t > RING_WORDS && looks && (int32_t)(high - g->expect) > 0);
        after = warp_ballot(t > RING_WORDS && looks && g->ring > *ret_ring);
        warp_sync();
        if (whole) {
                if (t < RING_WORDS)
                        s->line[t] = low;
        } else if (newer && !others) { /* overwritten: it was not for this worker, or its client does not mind */
                const uint32_t next = poll_overtaken(w, *ret_ring, warp_read(g->expect, 0));

                if (t == 0)
                        s->next[g->ring] = next;
        } else if (others || late) { /* of another ring; what is late is skipped by looking at it as a whole */
                const uint64_t all = others ? others : late;
                /* In turns: a first cell may stand there for ever, without the rest of its line. */
                const uint32_t found = warp_read(g->ring, first_bit(all & after ? all & after : all));

                if (t == 0)
                        s->hot = found;
        }
        warp_sync();
        return whole;
}
#endif
