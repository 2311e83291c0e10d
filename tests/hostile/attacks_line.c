/* SPDX-License-Identifier: MIT */
/* Request lines that are wrong, others' names in them, and lines that change while they are read. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define ROUNDS    48u /* lines per rank and comm that fit a ring */
#define MIXED     6u
#define COMMS     6u
#define PROMPT_MS 200u /* for requests that may wait for ever, as half a pair of send and receive */

/* Numbers at the edges of everything. */
static uint64_t edge(struct attack *attack) {
        static const uint64_t edges[] = {
                1,
                2,
                3,
                ATTACK_BUFFER - 1,
                ATTACK_BUFFER,
                ATTACK_BUFFER + 1,
                0x7fffffff,
                0x80000000,
                0xfffffffc,
                0xffffffff,
                0x100000000,
                0x3fffffffffffffff,
                0x4000000000000000,
                0x4000000000000001,
                0x7fffffffffffffff,
                0x8000000000000000,
                0xfffffffffffffffc,
                0xffffffffffffffff,
        };

        return edges[attack_draw(attack, sizeof(edges) / sizeof(edges[0]))];
}

/* What is wrong with a line in order. */
enum fault {
        FAULT_FLAGS,
        FAULT_ZERO,
        FAULT_OPERATION,
        FAULT_TYPE,
        FAULT_REDOP,
        FAULT_ROOT,
        FAULT_COUNT,
        FAULT_IN_OFFSET,
        FAULT_OUT_OFFSET,
        FAULT_END,
        FAULT_ALIGNMENT,
        FAULT_IN_BUFFER,
        FAULT_OUT_BUFFER,
        FAULT_EPOCH,
        FAULT_BARRIER,
        FAULT_N,
};

static void spoil(struct attack *attack, enum fault fault, struct ring_request *line) {
        uint64_t large = ATTACK_BUFFER + edge(attack) % (UINT64_MAX - ATTACK_BUFFER);

        switch (fault) {
        case FAULT_FLAGS:
                line->word[RING_W_FLAGS] = 1u << attack_draw(attack, 32);
                break;
        case FAULT_ZERO:
                line->word[RING_W_ZERO] = 1u << attack_draw(attack, 32);
                break;
        case FAULT_OPERATION:
                ring_request_set_head(line, attack_draw(attack, 2) ? 128 + attack_draw(attack, 128) : 0, RMX_FLOAT32,
                                      RMX_SUM);
                break;
        case FAULT_TYPE:
                ring_request_set_head(line, RING_OP_ALL_REDUCE, 64 + attack_draw(attack, 192), RMX_SUM);
                break;
        case FAULT_REDOP:
                ring_request_set_head(line, RING_OP_ALL_REDUCE, RMX_FLOAT32, 64 + attack_draw(attack, 192));
                break;
        case FAULT_ROOT: /* of a broadcast among two */
                ring_request_set_head(line, RING_OP_BROADCAST, RMX_FLOAT32, 0);
                line->word[RING_W_PEER] = attack_draw(attack, 2) ? 2 : (uint32_t)edge(attack) | 2;
                break;
        case FAULT_COUNT:
                ring_request_set_u64(line, RING_W_COUNT_LO, large);
                break;
        case FAULT_IN_OFFSET:
                ring_request_set_u64(line, RING_W_IN_LO, large);
                break;
        case FAULT_OUT_OFFSET:
                ring_request_set_u64(line, RING_W_OUT_LO, large);
                break;
        case FAULT_END: /* the last element is outside */
                ring_request_set_u64(line, RING_W_OUT_LO,
                                     ATTACK_BUFFER - 4 * ring_request_u64(line, RING_W_COUNT_LO) + 4);
                break;
        case FAULT_ALIGNMENT:
                ring_request_set_u64(line, RING_W_IN_LO, 1 + attack_draw(attack, 3));
                break;
        case FAULT_IN_BUFFER:
                line->word[RING_W_IN_BUFFER] = attack_draw(attack, 2) ? 0 : 2 + (uint32_t)edge(attack) % 0x7fffffff;
                break;
        case FAULT_OUT_BUFFER:
                line->word[RING_W_OUT_BUFFER] = attack_draw(attack, 2) ? 0 : 2 + (uint32_t)edge(attack) % 0x7fffffff;
                break;
        case FAULT_EPOCH:
                line->word[RING_W_EPOCH] = 1000000 + attack_draw(attack, 1u << 30);
                break;
        default:
                ring_request_set_head(line, RING_OP_BARRIER, 0, 0);
                ring_request_set_u64(line, RING_W_COUNT_LO, 1 + edge(attack) % (UINT64_MAX - 1));
                break;
        }
}

