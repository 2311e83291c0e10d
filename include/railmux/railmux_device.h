/* SPDX-License-Identifier: MIT */
#ifndef RAILMUX_DEVICE_H
#define RAILMUX_DEVICE_H
/*
 * railmux device API: a kernel of the program makes a collective call by itself.
 *
 *     __global__ void kernel(..., const __grid_constant__ struct rmx_device_handle handle) {
 *             ...                                         what every block computes
 *             if (last_block())                           (it has seen that the others are done)
 *                     status = rmx_device_call(&handle);  all threads of this block
 *     }
 *
 * The host has prepared the handle with rmx_device_prepare (railmux.h). It compiles as HIP and as CUDA; no library
 * is linked for it, and it needs no header of a runtime. The handle may be a parameter, which on NVIDIA should be
 * __grid_constant__ so that it is not copied, or lie in any memory that the GPU reads.
 *
 * Threads.  All threads of one block make a call together, with the same arguments, and get the same result. The block
 *           has any shape, and whole warps: a multiple of 32 threads (AMD: of 64). A call is a barrier of the block, as
 *           __syncthreads() is. Other blocks take no part. A wait with as many threads as there are 8-byte words in the
 *           result of a small request, or 160 for a large one, is as fast as the host's own calls.
 * Before.   The request has what the threads of this block wrote to `in` before the call. What other blocks wrote has
 *           to be handed to this block first, as between any two blocks: they write, __threadfence(), count up; this
 *           block sees the count, __threadfence(). What the stream did before the kernel needs nothing.
 * After.    When rmx_device_wait or rmx_device_call returns, all threads of this block read the result in `out`, and
 *           `in` may be written. Other blocks have to be told, as above. What follows the kernel on the stream needs
 *           nothing. Between start and wait `in` and `out` belong to the request.
 * Order.    A communicator's requests are in the order in which they are rung, whether by the host's calls or by
 *           kernels: both take their numbers from the same counters on the GPU. It must be the same order on all ranks,
 *           and only one may be ringing at a time. So two blocks, two kernels, or a kernel and a call of the host, that
 *           use one communicator need an order between them: one stream, an event, or a word between the blocks.
 *           Different communicators need none.
 * Starts.   A request that was started holds one of the 64 places that the process has on a GPU until its wait; the
 *           host's calls use up to 48 for its own. At most 8 may be started by kernels and not be waited for. While all
 *           places are held calls wait for one that is given back. A request may be waited for by another kernel of the
 *           process on the same GPU, which comes after the start; tickets are plain numbers. Each is waited for once.
 * Room.     While a block waits, the executor has to run. Under the policy `adaptive` its kernel may have to be
 *           launched first: the program's kernel must then leave it room, so not all of its blocks, if they fill the
 *           GPU, may wait for the request. Blocks that end by themselves do no harm.
 * Errors.   RMX_OK or RMX_E_*, as the host's call gives it, the same in all threads. It is also the communicator's:
 *           later calls of the host and rmx_comm_error return it. The output is undefined then. A request ends with
 *           RMX_E_PEER_LOST or RMX_E_ABORTED when a rank has gone or called rmx_comm_abort, RMX_E_MISMATCH when the
 *           ranks called different things, RMX_E_LOST when an executor died. RMX_E_DEVICE_LOST: nobody serves this rank
 *           any more (session closed, communicator given up); calls then end at once or within microseconds, so no
 *           block waits for ever. RMX_E_VERSION: the handle is of another version than this header; nothing is rung.
 *
 * How it works. A request is a line of 16 words in an area on the GPU that the executor's resident kernel polls; each
 * word stands beside the request's number, so the line needs no fence. It has as many lanes as it says, and each lane
 * answers with a word of its own, {status, number}. Payload of small requests travels in packets, with the number in
 * them, to the area and back. The library's own kernels (client/hip/bell.hip in its sources) are made of the same
 * functions: those named rmx_bell_*, which are no interface.
 */
#include <railmux/railmux.h>
#include <railmux/railmux_device_order.h>

