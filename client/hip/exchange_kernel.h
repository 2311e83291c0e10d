/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Exchange kernels (exchange.hip): what the host part gives them, and what lies in an exchange area. C and device code.
 *
 * An area is a rank's own memory, for one communicator. The other ranks write packets (gpu/device/order.h) into it and
 * read nothing; the rank itself reads. Packet places: [2][blocks][writers][capacity], of which the first index
 * takes turns, and the third is who writes; nobody writes to itself. A place is EXCHANGE_THREADS packets times what one
 * thread has under way, its depth. Behind them are chunks' places (exchange_bulk.h): [turns][blocks][n_ranks - 1]
 * [EXCHANGE_THREADS * units] of 16 bytes, long ones' [blocks][turns][n_ranks - 1][EXCHANGE_THREADS * room]. And then
 * those of transfers (exchange_pair.h): [n_ranks - 1][turns][blocks] [EXCHANGE_THREADS * units], the first index for
 * who writes. At the end those of lines (exchange_line.h): [2][blocks][writers][EXCHANGE_THREADS * units].
 *
 * Its head is apart: the header, how far warps are that have left (exchange_leave.h), and the chunks' flags
 * [blocks][n_ranks], numbers of lines, and the words of transfers. Allocations take whole 2 MiB of a GPU (NVIDIA):
 * heads of many areas share one.
 */
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"

#ifndef EXCHANGE_THREADS /* only tests on the host have fewer, and fewer blocks */
#define EXCHANGE_THREADS 512u
#endif
#define EXCHANGE_RANKS CLIENT_GPU_EXCHANGE_RANKS
#ifndef EXCHANGE_BLOCKS
#define EXCHANGE_BLOCKS 64u /* at most */
#endif
/* Places that packets of a step take in turn, and chunks: tiles, and what is sent back, which two ranks do in long ones
 * alone; and the number behind the last one, which is the next place's whatever the turns. */
#define EXCHANGE_TURNS                2u
#define EXCHANGE_TILE_TURNS           3u
#define EXCHANGE_BACK_TURNS           2u
#define EXCHANGE_CHUNK_TURNS(n_ranks) (EXCHANGE_TILE_TURNS + ((n_ranks) <= 2 ? 0 : EXCHANGE_BACK_TURNS))
#define EXCHANGE_LONG_TURNS           (EXCHANGE_TILE_TURNS + EXCHANGE_BACK_TURNS)
#define EXCHANGE_FIRST                4u
/* Of so many ranks; packets that a thread may have under way to each of them, and units of 16 bytes. Large chunks have
 * twice the blocks. So these places take 14, 33 and 21.5 MiB for two, four and eight ranks, those of transfers 4, 4
 * and 4.5, and those of lines 5, 7.5 and 10 (AMD: 4, 6 and 8). */
#define EXCHANGE_BLOCKS_OF(n_ranks)    ((n_ranks) <= 4 ? EXCHANGE_BLOCKS : EXCHANGE_BLOCKS / 2)
#define EXCHANGE_CHUNK_BLOCKS(n_ranks) (2 * EXCHANGE_BLOCKS_OF(n_ranks))
/* To compute the place of a writer among the others takes scalar registers, which AMD has not enough of. */
#define EXCHANGE_WRITERS(n_ranks) ((n_ranks) <= 4 ? (n_ranks)-1 : (n_ranks))
#define EXCHANGE_DEPTH(n_ranks)   ((n_ranks) <= 2 ? 2u : 1u)
#ifndef EXCHANGE_UNITS_OF_TWO
#define EXCHANGE_UNITS_OF_TWO 4u
#endif
#define EXCHANGE_UNITS(n_ranks) ((n_ranks) <= 2 ? EXCHANGE_UNITS_OF_TWO : (n_ranks) <= 4 ? 2u : 1u)
/* Units of a thread in a long chunk, at most: where a communicator has few blocks, each has the places of those there
 * are not. 256 KiB for a block and another rank. */