/* One rank's line is wrong, in any way, and both ranks hear whose it was. */
static enum outcome run_faults(struct attack *attack) {
        enum fault fault = attack->number % FAULT_N;
        uint32_t culprit = attack_draw(attack, 2), sequence[2], status;
        enum outcome outcome = OUTCOME_REFUSED;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 2; i++) {
                uint32_t rank = (culprit + i) % 2;
                struct ring_request line = rig_line(&rig, rank);

                if (rank == culprit)
                        spoil(attack, fault, &line);
                wire_ring_put(&rig.ring, &line, &sequence[rank]);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                if (!wire_ring_take(&rig.ring, sequence[rank], ATTACK_SILENT_MS, &status))
                        outcome = attack_wrong(attack, "fault %u: no completion for rank %u", fault, rank);
                else if (ring_status_code(status) != RMX_E_INVALID || ring_status_rank(status) != (int32_t)culprit)
                        outcome = attack_wrong(attack, "fault %u: %s, rank %d instead of %u", fault,
                                               rmx_error_name((int)ring_status_code(status)), ring_status_rank(status),
                                               culprit);
        if (outcome == OUTCOME_REFUSED && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "fault %u: the next comm does not work", fault);
        rig_close(&rig);
        return outcome;
}

/* Lines that name what is not there or come at the wrong place: each ends alone, and the comm does not notice. */
static enum outcome run_strangers(struct attack *attack) {
        struct ring_request line;
        uint32_t sequence, status;
        enum outcome outcome = OUTCOME_REFUSED;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 6 && outcome == OUTCOME_REFUSED; i++) {
                line = rig_line(&rig, i % 2);
                switch ((attack->number + i) % 6) {
                case 0: /* a handle, maybe another session's */
                        line.word[RING_W_COMM] = rig.handle[0] + rig.handle[1] + attack_draw(attack, 100);
                        break;
                case 1:
                        line.word[RING_W_COMM] = (uint32_t)edge(attack) & ~3u;
                        break;
                case 2: /* a sequence that was */
                        line.word[RING_W_SEQUENCE] -= 1 + attack_draw(attack, 5);
                        break;
                case 3: /* one that comes later */
                        line.word[RING_W_SEQUENCE] += 1 + attack_draw(attack, 5);
                        break;
                case 4:
                        line.word[RING_W_SEQUENCE] += 0x80000000u;
                        break;
                default: /* another ABI */
                        line.word[RING_W_HEAD] ^= (1 + attack_draw(attack, 255)) << 24;
                        break;
                }
                if (!wire_ring_put(&rig.ring, &line, &sequence) ||
                    !wire_ring_take(&rig.ring, sequence, ATTACK_SILENT_MS, &status))
                        outcome = attack_wrong(attack, "stranger %u: no completion", (attack->number + i) % 6);
                else if (ring_status_code(status) != RMX_E_INVALID)
                        outcome = attack_wrong(attack, "stranger %u: %s", (attack->number + i) % 6,
                                               rmx_error_name((int)ring_status_code(status)));
                else if (!rig_works(&rig))
                        outcome = attack_wrong(attack, "stranger %u: the comm noticed", (attack->number + i) % 6);
        }
        rig_close(&rig);
        return outcome;
}

/* Two lines of one sequence that do not agree. */
static enum outcome run_mismatches(struct attack *attack) {
        uint32_t second = attack_draw(attack, 2), sequence[2], status;
        enum outcome outcome = OUTCOME_REFUSED;
        struct ring_request line;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 2; i++) {
                line = rig_line(&rig, (second + 1 + i) % 2);
                if (i == 1)
                        switch (attack->number % 4) {
                        case 0:
                                ring_request_set_head(&line, RING_OP_ALL_GATHER, RMX_FLOAT32, 0);
                                break;
                        case 1:
                                ring_request_set_head(&line, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM);
                                break;
                        case 2:
                                ring_request_set_head(&line, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_MAX);
                                break;
                        default:
                                ring_request_set_u64(&line, RING_W_COUNT_LO, attack_draw(attack, 200));
                                break;
                        }
                wire_ring_put(&rig.ring, &line, &sequence[(second + 1 + i) % 2]);
        }
        for (uint32_t rank = 0; rank < 2; rank++)
                if (!wire_ring_take(&rig.ring, sequence[rank], ATTACK_SILENT_MS, &status))
                        outcome = attack_wrong(attack, "mismatch %u: no completion", attack->number % 4);
                else if (ring_status_code(status) != RMX_E_MISMATCH || ring_status_rank(status) != (int32_t)second)
                        outcome = attack_wrong(attack, "mismatch %u: %s, rank %d instead of %u", attack->number % 4,
                                               rmx_error_name((int)ring_status_code(status)), ring_status_rank(status),
                                               second);
        rig_close(&rig);
        return outcome;
}

