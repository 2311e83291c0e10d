/* SPDX-License-Identifier: MIT */
#include "tests/hostile/legal.h"

#include <stdatomic.h>
#include <string.h>

#include "railmux/railmux.h"

#define QUARTER (ATTACK_BUFFER / 4)
#define FACTOR  0x40000000u /* 2.0 */

bool legal_open(struct legal *legal, struct attack *attack) {
        memset(legal->pair, 0, sizeof(legal->pair));
        return rig_open(&legal->rig, attack);
}

bool legal_comm(struct legal *legal) {
        memset(legal->pair, 0, sizeof(legal->pair));
        return rig_comm(&legal->rig);
}

_Atomic uint64_t *legal_block(struct legal *legal, uint32_t block) {
        char *space = (char *)legal->rig.ring.client_area + legal->rig.ring.layout.argument_offset;

        return (_Atomic uint64_t *)(void *)(space + block);
}

static void write_block(struct legal *legal, uint32_t block, const void *content, size_t size) {
        _Atomic uint64_t *to = legal_block(legal, block);
        uint64_t word;

        for (size_t i = 0; i < size / sizeof(word); i++) {
                memcpy(&word, (const char *)content + i * sizeof(word), sizeof(word));
                atomic_store_explicit(&to[i], word, memory_order_relaxed); /* the line's publication orders it */
        }
}

struct ring_group_entry legal_entry(struct legal *legal, uint32_t rank, bool sends, uint32_t peer, uint64_t count,
                                    uint64_t offset) {
        return (struct ring_group_entry){
                .operation = sends ? RING_OP_SEND : RING_OP_RECV,
                .type = RMX_FLOAT32,
                .peer = peer,
                .sequence = ++legal->pair[!sends][rank][peer],
                .count = count,
                .offset = offset,
                .buffer = 1,
        };
}

struct ring_request legal_group(struct legal *legal, uint32_t rank, uint32_t block,
                                const struct ring_group_entry *entries, uint32_t n) {
        struct ring_request line = {0};

        write_block(legal, block, entries, n * sizeof(*entries));
        ring_request_set_head(&line, RING_OP_GROUP, 0, 0);
        line.word[RING_W_COMM] = legal->rig.handle[rank];
        ring_request_set_u64(&line, RING_W_COUNT_LO, n);
        line.word[RING_W_ARGUMENT] = block;
        return line;
}

/* Rank a sends rank b so many times `elements`. */
static uint64_t share(uint32_t a, uint32_t b) {
        return 1 + a + 2 * b;
}

static struct ring_request vector_line(struct legal *legal, uint32_t rank, uint32_t block, uint64_t elements) {
        struct ring_request line = rig_line(&legal->rig, rank);
        const uint64_t words[8] = {
                share(rank, 0) * elements, share(rank, 1) * elements, 0, share(rank, 0) * elements,
                share(0, rank) * elements, share(1, rank) * elements, 0, share(0, rank) * elements,
        };

        write_block(legal, block, words, sizeof(words));
        ring_request_set_head(&line, RING_OP_ALL_TO_ALL_V, RMX_FLOAT32, 0);
        ring_request_set_u64(&line, RING_W_COUNT_LO, 0);
        line.word[RING_W_ARGUMENT] = block;
        return line;
}

static struct ring_request premul_line(struct legal *legal, uint32_t rank, uint32_t block, uint64_t elements) {
        struct ring_request line = rig_line(&legal->rig, rank);
        const uint64_t factor = FACTOR;

        write_block(legal, block, &factor, sizeof(factor));
        ring_request_set_head(&line, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_PREMUL_SUM);
        ring_request_set_u64(&line, RING_W_COUNT_LO, elements);
        line.word[RING_W_ARGUMENT] = block;
        return line;
}

static struct ring_request pair_line(struct legal *legal, uint32_t rank, uint64_t elements) {
        struct ring_request line = rig_line(&legal->rig, rank);

        ring_request_set_head(&line, rank ? RING_OP_RECV : RING_OP_SEND, RMX_FLOAT32, 0);
        ring_request_set_u64(&line, RING_W_COUNT_LO, elements);
        line.word[RING_W_PEER] = !rank;
        line.word[RING_W_SEQUENCE] = ++legal->pair[rank][rank][!rank];
        return line;
}

static struct ring_request group_line(struct legal *legal, uint32_t rank, uint32_t block, uint64_t elements) {
        struct ring_group_entry entries[LEGAL_GROUP_SIZE];
        uint64_t bytes = elements * sizeof(float);

