/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The bell area: what one client process and one executor share on one GPU. C and device code.
 *
 * One allocation of its own, made and zeroed by the client (bell_area_init writes the header), exported to the executor
 * of that GPU. Client and executor both map it writable, so neither believes anything it reads here: the executor
 * copies a line once and validates the copy, the client never uses a word from here as an address or a bound. A forged
 * word hurts the session that forged it.
 *
 * A request on the device:
 *   bell kernel   takes the next ring sequence (counter) whose slot is free (released), takes the comm's next
 *                 sequence (comm_sequence), writes the payload into the inbox if the request is inline, writes the
 *                 line, waits for the completion words of the request's lanes, copies the outbox if inline, and gives
 *                 the slot back (released).
 *   executor      each lane (device/staging.h) finds the line by itself, validates its own copy, does its share, and
 *                 writes its completion word: done[slot][lane] = {status << 32 | ring sequence}.
 *
 * Lines are those of ring/ring.h ({ring sequence << 32 | word} x 16), with the device's own meaning for two words:
 * RING_W_FLAGS holds BELL_FLAG_* and the number of lanes, RING_W_ARGUMENT a byte offset in `arguments`.
 * Ring sequences count from 1 and leave out 0, as in ring/ring.h; the slot is sequence % depth, and the line's place is
 * sequence % BELL_LINES.
 *
 * Slots that are held. A request may wait for another rank for as long as that likes, and keeps its slot, and so does
 * one that was started until it is waited for. Requests of other communicators need not wait for it when the ring comes
 * round to the slot: the kernel that has drawn its sequence waits for a moment, then passes it on, which is a line that
 * says so and nothing else (BELL_FLAG_PASSED) but which sequence the last request in the slot has (BELL_W_LAST), and
 * draws another one. That is why there are more lines than slots: the line of the request that holds the slot may still
 * be read. When the slot is free again, released holds the sequence of that last request. So whoever comes to a slot
 * looks at the line BELL_DEPTH before its own: it is the last request's, or says which that was. Sequences of a slot
 * are decided one after the other, and each gets a line, unless the area is closed. One that is BELL_LINES behind has
 * the same line, so then nobody passes on before the request's lanes have all answered.
 */
#include <stddef.h>
#include <stdint.h>

#define BELL_MAGIC 0x334c4542u /* "BEL3" */
#define BELL_DEPTH 64u         /* requests outstanding per session and GPU */
#define BELL_LINES 4096u       /* places of lines: a multiple of BELL_DEPTH */
#ifndef BELL_LANES             /* only the emulator of the tests has fewer */
#define BELL_LANES 136u        /* completion words per slot: one for each lane, see device/staging.h */
#endif
#define BELL_HANDLES        256u /* comm counters: ranks that one session may have on one GPU */
#define BELL_RANKS          64u
#define BELL_INLINE_BYTES   16384u /* payload of an inline request, in each direction */
#define BELL_INLINE_PACKETS (BELL_INLINE_BYTES / 8u)
#define BELL_ARGUMENT_BYTES 4096u /* per slot */

/* RING_W_FLAGS of a line on a device */
#define BELL_FLAG_INLINE 1u   /* the input is in the inbox, the output goes to the outbox; no buffers are named */
#define BELL_FLAG_PASSED 2u   /* alone, as the whole word: no request; nobody answers it */
#define BELL_FLAGS       1u   /* all that a request may have */
#define BELL_W_LAST      2u   /* word of a line that passes its sequence on: that of the last request in the slot */
#define BELL_LANE_BYTES  256u /* least share of a lane */
#define BELL_LANES_SHIFT 16u  /* bits 16..31: completion words that the client waits for, 1 .. BELL_LANES */

struct bell_header {
        uint32_t magic;
        uint32_t depth;   /* BELL_DEPTH */
        uint32_t counter; /* ring sequences taken so far; device atomics of the client's kernels only */
        uint32_t zero;
        /* Written by the executor. */
        uint32_t parked; /* 1: no kernel polls; who rings writes the wake word too */
        uint32_t closed; /* 1: nobody will serve this area again; waiters give up with RMX_E_DEVICE_LOST */
        uint64_t latch;  /* written by the client: where its kernels find bell_latch.lifted; 0: nowhere */
};

/* What holds the next kernel of a parked executor back, if that is queued already (gpu/hip/park.c): a page of host
 * memory that all sessions on a GPU share with its executor. Who rings a parked executor lifts it, after he has raised
 * his wake word: to do so costs nobody but the executor a kernel that finds nothing to do. */
