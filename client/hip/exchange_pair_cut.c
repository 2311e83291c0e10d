/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives as channels, one for each other rank and direction, which have blocks of their own. How many
 * blocks a transfer has both its ranks compute, from what both know: its bytes, the number of ranks, the communicator's
 * bound. Whatever else is in the kernels of the two ranks may differ.
 */
#include "client/hip/exchange_kernel.h"
#include "ring/line.h"
#include "util/type.h"

#define UNIT_BYTES   (EXCHANGE_THREADS * 16u) /* of a block */
#define PACKED_BYTES (EXCHANGE_THREADS * PACKED_UNITS * 8u)

/* 32 bits of FNV-1a. operation: of a collective whose pieces these are, 0: of none. */
static uint32_t signature_of(const struct pair_op *op, uint32_t operation) {
        const uint64_t words[] = {(uint64_t)operation << 32 | op->type, op->count};
        uint32_t hash = 2166136261u;

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
                for (uint32_t byte = 0; byte < 8; byte++)
                        hash = (hash ^ (words[i] >> (8 * byte) & 0xffu)) * 16777619u;
        return hash;
}

/* In packets, if there is room for it; else as many blocks as there may be, each with one chunk, and larger chunks
 * where that is not enough. */
static void op_deal(struct pair_op *op, uint32_t n_ranks, uint32_t max_blocks) {
        const uint64_t wanted = (op->bytes + UNIT_BYTES - 1) / UNIT_BYTES;
        uint32_t most = max_blocks / (2 * (n_ranks - 1)); /* when all channels are used */
        uint64_t units, blocks;

        if (op->bytes <= PACKED_BYTES) {
                op->packed = 1;
                op->units = (uint32_t)((op->bytes + EXCHANGE_THREADS * 8 - 1) / (EXCHANGE_THREADS * 8));
                op->blocks = 1;
                return;
        }
        if (most > PAIR_BLOCKS(n_ranks))
                most = PAIR_BLOCKS(n_ranks);
        most = most ? most : 1;
        units = (wanted + most - 1) / most;
        units = units > PAIR_UNITS ? PAIR_UNITS : units ? units : 1;
        blocks = (wanted + units - 1) / units;
        op->units = (uint32_t)units;
        op->blocks = (uint16_t)(blocks > most ? most : blocks ? blocks : 1);
}

static struct pair_channel *channel_of(struct pair_arguments *p, uint32_t peer, bool sends) {
        struct pair_channel *channel = p->channel;

        while (channel < p->channel + p->n_channels && (channel->peer != peer || channel->sends != sends))
                channel++;
        if (channel == p->channel + p->n_channels) {
                p->n_channels++;
                *channel = (struct pair_channel){.peer = (uint8_t)peer, .sends = sends, .op = PAIR_OPS};
        }
        return channel;
}

struct piece {
        uint32_t peer;
        bool sends;
        uint32_t type;
        uint64_t count;
        const void *address;
        void *to; /* of the rank's own */
};

static struct pair_op op_of(const struct pair_arguments *p, const struct piece *piece, uint32_t max_blocks) {
        const uintptr_t address = (uintptr_t)piece->address, both = address | (uintptr_t)piece->to;
        struct pair_op op = {.address = (char *)address,
                             .to = piece->to,
                             .bytes = piece->count * type_size(piece->type),
                             .count = piece->count,
                             .type = piece->type,
                             .element_bytes = (uint8_t)type_size(piece->type),
                             .next = PAIR_OPS};

        op.signature = signature_of(&op, p->all.operation);
        op_deal(&op, p->all.n_ranks, max_blocks);
        if (piece->to) { /* nobody's but this rank's */
                op.packed = 0;
                op.units = PAIR_UNITS;
        }
        op.aligned = both % (op.packed ? 8 : 16) == 0;
        if (both % op.element_bytes)
                op.element_bytes = 1; /* what is small may lie anywhere */
        return op;
}

/* The i-th one. */
static void append(struct pair_arguments *p, uint32_t i, const struct piece *piece, uint32_t max_blocks) {
        struct pair_channel *channel = channel_of(p, piece->peer, piece->sends);
        uint32_t last = channel->op;

        p->op[i] = op_of(p, piece, max_blocks);
        if (last == PAIR_OPS) {
                channel->op = (uint16_t)i;
        } else {
                while (p->op[last].next != PAIR_OPS)
                        last = p->op[last].next;
                p->op[last].next = i;
        }
        if (channel->blocks < p->op[i].blocks)
                channel->blocks = p->op[i].blocks;
}

static void begin(struct pair_arguments *p, const struct client_gpu_bell *bell, uint32_t operation, uint32_t n_ranks,
                  uint32_t rank) {
        *p = (struct pair_arguments){
                .all = {.n_ranks = n_ranks, .rank = rank, .number = bell->number, .operation = operation}};
}

