/* SPDX-License-Identifier: MIT */
/*
 * The bell kernels: what the library puts on the caller's stream. One block. A call rings and waits; start and wait are
 * the two halves as kernels of their own, with a cell between them.
 *
 * A stream may be replayed as a graph without the host, so all numbers come from counters in device memory: the ring
 * sequence from an atomic shared by all streams of the session, the comm's sequence from a counter that only the
 * comm's requests touch, one at a time. What does not depend on each other is loaded at once: the sequence drawn, the
 * comm's counter and the state of all slots take one trip to memory.
 *
 * The line and the packets of an inline request carry the ring sequence in every access, so nothing is fenced before
 * they are written. Results of an inline request carry it too; completion words say when the slot's memory is free
 * again, and whether there will be results at all. Other results are in memory when the completion words are: one fence
 * here, and the end of the kernel makes them visible to what follows on the stream.
 *
 * Calls and starts end with a word to the host (number_tell), so that it need not ask their stream, which may be gone.
 *
 * Nothing written by another process is used as an address or a bound. A kernel ends when the completion words are
 * there or when the area is closed, and each of its threads looks for the latter itself, so the barriers below are met.
 */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h> /* the launch stubs of kernels call the runtime */
#endif

#include "client/hip/bell.h"
#include "gpu/device/order.h"
#include "railmux/railmux.h"
#include "ring/line.h"

#define LOOK_ROUNDS 64u /* rounds of polling between two looks at the header */
#define WORDS_MAX   5u  /* completion words that one thread watches: BELL_LANES of a warp of 32 */
#define THREADS_MAX 1024u

static_assert(BELL_LANES <= WORDS_MAX * 32u, "a warp watches all completion words");
static_assert(CLIENT_GPU_ARGUMENTS * 8u + RING_ARGUMENT_ALIGN <= BELL_ARGUMENT_BYTES, "a block fits its slot");
static_assert(BELL_INLINE_BYTES == CLIENT_GPU_INLINE_BYTES && BELL_HANDLES == CLIENT_GPU_SLOTS, "as the library says");
static_assert(BELL_DEPTH > CLIENT_GPU_STARTED, "what was started leaves room for calls");

