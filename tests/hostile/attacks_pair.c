/* SPDX-License-Identifier: MIT */
/* Sends and receives out of order, without their other half, and memory that is named several times. */
#include <string.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define QUARTER (ATTACK_BUFFER / 4 / sizeof(float)) /* elements */
#define EACH    6u                                  /* sends, and receives, of each rank */
#define PIECE   64u                                 /* elements of each */

/* ---- order ------------------------------------------------------------------------------------------------------- */
static bool put_entries(struct rig *rig, struct rig_lines *lines, uint32_t rank, const struct ring_group_entry *entries,
                        uint32_t n) {
        uint32_t place = 64 + 16384 * rank; /* never 0 */
        struct ring_request line = rig_group_line(rig, rank, place, n);

        memcpy(rig_block(rig, place), entries, n * sizeof(*entries));
        return rig_put(rig, lines, &line);
}

/* Sequences that are not due: only the line itself is refused. */
static enum outcome refused_order(struct rig *rig) {
        static const uint32_t orders[][2] = {{2, 1}, {1, 1}, {1, 3}, {2, 3}, {0, 1}, {0xffffffff, 0}, {1, 0x80000001}};
        const uint32_t *order = orders[attack_draw(rig->attack, sizeof(orders) / sizeof(orders[0]))];
        bool sends = attack_draw(rig->attack, 2);
        struct ring_group_entry entries[3];
        struct rig_lines lines = {0};

        for (uint32_t i = 0; i < 2; i++)
                entries[2 * i] = rig_entry(sends, 1, order[i], 0, PIECE);
        entries[1] = rig_entry(!sends, 1, 1, 2, PIECE); /* in order, and refused with the others */
        if (!put_entries(rig, &lines, 0, entries, 3))
                return attack_wrong(rig->attack, "the ring is full");
        if (order[0] != 1) { /* the same as a line of its own */
                struct ring_request line = rig_pair_line(rig, 0, &entries[0]);

                if (!rig_put(rig, &lines, &line))
                        return attack_wrong(rig->attack, "the ring is full");
        }
        return rig_expect(rig, &lines, RMX_E_INVALID, 0);
}

/* In any order where each pair's own is kept; the pieces come where they belong. */
static enum outcome shuffled(struct rig *rig) {
        struct rig_lines lines = {0};
        enum outcome outcome;

        for (uint32_t i = 0; i < 4 * QUARTER; i++)
                rig->memory[i] = i < 2 * QUARTER ? (float)i : -1;
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct ring_group_entry entries[2 * EACH];
                uint32_t next[2] = {0};

                for (uint32_t i = 0; i < 2 * EACH; i++) {
                        bool sends = next[0] == EACH || (next[1] < EACH && attack_draw(rig->attack, 2));

                        entries[i] = rig_entry(sends, 1 - rank, next[sends] + 1, sends ? rank : 2 + rank, PIECE);
                        entries[i].offset += next[sends]++ * PIECE * sizeof(float);
                }
                if (!put_entries(rig, &lines, rank, entries, 2 * EACH))
                        return attack_wrong(rig->attack, "the ring is full");
        }
        outcome = rig_expect(rig, &lines, RMX_OK, -1);
        for (uint32_t rank = 0; rank < 2 && outcome == OUTCOME_SERVED; rank++)
                for (uint32_t i = 0; i < EACH * PIECE; i++)
                        if (rig->memory[(2 + rank) * QUARTER + i] != (float)((1 - rank) * QUARTER + i))
                                return attack_wrong(rig->attack, "rank %u: element %u is wrong", rank, i);
        return outcome;
}

