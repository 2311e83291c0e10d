/* SPDX-License-Identifier: MIT */
/*
 * The bell kernels: what the library puts on the caller's stream. One block. A call rings and waits; start and wait are
 * the two halves as kernels of their own, with a cell between them. Both halves are those of railmux_device.h, which
 * callers' kernels use as well.
 *
 * A stream may be replayed as a graph without the host, so all numbers come from counters in device memory: the ring
 * sequence from an atomic shared by all streams of the session, the comm's sequence from a counter that only the
 * comm's requests touch, one at a time.
 *
 * What every call executes counts: a lone block hides no latency, and its code is fetched anew at each launch. So what
 * the host knows is decided there: which counter the request takes, and which kernel it needs. The usual ones (payload
 * in whole packets at aligned addresses, or memory that the line names) have no loop over bytes and no table of words
 * in them, a thread for each answer, and what hardly ever happens behind their ends.
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
#include "railmux/railmux_device.h"
#include "ring/line.h"

#define THREADS_MAX 1024u

/* What callers' kernels are compiled with is what the executor is. */
static_assert(RMX_BELL_DEPTH == BELL_DEPTH && RMX_BELL_NUMBERS == BELL_LINES && RMX_BELL_LANES == BELL_LANES,
              "the same area");
static_assert(RMX_BELL_PACKETS == BELL_INLINE_PACKETS && sizeof(struct rmx_bell_packet) == sizeof(struct quad),
              "the same packets");
static_assert(RMX_BELL_WORDS == RING_WORDS && RMX_BELL_WORD_ARGUMENT == RING_W_ARGUMENT &&
                      RMX_BELL_WORD_SEQUENCE == RING_W_SEQUENCE && RMX_BELL_WORD_FLAGS == RING_W_FLAGS &&
                      RMX_BELL_PASSED == BELL_FLAG_PASSED && RMX_BELL_WORD_LAST == BELL_W_LAST &&
                      BELL_LANES_SHIFT == 16,
              "the same line");
static_assert(RMX_BELL_COUNTER == BELL_OFFSET_HEADER + offsetof(struct bell_header, counter) &&
                      RMX_BELL_PARKED == BELL_OFFSET_HEADER + offsetof(struct bell_header, parked) &&
                      RMX_BELL_LATCH == BELL_OFFSET_HEADER + offsetof(struct bell_header, latch) &&
                      RMX_BELL_CLOSED == BELL_OFFSET_HEADER + offsetof(struct bell_header, closed),
              "the same header");
static_assert(RMX_BELL_ENDED == BELL_OFFSET_ENDED && RMX_BELL_RELEASED == BELL_OFFSET_RELEASED &&
                      RMX_BELL_LINES == BELL_OFFSET_LINES && RMX_BELL_DONE == BELL_OFFSET_DONE &&
                      RMX_BELL_ARGUMENT == BELL_OFFSET_ARGUMENT && RMX_BELL_INBOX == BELL_OFFSET_INBOX &&
                      RMX_BELL_OUTBOX == BELL_OFFSET_OUTBOX,
              "the same places");
static_assert(RMX_BELL_ARGUMENT_BYTES == BELL_ARGUMENT_BYTES && RMX_BELL_ARGUMENT_OFFSET == RING_ARGUMENT_ALIGN,
              "the same argument blocks");
static_assert(RMX_BELL_HOST_WAKE == offsetof(struct bell_host, wake) &&
                      RMX_BELL_HOST_STATUS == offsetof(struct bell_host, status),
              "the same words of the host");