struct bell_latch {
        uint32_t lifted; /* 1; written by anybody at any time, 0 by the executor */
        uint32_t pad[15];
        uint32_t token; /* the executor's: does the GPU write the page that the host reads? */
};
#define BELL_LATCH_BYTES 4096u

/* How far a rank is with requests that no executor sees, since the ranks' own kernels exchange: for railmuxd, which
 * tells operators who waits for whom. */
struct bell_exchanged {
        /* Number of the youngest that has begun << 32 | its operation (RING_OP_*). One that begins after another one
         * has had something of it from each rank: so one that is behind is waited for by all that are ahead. */
        uint64_t begun;
        uint32_t handle; /* of the rank, 0: of none; stays when it has left, until the slot serves another one */
        /* When ranks have found that they called different things: 1 + another one, 0: they have not. And what the rank
         * itself called. */
        uint32_t differs;
        uint32_t head; /* operation << 16 | type << 8 | reduction */
        uint32_t root; /* of an operation that has one */
        uint64_t count;
        /* A send or receive that has waited for another rank for long: turn << 32 | rank << 8 | sends << 1 | 1; 0:
         * none.
         */
        uint64_t pair;
};

/* What the client's host part and the executor want to know of its kernels: in host memory that the GPU can write. */
struct bell_host {
        uint32_t wake; /* counts up: a kernel rang a parked executor */
        uint32_t pad[15];
        uint32_t status[BELL_HANDLES];   /* first status other than RMX_OK, by handle slot (ring_status) */
        uint32_t finished[BELL_HANDLES]; /* the client's number of what ended last, by handle slot */
        struct bell_exchanged exchanged[BELL_HANDLES]; /* by handle slot */
};

enum {
        BELL_OFFSET_HEADER = 0,
        BELL_OFFSET_ENDED = 2048,    /* u32[handles], of the client's alone: 1: kernels of this rank give up */
        BELL_OFFSET_RELEASED = 4096, /* u32[depth] */
        BELL_OFFSET_SEQUENCE = BELL_OFFSET_RELEASED + BELL_DEPTH * 4, /* u32[handles] collectives */
        BELL_OFFSET_PAIR = 8192,                                      /* u32[handles][2][ranks] sends, receives */
        BELL_OFFSET_LINES = BELL_OFFSET_PAIR + BELL_HANDLES * 2 * BELL_RANKS * 4, /* 128 bytes [BELL_LINES] */
        BELL_OFFSET_DONE = BELL_OFFSET_LINES + BELL_LINES * 128,                  /* u64[depth][lanes] */
        BELL_OFFSET_ARGUMENT = BELL_OFFSET_DONE + BELL_DEPTH * BELL_LANES * 8, /* bytes[depth][BELL_ARGUMENT_BYTES] */
        BELL_OFFSET_INBOX =
                BELL_OFFSET_ARGUMENT + BELL_DEPTH * BELL_ARGUMENT_BYTES, /* packets[depth][inline packets] */
        BELL_OFFSET_OUTBOX = BELL_OFFSET_INBOX + BELL_DEPTH * BELL_INLINE_PACKETS * 16,
        BELL_AREA_BYTES = BELL_OFFSET_OUTBOX + BELL_DEPTH * BELL_INLINE_PACKETS * 16,
};

static inline
#if defined(__HIP__) || defined(__CUDACC__)
        __attribute__((host)) __attribute__((device))
#endif
        uint32_t
        bell_sequence_next(uint32_t sequence) {
        return sequence + 1 ? sequence + 1 : 1;
}

/* The lanes of a request that reads and writes so many bytes on this rank: at least as many as can have a share. */
static inline uint32_t bell_lanes(uint64_t in_bytes, uint64_t out_bytes) {
        uint64_t bytes = in_bytes > out_bytes ? in_bytes : out_bytes;
        uint64_t lanes = 1 + (bytes + BELL_LANE_BYTES - 1) / BELL_LANE_BYTES;

        return lanes < 2 ? 2 : lanes > BELL_LANES ? BELL_LANES : (uint32_t)lanes;
}

/* What `released` of a slot holds before its first request: the number that the one before would have had. */
static inline uint32_t bell_released_first(uint32_t slot) {
        return slot ? slot - BELL_DEPTH : 0;
}
