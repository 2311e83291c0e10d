/* SPDX-License-Identifier: MIT */
/*
 * The load.
 *
 * All ranks draw the same batches from the same pseudo-random sequence: one blocking call, or up to four requests
 * started together and waited for in an order of the rank's own. Each request has its own kind, type, reduction, size,
 * root and place, and fresh inputs; its output is poisoned before and looked at after. Because the comm sequence of a
 * request is its place in this order, outcomes of different ranks can be compared by sequence.
 *
 * The end is agreed like this: rank 0, seeing the parent's wish at the start of batch b, names batch b + 8 as the first
 * that nobody begins. A rank is never more than one batch ahead of another (no request completes before all ranks have
 * made it), so everybody reads the answer before reaching that batch.
 */
#include "tests/e2e/load_rank.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/proc.h"
#include "tools/perf/pattern.h"
#include "util/clock.h"

#define BATCH_MAX 4u
#define COUNT_MAX 32768u
#define GUARD     64u
#define N_TYPES   3u
#define N_REDOPS  4u

struct request {
        uint32_t op, type, redop, root;
        size_t count;
        bool in_place;
        uint32_t sequence;
        struct pattern *pattern;
        char *in, *out; /* arguments */
        struct rmx_request handle;
};

struct worker {
        struct load_shared *shared;
        struct load_rank *me;
        uint32_t rank, n_ranks;
        struct rmx_session *session;
        struct rmx_comm *comm;
        char *area[BATCH_MAX][2];
        struct pattern *patterns; /* [op][type][redop] */
        uint64_t last_ns;
};

static const uint32_t types[N_TYPES] = {RMX_FLOAT32, RMX_BFLOAT16, RMX_INT32};

