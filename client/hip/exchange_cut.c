/* SPDX-License-Identifier: MIT */
/*
 * A collective as pieces, one for each rank, of tiles, which are dealt out to blocks. Every rank comes to the same
 * numbers, since nothing goes into them that is a rank's own: threads of the same number have the same packets.
 *
 * Pieces of an all_reduce are whole units of 16 bytes long, whatever its element; the last ones may be shorter, or
 * nothing. There are as few tiles in a block as EXCHANGE_BLOCKS_OF blocks allow (but for chunks, see units_most), and
 * as few blocks as those tiles allow: blocks without a tile would be of no use, tiles without data cost as much as
 * others.
 */
#include "client/hip/exchange_kernel.h"
#include "ring/line.h"
#include "util/type.h"

/* Of what was called; 32 bits of FNV-1a. */
static uint32_t signature_of(const struct client_gpu_bell *bell) {
        static const uint8_t words[] = {RING_W_HEAD, RING_W_COUNT_LO, RING_W_COUNT_HI, RING_W_PEER};
        uint32_t hash = 2166136261u;

        for (size_t i = 0; i < sizeof(words); i++)
                for (uint32_t byte = 0; byte < 4; byte++)
                        hash = (hash ^ (bell->word[words[i]] >> (8 * byte) & 0xffu)) * 16777619u;
        return hash;
}

static uint32_t kind_of(uint32_t operation, uint32_t type, uint32_t redop) {
        if (operation == RING_OP_ALL_GATHER || operation == RING_OP_ALL_TO_ALL || operation == RING_OP_BROADCAST ||
            operation == RING_OP_BARRIER)
                return EXCHANGE_COPY;
        if (redop != RMX_SUM)
                return EXCHANGE_OTHER;
        switch (type) {
        case RMX_FLOAT32:
                return EXCHANGE_FLOAT32;
        case RMX_FLOAT16:
                return EXCHANGE_FLOAT16;
        case RMX_BFLOAT16:
                return EXCHANGE_BFLOAT16;
        default:
                return EXCHANGE_OTHER;
        }
}

static uint32_t blocks_of(uint32_t blocks, uint32_t max_blocks) {
        return blocks < max_blocks ? blocks : max_blocks;
}

/* Units of a thread in a tile that is not a long one, at most. A step costs some 2 us beside what it moves, so tiles of
 * three and four ranks have two where there are so many units for each thread in all. Of fewer they have one, since a
 * tile goes on while the next one comes. */
#ifndef EXCHANGE_UNITS_FROM /* tests */
#define EXCHANGE_UNITS_FROM 4u
#endif

static uint32_t units_most(uint32_t n_ranks, uint64_t units) {
        return n_ranks > 2 && units < EXCHANGE_UNITS_FROM ? 1 : EXCHANGE_UNITS(n_ranks);
}

/* Units for which each thread has room, if chunks are long: nothing goes into it that is not the communicator's. */
static uint32_t room_of(uint32_t n_ranks, uint32_t max_blocks) {
        const uint32_t units = units_most(n_ranks, 0);
        const uint32_t all = EXCHANGE_CHUNK_TURNS(n_ranks) * EXCHANGE_CHUNK_BLOCKS(n_ranks) * units;
        const uint32_t room = all / (EXCHANGE_LONG_TURNS * blocks_of(EXCHANGE_CHUNK_BLOCKS(n_ranks), max_blocks));

        return room <= units ? 0 : room < EXCHANGE_ROOM ? room : EXCHANGE_ROOM;
}

#ifndef EXCHANGE_AT_ONCE_OF_TWO /* for a block */
#define EXCHANGE_AT_ONCE_OF_TWO (256u << 10)
#endif

/* Has an all_reduce one stage? It saves one trip of two, some 2 us, and takes n / 2 times as many packets, which
 * are twice the data: two ranks always, four up to 128 KB, as it was measured, and eight up to 64 KB. But two ranks
 * with few blocks: what a block moves is its processor's limit, and in two stages that is 4 times the data in place of
 * 5. */
