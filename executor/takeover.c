/* SPDX-License-Identifier: MIT */
/*
 * Taking over from a dead executor.
 *
 * The rule: one outcome per sequence on all ranks. The dead executor may have been killed between any two instructions,
 * so the outcome must follow from the marks alone:
 *
 *  - A sequence is final once marks.final has reached it. That word is written after every rank's output is complete
 * and before any rank is told. So: told OK somewhere => final >= s here => OK for all the others too.
 *  - A sequence that some rank had rung (marks.rung, written when the line was latched, before the request is started)
 * and that is not final may have written anything anywhere. It is lost, for all ranks, also for those that ring it
 * later.
 *  - A sequence that nobody's line was latched for has touched nothing and simply runs.
 *
 * The lost range is written before anybody is told about it and `final` never moves inside it before every rank has
 * been told (a rank is told in order, and final passes a sequence only when all ranks have run it, which ends the
 * range: comm.c then empties it). A second death therefore finds the same range, or a larger one that contains it. If
 * nothing was in flight (a planned restart), the range is empty and the epoch stays.
 */
#include "executor/takeover.h"

#include "ring/ring.h"

/* Partners of all loads and stores here: the same words in comm.c of the predecessor process, which is dead; the
 * kernel's process exit orders them. Atomics only keep the compiler from tearing them. */
#define marks_load(word)         atomic_load_explicit(&(word), memory_order_relaxed)
#define marks_store(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)
/* Orders our stores for a successor that reads them after we are killed; stores become visible in program order to it
 * if the compiler keeps their order. */
#define marks_order() atomic_signal_fence(memory_order_seq_cst)

bool takeover_read(struct marks *marks, uint32_t n_ranks, uint32_t epoch, struct takeover *ret_takeover) {
        struct takeover t = {0};
        uint32_t version = marks_load(marks->version), final, highest;
        uint64_t lost;

        if (version == 0) {
                t.epoch = epoch ? epoch : 1;
                marks_store(marks->epoch, t.epoch);
                marks_order();
                marks_store(marks->version, MARKS_VERSION);
                *ret_takeover = t;
                return true;
        }
        if (version != MARKS_VERSION)
                return false;
        t.used = true;
        t.error = marks_load(marks->error);
        t.epoch = marks_load(marks->epoch);
        lost = marks_load(marks->lost);
        t.lost_after = (uint32_t)(lost >> 32);
        t.lost_until = (uint32_t)lost;
        final = marks_load(marks->final);
        /* Everything up to lost_until was settled before, even if no later sequence is final yet. */
        t.settled = final;
        if (t.lost_after != t.lost_until && ring_sequence_before(final, t.lost_until) &&
            !ring_sequence_before(final, t.lost_after))
                t.settled = t.lost_until;
        highest = t.settled;
        for (uint32_t r = 0; r < n_ranks; r++) {
                uint32_t rung = marks_load(marks->rung[r]);

                if (ring_sequence_before(highest, rung))
                        highest = rung;
        }
        /* A comm that had failed: its error stands for everything that is not settled, and some ranks may know it
         * already. */
        if (highest != t.settled && !t.error) {
                t.n_lost = highest - t.settled;
                if (t.settled == final) /* otherwise the old range grows */
                        t.lost_after = final;
                t.lost_until = highest;
                t.settled = highest;
                t.epoch++;
                marks_store(marks->epoch, t.epoch);
                marks_order();
                marks_store(marks->lost, (uint64_t)t.lost_after << 32 | t.lost_until);
        }
        *ret_takeover = t;
        return true;
}

enum takeover_outcome takeover_outcome(uint32_t sequence, uint32_t settled, uint32_t lost_after, uint32_t lost_until) {
        if (ring_sequence_before(settled, sequence))
                return TAKEOVER_RUN;
        if (ring_sequence_before(lost_after, sequence) && !ring_sequence_before(lost_until, sequence))
                return TAKEOVER_LOST;
        return TAKEOVER_FINAL;
}