/* ---- the area, as far as requests go ----------------------------------------------------------------------------- */
#define RMX_BELL_DEPTH           64u   /* requests outstanding */
#define RMX_BELL_NUMBERS         4096u /* whose lines have places of their own */
#define RMX_BELL_LANES           136u  /* answers of a place */
#define RMX_BELL_PACKETS         2048u
#define RMX_BELL_WORDS           16u
#define RMX_BELL_WORD_LAST       2u /* where a number is passed on */
#define RMX_BELL_WORD_ARGUMENT   11u
#define RMX_BELL_WORD_FLAGS      13u
#define RMX_BELL_WORD_SEQUENCE   14u
#define RMX_BELL_COUNTER         8u /* byte offsets */
#define RMX_BELL_PARKED          16u
#define RMX_BELL_CLOSED          20u
#define RMX_BELL_LATCH           24u
#define RMX_BELL_ENDED           2048u
#define RMX_BELL_RELEASED        4096u
#define RMX_BELL_LINES           139264u
#define RMX_BELL_DONE            663552u
#define RMX_BELL_ARGUMENT        733184u
#define RMX_BELL_ARGUMENT_BYTES  4096u
#define RMX_BELL_ARGUMENT_OFFSET 64u
#define RMX_BELL_INBOX           995328u
#define RMX_BELL_OUTBOX          3092480u
#define RMX_BELL_PASSED          2u
#define RMX_BELL_HOST_WAKE       0u
#define RMX_BELL_HOST_STATUS     64u

/* rmx_device_handle.payload */
#define RMX_BELL_NONE    0u /* the line names memory */
#define RMX_BELL_ALIGNED 1u /* whole packets, at addresses that are multiples of 8 */
#define RMX_BELL_BYTES   2u /* any */

#if defined(RMX_BELL_FUNCTION)

/* What the threads of a block tell each other. */
struct rmx_bell_shared {
        uint32_t sequence; /* 0: nobody serves this rank */
        uint32_t status;   /* first one other than RMX_OK */
};

/* ---- now and then ------------------------------------------------------------------------------------------------ */
#define RMX_BELL_ROUNDS 64u /* of polling between two looks */
/* Before the first one, where an answer is waited for: small requests have been answered by then, and a parked executor
 * hears of this one some 5 us after the line. */
#define RMX_BELL_FIRST 8u
#define RMX_BELL_AGAIN (16u * RMX_BELL_ROUNDS) /* between two words to a parked executor */

/* What a look finds. */
#define RMX_BELL_OVER  0 /* nobody serves this area any more, or the rank has failed and nobody will answer it */
#define RMX_BELL_AWAKE 1
#define RMX_BELL_WOKEN 2 /* no kernel polls, and the executor was told */

RMX_BELL_FUNCTION uint32_t *rmx_bell_area_word(const struct rmx_device_handle *h, uint32_t offset) {
        return (uint32_t *)(void *)((char *)h->area + offset);
}

/* before: what the look before has found. If no kernel polls, thread 0 wakes the executor, if it has not: the line
 * stands already, so whoever is woken by anybody's word finds it. Two kernels that count up at once may count one: it
 * is a change all the same, but for one that was held up in between. Then it lifts the latch, behind which a kernel of
 * the executor's may stand: that begins long before the executor has looked at the word. */
RMX_BELL_ASIDE int rmx_bell_look(const struct rmx_device_handle *h, uint32_t thread, int before) {
        uint32_t *wake = (uint32_t *)(void *)((char *)h->host + RMX_BELL_HOST_WAKE);
        uint32_t closed = rmx_bell_word_load(rmx_bell_area_word(h, RMX_BELL_CLOSED));
        uint32_t parked = rmx_bell_word_load(rmx_bell_area_word(h, RMX_BELL_PARKED));
        uint32_t ended = rmx_bell_word_load(rmx_bell_area_word(h, RMX_BELL_ENDED) + h->slot);

        if (closed | ended)
                return RMX_BELL_OVER;
        if (!parked)
                return RMX_BELL_AWAKE;
        if (before == RMX_BELL_AWAKE && thread == 0) {
                uint64_t latch = rmx_bell_cell_load((uint64_t *)(void *)rmx_bell_area_word(h, RMX_BELL_LATCH));

                rmx_bell_word_store(wake, rmx_bell_word_load(wake) + 1);
                rmx_bell_release(); /* partner: rings_wakes, after latch_arm */
                if (latch)
                        rmx_bell_word_store((uint32_t *)(void *)(uintptr_t)latch, 1);
        }
        return RMX_BELL_WOKEN;
}