#define EXCHANGE_ROOM 32u
#ifndef EXCHANGE_LANES
#define EXCHANGE_LANES (EXCHANGE_THREADS / 32u) /* warps of a block, at most */
#endif
/* Lines: blocks at most, units that a thread may have under way to each other rank, and bytes of data in those of a
 * block (exchange_line.h). A quarter more blocks, since of a power of two bytes a sixteenth would be left for another
 * tile. AMD sends less in lines. */
#if defined(RAILMUX_CUDA)
#define EXCHANGE_LINE_BLOCKS(n_ranks) (EXCHANGE_BLOCKS_OF(n_ranks) * 5 / 4)
#define EXCHANGE_LINE_UNITS(n_ranks)  ((n_ranks) <= 2 ? 4u : 2u)
#define EXCHANGE_LINE_BYTES(n_ranks)  (EXCHANGE_THREADS * 15u * EXCHANGE_LINE_UNITS(n_ranks))
#else
#ifndef EXCHANGE_LINE_RANKS
#define EXCHANGE_LINE_RANKS 2u /* more have half of the blocks */
#endif
#define EXCHANGE_LINE_BLOCKS(n_ranks)                                                                                  \
        ((n_ranks) <= EXCHANGE_LINE_RANKS ? EXCHANGE_BLOCKS : EXCHANGE_BLOCKS_OF(n_ranks) / 2)
#define EXCHANGE_LINE_UNITS(n_ranks) 4u
#define EXCHANGE_LINE_BYTES(n_ranks) (EXCHANGE_THREADS * 12u * EXCHANGE_LINE_UNITS(n_ranks))
#endif

/* Blocks that a kernel may have, of collectives and of transfers. */
#ifndef PAIR_BLOCKS_OF_TWO
#define PAIR_BLOCKS_OF_TWO 64u
#endif
#define EXCHANGE_MARKS (2 * (EXCHANGE_BLOCKS > PAIR_BLOCKS_OF_TWO ? EXCHANGE_BLOCKS : PAIR_BLOCKS_OF_TWO))

struct exchange_header {
        uint32_t calls;                     /* that are through with the part of block 0 */
        uint32_t first;                     /* where that began to count, by agreement of the ranks */
        uint32_t failed;                    /* the status with which a kernel of this rank has given up, 0: none has */
        uint32_t sequence[EXCHANGE_BLOCKS]; /* number of the last packets of each block, */
        uint32_t chunks[2 * EXCHANGE_BLOCKS]; /* and of its last chunks */
        /* Of the call that is under way, see exchange_leave.h; otherwise 0, but for the upper half of `late`. */
        uint32_t late;                    /* blocks, and how often one has left a part, ever */
        uint32_t ended;                   /* blocks, of a call with a number */
        uint32_t is_late[EXCHANGE_MARKS]; /* by block: warps that have said so */
        uint32_t left[EXCHANGE_MARKS];    /* by part: 1: its block has left it, and nobody has taken it up yet */
        /* {call, signature} of each rank, of odd and even calls: they must be the same. */
        uint64_t signature[2][EXCHANGE_RANKS];
};

/* exchange_header.late: blocks that are late and have not ended, and this times how often a part was left. */
#define EXCHANGE_LATE_TIME UINT32_C(0x10000)

/* Of a call that waits so many blocks stay on the GPU; a block is late after so many rounds of polling, and waits for a
 * while up to so many more. */
#ifndef EXCHANGE_KEEPERS
#define EXCHANGE_KEEPERS 4u
#endif
#ifndef EXCHANGE_PATIENCE
#define EXCHANGE_PATIENCE 18432u
#endif
#ifndef EXCHANGE_WHILE
#define EXCHANGE_WHILE 2048u
#endif
/* Of a transfer, a sixth of a second (H200). */
#ifndef PAIR_PATIENCE
#define PAIR_PATIENCE (32 * EXCHANGE_PATIENCE)
#endif

#define EXCHANGE_NO_ROOT         UINT32_MAX
#define EXCHANGE_OFFSET_PROGRESS 4096u
#define EXCHANGE_OFFSET_FLAGS                                                                                          \
        (EXCHANGE_OFFSET_PROGRESS + (2 * EXCHANGE_BLOCKS * EXCHANGE_LANES * 8 + 4095) / 4096 * 4096)