static enum outcome run_order(struct attack *attack) {
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        outcome = attack->number % 4 ? refused_order(&rig) : shuffled(&rig);
        /* the refused ones have not moved the pairs on */
        if (outcome == OUTCOME_REFUSED && shuffled(&rig) == OUTCOME_WRONG)
                outcome = OUTCOME_WRONG;
        if (outcome != OUTCOME_WRONG && !rig_works(&rig))
                outcome = attack_wrong(attack, "the comm does not work afterwards");
        rig_close(&rig);
        return outcome;
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */
/* Behind an open half its rank's later requests wait: nothing here may wait for the comm to work. */
static bool put_halves(struct rig *rig, struct rig_lines *lines, uint32_t n, struct ring_group_entry *ret_last) {
        bool sends = attack_draw(rig->attack, 2);

        for (uint32_t i = 1; i <= n; i++) {
                struct ring_request line;

                *ret_last = rig_entry(sends, 1, i, sends ? 0 : 2, PIECE);
                line = rig_pair_line(rig, 0, ret_last);
                if (!rig_put(rig, lines, &line))
                        return false;
        }
        return true;
}

/* The other side comes late: all are served. */
static enum outcome close_halves(struct rig *rig, struct rig_lines *lines, const struct ring_group_entry *last) {
        for (uint32_t i = 1; i <= last->sequence; i++) {
                bool sends = last->operation == RING_OP_RECV;
                struct ring_group_entry entry = rig_entry(sends, 0, i, sends ? 1 : 3, PIECE);
                struct ring_request line = rig_pair_line(rig, 1, &entry);

                if (!rig_put(rig, lines, &line))
                        return attack_wrong(rig->attack, "the ring is full");
        }
        return rig_expect(rig, lines, RMX_OK, -1);
}

/* One rank leaves, the waiting one or that for which it waits. Lines that are read after its handle has gone are
 * nobody's. */
static enum outcome leave_halves(struct rig *rig, struct rig_lines *lines) {
        uint32_t leaves = attack_draw(rig->attack, 2);
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire *w = &rig->wire;
        size_t size = wire_pack_comm_destroy(bytes, w->next_id, rig->handle[leaves], rig->sequence[leaves]);