        for (uint32_t peer = 0; peer < 2; peer++) {
                entries[peer] = legal_entry(legal, rank, true, peer, elements, rank * QUARTER + peer * bytes);
                entries[2 + peer] =
                        legal_entry(legal, rank, false, peer, elements, (2 + rank) * QUARTER + peer * bytes);
        }
        return legal_group(legal, rank, block, entries, LEGAL_GROUP_SIZE);
}

void legal_round(struct legal *legal, enum legal_what what, uint32_t elements, const uint32_t block[2],
                 struct ring_request ret_line[2]) {
        for (uint32_t rank = 0; rank < 2; rank++) {
                switch (what) {
                case LEGAL_VECTOR:
                        ret_line[rank] = vector_line(legal, rank, block[rank], elements);
                        break;
                case LEGAL_PREMUL:
                        ret_line[rank] = premul_line(legal, rank, block[rank], elements);
                        break;
                case LEGAL_PAIR:
                        ret_line[rank] = pair_line(legal, rank, elements);
                        break;
                default:
                        ret_line[rank] = group_line(legal, rank, block[rank], elements);
                        break;
                }
                legal->rig.sequence[rank] += what == LEGAL_VECTOR || what == LEGAL_PREMUL;
        }
}

bool legal_put(struct legal *legal, uint32_t first, const struct ring_request line[2], uint32_t ret_sequence[2]) {
        return wire_ring_put(&legal->rig.ring, &line[first], &ret_sequence[first]) &&
               wire_ring_put(&legal->rig.ring, &line[!first], &ret_sequence[!first]);
}

/* Element i of what a rank gives. */
static float given(uint32_t rank, uint64_t i) {
        return (float)(1 + rank * QUARTER / sizeof(float) + i);
}

static bool got(const struct legal *legal, uint32_t rank, uint64_t at, uint32_t from, uint64_t first, uint64_t n) {
        const float *out = legal->rig.memory + (2 + rank) * QUARTER / sizeof(float) + at;

        for (uint64_t i = 0; i < n; i++)
                if (out[i] != given(from, first + i))
                        return false;
        return out[n] == (float)-1 || at == 0; /* behind the last piece nothing was written */
}

static bool result_right(const struct legal *legal, enum legal_what what, uint32_t rank, uint64_t n) {
        const float *out = legal->rig.memory + (2 + rank) * QUARTER / sizeof(float);

        switch (what) {
        case LEGAL_VECTOR:
                return got(legal, rank, 0, 0, rank * share(0, 0) * n, share(0, rank) * n) &&
                       got(legal, rank, share(0, rank) * n, 1, rank * share(1, 0) * n, share(1, rank) * n);
        case LEGAL_PREMUL:
                for (uint64_t i = 0; i < n; i++)
                        if (out[i] != 2 * given(0, i) + 2 * given(1, i))
                                return false;
                return out[n] == (float)-1;
        case LEGAL_PAIR:
                return rank == 0 || got(legal, 1, 0, 0, 0, n);
        default:
                return got(legal, rank, 0, 0, rank * n, n) && got(legal, rank, n, 1, rank * n, n);
        }
}

bool legal_works(struct legal *legal) {
        const uint32_t block[2] = {RING_ARGUMENT_ALIGN, 1024};
        struct rig *rig = &legal->rig;
        struct ring_request line[2];
        uint32_t sequence[2], status;

        for (uint32_t what = 0; what < LEGAL_COUNT; what++) {
                uint32_t n = 1 + attack_draw(rig->attack, LEGAL_ELEMENTS_MAX);

                for (uint32_t rank = 0; rank < 2; rank++)
                        for (uint32_t i = 0; i < QUARTER / sizeof(float); i++) {
                                rig->memory[rank * QUARTER / sizeof(float) + i] = given(rank, i);
                                rig->memory[(2 + rank) * QUARTER / sizeof(float) + i] = -1;
                        }
                legal_round(legal, what, n, block, line);
                if (!legal_put(legal, attack_draw(rig->attack, 2), line, sequence))
                        return false;
                for (uint32_t rank = 0; rank < 2; rank++)
                        if (!wire_ring_take(&rig->ring, sequence[rank], ATTACK_SILENT_MS, &status) ||
                            ring_status_code(status))
                                return false;
                for (uint32_t rank = 0; rank < 2; rank++)
                        if (!result_right(legal, what, rank, n))
                                return false;
        }
        return true;
}