static void leave(char *error, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
static void leave(char *error, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(error, LOAD_ERROR_MAX, format, arguments);
        va_end(arguments);
        _exit(1);
}

static void must(const struct worker *w, int code, const char *what) {
        if (code != RMX_OK)
                leave(w->me->error, "%s: %s: %s", what, rmx_error_name(code), rmx_last_error());
}

static uint64_t draw(uint64_t a, uint64_t b) {
        uint64_t state = a * 0x100000001b3u + b;

        return proc_random(&state);
}

static struct request request_draw(const struct worker *w, uint32_t sequence) {
        uint64_t h = draw(sequence, 1), size = draw(sequence, 2);
        struct request q = {.sequence = sequence};
        uint32_t type = (uint32_t)(h >> 8) % N_TYPES, redop = (uint32_t)(h >> 16) % N_REDOPS;

        q.op = (uint32_t)h % 8;
        q.op = q.op >= 5 ? PATTERN_ALL_REDUCE : q.op;
        q.type = types[type];
        q.redop = redop;
        q.root = (uint32_t)(h >> 24) % w->n_ranks;
        q.in_place = h >> 40 & 1;
        q.count = size % 64 == 0 ? (size >> 8) % COUNT_MAX : size % 8 == 0 ? (size >> 8) % 8192 : (size >> 8) % 512;
        q.pattern = &w->patterns[(q.op * N_TYPES + type) * N_REDOPS + redop];
        return q;
}

static void request_prepare(const struct worker *w, struct request *q, uint32_t slot) {
        size_t unit = rmx_type_size(q->type), in = pattern_input_elements(q->pattern, w->rank, q->count);
        size_t out = pattern_output_elements(q->pattern, w->rank, q->count), shift = 0;

        q->out = w->area[slot][0] + GUARD;
        q->in = w->area[slot][1] + GUARD;
        if (q->in_place) {
                q->in = q->out;
                shift = pattern_in_place_offset(q->pattern, w->rank, q->count) * unit;
        }
        memset(q->out - GUARD, 0xa5, GUARD);
        memset(q->out, 0x5a, (q->in_place && in > out ? in : out) * unit);
        if (in < out)
                q->in += shift;
        else
                q->out += shift;
        memset(q->out + out * unit, 0xa5, q->in_place ? 0 : GUARD);
        q->pattern->root = q->root;
        pattern_fill(q->pattern, w->rank, q->sequence, q->count, q->in);
}

static int request_start(struct worker *w, struct request *q) {
        /* partner load_issued_max: must not be late, it bounds what the executor can have seen */
        atomic_store_explicit(&w->me->issued, q->sequence, memory_order_seq_cst);
        switch (q->op) {
        case PATTERN_ALL_REDUCE:
                return rmx_all_reduce_start(w->comm, q->in, q->out, q->count, q->type, q->redop, NULL, &q->handle);
        case PATTERN_ALL_GATHER:
                return rmx_all_gather_start(w->comm, q->in, q->out, q->count, q->type, NULL, &q->handle);
        case PATTERN_REDUCE_SCATTER:
                return rmx_reduce_scatter_start(w->comm, q->in, q->out, q->count, q->type, q->redop, NULL, &q->handle);
        case PATTERN_BROADCAST:
                return rmx_broadcast_start(w->comm, q->in, q->out, q->count, q->type, q->root, NULL, &q->handle);
        default:
                return rmx_barrier_start(w->comm, NULL, &q->handle);
        }
}

static int request_call(struct worker *w, struct request *q) {
        atomic_store_explicit(&w->me->issued, q->sequence, memory_order_seq_cst); /* partner load_issued_max */
        switch (q->op) {
        case PATTERN_ALL_REDUCE:
                return rmx_all_reduce(w->comm, q->in, q->out, q->count, q->type, q->redop, NULL);
        case PATTERN_ALL_GATHER:
                return rmx_all_gather(w->comm, q->in, q->out, q->count, q->type, NULL);
        case PATTERN_REDUCE_SCATTER:
                return rmx_reduce_scatter(w->comm, q->in, q->out, q->count, q->type, q->redop, NULL);
        case PATTERN_BROADCAST:
                return rmx_broadcast(w->comm, q->in, q->out, q->count, q->type, q->root, NULL);
        default:
                return rmx_barrier(w->comm, NULL);
        }
}

static void note_completion(struct worker *w) {
        uint64_t now = clock_now_ns(), gap = now - w->last_ns;

        w->last_ns = now;
        /* relaxed: the parent resets and reads it between events that order themselves; a lost update costs one sample
         */
        if (gap > atomic_load_explicit(&w->me->longest_gap_ns, memory_order_relaxed))
                atomic_store_explicit(&w->me->longest_gap_ns, gap, memory_order_relaxed);
}

static void request_finish(struct worker *w, struct request *q, int code) {
        size_t wrong = 0;

        note_completion(w);
        w->shared->outcome[w->rank][q->sequence] = (uint8_t)(1 + code);
        if (code != RMX_OK && code != RMX_E_LOST)
                leave(w->me->error, "sequence %u: %s: %s", q->sequence, rmx_error_name(code), rmx_last_error());
        if (code != RMX_OK)
                return;
        q->pattern->root = q->root; /* another request of the batch may share the pattern */
        wrong = pattern_wrong_output(q->pattern, w->rank, q->sequence, q->count, q->out);
        if (!q->in_place) {
                const char *end =
                        q->out + pattern_output_elements(q->pattern, w->rank, q->count) * rmx_type_size(q->type);

                for (uint32_t i = 1; i <= GUARD; i++)
                        wrong += (unsigned char)q->out[-(int)i] != 0xa5 || (unsigned char)end[i - 1] != 0xa5;
        }
        if (wrong > 0 && atomic_fetch_add(&w->me->wrong, wrong) == 0) /* partner load_stop */
                snprintf(w->me->error, LOAD_ERROR_MAX,
                         "sequence %u: %zu of %zu elements wrong (op %u, type %u, redop %u, root %u, %s place)",
                         q->sequence, wrong, pattern_output_elements(q->pattern, w->rank, q->count), q->op, q->type,
                         q->redop, q->root, q->in_place ? "in" : "out of");
}

static void batch_run(struct worker *w, uint32_t batch, uint32_t *sequence) {
        uint64_t h = draw(batch, 3), order = draw(batch, 4 + w->rank);
        uint32_t n = h % 3 == 0 ? 1 : 1 + (uint32_t)(h >> 8) % BATCH_MAX;
        struct request q[BATCH_MAX];

        for (uint32_t i = 0; i < n; i++) {
                q[i] = request_draw(w, ++*sequence);
                request_prepare(w, &q[i], i);
        }
        w->last_ns = clock_now_ns(); /* preparing and verifying are the rank's own time, not a gap of the node */
        if (n == 1) {
                request_finish(w, &q[0], request_call(w, &q[0]));
        } else {
                for (uint32_t i = 0; i < n; i++)
                        must(w, request_start(w, &q[i]), "start");
                for (uint32_t i = 0; i < n; i++) {
                        struct request *next = &q[(i + order) % n];

                        request_finish(w, next, rmx_wait(&next->handle, NULL));
                }
        }
        /* release: outcomes before it; partner load_completed_max and load_await_progress */
        atomic_store_explicit(&w->me->completed, *sequence, memory_order_release);
}

static void areas_new(struct worker *w) {
        size_t bytes = (size_t)COUNT_MAX * sizeof(float) * w->n_ranks + 2 * GUARD;

        for (uint32_t i = 0; i < BATCH_MAX; i++)
                for (uint32_t k = 0; k < 2; k++) {
                        void *area = NULL;

                        if (i == BATCH_MAX - 1) /* the last slot goes through the library's copying */
                                area = malloc(bytes);
                        else
                                must(w, rmx_mem_alloc(w->session, bytes, &area), "rmx_mem_alloc");
                        if (!area)
                                leave(w->me->error, "out of memory");
                        if (i == BATCH_MAX - 1) /* else its first use would need railmuxd, which may be away then */
                                must(w, rmx_buffer_register(w->session, area, bytes), "rmx_buffer_register");
                        w->area[i][k] = area;
                }
}

static void patterns_new(struct worker *w) {
        w->patterns = calloc(5 * N_TYPES * N_REDOPS, sizeof(*w->patterns));
        if (!w->patterns)
                leave(w->me->error, "out of memory");
        for (uint32_t op = 0; op < 5; op++)
                for (uint32_t t = 0; t < N_TYPES; t++)
                        for (uint32_t d = 0; d < N_REDOPS; d++)
                                pattern_init(&w->patterns[(op * N_TYPES + t) * N_REDOPS + d], op, types[t], d,
                                             w->n_ranks, 0);
}

static void join(struct worker *w, const char *socket) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .name = "load"};
        struct rmx_comm_options comm_options = {.size = sizeof(comm_options), .gpu = -1, .name = "load"};

        must(w, rmx_session_open(&options, &w->session), "rmx_session_open");
        must(w, rmx_comm_create(w->session, &w->shared->id, w->n_ranks, w->rank, &comm_options, &w->comm),
             "rmx_comm_create");
}