static bool at_once(uint32_t n_ranks, uint64_t bytes, uint32_t max_blocks) {
        if (n_ranks == 2)
                return !room_of(n_ranks, max_blocks) || bytes <= (uint64_t)max_blocks * EXCHANGE_AT_ONCE_OF_TWO;
#ifdef EXCHANGE_AT_ONCE /* tests */
        return bytes <= EXCHANGE_AT_ONCE;
#else
        return bytes <= (n_ranks <= 4 ? 128u << 10 : 64u << 10);
#endif
}

/* Pieces of whole units for so many ranks. */
static void share_out(struct exchange_arguments *a, uint64_t bytes, uint32_t n_pieces) {
        a->piece_bytes = ((bytes + 15) / 16 + n_pieces - 1) / n_pieces * 16;
        a->in_step = a->out_step = a->piece_bytes;
        a->in_bytes = bytes;
        a->back = 1;
}

/* Does a root share out what it has, for the others to pass on, or what it gets, for them to add up? Then everything
 * goes over its links once, and not once for each other rank; that is worth the second stage, some 4 us, from so many
 * bytes on, at 400 GB/s. */
static bool by_others(uint32_t n_ranks, uint64_t bytes) {
#ifdef EXCHANGE_BY_OTHERS /* tests */
        const uint64_t from = EXCHANGE_BY_OTHERS;
#else
        const uint64_t from = 1600u << 10;
#endif

        return n_ranks > 2 && bytes * (n_ranks - 2) >= from;
}

static void root_pieces(struct exchange_arguments *a, uint32_t root, uint64_t bytes) {
        a->root = root;
        a->piece_bytes = bytes;
        if (!by_others(a->n_ranks, bytes))
                return;
        share_out(a, bytes, a->n_ranks - 1);
        a->turn = a->n_ranks - 1 - root; /* the root's would be the last one */
        a->pieces = a->n_ranks - 1;
}

/* How the operation goes into pieces. False: it does not. */
static bool pieces(struct exchange_arguments *a, uint32_t operation, const struct client_gpu_bell *bell,
                   uint32_t max_blocks) {
        switch (operation) {
        case RING_OP_ALL_REDUCE:
                a->piece_bytes = bell->in_bytes;
                if (at_once(a->n_ranks, bell->in_bytes, max_blocks))
                        return true;
                share_out(a, bell->in_bytes, a->n_ranks);
                return true;
        case RING_OP_REDUCE:
                root_pieces(a, bell->word[RING_W_PEER], bell->in_bytes);
                return true;
        case RING_OP_BROADCAST:
                root_pieces(a, bell->word[RING_W_PEER],
                            bell->in_bytes > bell->out_bytes ? bell->in_bytes : bell->out_bytes);
                return true;
        case RING_OP_REDUCE_SCATTER:
                a->piece_bytes = a->in_step = bell->out_bytes;
                return true;
        case RING_OP_ALL_GATHER:
                a->piece_bytes = a->out_step = bell->in_bytes;
                return true;
        case RING_OP_ALL_TO_ALL:
                a->piece_bytes = a->in_step = a->out_step = bell->in_bytes / a->n_ranks;
                return true;
        case RING_OP_BARRIER: /* packets of nothing */
                return true;
        default:
                return false;
        }
}

#ifndef EXCHANGE_LINES_ABOVE /* tests */
#define EXCHANGE_LINES_ABOVE (UINT64_C(256) << 10)
#endif
#ifndef EXCHANGE_LINES_MOST /* of two stages or two ranks, and of one stage */
#if defined(RAILMUX_CUDA)
#define EXCHANGE_LINES_MOST         (UINT64_C(8) << 20)
#define EXCHANGE_LINES_MOST_AT_ONCE (UINT64_C(24) << 20)
#else
#define EXCHANGE_LINES_MOST         (UINT64_C(1536) << 10)
#define EXCHANGE_LINES_MOST_AT_ONCE EXCHANGE_LINES_MOST
#endif
#endif

/* Of few blocks, lines for so many bytes that a rank sends to all, times the square of their number: with two ranks
 * they are the faster ones up to 128 KB with 4 blocks, 512 KB with 8, 4 MB with 16, 8 MB with 32. */
