/* SPDX-License-Identifier: MIT */
#if defined(__HIP__)
#include <hip/hip_runtime_api.h>
#endif

#include "gpu/device/bell.h"
#include "gpu/device/order.h"
#include "ring/line.h"
#include "tests/client/hip/serve.h"

DEVICE void serve_inline(char *area, uint32_t sequence, const uint32_t *word) {
        size_t slot = sequence % BELL_DEPTH;
        struct quad *inbox = (struct quad *)(area + BELL_OFFSET_INBOX) + slot * BELL_INLINE_PACKETS;
        struct quad *outbox = (struct quad *)(area + BELL_OFFSET_OUTBOX) + slot * BELL_INLINE_PACKETS;
        uint32_t in = (word[SERVE_W_IN] + 7) / 8, out = (word[SERVE_W_OUT] + 7) / 8;

        for (uint32_t i = warp_thread(); i < in || i < out; i += WARP_THREADS) {
                struct quad packet = {0, 0, 0, 0};

                if (i < in) {
                        do
                                packet = quad_load(inbox + i);
                        while (!packet_is(packet, sequence));
                }
                if (i < out)
                        packet_store(outbox + i, serve_result(packet_payload(packet), i), sequence);
        }
}

KERNEL void serve(char *area, struct serve_shared *shared) {
        SHARED uint32_t word[16];
        uint32_t sequence = shared->next, quick = shared->quick, thread = warp_thread(), spins = 0;
        uint64_t *done;

        for (;;) {
                uint64_t *line = (uint64_t *)(area + BELL_OFFSET_LINES) + (size_t)(sequence % BELL_LINES) * RING_WORDS;
                uint64_t cell;

                cell = thread < RING_WORDS ? cell_load(line + thread) : (uint64_t)sequence << 32;
                if (!warp_all(cell >> 32 == sequence)) {
                        if (++spins % 256 == 0 && warp_any(word_load(&shared->stop) != 0))
                                break;
                        continue;
                }
                if (thread < RING_WORDS)
                        word[thread] = (uint32_t)cell;
                warp_sync();
                if (word[RING_W_FLAGS] == BELL_FLAG_PASSED) {
                        sequence = bell_sequence_next(sequence);
                        warp_sync();
                        continue;
                }
                if (thread < RING_WORDS && !quick)
                        shared->log[sequence % SERVE_LOG].word[thread] = word[thread];
                if (thread < 4 && word[RING_W_ARGUMENT])
                        shared->log[sequence % SERVE_LOG].argument[thread] =
                                cell_load((uint64_t *)(area + BELL_OFFSET_ARGUMENT + word[RING_W_ARGUMENT]) + thread);
                for (uint32_t i = 0; i < word[SERVE_W_DELAY]; i++)
                        poll_pause();
                if ((word[RING_W_FLAGS] & BELL_FLAG_INLINE) && !word[SERVE_W_STATUS])
                        serve_inline(area, sequence, word);
                if (!quick)
                        fence_release_system();
                warp_sync();
                done = (uint64_t *)(area + BELL_OFFSET_DONE) + (size_t)(sequence % BELL_DEPTH) * BELL_LANES;
                for (uint32_t i = thread; i < word[RING_W_FLAGS] >> BELL_LANES_SHIFT; i += WARP_THREADS)
                        if (word[SERVE_W_STATUS] != SERVE_NEVER)
                                cell_store(done + i, (uint64_t)word[SERVE_W_STATUS] << 32 | sequence);
                warp_sync();
                sequence = bell_sequence_next(sequence);
        }
        if (thread == 0)
                word_store(&shared->next, sequence);
}

/* Stands for the caller's work. */
KERNEL void work(uint32_t *memory) {
        memory[block_thread()] += 1;
}

/* Reads so much that nothing else is left in the L2. */
KERNEL void sweep(const struct quad *memory, uint32_t n, uint32_t *sink) {
        uint32_t sum = 0;

        for (uint32_t i = block_index() * block_threads() + block_thread(); i < n; i += block_count() * block_threads())
                sum += memory[i].x;
        if (sum == 1) /* it never is: the memory is zero */
                *sink = sum;
}

extern "C" const void *sweep_kernel(void) {
        return (const void *)sweep;
}
extern "C" const void *work_kernel(void) {
        return (const void *)work;
}
extern "C" const void *serve_kernel(void) {
        return (const void *)serve;
}
extern "C" uint32_t serve_threads(void) {
        return WARP_THREADS;
}
