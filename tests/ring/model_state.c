/* SPDX-License-Identifier: MIT */
/*
 * Memory of the model checker: C11 as repaired by RC11, in its usual operational form: a cell of memory is a list of
 * messages, a store appends one, and a load may read any message not older than what its thread knows of (its view).
 * Views travel the way the standard says: a release store or a store after a release fence takes the writer's view
 * along, an acquire load or an acquire fence after a load takes it in, and full fences exchange views with one global
 * view. So stores that linger in a store buffer, loads that are done early and lines that become visible cell by cell
 * are all there as old messages that may still be read. A read-modify-write reads the newest message. Stores go to the
 * end of a cell's list, which loses nothing here, where each cell has one writer at a time.
 */
#include "model_state.h"

#include <assert.h>
#include <string.h>

static void view_join(struct view *a, const struct view *b) {
        for (uint32_t i = 0; i < CELLS_MAX; i++)
                if (a->time[i] < b->time[i])
                        a->time[i] = b->time[i];
}

static void thread_saw(struct thread *t, uint32_t cell, uint8_t time) {
        t->current.time[cell] = time;
        if (t->acquired.time[cell] < time)
                t->acquired.time[cell] = time;
}

static bool acquires(memory_order order) {
        return order == memory_order_acquire || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

static bool releases(memory_order order) {
        return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

void memory_fence(struct state *s, struct thread *t, memory_order order) {
        if (acquires(order))
                t->current = t->acquired;
        if (order == memory_order_seq_cst) {
                view_join(&t->current, &s->full);
                s->full = t->current;
                t->acquired = t->current;
        }
        if (releases(order))
                t->released = t->current;
}

uint64_t memory_load(struct state *s, struct thread *t, uint32_t cell, uint32_t index, memory_order order) {
        const struct message *m = &s->message[index - 1];

        if (!index)
                return s->preset[cell];
        thread_saw(t, cell, m->time);
        view_join(&t->acquired, &m->view);
        if (acquires(order))
                view_join(&t->current, &m->view);
        return m->value;
}

void memory_store(struct state *s, struct thread *t, uint32_t cell, uint64_t value, memory_order order,
                  const struct view *inherited) {
        uint32_t last = s->newest[cell];
        struct message *m = &s->message[s->n_messages++];

        assert(s->n_messages <= MESSAGES_MAX);
        *m = (struct message){.cell = (uint8_t)cell, .before = (uint8_t)last, .value = value};
        m->time = (uint8_t)((last ? s->message[last - 1].time : 0) + 1);
        thread_saw(t, cell, m->time);
        m->view = releases(order) ? t->current : t->released;
        m->view.time[cell] = m->time;
        if (inherited)
                view_join(&m->view, inherited);
        s->newest[cell] = (uint8_t)s->n_messages;
}

uint64_t mix(uint64_t hash, uint64_t value) {
        hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
        return hash ^ hash >> 29;
}

static uint64_t mix_view(uint64_t hash, const struct view *view, const struct view *oldest) {
        uint8_t relative[CELLS_MAX];
        uint64_t words[CELLS_MAX / 8];

        for (uint32_t i = 0; i < CELLS_MAX; i++)
                relative[i] = view->time[i] > oldest->time[i] ? view->time[i] - oldest->time[i] : 0;
        memcpy(words, relative, sizeof(words));
        for (uint32_t i = 0; i < CELLS_MAX / 8; i++)
                hash = mix(hash, words[i]);
        return hash;
}

/* Only what can still matter: messages that some thread may still read, counted from the oldest of them, and views as
 * far as they tell more than every thread knows already. */
uint64_t state_hash(const struct state *s, uint32_t n_threads) {
        uint64_t hash = mix(s->kills, (uint64_t)s->event << 1 | s->event_ever), sum = 0;
        struct view oldest;

        memset(&oldest, 0xff, sizeof(oldest));
        for (uint32_t i = 0; i < n_threads; i++) {
                const struct thread *t = &s->thread[i];

                if (t->next.kind == K_END)
                        continue;
                for (uint32_t c = 0; c < CELLS_MAX; c++)
                        if (oldest.time[c] > t->current.time[c])
                                oldest.time[c] = t->current.time[c];
        }
        for (uint32_t i = 0; i < n_threads; i++) {
                const struct thread *t = &s->thread[i];

                hash = mix(hash, (uint64_t)t->next.kind << 2 | (uint64_t)t->successor << 1 | t->asleep);
                if (t->next.kind == K_END)
                        continue;
                hash = mix(hash, t->hash);
                hash = mix_view(hash, &t->current, &oldest);
                hash = mix_view(hash, &t->acquired, &oldest);
                hash = mix_view(hash, &t->released, &oldest);
        }
        /* a sum: in which order different cells were written is not part of the state */
        for (uint32_t i = 0; i < s->n_messages; i++) {
                const struct message *m = &s->message[i];

                if (m->time >= oldest.time[m->cell])
                        sum += mix(mix_view(mix(m->cell * 256u + m->time - oldest.time[m->cell], m->value), &m->view,
                                            &oldest),
                                   7);
        }
        return mix(mix_view(hash, &s->full, &oldest), sum) | 1;
}