/* ---- payload ----------------------------------------------------------------------------------------------------- */
RMX_BELL_FUNCTION uint32_t rmx_bell_packets(uint32_t payload, uint32_t bytes) {
        return payload == RMX_BELL_NONE ? 0 : payload == RMX_BELL_ALIGNED ? bytes / 8 : (bytes + 7) / 8;
}

/* A packet of memory that is not aligned, or ends within it: what lies behind the end is 0. */
RMX_BELL_ASIDE uint64_t rmx_bell_bytes_load(const unsigned char *from, uint32_t left) {
        uint64_t value = 0;

        for (uint32_t i = 0; i < 8 && i < left; i++)
                value |= (uint64_t)from[i] << (8 * i);
        return value;
}

RMX_BELL_ASIDE void rmx_bell_bytes_store(unsigned char *to, uint32_t left, uint64_t value) {
        for (uint32_t i = 0; i < 8 && i < left; i++)
                to[i] = (unsigned char)(value >> (8 * i));
}

/* Packet `index` of what is at `in`, or goes to `out`. */
RMX_BELL_FUNCTION uint64_t rmx_bell_payload_load(const struct rmx_device_handle *h, uint32_t payload, uint32_t index) {
        const unsigned char *from = (const unsigned char *)h->in + (size_t)index * 8;

        if (payload == RMX_BELL_ALIGNED)
                return *(const uint64_t *)(const void *)from;
        return rmx_bell_bytes_load(from, h->in_bytes - index * 8);
}

RMX_BELL_FUNCTION void rmx_bell_payload_store(const struct rmx_device_handle *h, uint32_t payload, uint32_t index,
                                              uint64_t value) {
        unsigned char *to = (unsigned char *)h->out + (size_t)index * 8;

        if (payload == RMX_BELL_ALIGNED)
                *(uint64_t *)(void *)to = value;
        else
                rmx_bell_bytes_store(to, h->out_bytes - index * 8, value);
}

/* ---- ringing ----------------------------------------------------------------------------------------------------- */
/* Rounds of waiting for a place that somebody has waited for before. Twice as many for each 64 numbers that a kernel
 * has passed on: probably all places are held, and numbers should not run out meanwhile (with these it takes seconds).
 * No more than some milliseconds, since requests with later numbers are not served before. */
#define RMX_BELL_LATER  8u
#define RMX_BELL_DOUBLE 8u /* times at most */

RMX_BELL_FUNCTION uint64_t *rmx_bell_line(const struct rmx_device_handle *h, uint32_t sequence) {
        return (uint64_t *)(void *)((char *)h->area + RMX_BELL_LINES) +
               sequence % RMX_BELL_NUMBERS * (size_t)RMX_BELL_WORDS;
}

/* The number before `sequence` in its place. 0 is none. */
RMX_BELL_FUNCTION uint32_t rmx_bell_place_before(uint32_t sequence) {
        return sequence - RMX_BELL_DEPTH * (sequence == RMX_BELL_DEPTH ? 2 : 1);
}

/* The number of the last request that the place of `sequence` was given to: the one before, or, if that was passed on,
 * what its line says. 0: it has no line yet, so whoever has drawn it still decides, and does so without us. */