#ifndef EXCHANGE_LINES_FEW_MOST /* tests */
#define EXCHANGE_LINES_FEW_MOST (UINT64_C(12) << 10)
#endif

/* Chunks carry nothing but data, but are behind a fence: worth it from so many bytes on that a rank sends to all, or,
 * since it is the block's part that counts, from as many fewer as there are fewer blocks. */
static bool in_chunks(const struct exchange_arguments *a, uint32_t max_blocks) {
#ifdef EXCHANGE_CHUNKED /* tests */
        const uint64_t from = EXCHANGE_CHUNKED;
#else
        const uint64_t from = 768u << 10;
#endif

        const uint32_t all = EXCHANGE_BLOCKS_OF(a->n_ranks);

        if (a->back && (a->root != EXCHANGE_NO_ROOT || a->n_ranks == 2))
                return true; /* packets know no such way */
        return a->piece_bytes * (a->n_ranks - 1) >= from * blocks_of(all, max_blocks) / all;
}

/* Lines are 1.07 times the data (AMD: 1.33), where packets are twice, and wait for no fence: from more than 256 KB on
 * that a rank sends to all, up to where chunks, which are no more than the data, are as fast, as it was measured with
 * two and four ranks (docs/performance.md); AMD by its links' rate, for 1.7 us of a fence and a trip. Fewer blocks: as
 * above.
 */
static bool in_lines(const struct exchange_arguments *a, uint32_t max_blocks) {
        const uint64_t all = EXCHANGE_LINE_BLOCKS(a->n_ranks), sent = a->piece_bytes * (a->n_ranks - 1);
        const uint64_t above = EXCHANGE_LINES_ABOVE * blocks_of((uint32_t)all, max_blocks) / all;

        if (a->root != EXCHANGE_NO_ROOT) /* whoever has nothing to send would send as much */
                return false;
        if (a->n_ranks == 2 && a->back)
                return false;
        if (room_of(a->n_ranks, max_blocks) && sent > (uint64_t)max_blocks * max_blocks * EXCHANGE_LINES_FEW_MOST)
                return false; /* long chunks are as fast */
        return sent > above && sent <= (a->back || a->n_ranks == 2 ? EXCHANGE_LINES_MOST : EXCHANGE_LINES_MOST_AT_ONCE);
}

/* Tiles are dealt to warps, each of which finds its own. Spread over the usual blocks, or over all if that is not room
 * enough for one tile of each warp. */
static void deal_lines(struct exchange_arguments *a, uint32_t max_blocks) {
        const uint32_t most = blocks_of(EXCHANGE_LINE_BLOCKS(a->n_ranks), max_blocks);

        a->blocks = blocks_of(EXCHANGE_BLOCKS_OF(a->n_ranks), most);
        if (a->piece_bytes > (uint64_t)a->blocks * EXCHANGE_LINE_BYTES(a->n_ranks))
                a->blocks = most;
        a->tiles = a->depth = 1;
        a->lines = 1;
}

/* In one tile, if that will do; else in as few as units_most allows, with as much in each of them: links are only kept
 * busy by more bytes under way than the blocks of smaller requests have. */
static void deal_chunks(struct exchange_arguments *a, uint32_t max_blocks) {
        const uint32_t room = room_of(a->n_ranks, max_blocks);
        const uint64_t all = (a->piece_bytes + 15) / 16;
        uint64_t most = room ? room : units_most(a->n_ranks, 0), units;
        uint32_t blocks = blocks_of(EXCHANGE_BLOCKS_OF(a->n_ranks), max_blocks);

        if (all > most * blocks * EXCHANGE_THREADS)
                blocks = blocks_of(EXCHANGE_CHUNK_BLOCKS(a->n_ranks), max_blocks);
        units = (all + blocks * EXCHANGE_THREADS - 1) / (blocks * EXCHANGE_THREADS);
        most = room ? room : units_most(a->n_ranks, units);
        a->blocks = blocks;
        a->tiles = (uint32_t)((units + most - 1) / most);
        a->units = (uint32_t)((units + a->tiles - 1) / a->tiles);
        a->room = room;
        a->depth = 1;
}

