/* SPDX-License-Identifier: MIT */
/*
 * A client writes what it likes into its bell area, on GPUs that another session's communicator uses, too. The other's
 * requests go on, with right results; what is wrong is answered as such; and nothing is touched that the client could
 * not reach anyway: buffers end at pages that nobody may touch, and all staging but its own is watched.
 */
#include "tests/device/traffic.h"

#include <initializer_list>
#include <string.h>

#include "ring/line.h"

#define BYTES 4096u

/* The hostile session is the first on GPU 0; another of its processes is on GPU 1. */
struct world {
        struct emulator *e;
        struct traffic *other;
        uint32_t session[2], comm, first_buffer, second_buffer, other_buffer;
        uint32_t base[RING_WORDS]; /* a line that is right, but for its sequence */
        uint32_t aborted;          /* status */
        unsigned int n_answered;
        uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below) {
        w->random = mix(w->random + 0x632be59bd9b4e019u);
        return (uint32_t)((w->random >> 20) % below);
}

static void world_init(struct world *w, uint32_t workers, uint64_t seed) {
        uint32_t other[2];
        unsigned char *memory;

        *w = {};
        w->random = seed;
        w->e = emulator_new(2, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        for (uint32_t g = 0; g < 2; g++) {
                w->session[g] = emulator_session(w->e, g, 1);
                other[g] = emulator_session(w->e, g, 1);
        }
        w->comm = emulator_comm(w->e, 2, w->session, STAGING_PACKET, 0, 0);
        emulator_distrust(w->e, w->comm);
        /* The other has more handles and buffers than the hostile one, so some of its numbers mean nothing here. */
        emulator_comm(w->e, 2, other, STAGING_PACKET, 0, 0);
        w->other = (struct traffic *)calloc(1, sizeof(*w->other));
        CHECK(w->other, "no memory");
        traffic_init(w->other, w->e, emulator_comm(w->e, 2, other, STAGING_BULK, 0, 0), 2, other, 4, 3000, seed);
        memory = (unsigned char *)emulator_memory(w->e, BYTES);
        w->first_buffer = emulator_buffer(w->e, w->session[0], memory, BYTES);
        w->second_buffer = emulator_buffer(w->e, w->session[0], emulator_memory(w->e, BYTES), BYTES);
        w->other_buffer = w->other->slot[3].b[0].out_id;
        emulator_mislead(w->e, w->session[0], other[0], emulator_handle(w->e, w->other->comm, 0), w->other_buffer);
        for (uint32_t i = 0; i < 2; i++) /* the same numbers on the other GPU */
                emulator_buffer(w->e, w->session[1], emulator_memory(w->e, BYTES), BYTES);
        w->base[RING_W_HEAD] = RING_ABI << 24 | RING_OP_ALL_REDUCE << 16 | RMX_FLOAT32 << 8 | RMX_SUM;
        w->base[RING_W_COMM] = emulator_handle(w->e, w->comm, 0);
        w->base[RING_W_COUNT_LO] = 64;
        w->base[RING_W_IN_BUFFER] = w->first_buffer;
        w->base[RING_W_OUT_BUFFER] = w->second_buffer;
        w->base[RING_W_FLAGS] = BELL_LANES << BELL_LANES_SHIFT;
        w->base[RING_W_SEQUENCE] = 1;
}

static void world_deinit(struct world *w) {
        emulator_free(w->e);
        traffic_deinit(w->other);
        free(w->other);
}

/* The other session goes on, and the control threads do what they do. */
static void world_turn(struct world *w) {
        for (uint32_t r = 0; r < 2; r++)
                traffic_ring(w->other, r);
        traffic_harvest(w->other);
        emulator_turn(w->e, "the other session");
        for (uint32_t r = 0; r < 2 && !w->aborted; r++)
                w->aborted = emulator_reported(w->e, w->comm, r);
}

static uint64_t *line_at(struct world *w, uint32_t which, uint32_t sequence) {
        return (uint64_t *)(emulator_area(w->e, w->session[which]) + BELL_OFFSET_LINES) +
               sequence % BELL_LINES * RING_WORDS;
}

static void line_write(struct world *w, uint32_t which, uint32_t sequence, const uint32_t *line) {
        uint64_t *cells = line_at(w, which, sequence);

        for (uint32_t i = 0; i < RING_WORDS; i++)
                __atomic_store_n(&cells[i], (uint64_t)sequence << 32 | line[i], __ATOMIC_RELEASE);
}

/* What a lane has answered; ~0: nothing yet. */
static uint32_t answer(struct world *w, uint32_t which, uint32_t sequence, uint32_t lane) {
        const uint64_t *done = (const uint64_t *)(emulator_area(w->e, w->session[which]) + BELL_OFFSET_DONE);
        uint64_t word = __atomic_load_n(&done[sequence % BELL_DEPTH * BELL_LANES + lane], __ATOMIC_RELAXED);

        return (uint32_t)word == sequence ? (uint32_t)(word >> 32) : ~0u;
}

/* ---- lines with something wrong ------------------------------------------------------------------------------------
 */
/* Every lane that is waited for says that it is wrong. */
static void must_be_refused(struct world *w, const uint32_t *line, const char *what) {
        const uint32_t sequence = emulator_next(w->e, w->session[0]);
        uint32_t lanes = line[RING_W_FLAGS] >> BELL_LANES_SHIFT;

        if (!lanes || lanes > BELL_LANES)
                lanes = BELL_LANES;
        line_write(w, 0, sequence, line);
        for (uint32_t lane = 0; lane < lanes; lane++) {
                uint32_t status, turns = 0;

                while ((status = answer(w, 0, sequence, lane)) == ~0u) {
                        CHECK(++turns < 20000, "%s: lane %u does not answer", what, lane);
                        world_turn(w);
                }
                CHECK(ring_status_code(status) == RMX_E_INVALID || ring_status_code(status) == RMX_E_UNSUPPORTED,
                      "%s: lane %u got status %x", what, lane, status);
        }
        emulator_skip(w->e, w->session[0], bell_sequence_next(sequence));
        w->n_answered++;
}

static void refuse_word(struct world *w, uint32_t word, uint32_t value, const char *what) {
        uint32_t line[RING_WORDS];

        memcpy(line, w->base, sizeof(line));
        line[word] = value;
        must_be_refused(w, line, what);
}

static uint32_t head(uint32_t abi, uint32_t operation, uint32_t type, uint32_t redop) {
        return abi << 24 | operation << 16 | type << 8 | redop;
}

static void refuse_heads(struct world *w) {
        static const uint32_t operations[] = {RING_OP_NONE, RING_OP_COUNT, 15, 16, 17, 127, 128, 255};

        for (uint32_t abi : {0u, 2u, 129u, 255u})
                refuse_word(w, RING_W_HEAD, head(abi, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_SUM), "ABI");
        for (uint32_t operation : operations)
                refuse_word(w, RING_W_HEAD, head(RING_ABI, operation, RMX_FLOAT32, RMX_SUM), "operation");
        for (uint32_t type : {(uint32_t)RMX_TYPE_COUNT, 64u, 128u, 255u})
                refuse_word(w, RING_W_HEAD, head(RING_ABI, RING_OP_ALL_REDUCE, type, RMX_SUM), "type");
        for (uint32_t redop : {(uint32_t)RMX_REDOP_COUNT, 64u, 255u})
                refuse_word(w, RING_W_HEAD, head(RING_ABI, RING_OP_ALL_REDUCE, RMX_FLOAT32, redop), "reduction");
        for (uint32_t operation : collective_operations)
                if (!operation_has_redop(operation))
                        refuse_word(w, RING_W_HEAD, head(RING_ABI, operation, RMX_FLOAT32, RMX_MAX), "no reduction");
        refuse_word(w, RING_W_HEAD, head(RING_ABI, RING_OP_BARRIER, RMX_FLOAT32, 0), "barrier of elements");
}

static void refuse_counts(struct world *w) {
        uint32_t line[RING_WORDS];

        for (uint32_t operation : collective_operations)
                for (uint32_t shift = 10; shift < 64; shift++)
                        for (uint32_t type : {(uint32_t)RMX_UINT8, (uint32_t)RMX_FLOAT64}) {
                                uint64_t count = UINT64_C(1) << shift;

                                memcpy(line, w->base, sizeof(line));
                                line[RING_W_HEAD] = head(RING_ABI, operation, type, 0);
                                if (operation == RING_OP_REDUCE && type == RMX_UINT8)
                                        count = ~count;
                                line[RING_W_COUNT_LO] = (uint32_t)count;
                                line[RING_W_COUNT_HI] = (uint32_t)(count >> 32);
                                if (count > BYTES) {
                                        must_be_refused(w, line, "count");
                                        line[RING_W_FLAGS] |= BELL_FLAG_INLINE;
                                        if (count > BELL_INLINE_BYTES)
                                                must_be_refused(w, line, "count of an inline request");
                                }
                        }
}

static void refuse_places(struct world *w) {
        static const uint64_t offsets[] = {BYTES - 255,
                                           BYTES - 252,
                                           BYTES,
                                           BYTES + 4,
                                           UINT64_C(1) << 32,
                                           UINT64_C(1) << 63,
                                           UINT64_MAX - 255,
                                           UINT64_MAX - 3,
                                           UINT64_MAX,
                                           1,
                                           2,
                                           3};
        uint32_t line[RING_WORDS];

        for (uint32_t at : {(uint32_t)RING_W_IN_BUFFER, (uint32_t)RING_W_OUT_BUFFER}) {
                for (uint32_t id : {0u, w->other_buffer, w->second_buffer + 1, 0x80000000u, ~0u})
                        refuse_word(w, at, id, "buffer");
                for (uint64_t offset : offsets) {
                        memcpy(line, w->base, sizeof(line));
                        line[at + 1] = (uint32_t)offset;
                        line[at + 2] = (uint32_t)(offset >> 32);
                        must_be_refused(w, line, "offset");
                }
        }
        for (uint32_t handle :
             {0u, w->base[RING_W_COMM] + 1, w->base[RING_W_COMM] + 13, w->base[RING_W_COMM] + 26, ~0u})
                refuse_word(w, RING_W_COMM, handle, "handle");
        for (uint32_t flags : {2u, 4u, 0x100u, 0x8000u, 0xffffu})
                refuse_word(w, RING_W_FLAGS, BELL_LANES << BELL_LANES_SHIFT | flags, "flags");
        for (uint32_t lanes : {0u, 1u, BELL_LANES + 1, 0xffffu})
                refuse_word(w, RING_W_FLAGS, lanes << BELL_LANES_SHIFT | 4, "flags and lanes");
        for (uint32_t bit = 0; bit < 32; bit++)
                refuse_word(w, RING_W_ZERO, 1u << bit, "zero");
        for (uint32_t root : {1u, 2u, ~0u})
                refuse_word(w, RING_W_PEER, root, "root of what has none");
        for (uint32_t epoch : {1u, 2u, 0x7fffffffu})
                refuse_word(w, RING_W_EPOCH, epoch, "epoch");
        for (uint32_t argument : {8u, 64u, ~0u})
                refuse_word(w, RING_W_ARGUMENT, argument, "argument of what has none");
        memcpy(line, w->base, sizeof(line));
        line[RING_W_HEAD] = head(RING_ABI, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_PREMUL_SUM);
        for (uint32_t argument : {0u, 1u, 4u, 63u, BELL_ARGUMENT_BYTES - 4, BELL_DEPTH * BELL_ARGUMENT_BYTES,
                                  BELL_DEPTH * BELL_ARGUMENT_BYTES + 64, 0x7ffffff8u, 0xfffffff8u, ~0u}) {
                line[RING_W_ARGUMENT] = argument;
                must_be_refused(w, line, "argument");
        }
        for (uint32_t operation : {(uint32_t)RING_OP_REDUCE, (uint32_t)RING_OP_BROADCAST, (uint32_t)RING_OP_GATHER,
                                   (uint32_t)RING_OP_SCATTER})
                for (uint32_t root : {2u, 64u, 0x100u, ~0u}) {
                        memcpy(line, w->base, sizeof(line));
                        line[RING_W_HEAD] = head(RING_ABI, operation, RMX_FLOAT32, 0);
                        line[RING_W_PEER] = root;
                        must_be_refused(w, line, "root");
                }
}

/* Lane 0 says so, and the control thread hears of it. */
static void refuse_sequences(uint64_t seed) {
        for (uint32_t sequence : {0u, 2u, 3u, 0x80000000u, ~0u}) {
                struct world w;
                uint32_t line[RING_WORDS], at, turns = 0;

                world_init(&w, 1 + sequence % 3, seed + sequence);
                memcpy(line, w.base, sizeof(line));
                line[RING_W_SEQUENCE] = sequence;
                at = emulator_next(w.e, w.session[0]);
                line_write(&w, 0, at, line);
                while (answer(&w, 0, at, 0) == ~0u || !w.aborted) {
                        CHECK(++turns < 20000, "sequence %x: nobody says anything", sequence);
                        world_turn(&w);
                }
                CHECK(ring_status_code(answer(&w, 0, at, 0)) == RMX_E_INVALID, "sequence %x: status %x", sequence,
                      answer(&w, 0, at, 0));
                traffic_drain(w.other);
                world_deinit(&w);
        }
}

/* ---- nonsense ------------------------------------------------------------------------------------------------------
 */
/* A line that is right, or nearly. */
static void line_draw(struct world *w, uint32_t which, uint32_t *line) {
        static const uint32_t words[] = {0, 1, 2, 3, 7, 8, 16, 63, 64, 128, 255, 4096, 0x10000, 0x80000000u, ~0u};

        memcpy(line, w->base, RING_WORDS * 4);
        line[RING_W_COMM] = emulator_handle(w->e, w->comm, which);
        line[RING_W_HEAD] = head(RING_ABI, collective_operations[draw(w, N_COLLECTIVE_OPERATIONS)],
                                 draw(w, RMX_TYPE_COUNT), draw(w, 2) ? 0 : draw(w, RMX_REDOP_COUNT));
        line[RING_W_COUNT_LO] = draw(w, 300);
        line[RING_W_FLAGS] = (1 + draw(w, BELL_LANES)) << BELL_LANES_SHIFT | draw(w, 2);
        line[RING_W_SEQUENCE] = 1 + draw(w, 40);
        line[RING_W_PEER] = draw(w, 2);
        line[RING_W_IN_LO] = draw(w, 600) * 8;
        line[RING_W_OUT_LO] = draw(w, 600) * 8;
        if (draw(w, 4) == 0)
                line[RING_W_ARGUMENT] = draw(w, BELL_DEPTH) * BELL_ARGUMENT_BYTES + 8 * draw(w, 600);
        for (uint32_t n = draw(w, 3); n; n--)
                line[draw(w, RING_WORDS)] = words[draw(w, sizeof(words) / sizeof(words[0]))];
        if (draw(w, 8) == 0)
                for (uint32_t i = 0; i < RING_WORDS; i++)
                        line[i] = (uint32_t)(w->random = mix(w->random + 1));
}

/* Anything, anywhere in the area. */
static void scribble(struct world *w, uint32_t which) {
        uint64_t *area = (uint64_t *)emulator_area(w->e, w->session[which]);
        uint32_t at = draw(w, 2) ? draw(w, BELL_AREA_BYTES / 8 - 64) : draw(w, BELL_OFFSET_ARGUMENT / 8 - 64);

        for (uint32_t n = draw(w, 64); n; n--, at++)
                __atomic_store_n(&area[at], w->random = mix(w->random + 1), __ATOMIC_RELAXED);
}

static void nonsense(uint32_t workers, uint32_t steps, uint64_t seed) {
        struct world w;
        bool told = false;

        world_init(&w, workers, seed);
        for (uint32_t i = 0; i < steps; i++) {
                const uint32_t which = draw(&w, 2);
                const uint32_t next = emulator_next(w.e, w.session[which]);
                uint32_t line[RING_WORDS];

                line_draw(&w, which, line);
                switch (draw(&w, 10)) {
                case 0:
                        scribble(&w, which);
                        break;
                case 1: { /* ahead, or behind */
                        static const int32_t away[] = {
                                -(int32_t)BELL_LINES, -64,       -1,       1, 2, 64, BELL_LINES - 1, BELL_LINES,
                                BELL_LINES + 1,       INT32_MIN, INT32_MAX};

                        line_write(&w, which, next + (uint32_t)away[draw(&w, 11)], line);
                        break;
                }
                case 2:
                case 3: /* rewritten while it is looked at */
                        line_write(&w, which, next, line);
                        for (uint32_t k = draw(&w, 6); k; k--) {
                                world_turn(&w);
                                line_draw(&w, which, line);
                                if (draw(&w, 2))
                                        line_write(&w, which, next, line);
                                else
                                        __atomic_store_n(&line_at(&w, which, next)[draw(&w, RING_WORDS)],
                                                         (uint64_t)next << 32 | line[draw(&w, RING_WORDS)],
                                                         __ATOMIC_RELAXED);
                        }
                        emulator_skip(w.e, w.session[which], bell_sequence_next(next));
                        break;
                default:
                        line_write(&w, which, next, line);
                        emulator_skip(w.e, w.session[which], bell_sequence_next(next));
                        break;
                }
                for (uint32_t k = draw(&w, 4); k; k--)
                        world_turn(&w);
                /* Sooner or later the control threads end it. */
                if (!told && (w.aborted || i % 64 == 63) && draw(&w, 8) == 0) {
                        told = true;
                        for (uint32_t r = 0; r < 2; r++)
                                emulator_abort(w.e, w.comm, r, w.aborted ? w.aborted : (uint32_t)RMX_E_ABORTED);
                }
                if (draw(&w, 50) == 0)
                        emulator_restart(w.e, draw(&w, 2));
        }
        for (uint32_t r = 0; r < 2; r++)
                emulator_abort(w.e, w.comm, r, RMX_E_ABORTED);
        traffic_run(w.other, 20);
        CHECK(w.other->finished >= 20, "the other session has hardly done anything");
        world_deinit(&w);
}

/* A line that was valid is remembered. When its buffer is gone nothing of that may be left for a line that is all zeros
 * where the memory of it was marked. */
static void forgotten(uint32_t workers, bool told, uint32_t type, uint64_t seed) {
        struct world w;
        uint32_t line[RING_WORDS], status;

        world_init(&w, workers, seed);
        if (!told) /* the workers are told of every other one */
                emulator_retire(w.e, w.session[1], 1);
        for (uint32_t i = 0; i < 2; i++) {
                const uint32_t next = emulator_next(w.e, w.session[0]);

                memcpy(line, w.base, sizeof(line));
                line[RING_W_SEQUENCE] = 1 + i;
                line[RING_W_HEAD] = i ? 0 : head(RING_ABI, RING_OP_ALL_REDUCE, type, RMX_SUM);
                line_write(&w, 0, next, line);
                emulator_skip(w.e, w.session[0], bell_sequence_next(next));
                while (!emulator_rests(w.e)) /* without the other session, whose lines are remembered, too */
                        ;
                if (!i) {
                        emulator_retire(w.e, w.session[0], w.second_buffer);
                        continue;
                }
                for (uint32_t lane = 0; lane < BELL_LANES; lane++) {
                        status = answer(&w, 0, next, lane);
                        CHECK(status != RMX_OK && status != ~0u, "lane %u of a forged line: status %x", lane, status);
                }
        }
        for (uint32_t r = 0; r < 2; r++)
                emulator_abort(w.e, w.comm, r, RMX_E_ABORTED);
        traffic_drain(w.other);
        world_deinit(&w);
}

/* So many requests of one rank. */
static void rank_rings(struct world *w, uint32_t comm, uint32_t which, uint32_t n, uint32_t operation, uint32_t root) {
        for (uint32_t i = 0; i < n; i++) {
                const uint32_t next = emulator_next(w->e, w->session[which]);
                uint32_t line[RING_WORDS];

                memcpy(line, w->base, sizeof(line));
                line[RING_W_COMM] = emulator_handle(w->e, comm, which);
                line[RING_W_HEAD] = head(RING_ABI, operation, RMX_FLOAT32, 0);
                line[RING_W_PEER] = root;
                line[RING_W_COUNT_LO] = 256;
                line[RING_W_SEQUENCE] = 1 + i;
                line_write(w, which, next, line);
                emulator_skip(w->e, w->session[which], bell_sequence_next(next));
        }
}

static void others_go_on(struct world *w) {
        const uint32_t until = w->other->finished + 30;

        for (uint32_t turns = 0; w->other->finished < until; turns++) {
                CHECK(turns < 100000, "requests of one session that wait keep another's from being taken");
                world_turn(w);
        }
}

/* Requests that nobody answers, as many as fit, on either GPU: the other session's need places, too. */
static void hoard(uint32_t workers, uint64_t seed) {
        struct world w;

        world_init(&w, workers, seed);
        for (uint32_t which = 0; which < 2; which++) /* each waits for the other */
                rank_rings(&w, w.comm, which, BELL_DEPTH, which ? RING_OP_GATHER : RING_OP_REDUCE, which);
        others_go_on(&w);
        for (uint32_t r = 0; r < 2; r++)
                emulator_abort(w.e, w.comm, r, RMX_E_ABORTED);
        traffic_drain(w.other);
        world_deinit(&w);
}

/* Requests that are answered late: those for which there was no place are taken when there is one, and none is
 * forgotten behind those before it that nobody answers. */
static void answer_late(uint32_t workers, uint64_t seed) {
        const uint32_t dead = 4, n = BELL_DEPTH - dead;
        struct world w;
        uint32_t other;

        world_init(&w, workers, seed);
        other = emulator_comm(w.e, 2, w.session, STAGING_PACKET, 0, 0);
        emulator_distrust(w.e, other);
        rank_rings(&w, other, 0, dead, RING_OP_ALL_REDUCE, 0);
        rank_rings(&w, w.comm, 0, n, RING_OP_ALL_REDUCE, 0);
        others_go_on(&w);
        rank_rings(&w, w.comm, 1, n, RING_OP_ALL_REDUCE, 0);
        for (uint32_t which = 0; which < 2; which++)
                for (uint32_t i = 0; i < n; i++)
                        for (uint32_t lane = 0, turns = 0; lane < BELL_LANES; turns++) {
                                const uint32_t status = answer(&w, which, 1 + i + (which ? 0 : dead), lane);

                                CHECK(status == RMX_OK || status == ~0u, "line %u: status %x", i, status);
                                CHECK(turns < 100000, "line %u of rank %u is not looked at any more", i, which);
                                if (status == RMX_OK)
                                        lane++;
                                else
                                        world_turn(&w);
                        }
        traffic_drain(w.other);
        world_deinit(&w);
}

/* A ring that always has another line: the other session's are looked at all the same. */
static void chatter(uint32_t workers, uint64_t seed) {
        uint32_t next[2], oldest[2], line[RING_WORDS], n = 0;
        struct world w;

        world_init(&w, workers, seed);
        for (uint32_t which = 0; which < 2; which++)
                next[which] = oldest[which] = emulator_next(w.e, w.session[which]);
        memcpy(line, w.base, sizeof(line));
        line[RING_W_HEAD] = head(RING_ABI + 1, RING_OP_BARRIER, RMX_INT8, 0);
        for (uint32_t turns = 0; w.other->finished < 30; turns++) {
                CHECK(turns < 100000, "a ring that never stops keeps another's from being looked at");
                for (uint32_t which = 0; which < 2; which++) {
                        bool all = true;

                        while (all && oldest[which] != next[which]) {
                                for (uint32_t lane = 0; lane < BELL_LANES; lane++)
                                        all = all && answer(&w, which, oldest[which], lane) != ~0u;
                                if (all)
                                        oldest[which] = bell_sequence_next(oldest[which]);
                        }
                        for (; next[which] - oldest[which] < BELL_DEPTH; n++) {
                                line_write(&w, which, next[which], line);
                                next[which] = bell_sequence_next(next[which]);
                        }
                }
                world_turn(&w);
        }
        CHECK(n > 2 * BELL_DEPTH, "the ring has hardly said anything");
        traffic_drain(w.other);
        world_deinit(&w);
}

/* How many turns it takes, of a request that waits at GPU 0 with `tasks` more of another session behind it, until it
 * has ended, counted from when its peer has come. */
static uint32_t overtaken_once(struct world *w, uint32_t comm, uint32_t *next, uint32_t lines) {
        struct emulator_request barrier = {};
        uint32_t line[RING_WORDS], number[2], status, turns = 0;
        bool done[2] = {};

        barrier.operation = RING_OP_BARRIER;
        barrier.type = RMX_INT8;
        number[0] = emulator_ring(w->e, comm, 0, &barrier);
        while (!emulator_rests(w->e))
                ;
        memcpy(line, w->base, sizeof(line));
        for (; lines; lines--) {
                line[RING_W_SEQUENCE] = *next; /* its communicator's are numbered alike */
                line_write(w, 0, *next, line);
                *next = bell_sequence_next(*next);
        }
        while (!emulator_rests(w->e))
                ;
        number[1] = emulator_ring(w->e, comm, 1, &barrier);
        for (; !done[0] || !done[1]; turns++) {
                emulator_turn(w->e, "a request that others came behind");
                for (uint32_t r = 0; r < 2; r++)
                        done[r] = done[r] || emulator_poll(w->e, comm, r, number[r], &barrier, &status);
        }
        return turns;
}

/* Who has one request is looked at no less because another session has many that came later. */
static void overtaken(uint32_t worlds, uint64_t seed) {
        uint32_t alone = 0, behind = 0;

        for (uint32_t i = 0; i < worlds; i++) {
                uint32_t mine[2], comm, next;
                struct world w;

                world_init(&w, 1, mix(seed + i));
                for (uint32_t g = 0; g < 2; g++)
                        mine[g] = emulator_session(w.e, g, 1);
                comm = emulator_comm(w.e, 2, mine, STAGING_PACKET, 0, 0);
                next = emulator_next(w.e, w.session[0]);
                for (uint32_t k = 0; k < 3; k++)
                        alone += overtaken_once(&w, comm, &next, 0);
                for (uint32_t k = 0; k < 3; k++)
                        behind += overtaken_once(&w, comm, &next, 5);
                for (uint32_t r = 0; r < 2; r++)
                        emulator_abort(w.e, w.comm, r, RMX_E_ABORTED);
                traffic_drain(w.other);
                world_deinit(&w);
        }
        printf("%u turns for requests, %u with others behind them\n", alone, behind);
        CHECK(2 * behind <= 3 * alone, "a request is looked at less often because others came later");
}

/* Who has one line has its turn soon, however many another ring has at the same time. */
static void in_turn(uint32_t worlds, uint64_t seed) {
        const uint32_t lines = 24;
        uint32_t before = 0;

        for (uint32_t i = 0; i < worlds; i++) {
                struct emulator_request barrier = {};
                uint32_t mine[2], number[2], line[RING_WORDS], comm, next, first, status;
                bool done[2] = {};
                struct world w;

                world_init(&w, 1, mix(seed + i));
                for (uint32_t g = 0; g < 2; g++)
                        mine[g] = emulator_session(w.e, g, 1);
                comm = emulator_comm(w.e, 2, mine, STAGING_PACKET, 0, 0);
                barrier.operation = RING_OP_BARRIER;
                barrier.type = RMX_INT8;
                number[1] = emulator_ring(w.e, comm, 1, &barrier);
                while (!emulator_rests(w.e))
                        ;
                memcpy(line, w.base, sizeof(line));
                line[RING_W_HEAD] = head(RING_ABI + 1, RING_OP_BARRIER, RMX_INT8, 0); /* is refused at once */
                first = next = emulator_next(w.e, w.session[0]);
                for (uint32_t k = 0; k < lines; k++, next = bell_sequence_next(next))
                        line_write(&w, 0, next, line);
                number[0] = emulator_ring(w.e, comm, 0, &barrier);
                while (!done[0] || !done[1]) {
                        emulator_turn(w.e, "a request beside many lines");
                        for (uint32_t r = 0; r < 2; r++)
                                done[r] = done[r] || emulator_poll(w.e, comm, r, number[r], &barrier, &status);
                }
                for (; first != next; first = bell_sequence_next(first))
                        before += answer(&w, 0, first, 0) != ~0u;
                emulator_skip(w.e, w.session[0], next);
                traffic_drain(w.other);
                world_deinit(&w);
        }
        printf("%u of %u lines of another ring before a request\n", before, worlds * lines);
        CHECK(3 * before <= worlds * lines, "a line has to wait for many of another ring");
}

int main(void) {
        const uint64_t seed = test_seed();
        const uint32_t rounds = test_full() ? 1000 : 30;
        unsigned int answered = 0;

        for (uint32_t workers = 1; workers <= 3; workers++) {
                struct world w;

                world_init(&w, workers, mix(seed + workers));
                refuse_heads(&w);
                refuse_counts(&w);
                refuse_places(&w);
                traffic_drain(w.other);
                answered += w.n_answered;
                world_deinit(&w);
        }
        printf("%u lines refused\n", answered);
        fflush(stdout);
        refuse_sequences(seed);
        for (uint32_t workers = 1; workers <= 4; workers++) {
                hoard(workers, mix(seed + workers));
                answer_late(workers, mix(seed + workers + 4));
                for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++) /* which decides where it is remembered */
                        forgotten(workers, workers % 2 != 0, type, mix(seed + workers + 12));
        }
        for (uint32_t workers = 1; workers <= 4; workers++)
                chatter(workers, mix(seed + workers + 8));
        overtaken(30, mix(seed + 20));
        in_turn(10, mix(seed + 60));
        for (uint32_t i = 0; i < rounds; i++)
                nonsense(1 + i % 4, 300, mix(seed * 8192 + i) | 1);
        return answered < 500;
}