/* Numbers of the last lines of each warp, [block][lane]. */
#define EXCHANGE_OFFSET_WARPS (EXCHANGE_OFFSET_FLAGS + (2 * EXCHANGE_BLOCKS * EXCHANGE_RANKS * 4 + 4095) / 4096 * 4096)
/* Of any number of ranks and blocks. */
#define EXCHANGE_OFFSET_PAIR (EXCHANGE_OFFSET_WARPS + (2 * EXCHANGE_BLOCKS * EXCHANGE_LANES * 4 + 4095) / 4096 * 4096)
#define EXCHANGE_PACKETS(n_ranks)                                                                                      \
        ((size_t)EXCHANGE_TURNS * EXCHANGE_BLOCKS_OF(n_ranks) * EXCHANGE_WRITERS(n_ranks) * EXCHANGE_DEPTH(n_ranks) *  \
         EXCHANGE_THREADS)
#define EXCHANGE_OFFSET_CHUNKS(n_ranks) (EXCHANGE_PACKETS(n_ranks) * 16)
#define EXCHANGE_CHUNKS(n_ranks)                                                                                       \
        ((size_t)EXCHANGE_CHUNK_TURNS(n_ranks) * EXCHANGE_CHUNK_BLOCKS(n_ranks) * ((n_ranks)-1) * EXCHANGE_THREADS *   \
         EXCHANGE_UNITS(n_ranks))

/* ---- transfers --------------------------------------------------------------------------------------------------- */
/* Of one kernel. */
#define PAIR_OPS      CLIENT_GPU_PAIRS
#define PAIR_CHANNELS (2 * (EXCHANGE_RANKS - 1)) /* another rank and a direction */
#define PAIR_TURNS    2u                         /* places of a lane, and */
#ifndef PAIR_UNITS
#define PAIR_UNITS 4u /* units of 16 bytes for each thread in one, at most; */
#endif
#define PACKED_UNITS 4u /* or packets */
/* Of a channel, parts: one more than blocks. Two ranks need so many for their links; with two directions for each other
 * rank there are no more than 128 in all, since it takes long until one leaves. What is under way in a channel is so
 * many times 64 KiB. The last part is for packets: what fits in goes as such, and is there a fence and a trip earlier.
 */
#define PAIR_PARTS(n_ranks)                                                                                            \
        ((n_ranks) <= 2 ? PAIR_BLOCKS_OF_TWO : (n_ranks) <= 4 ? PAIR_BLOCKS_OF_TWO / 3 + 1 : PAIR_BLOCKS_OF_TWO / 7 + 1)
#define PAIR_BLOCKS(n_ranks) (PAIR_PARTS(n_ranks) - 1)
#ifndef PAIR_AHEAD_BYTES /* receives of so many are waited for by one warp, ahead of their kernel */
#define PAIR_AHEAD_BYTES (UINT64_C(2) << 20)
#endif
#define PAIR_LANES(n_ranks)            PAIR_BLOCKS(n_ranks)
#define PAIR_PLACES(n_ranks)           ((size_t)((n_ranks)-1) * PAIR_TURNS * PAIR_PARTS(n_ranks) * EXCHANGE_THREADS * PAIR_UNITS)
#define EXCHANGE_OFFSET_PAIRS(n_ranks) (EXCHANGE_OFFSET_CHUNKS(n_ranks) + EXCHANGE_CHUNKS(n_ranks) * 16)
#define EXCHANGE_OFFSET_LINES(n_ranks) (EXCHANGE_OFFSET_PAIRS(n_ranks) + PAIR_PLACES(n_ranks) * 16)
#define EXCHANGE_LINES(n_ranks)                                                                                        \
        ((size_t)EXCHANGE_TURNS * EXCHANGE_LINE_BLOCKS(n_ranks) * EXCHANGE_WRITERS(n_ranks) * EXCHANGE_THREADS *       \
         EXCHANGE_LINE_UNITS(n_ranks))