RMX_BELL_FUNCTION uint32_t rmx_bell_place_last(const struct rmx_device_handle *h, uint32_t sequence) {
        const uint32_t before = rmx_bell_place_before(sequence);
        const uint64_t *line = rmx_bell_line(h, before);
        const uint64_t flags = rmx_bell_cell_load(line + RMX_BELL_WORD_FLAGS);
        const uint64_t last = rmx_bell_cell_load(line + RMX_BELL_WORD_LAST);

        if ((uint32_t)(flags >> 32) != before || (uint32_t)(last >> 32) != before)
                return 0;
        return (uint32_t)flags == RMX_BELL_PASSED ? (uint32_t)last : before;
}

/* Does the line of `last`, a request in the same place, stand where that of `sequence` belongs, and may still be read?
 * When all its lanes have answered it may not. */
RMX_BELL_FUNCTION int rmx_bell_line_read(const struct rmx_device_handle *h, uint32_t sequence, uint32_t last) {
        const uint64_t flags = rmx_bell_cell_load(rmx_bell_line(h, sequence) + RMX_BELL_WORD_FLAGS);
        const uint64_t *done = (const uint64_t *)(const void *)((const char *)h->area + RMX_BELL_DONE) +
                               sequence % RMX_BELL_DEPTH * (size_t)RMX_BELL_LANES;
        uint32_t lanes = (uint32_t)flags >> 16;

        if ((uint32_t)(flags >> 32) != last)
                return 0;
        if (!lanes || lanes > RMX_BELL_LANES)
                lanes = RMX_BELL_LANES;
        for (uint32_t lane = 0; lane < lanes; lane++)
                if ((uint32_t)rmx_bell_cell_load(done + lane) != last)
                        return 1;
        return 0;
}

#define RMX_BELL_FREE 1u /* the place is */
#define RMX_BELL_PASS 2u /* the number on */
#define RMX_BELL_GIVE 3u /* up, and pass the number on: nobody serves this rank */
#define RMX_BELL_LATE 4u /* it would, but the number before has no line yet, and nobody serves the area */

/* So many looks find that, and the number before will never have one: the area is not what we left. */
#define RMX_BELL_LOOKS 16u

/* What becomes of a number whose place was not free, or 0 for now. `waited`: rounds with this number, `round`: with all
 * of them, of which so many have been passed on. No number may be left without a line: the executor, and whoever comes
 * to the place later, would wait for it for ever. */
RMX_BELL_FUNCTION uint32_t rmx_bell_place_look(const struct rmx_device_handle *h, uint32_t thread, uint32_t sequence,
                                               uint32_t waited, uint32_t round, uint32_t passed) {
        const uint32_t last = rmx_bell_place_last(h, sequence);
        const uint32_t circles = passed / RMX_BELL_DEPTH < RMX_BELL_DOUBLE ? passed / RMX_BELL_DEPTH : RMX_BELL_DOUBLE;
        const uint32_t patience = last == rmx_bell_place_before(sequence) ? RMX_BELL_ROUNDS : RMX_BELL_LATER;
        uint32_t found = waited >= patience << circles ? RMX_BELL_PASS : 0;

        if (rmx_bell_word_load(rmx_bell_area_word(h, RMX_BELL_RELEASED) + sequence % RMX_BELL_DEPTH) ==
            (last ? last : sequence - RMX_BELL_DEPTH))
                return RMX_BELL_FREE;
        /* This line does not stand yet: who waits for the place's request wakes. */
        if (round % RMX_BELL_ROUNDS == 0 && rmx_bell_look(h, thread, RMX_BELL_WOKEN) == RMX_BELL_OVER)
                found = RMX_BELL_GIVE;
        /* Nobody reads lines of a closed area, and who comes afterwards has no use for a request that waits there. */
        if (found == RMX_BELL_GIVE && rmx_bell_word_load(rmx_bell_area_word(h, RMX_BELL_CLOSED)))
                return last ? RMX_BELL_GIVE : RMX_BELL_LATE;
        return !last || (found && rmx_bell_line_read(h, sequence, last)) ? 0 : found;
}

/* For a whole warp: the place is not free, or the number is 0, which is left out. A request that holds its place for
 * long waits for another rank, perhaps for one that waits for this request, or to be waited for, so the number is
 * passed on. */
