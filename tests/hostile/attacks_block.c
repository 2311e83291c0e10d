/* SPDX-License-Identifier: MIT */
/* Argument blocks that lie where they may: wrong in themselves, not what the other rank's says, used twice, or changed
 * while they are read. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define RANKS        2u
#define QUARTER      (ATTACK_BUFFER / 4 / sizeof(float)) /* elements */
#define VECTOR_BYTES (4 * RANKS * sizeof(uint64_t))
#define GROUP        4u /* entries: two sends and two receives */
#define SHARED       12u
#define ROUNDS       6u
#define COMMS        5u

/* The words of a vector. */
enum { SEND_COUNT = 0, SEND_PLACE = RANKS, RECV_COUNT = 2 * RANKS, RECV_PLACE = 3 * RANKS };

/* A right block for a rank: `count` elements for everybody, one behind the other. */
static void vector_write(uint64_t *words, uint64_t count) {
        for (uint32_t i = 0; i < RANKS; i++) {
                words[SEND_COUNT + i] = words[RECV_COUNT + i] = count;
                words[SEND_PLACE + i] = words[RECV_PLACE + i] = i * count;
        }
}

static struct ring_request vector_line(struct rig *rig, uint32_t rank, uint32_t place) {
        struct ring_request line = rig_line(rig, rank);

        ring_request_set_head(&line, RING_OP_ALL_TO_ALL_V, RMX_FLOAT32, 0);
        ring_request_set_u64(&line, RING_W_COUNT_LO, 0);
        line.word[RING_W_ARGUMENT] = place;
        return line;
}

/* A right block for a rank: two sends to the other and two receives from it, from sequence `first`. */
static void group_write(struct ring_group_entry *entries, uint32_t rank, uint32_t first, uint64_t count) {
        for (uint32_t i = 0; i < GROUP; i++)
                entries[i] = rig_entry(i % 2, 1 - rank, first + i / 2, i % 2 ? rank : 2 + rank, count);
}

/* ---- wrong in itself --------------------------------------------------------------------------------------------- */
enum fault {
        FAULT_SEND_COUNT,
        FAULT_SEND_PLACE,
        FAULT_RECV_COUNT,
        FAULT_RECV_PLACE,
        FAULT_OVERFLOW,
        FAULT_SELF,
        FAULT_OPERATION, /* from here on: of groups */
        FAULT_TYPE,
        FAULT_PEER,
        FAULT_ZERO,
        FAULT_COUNT,
        FAULT_OFFSET,
        FAULT_ALIGNMENT,
        FAULT_BUFFER,
        FAULT_N,
};

/* Larger than the buffer, whatever it is multiplied with. */
static uint64_t far_beyond(struct attack *attack) {
        return (UINT64_C(1) << (20 + attack_draw(attack, 44))) + attack_draw(attack, 1000);
}

static void spoil_vector(struct attack *attack, enum fault fault, uint32_t rank, uint64_t *words) {
        uint32_t to = attack_draw(attack, RANKS);

        switch (fault) {
        case FAULT_SEND_COUNT:
                words[SEND_COUNT + 1 - rank] = far_beyond(attack);
                break;
        case FAULT_SEND_PLACE:
                words[SEND_PLACE + to] = far_beyond(attack);
                break;
        case FAULT_RECV_COUNT:
                words[RECV_COUNT + 1 - rank] = far_beyond(attack);
                break;
        case FAULT_RECV_PLACE:
                words[RECV_PLACE + to] = far_beyond(attack);
                break;
        case FAULT_OVERFLOW: /* count + place is small again */
                words[attack_draw(attack, 2) ? SEND_PLACE + to : RECV_PLACE + to] = UINT64_MAX - attack_draw(attack, 8);
                break;
        default:
                words[SEND_COUNT + rank] += 1 + attack_draw(attack, 8);
                break;
        }
}

