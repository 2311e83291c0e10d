/* SPDX-License-Identifier: MIT */
/*
 * Each emulated GPU has a table, a report and a few workers; it serves sessions (clients), which have one ring each and
 * ranks of communicators. Any number of sessions may share a GPU, and of a communicator's ranks, too.
 *
 * Workers and the caller are coroutines of one thread (fiber.h): a worker gives way once in each of its rounds, with
 * EMULATOR_JITTER between any two accesses to shared memory, so schedules are drawn from the seed and come again with
 * it, and that nothing moves any more is seen from turns, not from a clock.
 *
 * What the workers touch lies in mappings of its own between pages that nobody may touch, and what a client could reach
 * from a buffer or a box ends exactly where such a page begins. So an access out of bounds ends the program, with or
 * without AddressSanitizer.
 *
 * The client's side follows the bell kernels: a slot is free when its last request has been harvested (`released`), and
 * the ring sequence leaves out 0. Stores that a client's stream would order before the line by its kernel boundary are
 * made visible with release stores of the line's cells (gpu/device/order.h says what stands against them).
 */
extern "C" {
#include "gpu/hip/programs.h"
#include "plan/nodes.h"
#include "plan/plan.h"
}

#include "tests/device/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/device/watch.h"
/* (the interpreter sees the watched stores) */
/* Requests that each worker has served without looking for what else there is, by its GPU's tables. */
static struct {
        const void *table;
        uint64_t n[EMULATOR_WORKERS_MAX];
} stayed[EMULATOR_GPUS_MAX];

static void count_stay(const void *table, uint32_t worker) {
        for (uint32_t gpu = 0; gpu < EMULATOR_GPUS_MAX; gpu++)
                stayed[gpu].n[worker] += stayed[gpu].table == table;
}

#define HOT_STAYED(w) count_stay((w)->table, (w)->index)
#include "gpu/device/worker.h"
static void copies_between(void);
#define COPIES_BETWEEN() copies_between()
#include "gpu/hip/copies.h"
#undef word_load
#undef word_store
#undef cell_load
#undef cell_store
#undef quad_load
#undef quad_store
#undef packet_store
#undef poll_pause

#define GUARD_BYTES 65536u
#define MAPS_MAX    (512u + EMULATOR_RANKS_MAX * EMULATOR_RANKS_MAX)
/* Turns of the caller without a single store by any worker, after which nothing will move any more: each worker has had
 * about as many. */
#define STUCK_TURNS 4000u

struct emulator_worker {
        struct emulator *emulator;
        uint32_t gpu, index;
        uint32_t hold;
        struct worker_shared *shared;
        struct worker_scratch *scratch;
        struct watch_thread watch;
        bool ended;
};

/* The thread that launches bursts, and the blocks of the one that it launched last. */
struct emulator_burst {
        struct emulator_gpu *gpu;
        struct worker_shared *shared;
        uint32_t first, next, launched; /* numbers; launched 0: none is running */
        uint32_t block;                 /* of the running one */
        uint32_t looks, patience;
        uint32_t ended; /* so many have moved something */
        bool begun, hold;
        /* Copies. */
        bool copying;     /* what was launched last is copies */
        uint32_t copied;  /* so many have been moved */
        uint32_t moment;  /* enum emulator_moment: where the host stands */
        uint32_t lingers; /* ... and lingers, EMULATOR_NEVER: nowhere */
        bool stays;       /* until it is told otherwise, or they are taken back */
};

struct emulator_gpu {
        struct table *table;
        struct table_report *report;
        struct emulator_worker worker[EMULATOR_WORKERS_MAX];
        uint32_t n_rings, n_programs;
        bool rank_taken[TABLE_RANKS];
        uint32_t starts;
        struct burst_queue *bursts;
        struct emulator_burst burst;
};

struct emulator_session {
        unsigned char *area;
        uint32_t gpu, ring;
        uint32_t next;             /* ring sequence */
        uint32_t used[BELL_DEPTH]; /* the last request's in each place */
        uint32_t n_buffers, n_handles;
};

struct emulator_member {
        uint32_t session, index, handle, sequence;
        uint32_t pair[2][EMULATOR_RANKS_MAX]; /* sends to, receives from each rank */
        unsigned char *staging;
        struct lane_states *state;
};

struct emulator_comm {
        uint32_t n_ranks;
        struct staging_layout layout;
        struct emulator_member rank[EMULATOR_RANKS_MAX];
};

struct emulator_helper {
        struct emulator *emulator;
        bool (*step)(void *data);
        void *data;
        struct watch_thread watch;
        uint32_t fiber;
};

struct emulator {
        uint32_t n_helpers;
        bool closing;
        struct emulator_helper helper[EMULATOR_HELPERS_MAX];
        uint32_t n_gpus, n_workers, n_sessions, n_comms, n_maps, flags;
        uint64_t seed;
        uint64_t stores; /* as last seen */
        uint32_t quiet;  /* turns of the caller since */
        struct watch_thread client;
        struct emulator_gpu gpu[EMULATOR_GPUS_MAX];
        struct emulator_session session[EMULATOR_SESSIONS_MAX];
        struct emulator_comm comm[EMULATOR_COMMS_MAX];
        struct {
                void *base;
                size_t bytes;
        } map[MAPS_MAX];
        uint32_t n_gone; /* buffers taken out */
        uint32_t n_keys; /* of ranks, given out */
};

static const uint32_t never = 0;

uint32_t emulator_epoch(const struct emulator *e, uint32_t gpu, uint32_t worker) {
        return e->gpu[gpu].worker[worker].scratch->epoch;
}

uint64_t emulator_stayed(const struct emulator *e, uint32_t gpu, uint32_t worker) {
        return stayed[gpu].table == e->gpu[gpu].table ? stayed[gpu].n[worker] : 0; /* the latest emulator's only */
}

/* ---- memory --------------------------------------------------------------------------------------------------------
 */
static unsigned char *reserve(struct emulator *e, size_t bytes) {
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED || e->n_maps == MAPS_MAX)
                abort();
        e->map[e->n_maps].base = p;
        e->map[e->n_maps++].bytes = bytes;
        return (unsigned char *)p;
}

static void make_usable(void *p, size_t bytes) {
        if (mprotect(p, bytes, PROT_READ | PROT_WRITE))
                abort();
}

void *emulator_memory(struct emulator *e, uint64_t bytes) {
        size_t pages = (bytes + 4095) / 4096 * 4096;
        unsigned char *p = reserve(e, pages + 2 * (size_t)GUARD_BYTES) + GUARD_BYTES;

        make_usable(p, pages);
        return p + (pages - (bytes + 127) / 128 * 128);
}

