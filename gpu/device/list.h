/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The tasks that a worker has in hand, in the order in which their lines came.
 *
 * Places. A request may wait for ever for its peers, and a session may make as many such requests as its ring holds. So
 * places are shared out (places_fair, vector.h): a line for which its ring has no place stays where it is, the ring is
 * not looked at until a task has ended, and other rings go on.
 */
#include "gpu/device/task_run.h"

/* A free place; there is one. */
DEVICE uint32_t list_place(const struct worker *w) {
        uint32_t mask = 0;

        while (mask + 1 < TASK_MASKS && !~w->taken[mask])
                mask++;
        return 64 * mask + first_bit(~w->taken[mask]);
}

/* Does a task in the list name this vector? */
DEVICE bool list_names(const struct worker *w, uint64_t vector) {
        bool names = false;

        for (uint32_t i = warp_thread(); i < w->n_tasks; i += WARP_THREADS)
                names = names || worker_task(w, shared_of(w)->order[i])->vector == vector;
        return warp_any(names);
}

/* By thread 0: a task is in the list. */
DEVICE void list_count(struct worker *w, const struct task *t) {
        struct worker_shared *s = shared_of(w);

        s->held[t->ring]++;
        if (t->vector) {
                const uint64_t bit = UINT64_C(1) << vector_number(w, t->vector);

                if (!(s->vectors & bit))
                        s->held_vectors[t->ring]++;
                s->vectors |= bit;
        }
}

/* Puts a task that has been filled into `place` at the end of the list. */
DEVICE void list_append(struct worker *w, uint32_t place, const struct task *t) {
        warp_sync();
        if (warp_thread() == 0) {
                shared_of(w)->order[w->n_tasks] = (uint8_t)place;
                shared_of(w)->waiting[w->n_tasks] = task_name(t);
                w->taken[place / 64] |= UINT64_C(1) << place % 64;
                w->n_tasks++;
                list_count(w, t);
        }
        warp_sync();
}

DEVICE void list_remove(struct worker *w, uint32_t i) {
        struct worker_shared *s = shared_of(w);
        const uint32_t place = s->order[i], ring = worker_task(w, place)->ring;
        const uint64_t vector = worker_task(w, place)->vector;
        const uint32_t n = w->n_tasks;

        warp_sync();
        /* Those behind it move up, a warp's width at a time: one thread would take 10 us for 200 of them, and when a
         * communicator has failed all its tasks go at once. */
        ROLLED
        for (uint32_t from = i + 1; from < n; from += WARP_THREADS) {
                const uint32_t k = from + warp_thread();
                const uint8_t order = k < n ? s->order[k] : 0;
                const uint32_t waiting = k < n ? s->waiting[k] : 0;

                warp_sync();
                if (k < n) {
                        s->order[k - 1] = order;
                        s->waiting[k - 1] = waiting;
                }
                warp_sync();
        }
        if (warp_thread() == 0) {
                w->taken[place / 64] &= ~(UINT64_C(1) << place % 64);
                w->n_tasks = n - 1;
                s->held[ring]--;
                s->full = 0;
        }
        warp_sync();
        if (vector && !list_names(w, vector)) {
                warp_sync();
                if (warp_thread() == 0) {
                        s->vectors &= ~(UINT64_C(1) << vector_number(w, vector));
                        s->held_vectors[ring]--;
                }
                warp_sync();
        }
}

/* May a new line of the ring have a place for each of `lanes` tasks? */
DEVICE bool list_room(const struct worker *w, uint32_t ring, uint32_t lanes) {
        return places_fair(w, shared_of(w)->held, ring, lanes, w->n_tasks, TASK_MAX);
}

/* Is a request of this rank in the list, but for sends and receives? */
DEVICE bool list_has(const struct worker *w, uint32_t rank) {
        bool has = false;

        for (uint32_t k = warp_thread(); k < w->n_tasks; k += WARP_THREADS)
                has = has || task_name_is(shared_of(w)->waiting[k], rank);
        return warp_any(has);
}

/* Is an earlier task of the same name in the list? */
DEVICE bool list_behind(const struct worker *w, uint32_t i) {
        const uint32_t *waiting = shared_of(w)->waiting;
        bool behind = false;

        for (uint32_t k = warp_thread(); k < i; k += WARP_THREADS)
                behind = behind || waiting[k] == waiting[i];
        return warp_any(behind);
}

/* Works on number i of the list. True: it was finished and is no longer there. */
DEVICE bool list_try(struct worker *w, uint32_t i) {
        if (list_behind(w, i) || !task_run(w, worker_task(w, shared_of(w)->order[i])))
                return false;
        list_remove(w, i);
        return true;
}

/*
 * Each is looked at as long as they are few. Of many, most wait for somebody who may never come, and new lines should
 * not have to wait for looks at all of them. So looked at every time are those of rings that have few tasks here, as
 * sessions have that wait for what they asked for: whatever others have in hand, these lose nothing. Of the others,
 * those that came last, which are most likely to go on, and the rest in turns.
 */
#define LIST_NEWEST 4u
#define LIST_TURNS  2u
#define LIST_SHARED 16u /* tasks of rings with few of them, all together; at least one of each ring */

/* How many tasks a ring has at most, so that all of them are looked at every time. */
DEVICE uint32_t list_few(const struct worker *w) {
        uint64_t rings = 0;

        for (uint32_t first = 0; first < TABLE_RINGS; first += WARP_THREADS) {
                const uint32_t ring = first + warp_thread();

                rings |= warp_ballot(ring < TABLE_RINGS && shared_of(w)->held[ring] != 0) << first;
        }
        return LIST_SHARED / bit_count(rings) ? LIST_SHARED / bit_count(rings) : 1;
}

DEVICE void list_run(struct worker *w) {
        const uint32_t n = w->n_tasks, turn = w->turn < n ? w->turn : 0;
        const bool each = n <= LIST_NEWEST + LIST_TURNS;
        const uint32_t few = each ? 0 : list_few(w);
        uint32_t gone = 0, next_turn = turn + LIST_TURNS;

        ROLLED
        for (uint32_t first = 0; first < n; first += WARP_THREADS) { /* of n, as they were numbered then */
                const uint32_t i = first + warp_thread();
                uint64_t looks = warp_ballot(
                        i < n && (each || i + LIST_NEWEST >= n || i - turn < LIST_TURNS ||
                                  shared_of(w)->held[task_name_ring(shared_of(w)->waiting[i - gone])] <= few));

                ROLLED
                for (; looks; looks &= looks - 1) {
                        const uint32_t k = first + first_bit(looks);

                        if (list_try(w, k - gone)) {
                                gone++;
                                next_turn -= k < turn + LIST_TURNS;
                        }
                }
        }
        warp_sync();
        if (warp_thread() == 0)
                w->turn = next_turn;
        warp_sync();
}