static void deal_packets(struct exchange_arguments *a, uint32_t max_blocks) {
        const uint64_t packets = (a->piece_bytes + 7) / 8, tiles = (packets + EXCHANGE_THREADS - 1) / EXCHANGE_THREADS;

        const uint32_t blocks = blocks_of(EXCHANGE_BLOCKS_OF(a->n_ranks), max_blocks);

        a->tiles = (uint32_t)((tiles + blocks - 1) / blocks);
        a->tiles = a->tiles ? a->tiles : 1;
        a->blocks = (uint32_t)((tiles + a->tiles - 1) / a->tiles);
        a->blocks = a->blocks ? a->blocks : 1;
        a->depth = a->tiles > 1 ? EXCHANGE_DEPTH(a->n_ranks) : 1;
}

/* As exchange_piece() in exchange_run.h. */
static void own_piece(struct exchange_arguments *a) {
        const uint64_t begin = a->in_step * a->rank;

        a->own_bytes = a->piece_bytes;
        if (a->in_bytes)
                a->own_bytes = begin >= a->in_bytes                   ? 0
                               : a->in_bytes - begin < a->piece_bytes ? a->in_bytes - begin
                                                                      : a->piece_bytes;
        a->own_in = a->in ? a->in + begin : NULL;
        a->own_out = a->out ? a->out + a->out_step * a->rank : NULL;
}

bool exchange_cut(struct exchange_arguments *a, const struct client_gpu_bell *bell, uint32_t n_ranks, uint32_t rank,
                  uint32_t max_blocks, bool lines, uint32_t *ret_kind) {
        const uint32_t head = bell->word[RING_W_HEAD], operation = head >> 16 & 0xffu;
        uint64_t odd;

        *a = (struct exchange_arguments){.in = bell->in,
                                         .out = bell->out,
                                         .scalar = bell->n_arguments ? bell->argument[0] : 0,
                                         .n_ranks = n_ranks,
                                         .rank = rank,
                                         .root = EXCHANGE_NO_ROOT,
                                         .pieces = n_ranks,
                                         .number = bell->number,
                                         .operation = operation,
                                         .type = head >> 8 & 0xffu,
                                         .redop = head & 0xffu,
                                         .signature = signature_of(bell),
                                         .count = (uint64_t)bell->word[RING_W_COUNT_HI] << 32 |
                                                  bell->word[RING_W_COUNT_LO]};
        if (!pieces(a, operation, bell, max_blocks))
                return false;
        own_piece(a);
        odd = (uintptr_t)a->in | (uintptr_t)a->out | a->in_step | a->out_step;
        if (lines && in_lines(a, max_blocks)) {
                deal_lines(a, max_blocks);
                a->aligned = odd % 16 == 0;
        } else if (in_chunks(a, max_blocks)) {
                deal_chunks(a, max_blocks);
                a->aligned = odd % 16 == 0;
        } else {
                deal_packets(a, max_blocks);
                a->aligned = (odd | a->piece_bytes | a->in_bytes) % 8 == 0;
        }
        a->patience = a->blocks > EXCHANGE_KEEPERS ? EXCHANGE_PATIENCE : UINT32_MAX; /* where all may stay all do */
        a->element_bytes = (uint32_t)type_size(a->type);
        if (((uintptr_t)a->in | (uintptr_t)a->out) % a->element_bytes)
                a->element_bytes = 1; /* small requests may lie anywhere */
        *ret_kind = kind_of(operation, a->type, a->redop);
        return true;
}

enum exchange_way exchange_way_of(const struct exchange_arguments *a) {
        return a->lines       ? EXCHANGE_LINED
               : a->room      ? EXCHANGE_LONG
               : a->units     ? EXCHANGE_BULK
               : a->tiles > 1 ? EXCHANGE_DEEP
                              : EXCHANGE_SHALLOW; /* as a->depth */
}

uint32_t exchange_together(const struct exchange_arguments *a) {
        uint32_t n = 4;

        if (!a->room)
                return 1;
        while (a->blocks % n)
                n /= 2;
        return n;
}