static void spoil_entry(struct attack *attack, enum fault fault, struct ring_group_entry *entry) {
        static const uint32_t operations[] = {RING_OP_NONE, RING_OP_ALL_REDUCE, RING_OP_BARRIER, RING_OP_GROUP, 1000};

        switch (fault) {
        case FAULT_OPERATION:
                entry->operation = operations[attack_draw(attack, sizeof(operations) / sizeof(operations[0]))];
                break;
        case FAULT_TYPE:
                entry->type = 64 + attack_draw(attack, ~64u);
                break;
        case FAULT_PEER:
                entry->peer = RANKS + attack_draw(attack, ~RANKS);
                break;
        case FAULT_ZERO:
                entry->zero = 1u << attack_draw(attack, 32);
                break;
        case FAULT_COUNT:
                entry->count = far_beyond(attack);
                break;
        case FAULT_OFFSET:
                entry->offset = attack_draw(attack, 2) ? ATTACK_BUFFER : far_beyond(attack) & ~UINT64_C(3);
                break;
        case FAULT_ALIGNMENT:
                entry->offset |= 1 + attack_draw(attack, 3);
                break;
        default:
                entry->buffer = attack_draw(attack, 2) ? 0 : 2 + attack_draw(attack, ~2u);
                break;
        }
}

/* Both ranks hear whose block it was, and the next comm works. */
static enum outcome run_wrong(struct attack *attack) {
        enum fault fault = attack->number % FAULT_N;
        uint32_t culprit = attack_draw(attack, 2), first = attack_draw(attack, 2);
        uint64_t count = 1 + attack_draw(attack, 200);
        struct rig_lines lines = {0};
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < RANKS; i++) {
                uint32_t rank = (first + i) % 2, place = rank ? 32768 + 64 * attack_draw(attack, 100) : 64;
                void *block = rig_block(&rig, place);
                struct ring_request line;

                if (fault < FAULT_OPERATION) {
                        vector_write(block, count);
                        if (rank == culprit)
                                spoil_vector(attack, fault, rank, block);
                        line = vector_line(&rig, rank, place);
                } else {
                        group_write(block, rank, 1, count);
                        if (rank == culprit)
                                spoil_entry(attack, fault,
                                            (struct ring_group_entry *)block + attack_draw(attack, GROUP));
                        line = rig_group_line(&rig, rank, place, GROUP);
                }
                if (!rig_put(&rig, &lines, &line))
                        return attack_wrong(attack, "the ring is full");
        }
        outcome = rig_expect(&rig, &lines, RMX_E_INVALID, (int32_t)culprit);
        if (outcome != OUTCOME_WRONG && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "fault %u: the next comm does not work", fault);
        rig_close(&rig);
        return outcome;
}

/* Right in themselves, and not right together: the second is to blame. */
static enum outcome run_differing(struct attack *attack) {
        uint32_t first = attack_draw(attack, 2);
        uint64_t count = 1 + attack_draw(attack, 200);
        struct rig_lines lines = {0};
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < RANKS; i++) {
                uint32_t rank = (first + i) % 2, place = 64 + 4096 * rank, entry = attack_draw(attack, GROUP);
                struct ring_group_entry *entries = rig_block(&rig, place);
                uint64_t *words = rig_block(&rig, place);
                struct ring_request line;

                if (attack->number % 2) {
                        vector_write(words, count);
                        if (i == 1)
                                words[(attack_draw(attack, 2) ? SEND_COUNT : RECV_COUNT) + 1 - rank] =
                                        count - 1 - attack_draw(attack, (uint32_t)count);
                        line = vector_line(&rig, rank, place);
                } else {
                        group_write(entries, rank, 1, count);
                        if (i == 1 && attack->number % 4)
                                entries[entry].type = RMX_INT32;
                        else if (i == 1)
                                entries[entry].count -= 1 + attack_draw(attack, (uint32_t)count);
                        line = rig_group_line(&rig, rank, place, GROUP);
                }
                if (!rig_put(&rig, &lines, &line))
                        return attack_wrong(attack, "the ring is full");
        }
        outcome = rig_expect(&rig, &lines, RMX_E_MISMATCH, (int32_t)(1 - first));
        if (outcome != OUTCOME_WRONG && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "the next comm does not work");
        rig_close(&rig);
        return outcome;
}

/* ---- used twice -------------------------------------------------------------------------------------------------- */
/* One vector for both ranks, and one factor for many requests: each has a copy of its own. */
static enum outcome share_vector(struct rig *rig) {
        uint32_t place = rig_place(rig, VECTOR_BYTES), n = 1 + attack_draw(rig->attack, 1000);
        struct rig_lines lines = {0};
        enum outcome outcome;