/* All stagings lie in one reservation, at equal distances, so that watch.h finds the one an address is in. */
static unsigned char *staging_new(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t chunks) {
        struct emulator_comm *c = &e->comm[comm];
        struct watch_staging *s = &watch.staging[watch.n];

        if (watch.n == WATCH_STAGINGS)
                abort();
        *s = {};
        s->base = watch.begin + watch.n * watch.stride + (watch.stride - GUARD_BYTES - c->layout.bytes);
        s->layout = &c->layout;
        s->comm = comm;
        s->rank = rank;
        s->published = (uint32_t *)malloc(STAGING_REGIONS * STAGING_LANES * STAGING_RANKS_MAX * 4);
        if (!s->published)
                abort();
        for (uint32_t i = 0; i < STAGING_REGIONS * STAGING_LANES * STAGING_RANKS_MAX; i++)
                s->published[i] = chunks;
        make_usable((void *)s->base, c->layout.bytes);
        watch.n++;
        return (unsigned char *)s->base;
}

/* ---- workers -------------------------------------------------------------------------------------------------------
 */
static void worker_fiber(void *data) {
        struct emulator_worker *w = (struct emulator_worker *)data;
        struct emulator_gpu *g = &w->emulator->gpu[w->gpu];

        w->watch.random = w->emulator->flags & EMULATOR_JITTER
                                  ? mix(w->emulator->seed + w->gpu * 64 + w->index + g->starts * 4096) | 1
                                  : 0;
        w->watch.version = &g->table->version;
        w->watch.hold = &w->hold;
        w->watch.stop = &g->table->stop;
        watch.self = &w->watch;
        worker_main(w->shared, w->scratch, g->table, g->report, w->index, w->emulator->n_workers);
        w->ended = true;
}

static void start_workers(struct emulator *e, uint32_t gpu) {
        struct emulator_gpu *g = &e->gpu[gpu];

        word_store(&g->table->stop, 0);
        g->starts++;
        for (uint32_t i = 0; i < e->n_workers; i++) {
                g->worker[i].ended = false;
                fiber_new(worker_fiber, &g->worker[i]);
        }
}

static void stop_workers(struct emulator *e, uint32_t gpu) {
        struct emulator_gpu *g = &e->gpu[gpu];

        word_store(&g->table->stop, 1);
        for (uint32_t i = 0; i < e->n_workers; i++)
                for (uint64_t turns = 0; !g->worker[i].ended; turns++) {
                        if (turns > STUCK_TURNS) {
                                fprintf(stderr, "worker %u of GPU %u does not stop\n", i, gpu);
                                _Exit(1);
                        }
                        watch_yield();
                }
}

void emulator_stop(struct emulator *e, uint32_t gpu) {
        stop_workers(e, gpu);
}

void emulator_start(struct emulator *e, uint32_t gpu) {
        start_workers(e, gpu);
}

void emulator_restart(struct emulator *e, uint32_t gpu) {
        stop_workers(e, gpu);
        start_workers(e, gpu);
}

void emulator_finish(struct emulator *e, uint32_t gpu) {
        word_store(&e->gpu[gpu].table->stop, TABLE_STOP_SERVED);
}

bool emulator_ended(const struct emulator *e, uint32_t gpu) {
        for (uint32_t i = 0; i < e->n_workers; i++)
                if (!e->gpu[gpu].worker[i].ended)
                        return false;
        return true;
}

bool emulator_seen(const struct emulator *e, uint32_t session) {
        const struct emulator_session *s = &e->session[session];

        for (uint32_t i = 0; i < e->n_workers; i++)
                if (e->gpu[s->gpu].report->next[i][s->ring] != s->next)
                        return false;
        return true;
}

bool emulator_kept(const struct emulator *e, uint32_t session) {
        const struct emulator_session *s = &e->session[session];
        const struct table_report *report = e->gpu[s->gpu].report;
        uint32_t rings = 0;

        for (uint32_t i = 0; i < e->n_workers; i++)
                rings |= report->kept_rings[i];
        return rings >> s->ring & 1;
}

void emulator_hold(struct emulator *e, uint32_t gpu, uint32_t worker, bool hold) {
        e->gpu[gpu].worker[worker].hold = hold;
}

bool emulator_rests(struct emulator *e) {
        if (watch.stores != e->stores) {
                e->stores = watch.stores;
                e->quiet = 0;
        } else if (++e->quiet > STUCK_TURNS) {
                e->quiet = 0;
                return true;
        }
        watch_yield();
        return false;
}

void emulator_turn(struct emulator *e, const char *why) {
        if (emulator_rests(e))
                emulator_stuck(e, why);
}

[[noreturn]] void emulator_stuck(struct emulator *e, const char *why) {
        fprintf(stderr, "stuck: %s\n", why);
        for (uint32_t g = 0; g < e->n_gpus; g++)
                stop_workers(e, g);
        for (uint32_t s = 0; s < e->n_sessions; s++)
                fprintf(stderr, "session %u: GPU %u, ring %u, next to ring %u\n", s, e->session[s].gpu,
                        e->session[s].ring, e->session[s].next);
        for (uint32_t g = 0; g < e->n_gpus; g++)
                for (uint32_t i = 0; i < e->n_workers; i++) {
                        const struct worker_scratch *w = e->gpu[g].worker[i].scratch;

                        fprintf(stderr, "GPU %u worker %u: looks for", g, i);
                        for (uint32_t r = 0; r < e->gpu[g].n_rings; r++)
                                fprintf(stderr, " %u", w->next[r]);
                        fprintf(stderr, ", %u tasks\n", w->n_tasks);
                        for (uint32_t k = 0; k < w->n_tasks; k++) {
                                const struct task *t = &w->tasks[w->order[k]];

                                fprintf(stderr, "  ring %u/%u rank entry %u sequence %u lane %u: operation %u%s,",
                                        t->ring, t->ring_sequence, t->rank, t->sequence, t->lane, t->operation,
                                        t->inlined ? " inline" : "");
                                for (uint32_t f = 0; f < TASK_PHASES; f++)
                                        fprintf(stderr, " %u/%u", t->part[f], t->parts[f]);
                                fputc('\n', stderr);
                        }
                }
        fflush(NULL);
        _Exit(1);
}

/* ---- tables --------------------------------------------------------------------------------------------------------
 */
static void publish(struct emulator *e, uint32_t gpu) {
        struct emulator_gpu *g = &e->gpu[gpu];
        uint32_t version = word_load(&g->table->version) + 1;

        fence_release_system();
        word_store(&g->table->version, version);
        for (uint32_t i = 0; i < e->n_workers; i++)
                while (word_load(&g->report->acknowledged[i]) != version && !g->worker[i].hold && !g->worker[i].ended)
                        emulator_turn(e, "a worker does not acknowledge the tables");
        fence_acquire_system();
}

/* A version of which workers are told that it took out one buffer (ring TABLE_RINGS: none). */
static void publish_told(struct emulator *e, uint32_t gpu, uint32_t ring, uint32_t id) {
        struct table *t = e->gpu[gpu].table;
        const uint32_t version = word_load(&t->version) + 1;
        struct table_change *change = &t->changes[version % TABLE_CHANGES];

        word_store(&change->ring, ring);
        word_store(&change->id, id);
        word_store(&change->again, version);
        word_store(&change->version, version);
        publish(e, gpu);
}

/* A buffer has been taken out; every other time the workers are told that this is all. */
static void publish_gone(struct emulator *e, const struct emulator_session *s, uint32_t id) {
        if (e->n_gone++ % 2 == 0)
                publish_told(e, s->gpu, s->ring, id);
        else
                publish(e, s->gpu);
}

