/* SPDX-License-Identifier: MIT */
/*
 * Verified plans.
 *
 * railmuxd says which algorithm each size class of a comm uses; the executor builds the plan itself and runs nothing
 * that its own verifier refuses, so a wrong or hostile control plane cannot make it run a plan that loses data.
 * The result is kept per shape (operation, algorithm, ranks, how they lie on nodes, geometry): the second comm of a
 * shape is free. What no comm uses any more is kept too, up to PLANS_IDLE_MAX, and then what was used longest ago goes
 * first.
 *
 * For 64 ranks a plan takes up to half a second to verify and a comm has twenty, in which the control thread would hear
 * of nothing else: not of comms that end, nor of processes that do. So a thread of its own does it (plans_want), and
 * whoever needs the plans comes back when they are there. The thread takes those for the fewest ranks first: a small
 * comm waits for one plan of a large one at most. A large one waits for what is small, which takes a millisecond each,
 * but not for ever, if others never end to bring such: each PLANS_OLDEST_EVERY-th one is the one that has waited
 * longest.
 *
 * An entry that waits or is being verified belongs to the thread but for its place in the hash, and is not dropped. Nor
 * is one that somebody has asked for who waits for others yet, or the two of them could take each other's away for
 * ever. How long he does is not told: whoever still waits asks for all of his again in each round (plans_round), and
 * what was not asked for in this one or the last has nobody. There are as many as calls can wait (executor/held.h).
 */
#include "plan/plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#include "util/thread.h"

struct plans_key {
        uint32_t operation, algorithm, n_ranks, part_bytes, slots;
        uint32_t alike;
        uint32_t n_nodes; /* 0: one */
        uint8_t node[PLAN_RANKS_MAX];
};

enum plans_state { PLANS_WAITS, PLANS_RUNS, PLANS_SETTLED };

struct plans_entry {
        struct plans_key key;
        struct plan plan;
        struct plan_nodes nodes; /* what the plan points to, if there are several */
        uint32_t references;     /* comms */
        uint64_t wanted;         /* the round in which it was asked for last; 0: whoever did has got it */
        uint64_t number;         /* counts all that were ever queued */

        /* guarded by the mutex until it is settled */
        enum plans_state state;
        int result; /* 0, -errno or PLANS_E_REFUSED with the verdict */
        struct plan_verdict verdict;
        struct plans_entry *prev, *next; /* plans->queue */

        UT_hash_handle hh;
};

static void entry_verify(struct plans_entry *entry) {
        const struct plan_geometry geometry = {entry->key.part_bytes, entry->key.slots};
        int r = entry->key.alike ? plan_verify_alike(&entry->plan, &geometry, &entry->verdict)
                                 : plan_verify_all(&entry->plan, &geometry, NULL, 0, &entry->verdict);

        entry->result = r > 0 ? PLANS_E_REFUSED : r;
}

/* Mutex held. */
static void entry_settled(struct plans *plans, struct plans_entry *entry) {
        entry->state = PLANS_SETTLED;
        plans->n_verified += entry->result == 0;
        pthread_cond_broadcast(&plans->changed);
}

/* The one to be verified now, which leaves the queue; NULL: none. Mutex held. */
static struct plans_entry *plans_next(struct plans *plans) {
        struct plans_entry *entry = plans->queue, *other;

        if (!entry)
                return NULL;
        if (++plans->n_taken % PLANS_OLDEST_EVERY == 0)
                DL_FOREACH(plans->queue, other) {
                        if (other->number < entry->number)
                                entry = other;
                }
        DL_DELETE(plans->queue, entry);
        return entry;
}

static void *plans_main(void *argument) {
        struct plans *plans = argument;
        const uint64_t one = 1;

        pthread_mutex_lock(&plans->mutex);
        while (!plans->stop) {
                struct plans_entry *entry = plans_next(plans);

                if (!entry) {
                        pthread_cond_wait(&plans->changed, &plans->mutex);
                        continue;
                }
                entry->state = PLANS_RUNS;
                plans->busy = entry;
                pthread_mutex_unlock(&plans->mutex);
                entry_verify(entry);
                pthread_mutex_lock(&plans->mutex);
                plans->busy = NULL;
                entry_settled(plans, entry);
                if (plans->told_fd >= 0)
                        (void)!write(plans->told_fd, &one, sizeof(one)); /* full means that it is awake anyway */
        }
        pthread_mutex_unlock(&plans->mutex);
        return NULL;
}