        vector_write(rig_block(rig, place), n);
        for (uint32_t i = 0; i < 2 * QUARTER; i++) {
                rig->memory[i] = (float)i;
                rig->memory[2 * QUARTER + i] = -1;
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
                struct ring_request line = vector_line(rig, rank, place);

                if (!rig_put(rig, &lines, &line))
                        return attack_wrong(rig->attack, "the ring is full");
                rig->sequence[rank]++;
        }
        outcome = rig_expect(rig, &lines, RMX_OK, -1);
        for (uint32_t rank = 0; rank < RANKS && outcome == OUTCOME_SERVED; rank++)
                for (uint32_t i = 0; i < RANKS * n; i++)
                        if (rig->memory[(2 + rank) * QUARTER + i] != (float)(i / n * QUARTER + rank * n + i % n))
                                return attack_wrong(rig->attack, "a shared vector: element %u is wrong", i);
        return outcome;
}

static enum outcome share_factor(struct rig *rig) {
        const float factor = (float)(2 + attack_draw(rig->attack, 6));
        uint32_t place = rig_place(rig, sizeof(uint64_t)), bits;
        struct rig_lines lines = {0};
        enum outcome outcome;

        memcpy(&bits, &factor, sizeof(bits));
        *(uint64_t *)rig_block(rig, place) = bits;
        for (uint32_t i = 0; i < QUARTER; i++) {
                rig->memory[i] = (float)(i % 1000);
                rig->memory[QUARTER + i] = 1;
                rig->memory[2 * QUARTER + i] = rig->memory[3 * QUARTER + i] = -1;
        }
        for (uint32_t i = 0; i < 2 * SHARED; i++) {
                struct ring_request line = rig_line(rig, i % 2);

                ring_request_set_head(&line, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_PREMUL_SUM);
                line.word[RING_W_ARGUMENT] = place;
                if (!rig_put(rig, &lines, &line))
                        return attack_wrong(rig->attack, "the ring is full");
                rig->sequence[i % 2]++;
        }
        outcome = rig_expect(rig, &lines, RMX_OK, -1);
        for (uint32_t i = 0; i < 256 && outcome == OUTCOME_SERVED; i++)
                if (rig->memory[2 * QUARTER + i] != factor * (float)(i + 1))
                        return attack_wrong(rig->attack, "a shared factor: element %u is wrong", i);
        return outcome;
}

/* The second group names the sequences of the first, which waits: it ends alone, and the first is served. */
static enum outcome share_group(struct rig *rig) {
        uint32_t place = 64, other = 4096;
        struct rig_lines first = {0}, second = {0};
        struct ring_request line = rig_group_line(rig, 0, place, GROUP);

        group_write(rig_block(rig, place), 0, 1, 100);
        group_write(rig_block(rig, other), 1, 1, 100);
        if (!rig_put(rig, &first, &line) || !rig_put(rig, &second, &line))
                return attack_wrong(rig->attack, "the ring is full");
        if (rig_expect(rig, &second, RMX_E_INVALID, 0) == OUTCOME_WRONG)
                return OUTCOME_WRONG;
        line = rig_group_line(rig, 1, other, GROUP);
        if (!rig_put(rig, &first, &line))
                return attack_wrong(rig->attack, "the ring is full");
        return rig_expect(rig, &first, RMX_OK, -1) == OUTCOME_WRONG ? OUTCOME_WRONG : OUTCOME_REFUSED;
}

/* A block is used again as soon as it was read. More in flight than the argument space holds is not taken. */
static enum outcome reuse_early(struct rig *rig) {
        struct ring_group_entry *entries = rig_block(rig, 64);
        uint32_t n = rig->ring.layout.argument_bytes / (RING_GROUP_MAX * sizeof(*entries)) + 1;
        struct rig_lines lines = {0};

        for (uint32_t i = 0; i < n; i++) {
                struct ring_request line = rig_group_line(rig, 0, 64, RING_GROUP_MAX);

                for (uint32_t k = 0; k < RING_GROUP_MAX; k++)
                        entries[k] = rig_entry(true, 1, i * RING_GROUP_MAX + k + 1, 0, 1);
                if (!rig_put(rig, &lines, &line) || !rig_read(rig))
                        return attack_wrong(rig->attack, "a line is not read");
        }
        if (rig_expect(rig, &lines, RMX_E_INVALID, 0) == OUTCOME_WRONG)
                return OUTCOME_WRONG;
        return rig_comm(rig) ? OUTCOME_REFUSED : attack_wrong(rig->attack, "no further comm");
}