/* Entries are written while workers read them, the key last. */
static void put(void *to, const void *from, size_t bytes) {
        for (size_t i = 0; i < bytes / 4; i++)
                word_store((uint32_t *)to + i, ((const uint32_t *)from)[i]);
}

template <typename T> static void put_entry(T *to, T entry) {
        uint32_t key = entry.key;

        entry.key = 0;
        put(to, &entry, sizeof(entry));
        fence_release_system();
        word_store(&to->key, key);
}

static void set_choice(struct emulator *e, uint32_t comm, uint32_t operation, uint32_t algorithm, uint32_t transport) {
        struct emulator_comm *c = &e->comm[comm];
        struct table_choice choice = {UINT64_MAX, comm * TABLE_OPERATIONS + operation, transport};
        struct plan plan;

        if (plan_build(operation, algorithm, c->n_ranks, &plan))
                abort();
        if (plan.n_regions > 1)
                choice.transport = STAGING_PACKET;
        for (uint32_t r = 0; r < c->n_ranks; r++) {
                struct table *t = e->gpu[e->session[c->rank[r].session].gpu].table;

                put(&t->plans[choice.plan], &plan, sizeof(plan));
                put(&t->choices[comm].choice[operation][0], &choice, sizeof(choice));
        }
}

/* What the GPU's ranks do; programs of former choices stay where they are. */
static void put_programs(struct emulator *e, uint32_t comm, uint32_t gpu, uint32_t place, const struct plan *plan) {
        const struct emulator_comm *c = &e->comm[comm];
        struct emulator_gpu *g = &e->gpu[gpu];
        union program_entry *entries;
        uint64_t here = 0;
        uint32_t n, first = 1 + g->n_programs;
        struct program_row row = {};

        for (uint32_t r = 0; r < c->n_ranks; r++)
                here |= (uint64_t)(e->session[c->rank[r].session].gpu == gpu) << r;
        if (!here)
                return;
        n = programs_size(plan, here);
        entries = (union program_entry *)calloc(n + 1, sizeof(*entries));
        if (!n || !entries || first + n > TABLE_PROGRAMS)
                abort();
        programs_fill(plan, here, first, entries, &row);
        put(&g->table->programs[first], entries, n * sizeof(*entries));
        put(&g->table->rows[place], &row, sizeof(row));
        g->n_programs += n;
        free(entries);
}

static void publish_comm(struct emulator *e, uint32_t comm) {
        for (uint32_t g = 0; g < e->n_gpus; g++)
                for (uint32_t r = 0; r < e->comm[comm].n_ranks; r++)
                        if (e->session[e->comm[comm].rank[r].session].gpu == g) {
                                publish(e, g);
                                break;
                        }
}

void emulator_choose(struct emulator *e, uint32_t comm, uint32_t operation, uint32_t algorithm, uint32_t transport) {
        set_choice(e, comm, operation, algorithm, transport);
        publish_comm(e, comm);
}

void emulator_choose_nodes(struct emulator *e, uint32_t comm, uint32_t operation, uint32_t algorithm,
                           const uint8_t *node) {
        struct emulator_comm *c = &e->comm[comm];
        const struct table_choice choice = {UINT64_MAX, comm * TABLE_OPERATIONS + operation, STAGING_PACKET};
        struct plan_nodes nodes;
        struct plan plan;

        if (plan_nodes_init(&nodes, c->n_ranks, node) ||
            plan_build_nodes(operation, algorithm, c->n_ranks, &nodes, &plan))
                abort();
        for (uint32_t g = 0; g < e->n_gpus; g++)
                put_programs(e, comm, g, choice.plan, &plan);
        plan.nodes = NULL;
        for (uint32_t r = 0; r < c->n_ranks; r++) {
                struct table *t = e->gpu[e->session[c->rank[r].session].gpu].table;

                put(&t->plans[choice.plan], &plan, sizeof(plan));
                put(&t->choices[comm].choice[operation][0], &choice, sizeof(choice));
        }
        publish_comm(e, comm);
}

void emulator_spread(struct emulator *e, uint32_t comm, uint32_t lanes) {
        struct emulator_comm *c = &e->comm[comm];

        for (uint32_t r = 0; r < c->n_ranks; r++)
                word_store(&e->gpu[e->session[c->rank[r].session].gpu].table->ranks[c->rank[r].index].lanes, lanes);
        publish_comm(e, comm);
}

/* ---- what exists
 * ----------------------------------------------------------------------------------------------------- */
struct emulator *emulator_new(uint32_t n_gpus, uint32_t n_workers, uint32_t flags, uint64_t seed) {
        struct emulator *e = (struct emulator *)calloc(1, sizeof(*e));
        struct staging_layout largest;

        if (!e || n_gpus > EMULATOR_GPUS_MAX || n_workers > EMULATOR_WORKERS_MAX)
                abort();
        e->n_gpus = n_gpus;
        e->n_workers = n_workers;
        e->flags = flags;
        e->seed = seed;
        staging_layout_init(&largest, EMULATOR_RANKS_MAX);
        watch.stride = largest.bytes + GUARD_BYTES;
        watch.begin = (uint64_t)reserve(e, (WATCH_STAGINGS + 1) * watch.stride) + GUARD_BYTES;
        watch.n = 0;
        watch.on = flags & EMULATOR_WATCH;
        watch.self = &e->client;
        e->client.random = flags & EMULATOR_JITTER ? mix(seed + 1) | 1 : 0;
        e->client.hold = e->client.stop = &never;
        fiber_init(flags & EMULATOR_JITTER ? mix(seed) | 1 : 0);
        for (uint32_t g = 0; g < n_gpus; g++) {
                e->gpu[g].table = (struct table *)emulator_memory(e, sizeof(struct table));
                stayed[g].table = e->gpu[g].table;
                e->gpu[g].report = (struct table_report *)emulator_memory(e, sizeof(struct table_report) +
                                                                                     sizeof(struct table_pairs));
                e->gpu[g].bursts = (struct burst_queue *)emulator_memory(e, sizeof(struct burst_queue));
                e->gpu[g].table->bursts = (uint64_t)e->gpu[g].bursts;
                for (uint32_t i = 0; i < n_workers; i++) {
                        struct emulator_worker *w = &e->gpu[g].worker[i];

                        w->emulator = e;
                        w->gpu = g;
                        w->index = i;
                        w->shared = (struct worker_shared *)emulator_memory(e, sizeof(*w->shared));
                        w->scratch = (struct worker_scratch *)emulator_memory(e, sizeof(*w->scratch));
                }
                start_workers(e, g);
        }
        return e;
}

static void helper_fiber(void *data) {
        struct emulator_helper *h = (struct emulator_helper *)data;

        h->watch.hold = h->watch.stop = &never;
        watch.self = &h->watch;
        while (!h->emulator->closing) {
                watch.stores += h->step(h->data);
                watch_yield();
        }
}