        if (wire_call(w, bytes, size).body != RAILMUX__SESSION__MESSAGE__BODY_ACK)
                return attack_wrong(rig->attack, "a rank cannot leave");
        if (!rig_take(rig, lines, ATTACK_SILENT_MS))
                return attack_wrong(rig->attack, "%u of %u halves have no completion after a rank has left",
                                    lines->n - lines->n_done, lines->n);
        for (uint32_t i = 0; i < lines->n; i++) {
                uint32_t code = ring_status_code(lines->status[i]);
                int32_t rank = ring_status_rank(lines->status[i]);

                if (!(code == RMX_E_PEER_LOST && rank == (int32_t)leaves) &&
                    !(code == RMX_E_INVALID && rank == -1 && leaves == 0))
                        return attack_wrong(rig->attack, "half %u: %s, rank %d", i, rmx_error_name((int)code), rank);
        }
        return OUTCOME_REFUSED;
}

static enum outcome run_halves(struct attack *attack) {
        struct rig_lines lines = {0};
        struct ring_group_entry last;
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        if (!put_halves(&rig, &lines, 1 + attack_draw(attack, 12), &last))
                return attack_wrong(attack, "the ring is full");
        if (attack_draw(attack, 2) && !rig_read(&rig))
                return attack_wrong(attack, "a line is not read");
        switch (attack->number % 5) {
        case 0:
                outcome = close_halves(&rig, &lines, &last);
                break;
        case 1:
                outcome = rig_abort(&rig) ? rig_expect(&rig, &lines, RMX_E_ABORTED, 0)
                                          : attack_wrong(attack, "the comm cannot be ended");
                break;
        case 2:
                outcome = leave_halves(&rig, &lines);
                break;
        case 3:
                attack_kill_self(attack);
        default:
                rig_close(&rig);
                return OUTCOME_LEFT;
        }
        if (outcome != OUTCOME_WRONG && (!rig_comm(&rig) || !rig_works(&rig)))
                outcome = attack_wrong(attack, "the next comm does not work");
        rig_close(&rig);
        return outcome;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* A rank's input and output, or both ranks' outputs, share bytes. What is in them is the client's own affair. */
static bool put_overlapping(struct rig *rig, struct rig_lines *lines) {
        struct attack *attack = rig->attack;
        uint32_t n = 2 + attack_draw(attack, (uint32_t)QUARTER - 1), apart = attack_draw(attack, n);

        for (uint32_t rank = 0; rank < 2; rank++) {
                struct ring_request line = rig_line(rig, rank);
                uint64_t in = attack->number % 2 ? 0 : (uint64_t)rank * (ATTACK_BUFFER / 4);

                ring_request_set_u64(&line, RING_W_COUNT_LO, n);
                ring_request_set_u64(&line, RING_W_IN_LO, in);
                ring_request_set_u64(&line, RING_W_OUT_LO, in + apart * sizeof(float));
                if (!rig_put(rig, lines, &line))
                        return false;
                rig->sequence[rank]++;
        }
        return true;
}

/* The pieces of a vector lie over each other, on one side or both. */
static bool put_vectors(struct rig *rig, struct rig_lines *lines) {
        uint64_t n = 1 + attack_draw(rig->attack, QUARTER / 2);

        for (uint32_t rank = 0; rank < 2; rank++) {
                const uint64_t words[8] = {n, n, 0, rank ? n / 2 : 0, n, n, n / 3, 0};
                uint32_t place = 64 + 64 * rank;
                struct ring_request line = rig_line(rig, rank);

                memcpy(rig_block(rig, place), words, sizeof(words));
                ring_request_set_head(&line, RING_OP_ALL_TO_ALL_V, RMX_FLOAT32, 0);
                ring_request_set_u64(&line, RING_W_COUNT_LO, 0);
                line.word[RING_W_ARGUMENT] = place;
                if (rank && attack_draw(rig->attack, 2)) /* its output is the other's input */
                        ring_request_set_u64(&line, RING_W_OUT_LO, 0);
                if (!rig_put(rig, lines, &line))
                        return false;
                rig->sequence[rank]++;
        }
        return true;
}

/* All sends and receives of both ranks use the same bytes, those to themselves included. */
static bool put_groups(struct rig *rig, struct rig_lines *lines) {
        uint64_t n = 1 + attack_draw(rig->attack, QUARTER);

        for (uint32_t rank = 0; rank < 2; rank++) {
                struct ring_group_entry entries[4 * EACH];

                for (uint32_t i = 0; i < 4 * EACH; i++) {
                        entries[i] = rig_entry(i % 2, i / 2 % 2, i / 4 + 1, 0, n);
                        entries[i].offset += attack_draw(rig->attack, 3) * sizeof(float) * (n / 2);
                }
                if (!put_entries(rig, lines, rank, entries, 4 * EACH))
                        return false;
        }
        return true;
}

static enum outcome run_overlaps(struct attack *attack) {
        static bool (*const puts[])(struct rig *, struct rig_lines *) = {put_overlapping, put_overlapping, put_vectors,
                                                                         put_groups};
        struct rig_lines lines = {0};
        enum outcome outcome;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        attack_fill(attack, rig.memory, ATTACK_BUFFER);
        if (!puts[attack->number % 4](&rig, &lines))
                return attack_wrong(attack, "the ring is full");
        outcome = rig_expect(&rig, &lines, RMX_OK, -1);
        if (outcome != OUTCOME_WRONG && !rig_works(&rig))
                outcome = attack_wrong(attack, "the comm does not work afterwards");
        rig_close(&rig);
        return outcome;
}

/* Two of the executor's threads meet in this memory, and the thread sanitizer rightly ends the executor for it. To
 * whom the bytes belong is settled by the client, so there is nothing to find. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OVERLAPS 0
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(OVERLAPS)
#define OVERLAPS 0
#endif
#ifndef OVERLAPS
#define OVERLAPS 24
#endif

const struct attack_kind attacks_pair[] = {
        {"pairs out of order", 32, run_order},
        {"half pairs", 30, run_halves},
        {"memory that overlaps", OVERLAPS, run_overlaps},
        {NULL, 0, NULL},
};
