/* SPDX-License-Identifier: MIT */
/*
 * The request ring.
 *
 * A ring carries requests of one session to the executor of one GPU, and one answer for each request back. It is two
 * pieces of shared memory, by who writes them: the client area (lines, waiting[], arguments) and the executor area
 * (need_wake, next, completion[]). The client has the executor area read-only. The executor trusts nothing in the
 * client area and has it mapped read-only, so that not even a defect of its own can write there.
 *
 *   client: inputs -> line --------> executor: latch -> work -> outputs -> completion --------> client: poll or wait ->
 * release
 *
 * Sequences. Requests are numbered 1, 2, ... 2^32-1, 1, ... A request's slot is its number modulo the depth. 0 is left
 * out: zeroed memory, which every ring starts as, must not look like a line or a completion of sequence 0 when the
 * count gets there. The price is one irregular lap after 2^32 requests, in which slot 0 is passed over once; consumer.c
 * deals with it where it looks back.
 *
 * Line. Each of a line's 16 cells carries the sequence beside its word. A reader that finds the sequence in all of them
 * has the whole line; the order in which cells become visible does not matter, so a GPU can write one with plain 64-bit
 * stores and no fence between them. The slot of a line is free for the next lap when its completion has been harvested,
 * which is the client's own knowledge: there is no tail index to read, to trust or to forge. A client that ignores it
 * overwrites its own lines, and the executor skips a slot whose request it still holds.
 *
 * Completion. One 64-bit word with the status and the sequence, so that one store says both, and a reader of an older
 * lap cannot take a newer answer for its own.
 *
 * Sleep. Each side announces that it is about to sleep, then looks once more; the other side acts, then looks at the
 * announcement. Between the write and the read on each side stands a full fence, so that at least one of the two sees
 * the other:
 *
 *   ring_consumer_sleep:  need_wake = 1      | fence | look at the next line       -> sleep if there is none
 *   client:               write the line     | fence | read need_wake              -> write the eventfd if set
 *
 *   ring_producer_wait:   waiting[slot] += 1 | fence | look at the completion      -> futex wait if not there
 *   executor:             write completion   | fence | read waiting[slot]          -> futex wake if not 0
 *
 * The eventfd is watched edge-triggered and never read. Each write is an edge, whatever the counter says: a client can
 * clear O_NONBLOCK, fill the counter or write without end, and the executor never touches that file description, so it
 * cannot block on it. (A full counter makes the write fail with EAGAIN, or block in the client that filled it. Honest
 * clients would need 2^64 sleeps for that.) All other lies about these words cost the liar a wake-up or the executor a
 * look.
 *
 * Busy slots. `busy` is private to the executor. It is cleared before the completion is stored: a client's next line in
 * the slot follows the completion, so whoever finds that line finds the slot free. A hostile client that writes the
 * next line early may have it latched between the two stores; the completing thread no longer uses the slot by then,
 * only the two completions may come in either order, and the harm is that client's own.
 *
 * Death of the executor. A successor maps the same memory after the predecessor is gone (the daemon sees to that; with
 * two executors alive on a ring nothing holds). A kill falls between two instructions of each thread: what came before
 * is in memory, what came after is not. The points, in the order of a request's life:
 *   - before header->next is stored in latch: `next` still names the line, the successor latches it as new. Nothing has
 * begun: the caller starts a request only after latch has returned.
 *   - after it, up to the completion: the sequence lies before next, its completion does not carry it, its line is
 *     intact since the client waits for the answer. relatch yields it. Whether it had begun is not the ring's to know:
 * marks.h.
 *   - between clearing busy and the completion: the same; busy died with its process.
 *   - between the completion and reading waiting[], or before the wake: the answer stands, but a client may sleep on
 * it. ring_consumer_init wakes whoever waits on a completed slot. A client that announces itself later finds the
 * completion.
 *   - between need_wake = 1 and the sleep, or asleep: need_wake stays 1, clients write their eventfd for nothing until
 * the successor clears it; the counter is kept, and adding a non-empty eventfd to an epoll set is an edge by itself.
 *   - awake, need_wake = 0: clients do not ring. The successor serves the ring once before it may sleep, and sleeping
 * looks again.
 *   - in the middle of relatch or of ring_consumer_init: both write only private memory and the incarnation count, the
 * next successor repeats them from the start. A line in flight that its client has destroyed is not yielded: it was
 * nobody else's. One that it has altered is a new text under an old sequence, validated again like any other, and its
 * comm's marks have the last word on whether it may still run. The same goes for a line that was never latched: in its
 * first lap a ring cannot tell an empty slot from one left over from before the wrap, so its client can forge such a
 * line there, and gains nothing over publishing it.
 *
 * Death of the client is seen by the daemon. Whatever is in its area then, or changes there, is read by the same rules.
 *
 * Weak memory: docs/ring.md argues each pair of operations. tests/ring/ holds the models and the checker that runs this
 * very code under all interleavings with store buffers.
 */
#include "ring/ring.h"

#define RING_PAGE 4096u /* the ABI's page, whatever the machine's is */

static size_t round_up(size_t value, size_t unit) {
        return (value + unit - 1) / unit * unit;
}

int ring_layout_init(struct ring_layout *layout, uint32_t depth, uint32_t argument_bytes) {
        struct ring_layout l = {.depth = depth};

        if (depth < RING_DEPTH_MIN || depth > RING_DEPTH_MAX || (depth & (depth - 1)))
                return RING_E_DEPTH;
        if (argument_bytes > RING_ARGUMENT_BYTES_MAX)
                return RING_E_ARGUMENT;
        l.argument_bytes = (uint32_t)round_up(argument_bytes, RING_PAGE);
        l.waiting_offset = depth * sizeof(struct ring_line);
        l.argument_offset = round_up(l.waiting_offset + depth * sizeof(uint32_t), RING_PAGE);
        l.client_bytes = l.argument_offset + l.argument_bytes;
        l.completion_offset = sizeof(struct ring_executor_header);
        l.executor_bytes = round_up(l.completion_offset + depth * sizeof(uint64_t), RING_PAGE);
        *layout = l;
        return RING_OK;
}