void emulator_helper(struct emulator *e, bool (*step)(void *data), void *data) {
        struct emulator_helper *h = &e->helper[e->n_helpers++];

        if (e->n_helpers > EMULATOR_HELPERS_MAX)
                abort();
        h->emulator = e;
        h->step = step;
        h->data = data;
        h->fiber = fiber_new(helper_fiber, h);
}

void emulator_free(struct emulator *e) {
        e->closing = true;
        for (uint32_t i = 0; i < e->n_helpers; i++)
                while (!fiber_finished(e->helper[i].fiber))
                        watch_yield();
        for (uint32_t g = 0; g < e->n_gpus; g++)
                stop_workers(e, g);
        fiber_deinit();
        for (uint32_t i = 0; i < watch.n; i++)
                free(watch.staging[i].published);
        watch.n = 0;
        watch.on = false;
        for (uint32_t i = 0; i < e->n_maps; i++)
                munmap(e->map[i].base, e->map[i].bytes);
        free(e);
}

uint32_t emulator_session(struct emulator *e, uint32_t gpu, uint32_t first) {
        uint32_t index = e->n_sessions++, sequence = first > BELL_LINES ? first - BELL_LINES : 1;
        struct emulator_session *s = &e->session[index];
        struct emulator_gpu *g = &e->gpu[gpu];
        struct table_ring ring = {};
        uint32_t *released;

        s->area = (unsigned char *)emulator_memory(e, BELL_AREA_BYTES);
        s->gpu = gpu;
        s->ring = g->n_rings++;
        s->next = first;
        released = (uint32_t *)(s->area + BELL_OFFSET_RELEASED);
        for (uint32_t slot = 0; slot < BELL_DEPTH; slot++)
                released[slot] = bell_released_first(slot);
        for (; sequence != first; sequence++) { /* a ring that has been in use */
                uint64_t *line = (uint64_t *)(s->area + BELL_OFFSET_LINES) + sequence % BELL_LINES * RING_WORDS;

                for (uint32_t i = 0; i < RING_WORDS; i++)
                        line[i] = (uint64_t)sequence << 32;
                released[sequence % BELL_DEPTH] = sequence;
        }
        memcpy(s->used, released, sizeof(s->used));
        ring.area = (uint64_t)s->area;
        ring.session = index + 1;
        ring.first = first;
        ring.key = 1;
        put_entry(&g->table->rings[s->ring], ring);
        word_store(&g->table->n_rings, g->n_rings);
        publish(e, gpu);
        return index;
}

uint32_t emulator_buffer(struct emulator *e, uint32_t session, void *memory, uint64_t bytes) {
        struct emulator_session *s = &e->session[session];
        struct table *t = e->gpu[s->gpu].table;
        struct table_buffer b = {};
        uint32_t id = ++s->n_buffers, at = table_hash(s->ring, id);

        while (word_load(&t->buffers[at % TABLE_BUFFERS].key))
                at++;
        b.address = (uint64_t)memory;
        b.bytes = bytes;
        b.ring = s->ring;
        b.id = id;
        b.key = 2;
        put_entry(&t->buffers[at % TABLE_BUFFERS], b);
        return id; /* found without a new version */
}

void emulator_buffer_move(struct emulator *e, uint32_t session, uint32_t id, void *memory, uint64_t bytes) {
        struct emulator_session *s = &e->session[session];
        struct table *t = e->gpu[s->gpu].table;
        uint32_t at = table_hash(s->ring, id);
        struct table_buffer b;

        while (t->buffers[at % TABLE_BUFFERS].ring != s->ring || t->buffers[at % TABLE_BUFFERS].id != id)
                at++;
        b = t->buffers[at % TABLE_BUFFERS];
        b.address = (uint64_t)memory;
        b.bytes = bytes;
        b.key = memory ? 2 : 1;
        word_store(&t->buffers[at % TABLE_BUFFERS].key, 1);
        put_entry(&t->buffers[at % TABLE_BUFFERS], b);
        publish_gone(e, s, id);
}

static void preset_chunk(const struct emulator_comm *c, const struct emulator_member *m, uint32_t region, uint32_t lane,
                         uint32_t number) {
        const uint32_t slot = number % STAGING_SLOTS;

        for (uint32_t p = 0; p < c->n_ranks; p++) {
                struct quad *packet =
                        (struct quad *)(m->staging + staging_chunk(&c->layout, STAGING_PACKET, region, lane, slot, p));

                for (uint32_t i = 0; i < STAGING_PACKET_CHUNK / PACKET_BYTES; i++)
                        packet_store(&packet[i], 0x0bad0bad0bad0badu, number + 1);
                word_store((uint32_t *)(m->staging + staging_flag(&c->layout, region, lane, slot)) + p, number + 1);
        }
}

/* Everything was counted `chunks` times on all ranks: nothing is in flight, and the credits say so. */
static void preset(struct emulator *e, struct emulator_comm *c, struct emulator_member *m, uint32_t sequence,
                   uint32_t chunks) {
        uint32_t *credit = (uint32_t *)(m->staging + c->layout.credit);

        m->state = (struct lane_states *)emulator_memory(e, sizeof(struct lane_states));
        m->sequence = sequence;
        for (uint32_t lane = 0; lane < STAGING_LANES; lane++)
                m->state->lane[lane].sequence = sequence;
        for (uint32_t channel = 0; channel < STAGING_CHANNELS; channel++)
                for (uint32_t p = 0; p < c->n_ranks; p++)
                        m->state->channel[channel].pushed[p] = m->state->channel[channel].taken[p] = chunks;
        for (uint32_t i = 0; i < STAGING_TRANSPORTS * STAGING_REGIONS * STAGING_LANES * STAGING_RANKS_MAX; i++)
                credit[i] = chunks;
        /* Slots hold the last chunks that they would. */
        for (uint32_t region = 0; chunks && region < STAGING_REGIONS; region++)
                for (uint32_t lane = 0; lane < staging_lanes(region); lane++)
                        for (uint32_t back = 1; back <= STAGING_SLOTS; back++)
                                preset_chunk(c, m, region, lane, chunks - back);
}

/* Half of them are told of no number, which means all lanes. */
static uint32_t lanes_of(const struct emulator *e, uint32_t comm) {
        const uint64_t random = mix(e->seed + 7777 * (comm + 1));

        return random % 2 ? 0 : 1 + (uint32_t)(random >> 8) % STAGING_DATA_LANES;
}

/* A place in the GPU's tables, as gpu/hip/comms.c takes one: what was reported of it is forgotten. */
static uint32_t rank_take(struct emulator_gpu *g) {
        struct table_pairs *pairs = table_pairs(g->report);
        uint32_t index = 3;

        while (g->rank_taken[index])
                index += 2;
        g->rank_taken[index] = true;
        memset(&g->report->rank[index], 0, sizeof(g->report->rank[index]));
        memset(pairs->pair[index], 0, sizeof(pairs->pair[index]));
        return index;
}