/* Random lines of any operation, which may name an argument block anywhere. Nobody knows what comes of them, but it is
 * always something, at the latest when the comm is ended. */
static bool ring_anything(struct rig *rig, bool blocks, uint32_t *ret_n, uint32_t sequences[2 * MIXED]) {
        struct attack *attack = rig->attack;

        *ret_n = 0;
        for (uint32_t round = 0; round < MIXED; round++) {
                uint32_t operation = 1 + attack_draw(attack, RING_OP_COUNT - 1), type = attack_draw(attack, 12);
                uint32_t argument = attack_draw(attack, 4)   ? 64 * attack_draw(attack, 1100)
                                    : attack_draw(attack, 2) ? 0
                                                             : (uint32_t)edge(attack);
                uint32_t count = attack_draw(attack, 300), root = attack_draw(attack, 3);

                for (uint32_t rank = 0; rank < 2; rank++) {
                        struct ring_request line = rig_line(rig, rank);

                        ring_request_set_head(&line, operation, type, 0);
                        ring_request_set_u64(&line, RING_W_COUNT_LO, count);
                        line.word[RING_W_PEER] = root;
                        line.word[RING_W_ARGUMENT] = blocks ? argument : 0;
                        if (attack_draw(attack, 40) == 0)
                                line.word[attack_draw(attack, RING_WORDS)] = (uint32_t)edge(attack);
                        if (!wire_ring_put(&rig->ring, &line, &sequences[*ret_n]))
                                return false;
                        rig->sequence[rank]++;
                        ++*ret_n;
                }
        }
        return true;
}

static enum outcome await_anything(struct rig *rig, uint32_t n, const uint32_t *sequences) {
        uint32_t status, n_done = 0, n_right = 0;
        bool done[2 * MIXED] = {false};

        for (uint32_t pass = 0; pass < 2 && n_done < n; pass++) {
                if (pass == 1 && !rig_abort(rig))
                        return attack_wrong(rig->attack, "the comm cannot be ended");
                for (uint32_t i = 0; i < n; i++) {
                        if (done[i])
                                continue;
                        done[i] =
                                wire_ring_take(&rig->ring, sequences[i], pass ? ATTACK_SILENT_MS : PROMPT_MS, &status);
                        if (!done[i])
                                break;
                        n_done++;
                        n_right += ring_status_code(status) == RMX_OK;
                        if (ring_status_code(status) >= RMX_E_COUNT || ring_status_code(status) == RMX_E_INTERNAL ||
                            ring_status_code(status) == RMX_E_LOST)
                                return attack_wrong(rig->attack, "completion code %u", ring_status_code(status));
                }
        }
        if (n_done < n)
                return attack_wrong(rig->attack, "%u of %u lines have no completion after the comm's end", n - n_done,
                                    n);
        return n_right == n ? OUTCOME_SERVED : OUTCOME_REFUSED;
}

struct flipper {
        struct attack *attack;
        uint8_t *bytes;
        size_t size;
        uint64_t random;
        _Atomic bool stop;
};

static void *flip(void *argument) {
        struct flipper *f = argument;
        _Atomic uint32_t *words = (void *)f->bytes;

        while (!atomic_load_explicit(&f->stop, memory_order_relaxed)) { /* partner stop_flipping; nothing hangs on it */
                uint64_t x = f->random = f->random * 6364136223846793005u + 1442695040888963407u;

                /* relaxed: the point is to be in nobody's order; partner: whatever the executor reads */
                atomic_store_explicit(&words[(x >> 33) % (f->size / 4)],
                                      x >> 30 & 1 ? (uint32_t)(x >> 20) : (uint32_t)(x >> 62), memory_order_relaxed);
        }
        return NULL;
}

static bool start_flipping(struct flipper *f, pthread_t *ret_thread) {
        f->random = ((uint64_t)attack_draw(f->attack, ~0u) << 32) + attack_draw(f->attack, ~0u);
        return pthread_create(ret_thread, NULL, flip, f) == 0;
}