/* A receive may be called long before the other rank sends, and beside what computes meanwhile. Where all channels wait
 * for much, so that a microsecond more is of no account, no block but one need be there until something has come. What
 * is sent is not waited for: there may be room for it. */
static bool waits_ahead(const struct pair_arguments *p) {
        for (uint32_t i = 0; i < p->n_channels; i++)
                if (p->channel[i].sends || p->op[p->channel[i].op].bytes < PAIR_AHEAD_BYTES)
                        return false;
        return p->n_channels > 0;
}

static void deal(struct pair_arguments *p) {
        for (uint32_t i = 0; i < p->n_channels; i++) {
                p->channel[i].begin = (uint16_t)p->all.blocks;
                p->all.blocks += p->channel[i].blocks;
        }
        p->ahead = waits_ahead(p);
        p->all.patience = p->all.blocks > EXCHANGE_KEEPERS ? PAIR_PATIENCE : UINT32_MAX; /* as in exchange_cut() */
}

static uint64_t count_of(const struct client_gpu_bell *bell) {
        return (uint64_t)bell->word[RING_W_COUNT_HI] << 32 | bell->word[RING_W_COUNT_LO];
}

void pair_cut(struct pair_arguments *p, const struct client_gpu_bell *bells, uint32_t n, uint32_t n_ranks,
              uint32_t rank, uint32_t max_blocks) {
        begin(p, &bells[0], 0, n_ranks, rank);
        for (uint32_t i = 0; i < n; i++) {
                const bool sends = (bells[i].word[RING_W_HEAD] >> 16 & 0xffu) == RING_OP_SEND;
                const struct piece piece = {.peer = bells[i].word[RING_W_PEER],
                                            .sends = sends,
                                            .type = bells[i].word[RING_W_HEAD] >> 8 & 0xffu,
                                            .count = count_of(&bells[i]),
                                            .address = sends ? bells[i].in : bells[i].out};

                append(p, i, &piece, max_blocks);
        }
        deal(p);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */
/* What this rank has for rank r, or gets from it. False: nothing, with whatever count. */
static bool piece_of(struct piece *piece, bool sends, const struct client_gpu_bell *bell, uint32_t n_ranks,
                     uint32_t rank, uint32_t r) {
        const uint32_t operation = bell->word[RING_W_HEAD] >> 16 & 0xffu, root = bell->word[RING_W_PEER];
        const uint32_t from = sends ? rank : r, to = sends ? r : rank;
        const uint64_t *vector = bell->argument; /* counts, offsets of what it sends, and of what it gets */
        const char *memory = sends ? bell->in : bell->out;
        uint64_t offset = 0;

        piece->sends = sends;
        piece->count = count_of(bell);
        if (operation == RING_OP_ALL_TO_ALL_V) {
                piece->count = vector[(sends ? 0 : 2 * n_ranks) + r];
                offset = vector[(sends ? 0 : 2 * n_ranks) + n_ranks + r];
        } else if (sends == (operation == RING_OP_SCATTER)) { /* the side that has a piece for each rank */
                offset = r * piece->count;
        }
        piece->address = piece->count ? memory + offset * type_size(piece->type) : NULL;
        return operation == RING_OP_ALL_TO_ALL_V || root == (operation == RING_OP_GATHER ? to : from);
}

bool pair_cut_collective(struct pair_arguments *p, const struct client_gpu_bell *bell, uint32_t n_ranks, uint32_t rank,
                         uint32_t max_blocks) {
        const uint32_t operation = bell->word[RING_W_HEAD] >> 16 & 0xffu;
        struct piece piece = {.type = bell->word[RING_W_HEAD] >> 8 & 0xffu}, own = piece;
        uint32_t n = 0;

        if (operation != RING_OP_ALL_TO_ALL_V && operation != RING_OP_GATHER && operation != RING_OP_SCATTER)
                return false;
        begin(p, bell, operation, n_ranks, rank);
        for (uint32_t distance = 1; distance < n_ranks; distance++)
                for (uint32_t half = 0; half < 2; half++) {
                        const uint32_t to = (rank + distance) % n_ranks, from = (rank + n_ranks - distance) % n_ranks;
                        const bool sends = half == (rank < from ? 0 : 1); /* the lower sender's comes first */

                        piece.peer = sends ? to : from;
                        if (piece_of(&piece, sends, bell, n_ranks, rank, piece.peer))
                                append(p, n++, &piece, max_blocks);
                }
        own.peer = rank;
        if (piece_of(&own, false, bell, n_ranks, rank, rank)) {
                own.to = (void *)(uintptr_t)own.address;
                (void)piece_of(&own, true, bell, n_ranks, rank, rank);
                if (own.address != own.to)
                        p->own = op_of(p, &own, max_blocks);
        }
        deal(p);
        return true;
}