uint32_t emulator_comm(struct emulator *e, uint32_t n_ranks, const uint32_t *session, uint32_t transport,
                       uint32_t sequence, uint32_t chunks) {
        uint32_t comm = e->n_comms++, first = watch.n;
        struct emulator_comm *c = &e->comm[comm];

        if (comm >= EMULATOR_COMMS_MAX)
                abort();
        c->n_ranks = n_ranks;
        staging_layout_init(&c->layout, n_ranks);
        for (uint32_t r = 0; r < n_ranks; r++) {
                struct emulator_member *m = &c->rank[r];
                struct emulator_session *s = &e->session[session[r]];

                m->session = session[r];
                m->index = rank_take(&e->gpu[s->gpu]);
                m->handle = 7 + 13 * s->n_handles++;
                m->staging = staging_new(e, comm, r, chunks);
                preset(e, c, m, sequence, chunks);
        }
        for (uint32_t r = 0; r < n_ranks; r++)
                for (uint32_t p = 0; p < n_ranks; p++)
                        watch.staging[first + r].credit_of[p] = watch.staging[first + p].base;
        for (uint32_t operation = 1; operation <= RING_OP_BARRIER; operation++)
                if (operation != RING_OP_SEND && operation != RING_OP_RECV)
                        set_choice(e, comm, operation, operation == RING_OP_ALL_REDUCE ? PLAN_ONE_SHOT : PLAN_DIRECT,
                                   transport);
        for (uint32_t r = 0; r < n_ranks; r++) {
                struct emulator_member *m = &c->rank[r];
                struct emulator_session *s = &e->session[m->session];
                struct table *t = e->gpu[s->gpu].table;
                struct table_rank entry = {};
                struct table_handle handle = {};
                uint32_t at = table_hash(s->ring, m->handle);

                for (uint32_t p = 0; p < n_ranks; p++)
                        entry.peer[p] = (uint64_t)c->rank[p].staging;
                entry.states = (uint64_t)m->state;
                entry.ring = s->ring;
                entry.handle = m->handle;
                entry.rank = r;
                entry.n_ranks = n_ranks;
                entry.choices = comm;
                entry.lanes = lanes_of(e, comm);
                entry.key = ++e->n_keys;
                put_entry(&t->ranks[m->index], entry);
                while (word_load(&t->handles[at % TABLE_HANDLES].key))
                        at++;
                handle.ring = s->ring;
                handle.handle = m->handle;
                handle.rank = m->index;
                handle.key = 2;
                put_entry(&t->handles[at % TABLE_HANDLES], handle);
        }
        publish_comm(e, comm);
        return comm;
}

void emulator_detach(struct emulator *e, uint32_t comm) {
        for (uint32_t r = 0; r < e->comm[comm].n_ranks; r++) {
                const struct emulator_member *m = &e->comm[comm].rank[r];
                struct emulator_gpu *g = &e->gpu[e->session[m->session].gpu];

                for (uint32_t i = 0; i < TABLE_HANDLES; i++)
                        if (g->table->handles[i].key == 2 && g->table->handles[i].rank == m->index)
                                word_store(&g->table->handles[i].key, 1);
                word_store(&g->table->ranks[m->index].key, 0);
                g->rank_taken[m->index] = false;
        }
        publish_comm(e, comm);
}

/* Whatever was counted: nobody but the rank itself puts anything there, and has not yet. */
static void clear_far(const struct emulator_comm *c, const struct emulator_member *m, uint32_t p) {
        for (uint32_t region = 0; region < STAGING_REGION_CHECK; region++)
                for (uint32_t lane = 0; lane < staging_lanes(region); lane++)
                        for (uint32_t slot = 0; slot < STAGING_SLOTS; slot++)
                                memset((void *)(m->staging +
                                                staging_chunk(&c->layout, STAGING_PACKET, region, lane, slot, p)),
                                       0, STAGING_PACKET_CHUNK / PACKET_BYTES * sizeof(struct quad));
}

void emulator_wire(struct emulator *e, uint32_t comm, uint32_t rank, uint64_t far, void *const *wire) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        struct table_rank *entry = &e->gpu[e->session[m->session].gpu].table->ranks[m->index];

        for (uint32_t p = 0; p < e->comm[comm].n_ranks; p++)
                if (far >> p & 1) {
                        cell_store(&entry->peer[p], (uint64_t)wire[p]);
                        clear_far(&e->comm[comm], m, p);
                }
        cell_store(&entry->far, far);
        for (uint32_t i = 0; i < watch.n; i++) {
                struct watch_staging *s = &watch.staging[i];

                if (s->comm != comm || s->rank != rank)
                        continue;
                s->far = far;
                for (uint32_t p = 0; p < e->comm[comm].n_ranks; p++)
                        if (far >> p & 1)
                                s->credit_of[p] = (uint64_t)wire[p];
        }
        publish_comm(e, comm);
}

/* Of one GPU's hash: the entry, and the first place that is free. */
template <typename T> static T *search(T *entries, uint32_t n, uint32_t ring, uint32_t id, uint32_t T::*name) {
        uint32_t at = table_hash(ring, id);

        while (entries[at % n].key && (entries[at % n].ring != ring || entries[at % n].*name != id))
                at++;
        return &entries[at % n];
}

void emulator_mislead(struct emulator *e, uint32_t session, uint32_t other, uint32_t handle, uint32_t buffer) {
        const uint32_t to = e->session[session].ring, from = e->session[other].ring;
        struct table *t = e->gpu[e->session[session].gpu].table;

        put_entry(search(t->handles, TABLE_HANDLES, to, handle, &table_handle::handle),
                  *search(t->handles, TABLE_HANDLES, from, handle, &table_handle::handle));
        put_entry(search(t->buffers, TABLE_BUFFERS, to, buffer, &table_buffer::id),
                  *search(t->buffers, TABLE_BUFFERS, from, buffer, &table_buffer::id));
        publish(e, e->session[session].gpu);
}

void emulator_distrust(struct emulator *e, uint32_t comm) {
        (void)e;
        for (uint32_t i = 0; i < watch.n; i++)
                watch.staging[i].distrusted = watch.staging[i].distrusted || watch.staging[i].comm == comm;
}

uint32_t emulator_reported(struct emulator *e, uint32_t comm, uint32_t rank) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];

        return word_load(&e->gpu[e->session[m->session].gpu].report->rank[m->index].status);
}

uint32_t emulator_rung(struct emulator *e, uint32_t comm, uint32_t rank) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];

        return word_load(&e->gpu[e->session[m->session].gpu].report->rank[m->index].rung);
}

void emulator_pair(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t peer, bool sends, uint32_t *ret_rung,
                   uint32_t *ret_finished) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        const struct table_pairs *pairs = table_pairs(e->gpu[e->session[m->session].gpu].report);

        *ret_rung = word_load(&pairs->pair[m->index][sends][peer].rung);
        *ret_finished = word_load(&pairs->pair[m->index][sends][peer].finished);
}

uint64_t emulator_chunks(struct emulator *e, uint32_t comm, uint32_t transport, uint32_t region) {
        const struct emulator_comm *c = &e->comm[comm];
        uint64_t sum = 0;

        for (uint32_t r = 0; r < c->n_ranks; r++)
                for (uint32_t lane = 0; lane < STAGING_LANES; lane++) {
                        const uint64_t at = staging_credit(&c->layout, transport, region, lane);

                        for (uint32_t p = 0; p < c->n_ranks; p++)
                                sum += p == r ? 0 : word_load((const uint32_t *)(c->rank[r].staging + at) + p);
                }
        return sum;
}