#define EXCHANGE_AREA_BYTES(n_ranks) (EXCHANGE_OFFSET_LINES(n_ranks) + EXCHANGE_LINES(n_ranks) * 16)

/* Of each other rank, in the head. */
#define PAIR_CELLS 4u /* more than PAIR_TURNS: so many transfers a sender may be ahead */
struct pair_words {
        uint64_t told[PAIR_CELLS]; /* by the other rank, of what it sends: {turn, signature}, by turn */
        uint32_t sends, receives;  /* turns of the last ones, in which this rank */
        uint32_t calls[2]; /* collectives so far, as the channel from that rank counts them, and the one to it */
};
/* And of each lane of that: [4][n_ranks][PAIR_LANES]. */
enum pair_word {
        PAIR_FLAG,   /* number of the youngest chunk that the other rank has sent, in its words */
        PAIR_CREDIT, /* and of the one of this rank that it has taken */
        PAIR_SENT,   /* this rank's own: what it has sent, */
        PAIR_TAKEN,  /* and taken */
        PAIR_WORDS,
};
#define EXCHANGE_OFFSET_LANES    (EXCHANGE_OFFSET_PAIR + (EXCHANGE_RANKS * sizeof(struct pair_words) + 511) / 512 * 512)
#define PAIR_LANE_WORDS(n_ranks) ((size_t)PAIR_WORDS * (n_ranks)*PAIR_LANES(n_ranks))
/* Of any number of ranks: two have the most. */
#define EXCHANGE_HEAD_BYTES  ((EXCHANGE_OFFSET_LANES + PAIR_LANE_WORDS(2) * 4 + 4095) / 4096 * 4096)
#define EXCHANGE_HEADS_BYTES ((size_t)2 << 20) /* of the memory for heads */

/* Which types have code of their own; all others share one. */
enum exchange_kind {
        EXCHANGE_COPY, /* all_gather, all_to_all */
        EXCHANGE_FLOAT32,
        EXCHANGE_FLOAT16,
        EXCHANGE_BFLOAT16,
        EXCHANGE_OTHER,
        EXCHANGE_KINDS,
};

/* A collective as pieces of the same length, one for each rank: what this rank has for rank r is at in + r * in_step,
 * what it gets from rank r goes to out + r * out_step. */
struct exchange_arguments {
        char *area[EXCHANGE_RANKS]; /* by rank */
        char *head[EXCHANGE_RANKS]; /* of the same */
        const char *bell_area;      /* which says when to give up, */
        const uint32_t *stop;       /* and so does this word of the host's */
        void *host;                 /* struct bell_host */
        const char *in;
        char *out;
        /* Of the piece of this rank, which every call begins with: where it lies, and its bytes up to in_bytes. */
        const char *own_in;
        char *own_out;
        uint64_t own_bytes;
        uint64_t in_step, out_step;
        uint64_t piece_bytes;
        uint64_t in_bytes; /* behind which there is nothing, in the last pieces of an all_reduce */
        uint64_t scalar;   /* of a premultiplied sum */
        uint32_t n_ranks, rank;
        uint32_t slot;
        uint32_t number; /* for host->finished when it ends, 0: none */
        uint32_t operation, type, redop, element_bytes;
        uint32_t back; /* 1: in two stages. Everybody gets all sums, or a root does; or what comes from the root is sent
                        * on. 0: in one, each gets its own */
        uint32_t root; /* only what it sends (copies), or gets (sums), is of interest; EXCHANGE_NO_ROOT: all is */
        uint32_t turn; /* rank r's piece is number (r + turn) % n_ranks, and */
        uint32_t pieces;  /* there are so many: a root has none where there are two stages */
        uint32_t aligned; /* every piece begins at a multiple of 8, here and there, and consists of whole packets;
                           * lines, chunks: begins at a multiple of 16 */
        uint32_t blocks;
        uint32_t tiles;    /* of EXCHANGE_THREADS packets, or of that times `units`, that each block has of each piece;
                            * lines: of no meaning */
        uint32_t units;    /* of 16 bytes, that a thread has of each tile; 0: it goes in packets */
        uint32_t room;     /* for so many: long chunks, and the same in all calls of a communicator that go in such; 0:
                            * it goes another way */
        uint32_t depth;    /* tiles of a round */
        uint32_t lines;    /* 1: it goes in lines, of which each warp finds its own */
        uint32_t patience; /* rounds of polling until a block is late */
        uint32_t signature;
        uint32_t gated; /* 1: it is part of a request, and nothing is done when something of that has failed */
        uint64_t count; /* of elements, as the call said: for who wants to know what it was */
};