static void stop_flipping(struct flipper *f, pthread_t thread) {
        atomic_store_explicit(&f->stop, true, memory_order_relaxed); /* partner flip */
        pthread_join(thread, NULL);
}

/* Argument blocks whose contents change while they are read. */
static enum outcome run_arguments(struct attack *attack) {
        uint32_t sequences[2 * MIXED], n;
        enum outcome outcome = OUTCOME_REFUSED, one;
        struct flipper f;
        pthread_t thread;
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        f = (struct flipper){.attack = attack,
                             .bytes = (uint8_t *)rig.ring.client_area + rig.ring.layout.argument_offset,
                             .size = rig.ring.layout.argument_bytes};
        if (attack->number % 4 == 0)
                attack_fill(attack, f.bytes, f.size);
        if (!start_flipping(&f, &thread))
                return attack_wrong(attack, "no thread");
        for (uint32_t i = 0; i < COMMS && outcome != OUTCOME_WRONG; i++) {
                if (i > 0 && !rig_comm(&rig))
                        one = attack_wrong(attack, "no further comm");
                else if (ring_anything(&rig, i % 3 != 0, &n, sequences))
                        one = await_anything(&rig, n, sequences);
                else
                        one = attack_wrong(attack, "the ring is full");
                outcome = one == OUTCOME_REFUSED ? outcome : one;
        }
        stop_flipping(&f, thread);
        if (outcome != OUTCOME_WRONG && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "the next comm does not work");
        rig_close(&rig);
        return outcome;
}

/* Everything in the client area changes all the time: lines, waiting words, arguments. What becomes of the requests is
 * the client's own fault, but the session can be left, and the data in its buffer does not matter to others. */
static enum outcome run_flipping(struct attack *attack) {
        uint32_t sequence;
        struct flipper f;
        pthread_t thread;
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        f = (struct flipper){.attack = attack, .bytes = rig.ring.client_area, .size = rig.ring.layout.client_bytes};
        if (attack->number % 2) /* only the lines that are being written */
                f.size = 2 * ROUNDS * sizeof(struct ring_line);
        if (!start_flipping(&f, &thread))
                return attack_wrong(attack, "no thread");
        for (uint32_t i = 0; i < 4 * ROUNDS; i++) {
                struct ring_request line = rig_line(&rig, i % 2);

                wire_ring_put(&rig.ring, &line, &sequence);
                rig.sequence[i % 2]++;
                wire_ring_wake(&rig.ring);
        }
        if (attack_draw(attack, 2) && !rig_abort(&rig)) {
                stop_flipping(&f, thread);
                return attack_wrong(attack, "the comm cannot be ended");
        }
        stop_flipping(&f, thread);
        return attack_expect_sane(attack, &rig.wire, OUTCOME_SERVED);
}

/* Lines written without a producer's care: any sequence, any slot, again and again over each other. */
static enum outcome run_raw_lines(struct attack *attack) {
        _Atomic uint64_t *cells;
        uint32_t base = 1;
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        cells = (void *)rig.ring.client_area;
        for (uint32_t i = 0; i < 2000; i++) {
                uint32_t sequence = base + attack_draw(attack, 4) * rig.ring.layout.depth / 2 + attack_draw(attack, 4);
                uint32_t slot = sequence & (rig.ring.layout.depth - 1);
                struct ring_request line = rig_line(&rig, attack_draw(attack, 2));

                if (attack_draw(attack, 3) == 0)
                        line.word[attack_draw(attack, RING_WORDS)] = (uint32_t)edge(attack);
                for (uint32_t w = 0; w < RING_WORDS; w++) /* partner: the executor's line_read */
                        atomic_store_explicit(&cells[slot * RING_WORDS + w], (uint64_t)sequence << 32 | line.word[w],
                                              memory_order_relaxed);
                if (i % 16 == 0)
                        wire_ring_wake(&rig.ring);
                base += attack_draw(attack, 2);
        }
        return attack_expect_sane(attack, &rig.wire, OUTCOME_SERVED);
}

const struct attack_kind attacks_line[] = {
        {"wrong lines in order", 3 * FAULT_N, run_faults},
        {"lines of strangers", 24, run_strangers},
        {"lines that differ", 16, run_mismatches},
        {"any operation, any argument block", 30, run_arguments},
        {"lines that change while read", 30, run_flipping},
        {"lines over each other", 20, run_raw_lines},
        {NULL, 0, NULL},
};