void emulator_abort(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t status) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        uint32_t gpu = e->session[m->session].gpu;

        word_store(&e->gpu[gpu].table->ranks[m->index].abort, status);
        word_store(&e->gpu[gpu].table->ranks[m->index].has_last, 0);
        publish(e, gpu);
}

void emulator_limit(struct emulator *e, uint32_t comm, uint32_t session, bool limited, uint32_t limit) {
        struct emulator_session *s = &e->session[session];
        struct emulator_gpu *g = &e->gpu[s->gpu];

        for (uint32_t r = 0; r < e->comm[comm].n_ranks; r++)
                if (e->comm[comm].rank[r].session == session)
                        word_store(&g->table->ranks[e->comm[comm].rank[r].index].held, limited);
        word_store(&g->table->rings[s->ring].limit, limit);
        word_store(&g->table->rings[s->ring].limited, limited);
        publish(e, s->gpu);
}

bool emulator_settled(struct emulator *e, uint32_t session, uint32_t limit) {
        struct emulator_session *s = &e->session[session];
        bool settled = true;

        publish_told(e, s->gpu, TABLE_RINGS, 0);
        for (uint32_t i = 0; i < e->n_workers; i++)
                settled = settled && e->gpu[s->gpu].report->level[i][s->ring] == limit;
        return settled;
}

bool emulator_empty(struct emulator *e, uint32_t comm) {
        const struct emulator_comm *c = &e->comm[comm];

        publish_comm(e, comm);
        for (uint32_t a = 0; a < c->n_ranks; a++)
                for (uint32_t b = 0; b < c->n_ranks; b++)
                        for (uint32_t i = 0; a != b && i < STAGING_CHANNELS; i++)
                                if (c->rank[a].state->channel[i].pushed[b] != c->rank[b].state->channel[i].taken[a])
                                        return false;
        return true;
}

void emulator_renew(struct emulator *e, uint32_t comm) {
        struct emulator_comm *c = &e->comm[comm];

        for (uint32_t r = 0; r < c->n_ranks; r++)
                word_store(&e->gpu[e->session[c->rank[r].session].gpu].table->ranks[c->rank[r].index].key, ++e->n_keys);
        publish_comm(e, comm); /* nothing is cached any more */
        for (uint32_t r = 0; r < c->n_ranks; r++) {
                uint32_t sequence = c->rank[r].state->lane[0].sequence;

                memset(c->rank[r].staging, 0, c->layout.bytes);
                memset(c->rank[r].state, 0, sizeof(struct lane_states));
                c->rank[r].state->lane[0].sequence = sequence;
        }
        for (uint32_t i = 0; i < watch.n; i++)
                if (watch.staging[i].comm == comm)
                        memset(watch.staging[i].published, 0, STAGING_REGIONS * STAGING_LANES * STAGING_RANKS_MAX * 4);
}

void emulator_retire(struct emulator *e, uint32_t session, uint32_t buffer) {
        struct emulator_session *s = &e->session[session];
        struct table *t = e->gpu[s->gpu].table;

        for (uint32_t i = 0; i < TABLE_BUFFERS; i++)
                if (t->buffers[i].key == 2 && t->buffers[i].ring == s->ring && t->buffers[i].id == buffer)
                        word_store(&t->buffers[i].key, 1);
        publish_gone(e, s, buffer);
}

void emulator_reach(struct emulator *e, uint32_t comm, uint64_t bytes) {
        const struct emulator_comm *c = &e->comm[comm];

        for (uint32_t r = 0; r < c->n_ranks; r++) {
                const uint32_t gpu = e->session[c->rank[r].session].gpu;
                struct table_rank *entry = &e->gpu[gpu].table->ranks[c->rank[r].index];
                uint64_t gpus = 0;

                for (uint32_t p = 0; p < c->n_ranks; p++) {
                        gpus |= UINT64_C(1) << e->session[c->rank[p].session].gpu;
                        cell_store(&entry->session[p], c->rank[p].session + 1);
                }
                cell_store(&entry->gpus, gpus & ~(UINT64_C(1) << gpu));
                cell_store(&entry->reach_bytes, bytes);
        }
        publish_comm(e, comm);
}

/* ---- bursts ------------------------------------------------------------------------------------------------------ */
#define BURST_BLOCKS 3u

/* Does the host stand still? */
static bool copies_linger(const struct emulator_burst *b) {
        const struct table_copies *copies = &b->gpu->report->copies[b->launched % TABLE_BURSTS];

        return b->moment == b->lingers && (b->stays || word_load(&copies->withdrawn) != b->launched);
}

static struct emulator_burst *copies_host; /* who is in copies_begin(), when he gets there */

static void copies_between(void) {
        struct emulator_burst *b = copies_host;

        b->moment = EMULATOR_BETWEEN;
        do
                watch_yield();
        while (copies_linger(b));
}

/* One step of copies: whoever has a turn between two of them finds the host at another moment. */
static bool copies_step(struct emulator_burst *b) {
        struct table_copies *copies = &b->gpu->report->copies[b->launched % TABLE_BURSTS];
        struct burst_job *job = &b->gpu->bursts->job[b->launched % TABLE_BURSTS];

        if (copies_linger(b))
                return false;
        if (b->moment == EMULATOR_SEEN) {
                copies_host = b;
                b->begun = copies_begin(b->gpu->report, b->launched);
                b->moment = EMULATOR_BEGUN;
                if (!b->begun)
                        b->launched = 0;
                return true;
        }
        if (word_load(&job->state) != burst_state(b->launched, BURST_COPYING) ||
            cell_load(&b->gpu->report->burst[b->launched % TABLE_BURSTS]) >> 32 != b->launched) {
                fprintf(stderr, "copies move what has been taken back\n");
                _Exit(1);
        }
        if (b->moment - EMULATOR_BEGUN < copies->n) {
                auto *piece = &copies->piece[b->moment++ - EMULATOR_BEGUN];

                memcpy((void *)piece->to, (const void *)piece->from, piece->bytes);
        } else {
                word_store(&job->state, burst_state(b->launched, BURST_DONE));
                b->begun = false;
                b->launched = 0;
                b->ended++;
                b->copied++;
        }
        return true;
}