/* Sends and receives of a communicator, one after the other in each channel, and all channels together. */
struct pair_op {
        char *address;
        char *to; /* of the rank's own piece */
        uint64_t bytes;
        uint64_t count;     /* of elements, and */
        uint32_t type;      /* what the call said, for who wants to know; */
        uint32_t signature; /* which the other rank has to have, too */
        uint16_t blocks;    /* of the channel's, which have a part of it */
        uint8_t element_bytes;
        uint8_t aligned; /* to 16 bytes; packets: 8 */
        uint8_t packed;  /* it goes in packets, of one block */
        uint32_t units;  /* of 16 bytes, that each thread has of a chunk, at most PAIR_UNITS; or packets */
        uint32_t next;   /* of the channel, PAIR_OPS: none */
};
struct pair_channel {
        uint16_t begin, blocks; /* of the kernel's */
        uint8_t peer, sends;
        uint16_t op; /* the first one */
};
struct pair_arguments {
        struct exchange_arguments all; /* of which what concerns no data is set */
        uint32_t n_channels;
        uint32_t ahead; /* 1: its kernel of one warp comes first */
        struct pair_channel channel[PAIR_CHANNELS];
        struct pair_op own; /* what a rank has for itself, in a collective; 0 bytes: nothing */
        struct pair_op op[PAIR_OPS];
};

#ifdef __cplusplus
extern "C" {
#endif
/* Cuts up to PAIR_OPS sends and receives, of which no peer is this rank; areas and what belongs to the device are the
 * caller's. See exchange_pair_cut.c. */
void pair_cut(struct pair_arguments *arguments, const struct client_gpu_bell *bells, uint32_t n, uint32_t n_ranks,
              uint32_t rank, uint32_t max_blocks);
/* The same of a collective that is nothing but transfers. False: it is another one. */
bool pair_cut_collective(struct pair_arguments *arguments, const struct client_gpu_bell *bell, uint32_t n_ranks,
                         uint32_t rank, uint32_t max_blocks);
const void *pair_kernel(void);
/* One block, of which one warp waits until some of what the other kernel receives has come. */
const void *pair_ahead_kernel(void);
/* What a request says, cut for the ranks and blocks; areas and what belongs to the device are the caller's. *ret_kind:
 * enum exchange_kind. max_blocks: at least 1, the same on all ranks; lines: may it go in lines? The same. False: an
 * operation that is not exchanged. See exchange_cut.c. */
bool exchange_cut(struct exchange_arguments *arguments, const struct client_gpu_bell *bell, uint32_t n_ranks,
                  uint32_t rank, uint32_t max_blocks, bool lines, uint32_t *ret_kind);
/* The function for the runtime's launch call; NULL: there is none. */
enum exchange_way {
        EXCHANGE_SHALLOW, /* packets, of which blocks have one tile */
        EXCHANGE_DEEP,    /* packets, of which they have several */
        EXCHANGE_BULK,    /* chunks */
        EXCHANGE_LONG,    /* long ones */
        EXCHANGE_LINED,   /* lines */
        EXCHANGE_WAYS,
};
const void *exchange_kernel(uint32_t n_ranks, uint32_t kind, enum exchange_way way);
enum exchange_way exchange_way_of(const struct exchange_arguments *arguments);
/* How many of its blocks should lie side by side (exchange_leave.h): that many, up to four, divide them. */
uint32_t exchange_together(const struct exchange_arguments *arguments);
#ifdef __cplusplus
}
#endif