/* Until what is before on the stream has ended; see launch_kernel in plugin.c. */
DEVICE void await_stream(void) {
#if TARGET_NVIDIA
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Kernels read their parameters where they are: nothing is copied, whatever the index. */
#if TARGET_NVIDIA
#define PARAMETER __grid_constant__
#else
#define PARAMETER
#endif

/* What the threads of a block tell each other. */
struct bell_shared {
        uint32_t ring_sequence; /* 0: the area is closed */
        uint32_t comm_sequence;
        uint32_t status; /* first one other than RMX_OK */
};

#define LOST (RMX_E_DEVICE_LOST) /* as ring_status of no rank */

DEVICE uint32_t *header_word(const struct bell_arguments *a, size_t offset) {
        return (uint32_t *)(a->area + BELL_OFFSET_HEADER + offset);
}

/* The look that is taken now and then. False: nobody serves this area any more, or the rank has failed and nobody will
 * answer it. */
DEVICE bool header_look(const struct bell_arguments *a, bool *woken) {
        uint32_t closed = word_load(header_word(a, offsetof(struct bell_header, closed)));
        uint32_t parked = word_load(header_word(a, offsetof(struct bell_header, parked)));
        uint32_t ended = word_load(header_word(a, BELL_OFFSET_ENDED + a->slot * sizeof(uint32_t)));

        if (closed || ended)
                return false;
        /* The line stands already, so whoever is woken by anybody's word finds it. Two kernels that count up at once
         * may count one: it is a change all the same. */
        if (parked && !*woken && block_thread() == 0)
                word_store(&a->host->wake, word_load(&a->host->wake) + 1);
        *woken = parked != 0;
        return true;
}

/* ---- user memory: any alignment ---------------------------------------------------------------------------------- */
/* Packet `index` of `bytes` at `from`; what lies behind the end is 0. */
DEVICE uint64_t payload_load(const char *from, uint32_t bytes, uint32_t index) {
        const char *at = from + (size_t)index * PACKET_BYTES;
        uint32_t left = bytes - index * PACKET_BYTES, n = left < PACKET_BYTES ? left : PACKET_BYTES;
        uint64_t value = 0;

        if (n == PACKET_BYTES && ((uintptr_t)at & 7u) == 0)
                return *(const uint64_t *)at;
        if (n == PACKET_BYTES && ((uintptr_t)at & 3u) == 0)
                return (uint64_t)((const uint32_t *)at)[1] << 32 | ((const uint32_t *)at)[0];
        for (uint32_t i = 0; i < n; i++)
                value |= (uint64_t)(uint8_t)at[i] << (8 * i);
        return value;
}

DEVICE void payload_store(char *to, uint32_t bytes, uint32_t index, uint64_t value) {
        char *at = to + (size_t)index * PACKET_BYTES;
        uint32_t left = bytes - index * PACKET_BYTES, n = left < PACKET_BYTES ? left : PACKET_BYTES;

        if (n == PACKET_BYTES && ((uintptr_t)at & 7u) == 0) {
                *(uint64_t *)at = value;
        } else if (n == PACKET_BYTES && ((uintptr_t)at & 3u) == 0) {
                ((uint32_t *)at)[0] = (uint32_t)value;
                ((uint32_t *)at)[1] = (uint32_t)(value >> 32);
        } else {
                for (uint32_t i = 0; i < n; i++)
                        at[i] = (char)(value >> (8 * i));
        }
}

DEVICE uint32_t packets_of(uint32_t bytes) {
        return (bytes + PACKET_BYTES - 1) / PACKET_BYTES;
}

/* ---- ring -------------------------------------------------------------------------------------------------------- */
/* Waits until a slot was given back by the request before. False: the area is closed. */
DEVICE bool slot_wait(const struct bell_arguments *a, uint32_t slot, uint32_t expected) {
        const uint32_t *released = (const uint32_t *)(a->area + BELL_OFFSET_RELEASED) + slot;
        bool woken = true; /* this line does not stand yet: who waits for the slot's request wakes */

        for (uint32_t round = 1; word_load(released) != expected; round++) {
                if (round % LOOK_ROUNDS == 0 && !header_look(a, &woken))
                        return false;
                poll_pause();
        }
        return true;
}

/* The first warp: draws a ring sequence whose slot is free. 0: the area is closed. */
DEVICE uint32_t ring_draw(const struct bell_arguments *a) {
        uint32_t *released = (uint32_t *)(a->area + BELL_OFFSET_RELEASED);
        uint32_t *counter = header_word(a, offsetof(struct bell_header, counter));
        uint32_t thread = block_thread(), first = word_load(released + thread % BELL_DEPTH);
        uint32_t second = WARP_THREADS < BELL_DEPTH ? word_load(released + (thread + WARP_THREADS) % BELL_DEPTH) : 0;
        uint32_t sequence = 0, slot, have;

        if (thread == 0)
                sequence = counter_next(counter);
        sequence = warp_read(sequence, 0);
        if (!sequence) { /* left out: its slot goes on as if it had been used */
                if (!slot_wait(a, 0, 0u - BELL_DEPTH))
                        return 0;
                if (thread == 0) {
                        word_store(released, 0);
                        sequence = counter_next(counter);
                }
                sequence = warp_read(sequence, 0);
                return slot_wait(a, sequence % BELL_DEPTH, sequence - BELL_DEPTH) ? sequence : 0;
        }
        slot = sequence % BELL_DEPTH;
        have = warp_read(slot < WARP_THREADS ? first : second, slot % WARP_THREADS);
        if (have != sequence - BELL_DEPTH && !slot_wait(a, slot, sequence - BELL_DEPTH))
                return 0;
        return sequence;
}

DEVICE void ring_line(const struct bell_arguments *a, uint32_t ring_sequence, uint32_t comm_sequence) {
        uint64_t *cell = (uint64_t *)(a->area + BELL_OFFSET_LINES) + (size_t)(ring_sequence % BELL_DEPTH) * RING_WORDS;
        uint32_t word, thread = block_thread();

        if (thread >= RING_WORDS)
                return;
        word = a->word[thread];
        if (thread == RING_W_SEQUENCE)
                word = comm_sequence;
        if (thread == RING_W_ARGUMENT && a->n_arguments)
                word = ring_sequence % BELL_DEPTH * BELL_ARGUMENT_BYTES + RING_ARGUMENT_ALIGN;
        cell_store(cell + thread, (uint64_t)ring_sequence << 32 | word);
}

/* The argument block has no flags in it: it is in memory before the line is. */
DEVICE void ring_block(const struct bell_arguments *a, const struct bell_block *block, uint32_t ring_sequence) {
        uint64_t *to = (uint64_t *)(a->area + BELL_OFFSET_ARGUMENT + RING_ARGUMENT_ALIGN +
                                    (size_t)(ring_sequence % BELL_DEPTH) * BELL_ARGUMENT_BYTES);

        for (uint32_t i = block_thread(); i < a->n_arguments; i += WARP_THREADS)
                cell_store(to + i, block->word[i]);
        fence_release_system();
        warp_sync();
}

/* What numbers the request: the comm's collectives, or what is sent to, or received from, one peer. */
DEVICE uint32_t *number_of(const struct bell_arguments *a) {
        const uint32_t operation = a->word[RING_W_HEAD] >> 16 & 0xffu;

        if (operation == RING_OP_SEND || operation == RING_OP_RECV)
                return (uint32_t *)(a->area + BELL_OFFSET_PAIR) +
                       (a->slot * 2 + (operation == RING_OP_RECV)) * BELL_RANKS + a->word[RING_W_PEER] % BELL_RANKS;
        return (uint32_t *)(a->area + BELL_OFFSET_SEQUENCE) + a->slot;
}

/* Draws the numbers and writes the line and the inbox. They are in `s` for all threads afterwards. */
template <bool INLINE>
DEVICE void ring(const struct bell_arguments *a, const struct bell_block *block, struct bell_shared *s) {
        uint32_t thread = block_thread(), threads = block_threads();
        uint32_t n = INLINE ? packets_of(a->in_bytes) : 0, ring_sequence, comm_sequence;
        uint64_t payload = thread < n ? payload_load((const char *)a->in, a->in_bytes, thread) : 0;
        struct quad *inbox;

        if (thread < WARP_THREADS) {
                /* In all threads the same address, and stored by one after all have loaded it. */
                uint32_t *counter = number_of(a);

                comm_sequence = word_load(counter) + 1;
                ring_sequence = ring_draw(a);
                if (ring_sequence) {
                        if (block)
                                ring_block(a, block, ring_sequence);
                        ring_line(a, ring_sequence, comm_sequence);
                }
                if (thread == 0) {
                        if (ring_sequence)
                                word_store(counter, comm_sequence);
                        s->ring_sequence = ring_sequence;
                        s->comm_sequence = comm_sequence;
                        s->status = ring_sequence ? 0 : LOST;
                }
        }
        block_sync();
        ring_sequence = s->ring_sequence;
        if (!INLINE || !ring_sequence)
                return;
        inbox = (struct quad *)(a->area + BELL_OFFSET_INBOX) +
                (size_t)(ring_sequence % BELL_DEPTH) * BELL_INLINE_PACKETS;
        for (uint32_t i = thread; i < n; i += threads) {
                if (i != thread)
                        payload = payload_load((const char *)a->in, a->in_bytes, i);
                packet_store(inbox + i, payload, ring_sequence);
        }
}

/* ---- wait -------------------------------------------------------------------------------------------------------- */
/* Polls this thread's completion words and packets. A request that fails has no results, so when one lane has said so,
 * packets are no longer waited for. */
template <bool INLINE> DEVICE void await(const struct bell_arguments *a, struct bell_shared *s) {
        uint32_t thread = block_thread(), threads = block_threads(), ring_sequence = s->ring_sequence;
        uint32_t slot = ring_sequence % BELL_DEPTH, round = 0;
        const uint64_t *done = (const uint64_t *)(a->area + BELL_OFFSET_DONE) + (size_t)slot * BELL_LANES;
        const struct quad *outbox =
                (const struct quad *)(a->area + BELL_OFFSET_OUTBOX) + (size_t)slot * BELL_INLINE_PACKETS;
        uint32_t next = thread, n = INLINE ? packets_of(a->out_bytes) : 0, missing = 0;
        volatile uint32_t *status = &s->status;
        bool woken = false;

        UNROLL
        for (uint32_t k = 0; k < WORDS_MAX; k++)
                missing |= (uint32_t)(thread + k * threads < a->lanes) << k;
        while (missing || (INLINE && next < n)) {
                uint64_t word[WORDS_MAX];

                UNROLL
                for (uint32_t k = 0; k < WORDS_MAX; k++)
                        word[k] = missing >> k & 1 ? cell_load(done + thread + k * threads) : 0;
                if (INLINE && next < n) {
                        struct quad packet = quad_load(outbox + next);

                        if (packet_is(packet, ring_sequence)) {
                                payload_store((char *)a->out, a->out_bytes, next, packet_payload(packet));
                                next += threads;
                        } else if (*status) {
                                next = n;
                        }
                }
                UNROLL
                for (uint32_t k = 0; k < WORDS_MAX; k++) {
                        if (!(missing >> k & 1) || (uint32_t)word[k] != ring_sequence)
                                continue;
                        missing &= ~(1u << k);
                        if (word[k] >> 32)
                                *status = (uint32_t)(word[k] >> 32);
                }
                if (++round % LOOK_ROUNDS == 0 && !header_look(a, &woken)) {
                        *status = LOST;
                        break;
                }
        }
        if (!INLINE)
                fence_acquire_device();
        block_sync();
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
/* For calls whose stream could not be made to wait for the call before. That tells its number when it ends, and nobody
 * tells another one before this kernel does. If the rank or the area has ended, so have both calls. */
DEVICE void await_number(const struct bell_arguments *a) {
        bool woken = true;

        if (!a->after)
                return;
        if (block_thread() == 0) {
                const uint32_t *finished = &a->host->finished[a->slot];

                for (uint32_t round = 1; word_load(finished) != a->after; round++) {
                        if (round % LOOK_ROUNDS == 0 && !header_look(a, &woken))
                                break;
                        poll_pause();
                }
                fence_acquire_system();
        }
        block_sync();
}

/* The last thing that a kernel does. What the host does when it has read the number comes to the GPU much later than
 * all that this kernel has stored, so there is no fence, which every call would wait for. */
DEVICE void number_tell(const struct bell_arguments *a) {
        if (a->number)
                word_store(&a->host->finished[a->slot], a->number);
}

/* Keeps the first status for the host, and gives the slot back. */
DEVICE void finish(const struct bell_arguments *a, const struct bell_shared *s) {
        uint32_t ring_sequence = s->ring_sequence, status = s->status;

        if (block_thread() != 0)
                return;
        if (status && !word_load(&a->host->status[a->slot]))
                word_store(&a->host->status[a->slot], status);
        if (ring_sequence)
                word_store((uint32_t *)(a->area + BELL_OFFSET_RELEASED) + ring_sequence % BELL_DEPTH, ring_sequence);
        if (a->ended)
                cell_store(a->ended, (uint64_t)a->turn << 32 | status);
        number_tell(a);
}

/* ---- call, start, wait ------------------------------------------------------------------------------------------- */
template <bool INLINE>
DEVICE void call(const struct bell_arguments *a, const struct bell_block *block, struct bell_shared *s) {
        await_number(a);
        ring<INLINE>(a, block, s);
        if (s->ring_sequence)
                await<INLINE>(a, s);
        finish(a, s);
}

/* Leaves {status << 32 | ring sequence} for the wait. No kernel looks after the line until then, so this one must know
 * that the executor is awake, or wake it: the executor says that it is parked, and then looks for lines once more. */
DEVICE void start_end(const struct bell_arguments *a, const struct bell_shared *s) {
        bool woken = false;

        if (block_thread() != 0)
                return;
        cell_store(a->cell, (uint64_t)s->status << 32 | (s->ring_sequence ? s->ring_sequence : 1));
        fence_full_system();
        (void)header_look(a, &woken);
        number_tell(a);
}

template <bool INLINE>
DEVICE void start(const struct bell_arguments *a, const struct bell_block *block, struct bell_shared *s) {
        await_number(a);
        ring<INLINE>(a, block, s);
        start_end(a, s);
}

/* The start may be on another stream, and not have run yet. */
DEVICE void cell_take(const struct bell_arguments *a, struct bell_shared *s) {
        uint64_t cell;
        bool woken = true;

        if (block_thread() != 0)
                return;
        for (uint32_t round = 1; !(cell = cell_load(a->cell)); round++) {
                if (round % LOOK_ROUNDS == 0 && !header_look(a, &woken)) {
                        cell = (uint64_t)LOST << 32;
                        break;
                }
                poll_pause();
        }
        cell_store(a->cell, 0);
        s->status = (uint32_t)(cell >> 32);
        s->ring_sequence = s->status ? 0 : (uint32_t)cell;
}

template <bool INLINE> DEVICE void wait(const struct bell_arguments *a, struct bell_shared *s) {
        cell_take(a, s);
        block_sync();
        if (s->ring_sequence)
                await<INLINE>(a, s);
        /* The host may look at the results, or put work on other streams, as soon as it sees the word of the cell. */
        fence_release_system();
        block_sync();
        finish(a, s);
}

/* ---- the kernels: no templates, whose launch stubs want the C++ library ---------------------------------------------
 */
#define PLAIN_KERNEL(name, body)                                                                                       \
        KERNEL void LAUNCH_BOUNDS(THREADS_MAX) name(const PARAMETER struct bell_arguments a) {                         \
                SHARED struct bell_shared s;                                                                           \
                await_stream();                                                                                        \
                body;                                                                                                  \
        }
#define BLOCK_KERNEL(name, body)                                                                                       \
        KERNEL void LAUNCH_BOUNDS(THREADS_MAX)                                                                         \
                name(const PARAMETER struct bell_arguments a, const PARAMETER struct bell_block block) {               \
                SHARED struct bell_shared s;                                                                           \
                await_stream();                                                                                        \
                body;                                                                                                  \
        }
PLAIN_KERNEL(bell_call, call<false>(&a, nullptr, &s))
PLAIN_KERNEL(bell_call_inline, call<true>(&a, nullptr, &s))
BLOCK_KERNEL(bell_call_block, call<false>(&a, &block, &s))
BLOCK_KERNEL(bell_call_block_inline, call<true>(&a, &block, &s))
PLAIN_KERNEL(bell_start, start<false>(&a, nullptr, &s))
PLAIN_KERNEL(bell_start_inline, start<true>(&a, nullptr, &s))
BLOCK_KERNEL(bell_start_block, start<false>(&a, &block, &s))
BLOCK_KERNEL(bell_start_block_inline, start<true>(&a, &block, &s))
PLAIN_KERNEL(bell_wait, wait<false>(&a, &s))
PLAIN_KERNEL(bell_wait_inline, wait<true>(&a, &s))
KERNEL void LAUNCH_BOUNDS(THREADS_MAX) bell_mark(const PARAMETER struct bell_arguments a) {
        if (block_thread() == 0)
                number_tell(&a);
}

/* ---- for the host --------------------------------------------------------------------------------------------------
 */
extern "C" const void *bell_kernel(uint32_t kernel) {
        switch (kernel) {
        case BELL_CALL:
                return (const void *)bell_call;
        case BELL_CALL | BELL_INLINE:
                return (const void *)bell_call_inline;
        case BELL_CALL | BELL_BLOCK:
                return (const void *)bell_call_block;
        case BELL_CALL | BELL_BLOCK | BELL_INLINE:
                return (const void *)bell_call_block_inline;
        case BELL_START:
                return (const void *)bell_start;
        case BELL_START | BELL_INLINE:
                return (const void *)bell_start_inline;
        case BELL_START | BELL_BLOCK:
                return (const void *)bell_start_block;
        case BELL_START | BELL_BLOCK | BELL_INLINE:
                return (const void *)bell_start_block_inline;
        case BELL_WAIT:
                return (const void *)bell_wait;
        case BELL_WAIT | BELL_INLINE:
                return (const void *)bell_wait_inline;
        case BELL_MARK:
                return (const void *)bell_mark;
        default:
                return nullptr;
        }
}

extern "C" uint32_t bell_threads(const struct bell_arguments *a, uint32_t kernel) {
        uint32_t bytes = a->in_bytes > a->out_bytes ? a->in_bytes : a->out_bytes;
        uint32_t n = kernel & BELL_INLINE ? (bytes + PACKET_BYTES - 1) / PACKET_BYTES : 1;

        n = (n + WARP_THREADS - 1) / WARP_THREADS * WARP_THREADS;
        return n > THREADS_MAX ? THREADS_MAX : n ? n : WARP_THREADS;
}