/* One step of what the host and the blocks do: they begin and end at different times. */
static bool burst_step(void *data) {
        struct emulator_burst *b = (struct emulator_burst *)data;
        struct burst_queue *q = b->gpu->bursts;
        struct burst_job *job = &q->job[b->launched % TABLE_BURSTS];
        struct task task;

        if (!b->launched) {
                const uint64_t word = cell_load(&b->gpu->report->burst[b->next % TABLE_BURSTS]);
                const uint32_t seen = (uint32_t)(word >> 32);

                if (b->hold || !seen || (int32_t)(seen - b->next) < 0)
                        return false;
                if (seen != b->next) { /* as gpu/hip/burst.c */
                        b->next++;
                        b->next += !b->next;
                        return true;
                }
                b->launched = b->next++;
                b->next += !b->next;
                b->block = b->looks = 0;
                b->begun = false;
                b->copying = word & TABLE_BURST_COPIES;
                b->moment = EMULATOR_SEEN;
        } else if (b->copying) {
                return copies_step(b);
        } else if (!b->begun) {
                const uint32_t state = word_load(&job->state),
                               go = burst_look(job, b->launched, ++b->looks > b->patience);

                b->begun = go == BURST_YES;
                if (go == BURST_NO)
                        b->launched = 0; /* taken back, or given up: none of its blocks does anything */
                return go || state != word_load(&job->state);
        } else {
                const uint32_t n_warps = b->launched % 2 ? BURST_BLOCKS : 2 * BURST_LANES + 30;

                burst_load(job, b->shared, 0, 1);
                burst_load_task(job, &task);
                for (uint32_t warp = b->block; warp < n_warps; warp += BURST_BLOCKS)
                        burst_move(b->shared, &task, b->shared->rank.n_ranks, warp, n_warps);
                fence_release_system();
                burst_end(job, b->launched, BURST_BLOCKS);
                b->begun = false;
                if (++b->block == BURST_BLOCKS) {
                        b->launched = 0;
                        b->ended++;
                }
        }
        return true;
}

void emulator_burst(struct emulator *e, uint32_t comm, uint64_t bytes) {
        const struct emulator_comm *c = &e->comm[comm];

        for (uint32_t r = 0; r < c->n_ranks; r++) {
                struct emulator_gpu *g = &e->gpu[e->session[c->rank[r].session].gpu];

                if (!g->burst.gpu) {
                        g->burst.gpu = g;
                        g->burst.shared = (struct worker_shared *)emulator_memory(e, sizeof(struct worker_shared));
                        g->burst.first = e->seed & 2 ? 0u - 3 : 0; /* numbers wrap */
                        g->bursts->posted = g->burst.first;
                        g->burst.next = g->burst.first + 1;
                        g->burst.patience = UINT32_MAX;
                        g->burst.lingers = EMULATOR_NEVER;
                        emulator_helper(e, burst_step, &g->burst);
                }
                cell_store(&g->table->ranks[c->rank[r].index].burst_bytes, bytes);
        }
        publish_comm(e, comm);
}

void emulator_burst_hold(struct emulator *e, uint32_t gpu, bool hold) {
        e->gpu[gpu].burst.hold = hold;
}

void emulator_burst_patience(struct emulator *e, uint32_t gpu, uint32_t looks) {
        e->gpu[gpu].burst.patience = looks;
}

bool emulator_burst_runs(const struct emulator *e, uint32_t gpu) {
        const struct emulator_burst *b = &e->gpu[gpu].burst;

        return b->launched && (b->begun || b->block);
}

void emulator_copies(struct emulator *e, uint32_t gpus, uint64_t bytes) {
        for (uint32_t g = 0; g < e->n_gpus; g++) {
                if (!(gpus >> g & 1))
                        continue;
                cell_store(&e->gpu[g].table->copies, bytes);
                publish(e, g); /* what is remembered of requests is forgotten */
        }
}

void emulator_copies_linger(struct emulator *e, uint32_t gpu, uint32_t moment, bool stays) {
        e->gpu[gpu].burst.lingers = moment;
        e->gpu[gpu].burst.stays = stays;
}

bool emulator_copies_lingers(const struct emulator *e, uint32_t gpu) {
        const struct emulator_burst *b = &e->gpu[gpu].burst;

        return b->launched && b->copying && b->moment == b->lingers;
}

uint32_t emulator_copied(const struct emulator *e, uint32_t gpu) {
        return e->gpu[gpu].burst.copied;
}

uint32_t emulator_bursts(const struct emulator *e, uint32_t gpu, uint32_t *ret_posted) {
        const uint32_t first = e->gpu[gpu].burst.first, last = word_load(&e->gpu[gpu].bursts->posted);

        if (ret_posted)
                *ret_posted = last - first - (last < first); /* there is no 0 */
        return e->gpu[gpu].burst.ended;
}

/* ---- reaching ---------------------------------------------------------------------------------------------------- */
static struct table_reach *search_reach(struct table *t, uint64_t session, uint32_t id) {
        uint32_t at = table_reach_hash(session, id);

        while (t->reach[at % TABLE_REACH].key &&
               (t->reach[at % TABLE_REACH].session != session || t->reach[at % TABLE_REACH].id != id))
                at++;
        return &t->reach[at % TABLE_REACH];
}

void emulator_map(struct emulator *e, uint32_t session, uint32_t buffer, uint32_t gpus, bool lie) {
        const struct emulator_session *s = &e->session[session];
        struct table_buffer *b =
                search(e->gpu[s->gpu].table->buffers, TABLE_BUFFERS, s->ring, buffer, &table_buffer::id);
        const uint64_t before = cell_load(&b->gpus);

        gpus &= ~(1u << s->gpu);
        if ((before & ~(uint64_t)gpus) && !lie) { /* no request that begins now says yes */
                cell_store(&b->gpus, before & gpus);
                publish_told(e, s->gpu, s->ring, buffer);
        }
        for (uint32_t g = 0; g < e->n_gpus; g++) {
                struct table_reach *to = search_reach(e->gpu[g].table, session + 1, buffer);
                const bool mapped = to->key == 2;

                if (mapped && !(gpus >> g & 1)) {
                        word_store(&to->key, 1);
                        publish_told(e, g, TABLE_RINGS, 0);
                } else if (!mapped && (gpus >> g & 1)) {
                        struct table_reach entry = {};

                        entry.address = b->address;
                        entry.bytes = b->bytes;
                        entry.session = session + 1;
                        entry.id = buffer;
                        entry.key = 2;
                        put_entry(to, entry);
                }
        }
        if (!lie && gpus != before) {
                cell_store(&b->gpus, gpus);
                publish_told(e, s->gpu, s->ring, buffer);
        }
}

void emulator_freeze(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t status) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        const uint32_t gpu = e->session[m->session].gpu;

        word_store(&e->gpu[gpu].table->ranks[m->index].freeze, 1);
        fence_release_system();
        emulator_abort(e, comm, rank, status);
}

void emulator_settle(struct emulator *e, uint32_t comm, uint32_t rank) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        const uint32_t gpu = e->session[m->session].gpu;

        word_store(&e->gpu[gpu].table->ranks[m->index].freeze, 0);
        publish(e, gpu);
}

void emulator_leave(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t last, uint32_t status) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        uint32_t gpu = e->session[m->session].gpu;
        struct table_rank *entry = &e->gpu[gpu].table->ranks[m->index];

        word_store(&entry->last, last);
        word_store(&entry->has_last, 1);
        word_store(&entry->abort, status);
        publish(e, gpu);
}

void emulator_left(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t who) {
        const struct emulator_member *m = &e->comm[comm].rank[rank];
        uint32_t gpu = e->session[m->session].gpu;

        cell_store(&e->gpu[gpu].table->ranks[m->index].left, who);
        publish(e, gpu);
}