void plans_init(struct plans *plans) {
        *plans = (struct plans){.told_fd = -1, .round = 1};
        pthread_mutex_init(&plans->mutex, NULL);
        pthread_cond_init(&plans->changed, NULL);
        plans->started = !thread_start(&plans->thread, NULL, plans_main, plans); /* else plans_want() tries again */
}

void plans_deinit(struct plans *plans) {
        struct plans_entry *entry, *next;

        pthread_mutex_lock(&plans->mutex);
        plans->stop = true;
        pthread_cond_broadcast(&plans->changed);
        pthread_mutex_unlock(&plans->mutex);
        if (plans->started)
                pthread_join(plans->thread, NULL);
        HASH_ITER(hh, plans->entries, entry, next) {
                HASH_DEL(plans->entries, entry);
                free(entry);
        }
        pthread_cond_destroy(&plans->changed);
        pthread_mutex_destroy(&plans->mutex);
        *plans = (struct plans){.told_fd = -1};
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */
static void key_init(struct plans_key *key, const struct plans_shape *shape) {
        memset(key, 0, sizeof(*key));
        key->operation = shape->operation;
        key->algorithm = shape->algorithm;
        key->n_ranks = shape->n_ranks;
        key->part_bytes = shape->geometry.part_bytes;
        key->slots = shape->geometry.slots;
        key->alike = shape->alike;
        if (shape->nodes) {
                key->n_nodes = shape->nodes->n_nodes;
                memcpy(key->node, shape->nodes->node, shape->n_ranks);
        }
}

/* Of a settled one. */
static void entry_drop(struct plans *plans, struct plans_entry *entry) {
        HASH_DEL(plans->entries, entry);
        plans->n_entries--;
        plans->n_idle--;
        free(entry);
}

/* Mutex held. */
static bool entry_idle(const struct plans *plans, const struct plans_entry *entry) {
        return !entry->references && entry->state == PLANS_SETTLED &&
               (!entry->wanted || entry->wanted + 1 < plans->round);
}

static void plans_trim(struct plans *plans) {
        struct plans_entry *entry, *next;

        if (plans->n_idle <= PLANS_IDLE_MAX)
                return;
        pthread_mutex_lock(&plans->mutex);
        HASH_ITER(hh, plans->entries, entry, next) {
                if (plans->n_idle <= PLANS_IDLE_MAX)
                        break;
                if (entry_idle(plans, entry))
                        entry_drop(plans, entry);
        }
        pthread_mutex_unlock(&plans->mutex);
}

void plans_round(struct plans *plans) {
        plans->round++;
        plans_trim(plans);
}

static int entry_new(struct plans *plans, const struct plans_key *key, const struct plan_nodes *nodes,
                     struct plans_entry **ret_entry) {
        struct plans_entry *entry;
        int r;

        plans_trim(plans);
        entry = calloc(1, sizeof(*entry));
        if (!entry)
                return -ENOMEM;
        entry->key = *key;
        if (nodes)
                entry->nodes = *nodes;
        r = nodes ? plan_build_nodes(key->operation, key->algorithm, key->n_ranks, &entry->nodes, &entry->plan)
                  : plan_build(key->operation, key->algorithm, key->n_ranks, &entry->plan);
        if (r) {
                entry->state = PLANS_SETTLED;
                entry->result = r < 0 ? r : PLANS_E_REFUSED;
                entry->verdict = (struct plan_verdict){.condition = PLAN_FAULT_MALFORMED, .text = "no such plan"};
        }
        HASH_ADD(hh, plans->entries, key, sizeof(entry->key), entry);
        if (!entry->hh.tbl) {
                free(entry);
                return -ENOMEM;
        }
        plans->n_entries++;
        plans->n_idle++;
        *ret_entry = entry;
        return 0;
}

/* Behind all others; false: there is no memory for that, and it is gone. */
static bool entry_touch(struct plans *plans, struct plans_entry *entry) {
        HASH_DEL(plans->entries, entry);
        HASH_ADD(hh, plans->entries, key, sizeof(entry->key), entry);
        return entry->hh.tbl != NULL;
}

/* ---- verifying --------------------------------------------------------------------------------------------------- */
/* Behind those for as many ranks; mutex held. */
static void plans_enqueue(struct plans *plans, struct plans_entry *entry) {
        struct plans_entry *behind = NULL, *other;

        entry->number = plans->n_queued++;
        DL_FOREACH(plans->queue, other) {
                if (other->key.n_ranks > entry->key.n_ranks)
                        break;
                behind = other;
        }
        if (behind)
                DL_APPEND_ELEM(plans->queue, behind, entry);
        else
                DL_PREPEND(plans->queue, entry);
        pthread_cond_broadcast(&plans->changed);
}

int plans_want(struct plans *plans, const struct plans_shape *shape) {
        struct plans_entry *entry;
        struct plans_key key;
        bool settled;
        int r;

        key_init(&key, shape);
        HASH_FIND(hh, plans->entries, &key, sizeof(key), entry);
        if (!entry) {
                if (!plans->started && thread_start(&plans->thread, NULL, plans_main, plans))
                        return PLANS_OK; /* whoever needs it verifies it */
                plans->started = true;
                r = entry_new(plans, &key, shape->nodes, &entry);
                if (r < 0)
                        return r;
                if (entry->state == PLANS_SETTLED) { /* refused: whoever needs it finds that out again */
                        entry_drop(plans, entry);
                        return PLANS_OK;
                }
                entry->wanted = plans->round;
                pthread_mutex_lock(&plans->mutex);
                plans_enqueue(plans, entry);
                pthread_mutex_unlock(&plans->mutex);
                return PLANS_E_LATER;
        }
        entry->wanted = plans->round;
        pthread_mutex_lock(&plans->mutex);
        settled = entry->state == PLANS_SETTLED;
        pthread_mutex_unlock(&plans->mutex);
        return settled ? PLANS_OK : PLANS_E_LATER;
}

/* Nobody has waited for it, or longer than it takes: now. */
static void entry_settle(struct plans *plans, struct plans_entry *entry) {
        pthread_mutex_lock(&plans->mutex);
        while (entry->state == PLANS_RUNS)
                pthread_cond_wait(&plans->changed, &plans->mutex);
        if (entry->state == PLANS_WAITS) {
                if (entry->prev) /* in the queue: utlist's first one points to the last */
                        DL_DELETE(plans->queue, entry);
                entry_verify(entry);
                entry_settled(plans, entry);
        }
        pthread_mutex_unlock(&plans->mutex);
}

int plans_get(struct plans *plans, const struct plans_shape *shape, const struct plan **ret_plan,
              struct plan_verdict *ret_verdict) {
        struct plans_entry *entry;
        struct plans_key key;
        int r = 0;

        key_init(&key, shape);
        HASH_FIND(hh, plans->entries, &key, sizeof(key), entry);
        if (!entry)
                r = entry_new(plans, &key, shape->nodes, &entry);
        if (r < 0)
                return r;
        entry_settle(plans, entry);
        entry->wanted = 0; /* another one who waits for it asks again */
        r = entry->result;
        if (r) { /* for once: memory may be there next time, and what is refused is not asked for again */
                *ret_verdict = entry->verdict;
                if (!entry->references)
                        entry_drop(plans, entry);
                return r;
        }
        if (!entry->references++)
                plans->n_idle--;
        *ret_plan = &entry->plan;
        return 0;
}

void plans_put(struct plans *plans, const struct plan *plan) {
        struct plans_entry *entry;

        if (!plan)
                return;
        entry = (struct plans_entry *)((char *)plan - offsetof(struct plans_entry, plan));
        if (--entry->references)
                return;
        plans->n_idle++;
        if (entry_touch(plans, entry)) {
                plans_trim(plans);
                return;
        }
        plans->n_entries--;
        plans->n_idle--;
        free(entry);
}

uint64_t plans_verified(struct plans *plans) {
        uint64_t n;

        pthread_mutex_lock(&plans->mutex);
        n = plans->n_verified;
        pthread_mutex_unlock(&plans->mutex);
        return n;
}