static enum outcome run_shared(struct attack *attack) {
        static enum outcome (*const ways[])(struct rig *) = {share_vector, share_factor, share_group, reuse_early};
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        outcome = ways[attack->number % 4](&rig);
        if (outcome != OUTCOME_WRONG && !rig_works(&rig))
                outcome = attack_wrong(attack, "way %u: the comm does not work afterwards", attack->number % 4);
        rig_close(&rig);
        return outcome;
}

/* ---- changed while read ------------------------------------------------------------------------------------------ */
/* Writes one right content over the other for ever, in words, so that every mixture of both is met. */
struct changer {
        _Atomic uint64_t *block;
        uint64_t contents[2][GROUP * sizeof(struct ring_group_entry) / sizeof(uint64_t)];
        size_t n_words;
        _Atomic bool stop;
};

static void *change(void *argument) {
        struct changer *c = argument;

        for (uint32_t round = 0; !atomic_load_explicit(&c->stop, memory_order_relaxed); round++) /* partner in keep */
                for (size_t i = 0; i < c->n_words; i++) /* relaxed: in nobody's order; partner: bell_copy_argument */
                        atomic_store_explicit(&c->block[i], c->contents[round % 2][i], memory_order_relaxed);
        return NULL;
}

/* Rounds of both ranks while the block of rank 0 changes. Whatever was read, it was something, and was answered. */
static enum outcome keep_ringing(struct rig *rig, struct changer *c, bool groups) {
        struct rig_lines lines = {0};
        enum outcome outcome;
        pthread_t thread;

        if (pthread_create(&thread, NULL, change, c))
                return attack_wrong(rig->attack, "no thread");
        for (uint32_t i = 0; i < ROUNDS; i++)
                for (uint32_t rank = 0; rank < RANKS; rank++) {
                        uint32_t place = rank ? 4096 : 64;
                        struct ring_request line =
                                groups ? rig_group_line(rig, rank, place, GROUP) : vector_line(rig, rank, place);

                        (void)rig_put(rig, &lines, &line);
                        rig->sequence[rank] += !groups;
                }
        outcome = rig_settle(rig, &lines, RIG_CODE(RMX_OK) | RIG_CODE(RMX_E_INVALID) | RIG_CODE(RMX_E_MISMATCH));
        atomic_store_explicit(&c->stop, true, memory_order_relaxed); /* partner in change */
        pthread_join(thread, NULL);
        return outcome;
}

static enum outcome run_changing(struct attack *attack) {
        bool groups = attack->number % 2;
        enum outcome outcome = OUTCOME_SERVED, one;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < COMMS && outcome != OUTCOME_WRONG; i++) {
                struct changer c = {.block = rig_block(&rig, 64),
                                    .n_words = (groups ? sizeof(c.contents[0]) : VECTOR_BYTES) / sizeof(uint64_t)};
                uint64_t count = 1 + attack_draw(attack, 100);

                if (i > 0 && !rig_comm(&rig))
                        return attack_wrong(attack, "no further comm");
                for (uint32_t k = 0; k < 2; k++)
                        if (groups) /* the same sequences again: from the second line on they are refused */
                                group_write((struct ring_group_entry *)c.contents[k], 0, 1, count + k * (i % 2) * 7);
                        else
                                vector_write(c.contents[k], count + k * (1 + i % 3));
                if (groups) { /* what changes in any case: another place, and send and receive */
                        struct ring_group_entry *entries = (struct ring_group_entry *)c.contents[1];

                        entries[0].offset += 4096;
                        if (i % 3 == 0)
                                entries[1].operation = RING_OP_RECV, entries[1].sequence = 1;
                        group_write(rig_block(&rig, 4096), 1, 1, count);
                } else {
                        vector_write(rig_block(&rig, 4096), count);
                }
                one = keep_ringing(&rig, &c, groups);
                outcome = one == OUTCOME_SERVED ? outcome : one;
        }
        if (outcome != OUTCOME_WRONG && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "the next comm does not work");
        rig_close(&rig);
        return outcome;
}

const struct attack_kind attacks_block[] = {
        {"blocks with wrong contents", 3 * FAULT_N, run_wrong},
        {"blocks that do not agree", 16, run_differing},
        {"blocks in several lines", 24, run_shared},
        {"blocks that change while read", 24, run_changing},
        {NULL, 0, NULL},
};