void load_rank_run(struct load_shared *shared, const char *socket, uint32_t n_ranks, uint32_t rank) {
        struct worker w = {.shared = shared, .me = &shared->rank[rank], .rank = rank, .n_ranks = n_ranks};
        uint32_t sequence = 0;

        join(&w, socket);
        areas_new(&w);
        patterns_new(&w);
        for (uint32_t batch = 1;; batch++) {
                uint32_t last;

                /* relaxed: partner load_stop, a wish; acquire/release on last_batch between the ranks */
                if (rank == 0 && atomic_load_explicit(&shared->stop, memory_order_relaxed) &&
                    atomic_load_explicit(&shared->last_batch, memory_order_relaxed) == 0)
                        atomic_store_explicit(&shared->last_batch, batch + 8, memory_order_release);
                last = atomic_load_explicit(&shared->last_batch, memory_order_acquire);
                if ((last != 0 && batch >= last) || sequence + BATCH_MAX >= LOAD_SEQUENCES)
                        break;
                batch_run(&w, batch, &sequence);
        }
        must(&w, rmx_comm_destroy(w.comm), "rmx_comm_destroy");
        rmx_session_close(w.session);
        for (uint32_t k = 0; k < 2; k++)
                free(w.area[BATCH_MAX - 1][k]);
        free(w.patterns);
        exit(0);
}

/* Creates one communicator of all creators and uses it once. */
static int create_once(struct load_shared *shared, struct rmx_session *session, uint32_t number) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .name = "created"};
        char *error = shared->creation.error[number];
        float mine = (float)(1 + number), sum = 0;
        struct rmx_comm *comm;
        int code;

        /* release: partner load_create_begin */
        atomic_fetch_add_explicit(&shared->creation.issued[number], 1, memory_order_release);
        code = rmx_comm_create(session, &shared->creation.id, LOAD_CREATORS, number, &options, &comm);
        if (code != RMX_OK) {
                snprintf(error, LOAD_ERROR_MAX, "rmx_comm_create: %s: %s", rmx_error_name(code), rmx_last_error());
                return code;
        }
        code = rmx_all_reduce(comm, &mine, &sum, 1, RMX_FLOAT32, RMX_SUM, NULL);
        if (code != RMX_OK)
                snprintf(error, LOAD_ERROR_MAX, "rmx_all_reduce: %s: %s", rmx_error_name(code), rmx_last_error());
        else if (sum != 3.0f)
                leave(error, "rmx_all_reduce: 1 + 2 = %g", (double)sum);
        rmx_comm_destroy(comm);
        return code;
}

void load_creator_run(struct load_shared *shared, const char *socket, uint32_t number, int command, int answer) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .name = "creator"};
        char *error = shared->creation.error[number];
        struct rmx_session *session;
        char byte = 0;
        int code;

        code = rmx_session_open(&options, &session);
        if (code == RMX_OK && number == 0)
                code = rmx_get_id(session, &shared->id); /* of the ranks */
        if (code == RMX_OK && number == 0)
                code = rmx_get_id(session, &shared->creation.id);
        if (code != RMX_OK)
                leave(error, "rmx_session_open: %s: %s", rmx_error_name(code), rmx_last_error());
        if (write(answer, &byte, 1) != 1) /* ready: also says that the ids are there */
                leave(error, "write: %s", strerror(errno));
        while (read(command, &byte, 1) == 1) {
                byte = (char)create_once(shared, session, number);
                /* The next id is made now, so that a later creation needs no other answer of the daemon. */
                if (number == 0 && rmx_get_id(session, &shared->creation.id) != RMX_OK)
                        leave(error, "rmx_get_id: %s", rmx_last_error());
                if (write(answer, &byte, 1) != 1)
                        leave(error, "write: %s", strerror(errno));
        }
        rmx_session_close(session);
        exit(0);
}