RMX_BELL_ASIDE uint32_t rmx_bell_draw_late(const struct rmx_device_handle *h, uint32_t thread, uint32_t sequence) {
        uint32_t waited = 1, passed = 0, late = 0;

        for (uint32_t round = 1;; round++, waited++) {
                const uint32_t found = rmx_bell_read(
                        sequence ? rmx_bell_place_look(h, thread, sequence, waited, round, passed) : RMX_BELL_PASS, 0);

                if (found == RMX_BELL_FREE)
                        return sequence;
                late += found == RMX_BELL_LATE;
                if (late == RMX_BELL_LOOKS)
                        return 0;
                if (!found || found == RMX_BELL_LATE) {
                        rmx_bell_pause();
                        continue;
                }
                if (sequence) {
                        const uint32_t last = rmx_bell_read(rmx_bell_place_last(h, sequence), 0);

                        rmx_bell_cell_store_if(thread < RMX_BELL_WORDS, rmx_bell_line(h, sequence) + thread,
                                               (uint64_t)sequence << 32 |
                                                       (thread == RMX_BELL_WORD_FLAGS  ? RMX_BELL_PASSED
                                                        : thread == RMX_BELL_WORD_LAST ? last
                                                                                       : 0));
                }
                if (found == RMX_BELL_GIVE)
                        return 0;
                if (thread == 0)
                        sequence = rmx_bell_counter_take(rmx_bell_area_word(h, RMX_BELL_COUNTER)) + 1;
                sequence = rmx_bell_read(sequence, 0);
                passed++;
                waited = 0;
        }
}

/* Draws a number whose place is free, and the communicator's, and writes the line and the inbox. All threads find the
 * number in s->sequence afterwards, and get it; 0: nobody serves this rank.
 *
 * What the first warp has to know for it takes one trip to memory: the number itself, the communicator's last, and the
 * state of all places, two of them for each thread. The input is under way meanwhile. The line carries its number in
 * each access, and so does the payload, so nothing is fenced before they are written. An argument block does not: it is
 * in memory before the line is. */