static_assert(BELL_OFFSET_RELEASED % 8 == 0 && BELL_DEPTH == 64, "a warp of 32 sees all places, two in a load");
static_assert(BELL_LINES % BELL_DEPTH == 0 && BELL_LINES > BELL_DEPTH, "lines come round later than places");
static_assert(CLIENT_GPU_ARGUMENTS * 8u + RING_ARGUMENT_ALIGN <= BELL_ARGUMENT_BYTES, "a block fits its slot");
static_assert(BELL_INLINE_BYTES == CLIENT_GPU_INLINE_BYTES && BELL_HANDLES == CLIENT_GPU_SLOTS, "as the library says");
static_assert(BELL_DEPTH > CLIENT_GPU_STARTED, "what was started leaves room for calls");
static_assert((uint32_t)BELL_ALIGNED == RMX_BELL_ALIGNED && (uint32_t)BELL_BYTES == RMX_BELL_BYTES, "as a number");
static_assert(sizeof(struct rmx_device_handle) == 144 && offsetof(struct rmx_device_handle, word) == 64,
              "the interface of version 2");

/* Until what is before on the stream has ended; see launch_kernel in launch.c. */
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

#define LOST (RMX_E_DEVICE_LOST) /* as ring_status of no rank */

DEVICE struct bell_host *host_of(const struct bell_arguments *a) {
        return (struct bell_host *)a->request.host;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
/* For calls whose stream could not be made to wait for the call before; a kernel before theirs. That call tells its
 * number when it ends, and nobody tells another one before this request does. What the call has left behind is in
 * memory for whatever begins after this kernel: the fence takes it along, the kernel's end hands it on. If the rank or
 * the area has ended, so have both calls. */
DEVICE void await_number(const struct bell_arguments *a) {
        const uint32_t *finished = &host_of(a)->finished[a->request.slot];

        if (block_thread() != 0)
                return;
        for (uint32_t round = 1; word_load(finished) != a->number; round++) {
                if (round % RMX_BELL_ROUNDS == 0 && rmx_bell_look(&a->request, 0, RMX_BELL_WOKEN) == RMX_BELL_OVER)
                        break;
                poll_pause();
        }
        fence_acquire_system();
}

/* The last thing that a kernel does. What the host does when it has read the number comes to the GPU much later than
 * all that this kernel has stored, so there is no fence, which every call would wait for. */
DEVICE void number_tell(const struct bell_arguments *a) {
        if (a->number)
                word_store(&host_of(a)->finished[a->request.slot], a->number);
}

/* ---- call, start, wait ------------------------------------------------------------------------------------------- */
DEVICE uint32_t ring(const struct bell_arguments *a, const struct bell_block *block, uint32_t payload,
                     struct rmx_bell_shared *s) {
        return rmx_bell_ring(&a->request, payload, block ? block->word : nullptr, block ? a->n_arguments : 0,
                             block_thread(), block_threads(), s);
}

DEVICE void call(const struct bell_arguments *a, const struct bell_block *block, uint32_t payload,
                 struct rmx_bell_shared *s) {
        uint32_t thread = block_thread(), sequence = ring(a, block, payload, s);

        if (sequence)
                rmx_bell_await(&a->request, payload, sequence, thread, block_threads(), s);
        if (thread != 0)
                return;
        rmx_bell_finish(&a->request, sequence, s->status);
        number_tell(a);
}

/* The same of one that is part of a request: not when something of it has failed, and what comes behind it is told. */
DEVICE void call_gated(const struct bell_arguments *a, uint32_t payload, struct rmx_bell_shared *s) {
        uint32_t thread = block_thread(), sequence;

        if (thread == 0)
                s->status = word_load(a->gate);
        block_sync();
        if (s->status) {
                if (thread == 0)
                        rmx_bell_finish(&a->request, 0, LOST);
                return;
        }
        block_sync(); /* before it is written again */
        sequence = ring(a, nullptr, payload, s);
        if (sequence)
                rmx_bell_await(&a->request, payload, sequence, thread, block_threads(), s);
        if (thread != 0)
                return;
        if (s->status != RMX_OK)
                word_store(a->gate, s->status);
        rmx_bell_finish(&a->request, sequence, s->status);
        number_tell(a);
}

/* Leaves {status << 32 | ring sequence} for the wait. No kernel looks after the line until then, so this one must know
 * that the executor is awake, or wake it: the executor says that it is parked, and then looks for lines once more. */
DEVICE void start(const struct bell_arguments *a, const struct bell_block *block, uint32_t payload,
                  struct rmx_bell_shared *s) {
        uint32_t sequence = ring(a, block, payload, s);

        if (block_thread() != 0)
                return;
        cell_store(a->cell, sequence ? sequence : (uint64_t)LOST << 32 | 1);
        fence_full_system();
        (void)rmx_bell_look(&a->request, 0, RMX_BELL_AWAKE);
        number_tell(a);
}

/* The start may be on another stream, and not have run yet. It is waited for even if the rank has ended meanwhile: a
 * start that nobody waits for would keep its place for ever, and fill a cell that serves another request by then. (When
 * the area is closed, neither will serve anybody.) */
DEVICE void cell_take(const struct bell_arguments *a, struct rmx_bell_shared *s) {
        const uint32_t *closed = (const uint32_t *)(const void *)((const char *)a->request.area + RMX_BELL_CLOSED);
        uint64_t cell;

        for (uint32_t round = 1; !(cell = cell_load(a->cell)); round++) {
                if (round % RMX_BELL_ROUNDS == 0 && word_load(closed)) {
                        cell = (uint64_t)LOST << 32;
                        break;
                }
                poll_pause();
        }
        cell_store(a->cell, 0);
        s->status = (uint32_t)(cell >> 32);
        s->sequence = s->status ? 0 : (uint32_t)cell;
}

DEVICE void wait(const struct bell_arguments *a, uint32_t payload, struct rmx_bell_shared *s) {
        uint32_t thread = block_thread(), sequence;

        if (thread == 0)
                cell_take(a, s);
        block_sync();
        sequence = s->sequence;
        if (sequence)
                rmx_bell_await(&a->request, payload, sequence, thread, block_threads(), s);
        /* The host may look at the results, or put work on other streams, as soon as it sees the word of the cell. */
        fence_release_system();
        block_sync();
        if (thread != 0)
                return;
        rmx_bell_finish(&a->request, sequence, s->status);
        if (a->ended)
                cell_store(a->ended, (uint64_t)a->turn << 32 | s->status);
        number_tell(a);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */
#define PLAIN_KERNEL(name, body)                                                                                       \
        KERNEL void LAUNCH_BOUNDS(THREADS_MAX) name(const PARAMETER struct bell_arguments a) {                         \
                SHARED struct rmx_bell_shared s;                                                                       \
                await_stream();                                                                                        \
                body;                                                                                                  \
        }
#define BLOCK_KERNEL(name, body)                                                                                       \
        KERNEL void LAUNCH_BOUNDS(THREADS_MAX)                                                                         \
                name(const PARAMETER struct bell_arguments a, const PARAMETER struct bell_block block) {               \
                SHARED struct rmx_bell_shared s;                                                                       \
                await_stream();                                                                                        \
                body;                                                                                                  \
        }
PLAIN_KERNEL(bell_call, call(&a, nullptr, RMX_BELL_NONE, &s))
PLAIN_KERNEL(bell_call_inline, call(&a, nullptr, RMX_BELL_ALIGNED, &s))
PLAIN_KERNEL(bell_call_bytes, call(&a, nullptr, RMX_BELL_BYTES, &s))
PLAIN_KERNEL(bell_gated, call_gated(&a, RMX_BELL_NONE, &s))
PLAIN_KERNEL(bell_gated_inline, call_gated(&a, RMX_BELL_ALIGNED, &s))
PLAIN_KERNEL(bell_gated_bytes, call_gated(&a, RMX_BELL_BYTES, &s))
BLOCK_KERNEL(bell_call_block, call(&a, &block, RMX_BELL_NONE, &s))
BLOCK_KERNEL(bell_call_block_bytes, call(&a, &block, RMX_BELL_BYTES, &s))
PLAIN_KERNEL(bell_start, start(&a, nullptr, RMX_BELL_NONE, &s))
PLAIN_KERNEL(bell_start_inline, start(&a, nullptr, RMX_BELL_ALIGNED, &s))
PLAIN_KERNEL(bell_start_bytes, start(&a, nullptr, RMX_BELL_BYTES, &s))
BLOCK_KERNEL(bell_start_block, start(&a, &block, RMX_BELL_NONE, &s))
BLOCK_KERNEL(bell_start_block_bytes, start(&a, &block, RMX_BELL_BYTES, &s))
PLAIN_KERNEL(bell_wait, wait(&a, RMX_BELL_NONE, &s))
PLAIN_KERNEL(bell_wait_inline, wait(&a, RMX_BELL_ALIGNED, &s))
PLAIN_KERNEL(bell_wait_bytes, wait(&a, RMX_BELL_BYTES, &s))
KERNEL void LAUNCH_BOUNDS(THREADS_MAX) bell_mark(const PARAMETER struct bell_arguments a) {
        if (block_thread() == 0)
                number_tell(&a);
}
KERNEL void LAUNCH_BOUNDS(THREADS_MAX) bell_await(const PARAMETER struct bell_arguments a) {
        await_stream();
        await_number(&a);
}

/* ---- for the host --------------------------------------------------------------------------------------------------
 */
extern "C" const void *bell_kernel(uint32_t kernel) {
        switch (kernel) {
        case BELL_CALL:
                return (const void *)bell_call;
        case BELL_CALL | BELL_ALIGNED:
                return (const void *)bell_call_inline;
        case BELL_CALL | BELL_BYTES:
                return (const void *)bell_call_bytes;
        case BELL_CALL | BELL_BLOCK:
                return (const void *)bell_call_block;
        case BELL_CALL | BELL_BLOCK | BELL_BYTES:
                return (const void *)bell_call_block_bytes;
        case BELL_START:
                return (const void *)bell_start;
        case BELL_START | BELL_ALIGNED:
                return (const void *)bell_start_inline;
        case BELL_START | BELL_BYTES:
                return (const void *)bell_start_bytes;
        case BELL_START | BELL_BLOCK:
                return (const void *)bell_start_block;
        case BELL_START | BELL_BLOCK | BELL_BYTES:
                return (const void *)bell_start_block_bytes;
        case BELL_WAIT:
                return (const void *)bell_wait;
        case BELL_WAIT | BELL_ALIGNED:
                return (const void *)bell_wait_inline;
        case BELL_WAIT | BELL_BYTES:
                return (const void *)bell_wait_bytes;
        case BELL_GATE:
                return (const void *)bell_gated;
        case BELL_GATE | BELL_ALIGNED:
                return (const void *)bell_gated_inline;
        case BELL_GATE | BELL_BYTES:
                return (const void *)bell_gated_bytes;
        case BELL_MARK:
                return (const void *)bell_mark;
        case BELL_AWAIT:
                return (const void *)bell_await;
        default:
                return nullptr;
        }
}

/* One for each packet, and for each answer that is waited for. */
extern "C" uint32_t bell_threads(const struct bell_arguments *a, uint32_t kernel) {
        uint32_t in = a->request.in_bytes, out = a->request.out_bytes, n = ((in > out ? in : out) + 7) / 8;

        if (kernel == BELL_MARK || kernel == BELL_AWAIT)
                return WARP_THREADS;
        if ((!(kernel & BELL_START) || kernel >= BELL_GATE) && n < a->request.lanes)
                n = a->request.lanes;
        n = (n + WARP_THREADS - 1) / WARP_THREADS * WARP_THREADS;
        return n > THREADS_MAX ? THREADS_MAX : n ? n : WARP_THREADS;
}