/* ---- the client
 * ------------------------------------------------------------------------------------------------------ */
unsigned char *emulator_area(struct emulator *e, uint32_t session) {
        return e->session[session].area;
}

uint32_t emulator_handle(struct emulator *e, uint32_t comm, uint32_t rank) {
        return e->comm[comm].rank[rank].handle;
}

uint32_t emulator_next(struct emulator *e, uint32_t session) {
        return e->session[session].next;
}

void emulator_skip(struct emulator *e, uint32_t session, uint32_t next) {
        uint32_t *released = (uint32_t *)(e->session[session].area + BELL_OFFSET_RELEASED);

        e->session[session].next = next;
        for (uint32_t sequence = next - BELL_DEPTH; sequence != next; sequence++) {
                word_store(&released[sequence % BELL_DEPTH], sequence);
                e->session[session].used[sequence % BELL_DEPTH] = sequence;
        }
}

static void line_store(uint64_t *cells, uint32_t sequence, const uint32_t *line) {
        for (uint32_t i = 0; i < RING_WORDS; i++) {
                watch_jitter(16);
                __atomic_store_n(&cells[i], (uint64_t)sequence << 32 | line[i], __ATOMIC_RELEASE);
        }
}

bool emulator_pass(struct emulator *e, uint32_t session) {
        struct emulator_session *s = &e->session[session];
        const uint32_t sequence = s->next, slot = sequence % BELL_DEPTH;
        uint32_t line[RING_WORDS] = {0};

        if (word_load((uint32_t *)(s->area + BELL_OFFSET_RELEASED) + slot) == s->used[slot] ||
            sequence - s->used[slot] >= BELL_LINES)
                return false;
        line[RING_W_FLAGS] = BELL_FLAG_PASSED;
        line[BELL_W_LAST] = s->used[slot];
        line_store((uint64_t *)(s->area + BELL_OFFSET_LINES) + sequence % BELL_LINES * RING_WORDS, sequence, line);
        s->next = bell_sequence_next(sequence);
        return true;
}

uint32_t emulator_ring(struct emulator *e, uint32_t comm, uint32_t rank, const struct emulator_request *q) {
        struct emulator_member *m = &e->comm[comm].rank[rank];
        struct emulator_session *s = &e->session[m->session];
        uint32_t sequence = s->next, slot = sequence % BELL_DEPTH, line[RING_WORDS] = {0};
        uint64_t *cells = (uint64_t *)(s->area + BELL_OFFSET_LINES) + sequence % BELL_LINES * RING_WORDS;
        struct quad *inbox = (struct quad *)(s->area + BELL_OFFSET_INBOX) + slot * BELL_INLINE_PACKETS;
        bool last;

        if (word_load((uint32_t *)(s->area + BELL_OFFSET_RELEASED) + slot) != s->used[slot])
                return 0;
        s->used[slot] = sequence;
        s->next = bell_sequence_next(sequence);
        line[RING_W_HEAD] = RING_ABI << 24 | q->operation << 16 | q->type << 8 | q->redop;
        line[RING_W_COMM] = m->handle;
        line[RING_W_COUNT_LO] = (uint32_t)q->count;
        line[RING_W_COUNT_HI] = (uint32_t)(q->count >> 32);
        line[RING_W_PEER] = q->root;
        line[RING_W_FLAGS] =
                bell_lanes(q->in_bytes, q->out_bytes) << BELL_LANES_SHIFT | (q->inlined ? BELL_FLAG_INLINE : 0);
        if (q->operation == RING_OP_SEND || q->operation == RING_OP_RECV)
                line[RING_W_SEQUENCE] = ++m->pair[q->operation == RING_OP_RECV][q->root % EMULATOR_RANKS_MAX];
        else
                line[RING_W_SEQUENCE] = ++m->sequence;
        if (q->vector) {
                line[RING_W_ARGUMENT] = slot * BELL_ARGUMENT_BYTES + 64;
                for (uint32_t i = 0; i < 4 * e->comm[comm].n_ranks; i++)
                        cell_store((uint64_t *)(s->area + BELL_OFFSET_ARGUMENT + line[RING_W_ARGUMENT]) + i,
                                   q->vector[i]);
        }
        if (q->redop == RMX_PREMUL_SUM) {
                line[RING_W_ARGUMENT] = slot * BELL_ARGUMENT_BYTES + 64;
                cell_store((uint64_t *)(s->area + BELL_OFFSET_ARGUMENT + line[RING_W_ARGUMENT]), q->scalar);
        }
        if (!q->inlined) {
                line[RING_W_IN_BUFFER] = q->in_buffer;
                line[RING_W_IN_LO] = (uint32_t)q->in_offset;
                line[RING_W_OUT_BUFFER] = q->out_buffer;
                line[RING_W_OUT_LO] = (uint32_t)q->out_offset;
        }
        /* Nothing orders the line and what is in the inbox. */
        last = e->client.random >> 32 & 1;
        if (!last)
                line_store(cells, sequence, line);
        for (uint64_t at = 0; q->inlined && at < q->in_bytes; at += 8) {
                uint64_t value = 0;

                memcpy(&value, (const char *)q->in + at, q->in_bytes - at < 8 ? q->in_bytes - at : 8);
                packet_store(&inbox[at / 8], value, sequence);
                watch_jitter(64);
        }
        if (last)
                line_store(cells, sequence, line);
        return sequence;
}

bool emulator_poll(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t sequence,
                   const struct emulator_request *q, uint32_t *ret_status) {
        struct emulator_session *s = &e->session[e->comm[comm].rank[rank].session];
        uint32_t slot = sequence % BELL_DEPTH, status = 0, lanes = bell_lanes(q->in_bytes, q->out_bytes);
        const uint64_t *done = (const uint64_t *)(s->area + BELL_OFFSET_DONE) + slot * BELL_LANES;
        const struct quad *outbox = (const struct quad *)(s->area + BELL_OFFSET_OUTBOX) + slot * BELL_INLINE_PACKETS;

        for (uint32_t lane = 0; lane < lanes; lane++) {
                uint64_t word = __atomic_load_n(&done[lane], __ATOMIC_RELAXED);

                if ((uint32_t)word != sequence)
                        return false;
                if (!status)
                        status = (uint32_t)(word >> 32);
        }
        fence_acquire_system();
        for (uint64_t at = 0; !status && q->inlined && at < q->out_bytes; at += 8) {
                struct quad v = quad_load(&outbox[at / 8]);
                uint64_t value = packet_payload(v);

                if (!packet_is(v, sequence))
                        return false;
                memcpy((char *)q->out + at, &value, q->out_bytes - at < 8 ? q->out_bytes - at : 8);
        }
        word_store((uint32_t *)(s->area + BELL_OFFSET_RELEASED) + slot, sequence);
        *ret_status = status;
        return true;
}

uint32_t emulator_wait(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t sequence,
                       const struct emulator_request *q) {
        uint32_t status;

        while (!emulator_poll(e, comm, rank, sequence, q, &status))
                emulator_turn(e, "a request is not finished");
        return status;
}