RMX_BELL_FUNCTION uint32_t rmx_bell_ring(const struct rmx_device_handle *h, uint32_t payload, const uint64_t *argument,
                                         uint32_t n_arguments, uint32_t thread, uint32_t threads,
                                         struct rmx_bell_shared *s) {
        char *area = (char *)h->area;
        uint32_t n = rmx_bell_packets(payload, h->in_bytes), i = thread, sequence;
        struct rmx_bell_packet *inbox;
        uint64_t data = 0;

        if (thread < RMX_BELL_WARP) {
                const uint64_t *released = (const uint64_t *)(void *)rmx_bell_area_word(h, RMX_BELL_RELEASED);
                uint32_t drawn = 0, number, word, slot, have;
                uint64_t pair;

                if (thread == 0)
                        drawn = rmx_bell_counter_take(rmx_bell_area_word(h, RMX_BELL_COUNTER));
                pair = rmx_bell_cell_load(released + thread % (RMX_BELL_DEPTH / 2));
                number = rmx_bell_word_load((const uint32_t *)h->counter);
                word = h->word[thread % RMX_BELL_WORDS];
                if (i < n)
                        data = rmx_bell_payload_load(h, payload, i);
                sequence = rmx_bell_read(drawn, 0) + 1;
                slot = sequence % RMX_BELL_DEPTH;
                have = rmx_bell_read((uint32_t)(slot & 1 ? pair >> 32 : pair), slot / 2);
                if (RMX_BELL_RARELY(!sequence | (have != sequence - RMX_BELL_DEPTH))) {
                        sequence = rmx_bell_draw_late(h, thread, sequence);
                        slot = sequence % RMX_BELL_DEPTH;
                }
                if (n_arguments && sequence) {
                        uint32_t at = slot * RMX_BELL_ARGUMENT_BYTES + RMX_BELL_ARGUMENT_OFFSET;

                        for (uint32_t k = thread; k < n_arguments; k += RMX_BELL_WARP)
                                rmx_bell_cell_store((uint64_t *)(void *)(area + RMX_BELL_ARGUMENT + at) + k,
                                                    argument[k]);
                        rmx_bell_release();
                        rmx_bell_warp_sync();
                        word = thread == RMX_BELL_WORD_ARGUMENT ? at : word;
                }
                number++;
                word = thread == RMX_BELL_WORD_SEQUENCE ? number : word;
                rmx_bell_cell_store_if(
                        thread < RMX_BELL_WORDS && sequence,
                        (uint64_t *)(void *)(area + (sequence % RMX_BELL_NUMBERS * (RMX_BELL_WORDS * 8) + thread * 8) +
                                             RMX_BELL_LINES),
                        (uint64_t)sequence << 32 | word);
                if (thread == 0) {
                        s->sequence = sequence;
                        s->status = sequence ? RMX_OK : RMX_E_DEVICE_LOST;
                        if (sequence) /* (the whole warp has loaded it: it needed what came with it) */
                                rmx_bell_word_store((uint32_t *)h->counter, number);
                }
        } else if (i < n) {
                data = rmx_bell_payload_load(h, payload, i);
        }
        rmx_bell_sync();
        sequence = s->sequence;
        if (!payload || !sequence)
                return sequence;
        inbox = (struct rmx_bell_packet *)(void *)(area +
                                                   (sequence % RMX_BELL_DEPTH * (RMX_BELL_PACKETS * 16) + thread * 16) +
                                                   RMX_BELL_INBOX);
        while (i < n) {
                rmx_bell_packet_store(inbox, data, sequence);
                inbox += threads;
                i += threads;
                if (i < n)
                        data = rmx_bell_payload_load(h, payload, i);
        }
        return sequence;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */
/* Polls this thread's answers and packets. A request that fails has no results, so when one lane has said so, packets
 * are no longer waited for, from the next look on. s->status was RMX_OK. */
RMX_BELL_FUNCTION void rmx_bell_await(const struct rmx_device_handle *h, uint32_t payload, uint32_t sequence,
                                      uint32_t thread, uint32_t threads, struct rmx_bell_shared *s) {
        uint32_t slot = sequence % RMX_BELL_DEPTH, lanes = h->lanes, n = rmx_bell_packets(payload, h->out_bytes);
        const uint64_t *done =
                (const uint64_t *)(const void *)((const char *)h->area + (slot * (RMX_BELL_LANES * 8) + thread * 8));
        const struct rmx_bell_packet *outbox =
                (const struct rmx_bell_packet *)(const void *)((const char *)h->area +
                                                               (slot * (RMX_BELL_PACKETS * 16) + thread * 16));
        uint32_t lane = thread, packet = thread, round = 0;
        int found = RMX_BELL_AWAKE;

        while ((lane < lanes) | (packet < n)) {
                /* (No number is 0.) */
                uint64_t word = rmx_bell_cell_load_if(lane < lanes, done + RMX_BELL_DONE / 8);
                uint32_t answered;

                if (payload) {
                        struct rmx_bell_packet p = rmx_bell_packet_load_if(packet < n, outbox + RMX_BELL_OUTBOX / 16);

                        if (((uint32_t)(p.half[0] >> 32) == sequence) & ((uint32_t)(p.half[1] >> 32) == sequence)) {
                                rmx_bell_payload_store(h, payload, packet, p.half[1] << 32 | (uint32_t)p.half[0]);
                                packet += threads;
                                outbox += threads;
                        }
                }
                answered = (uint32_t)word == sequence;
                lane += answered ? threads : 0;
                done += answered ? threads : 0;
                round++;
                if (RMX_BELL_RARELY((round % RMX_BELL_ROUNDS == RMX_BELL_FIRST) | (answered & (word >> 32 != 0)))) {
                        if (answered && word >> 32)
                                rmx_bell_shared_store(&s->status, (uint32_t)(word >> 32));
                        /* Words that two kernels count up at once may come to nothing: so it is told again. */
                        found = rmx_bell_look(h, thread,
                                              round % RMX_BELL_AGAIN == RMX_BELL_FIRST ? RMX_BELL_AWAKE : found);
                        if (found == RMX_BELL_OVER) {
                                rmx_bell_shared_store(&s->status, RMX_E_DEVICE_LOST);
                                break;
                        }
                        if (rmx_bell_shared_load(&s->status))
                                n = 0;
                }
        }
        if (!payload)
                rmx_bell_acquire();
        rmx_bell_sync();
}

/* Thread 0, after all: keeps the first status for the host, and gives the place back. */
RMX_BELL_FUNCTION void rmx_bell_finish(const struct rmx_device_handle *h, uint32_t sequence, uint32_t status) {
        uint32_t *kept = (uint32_t *)((char *)h->host + RMX_BELL_HOST_STATUS) + h->slot;

        if (sequence)
                rmx_bell_word_store(rmx_bell_area_word(h, RMX_BELL_RELEASED) + sequence % RMX_BELL_DEPTH, sequence);
        if (RMX_BELL_RARELY(status) && !rmx_bell_word_load(kept))
                rmx_bell_word_store(kept, status);
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */
/* Of all calls of a block. */
RMX_BELL_FUNCTION struct rmx_bell_shared *rmx_bell_block(void) {
        RMX_BELL_SHARED static struct rmx_bell_shared shared;

        return &shared;
}

/* The executor reads memory that the line names: what this block has written is there before. One fence will do behind
 * the barrier, in the warp that rings: it carries along what the warp has learnt there. */
RMX_BELL_FUNCTION uint32_t rmx_bell_begin(const struct rmx_device_handle *h) {
        uint32_t thread = rmx_bell_thread();

        rmx_bell_sync();
        if (h->payload == RMX_BELL_NONE && thread < RMX_BELL_WARP)
                rmx_bell_release();
        return rmx_bell_ring(h, h->payload, (const uint64_t *)0, 0, thread, rmx_bell_threads(), rmx_bell_block());
}

RMX_BELL_FUNCTION int rmx_bell_end(const struct rmx_device_handle *h, uint32_t sequence) {
        struct rmx_bell_shared *s = rmx_bell_block();
        uint32_t thread = rmx_bell_thread(), status;

        if (thread == 0)
                s->status = sequence ? RMX_OK : RMX_E_DEVICE_LOST;
        rmx_bell_sync();
        if (sequence)
                rmx_bell_await(h, h->payload, sequence, thread, rmx_bell_threads(), s);
        status = rmx_bell_shared_load(&s->status);
        if (thread == 0)
                rmx_bell_finish(h, sequence, status);
        rmx_bell_sync(); /* before the next one's */
        return (int)(status & 0xff);
}

/* Rings the prepared request. What is returned is for rmx_device_wait; 0: nobody serves this rank, as the wait will say
 * too. */
RMX_BELL_FUNCTION uint32_t rmx_device_start(const struct rmx_device_handle *handle) {
        uint32_t sequence;

        if (handle->version != RMX_DEVICE_VERSION)
                return 0;
        sequence = rmx_bell_begin(handle);
        /* Nobody looks after the line until the wait, so the executor must be awake, or be woken now: it says that it
         * is parked, and then looks for lines once more. */
        if (rmx_bell_thread() == 0 && sequence) {
                rmx_bell_fence();
                (void)rmx_bell_look(handle, 0, RMX_BELL_AWAKE);
        }
        return sequence;
}

/* Waits for what was started with this handle, or a copy of it. RMX_OK or RMX_E_*. */
RMX_BELL_FUNCTION int rmx_device_wait(const struct rmx_device_handle *handle, uint32_t ticket) {
        return handle->version == RMX_DEVICE_VERSION ? rmx_bell_end(handle, ticket) : RMX_E_VERSION;
}

/* Both, one after the other. */
RMX_BELL_FUNCTION int rmx_device_call(const struct rmx_device_handle *handle) {
        return handle->version == RMX_DEVICE_VERSION ? rmx_bell_end(handle, rmx_bell_begin(handle)) : RMX_E_VERSION;
}

#endif /* RMX_BELL_FUNCTION */
#endif
