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
 * The lost range is written before anybody is told about it. It is emptied once every rank has been told, just before
 * the next sequence becomes final; killed between the two, that sequence is lost, and nobody was told otherwise. For a
 * comm it is the first sequence behind the range, since a rank is told in order. A pair's `final` may go on while a
 * group with a lost entry waits for its other entries (comm_p2p.c), and the range stays behind it. So a second death
 * always finds the same range, or a larger one that contains it. Growing, the range takes in what has become final
 * since it was made: sequences that one side has in such a group, which is lost anyhow. If nothing was in flight (a
 * planned restart), nothing is declared lost and the epoch stays.
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

static struct takeover_range takeover_range_of(uint32_t final, uint64_t lost, const _Atomic uint32_t *rung, uint32_t n,
                                               bool declare) {
        struct takeover_range range = {final, (uint32_t)(lost >> 32), (uint32_t)lost, 0};
        bool lost_before = range.lost_after != range.lost_until;
        uint32_t highest;

        /* Everything up to lost_until was settled before, even if no later sequence is final yet. */
        if (lost_before && ring_sequence_before(final, range.lost_until) &&
            !ring_sequence_before(final, range.lost_after))
                range.settled = range.lost_until;
        highest = range.settled;
        for (uint32_t r = 0; r < n; r++) {
                uint32_t last = marks_load(rung[r]);

                if (ring_sequence_before(highest, last))
                        highest = last;
        }
        if (highest != range.settled && declare) {
                range.n_lost = highest - range.settled;
                if (!lost_before) /* otherwise the old range grows */
                        range.lost_after = final;
                range.lost_until = highest;
                range.settled = highest;
        }
        return range;
}

bool takeover_read(struct marks *marks, uint32_t n_ranks, uint32_t epoch, struct takeover *ret_takeover) {
        struct takeover t = {0};
        uint32_t version = marks_load(marks->version);
        struct takeover_range range;

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
        /* A comm that had failed: its error stands for everything that is not settled, and some ranks may know it
         * already. */
        range = takeover_range_of(marks_load(marks->final), marks_load(marks->lost), marks->rung, n_ranks, !t.error);
        if (range.n_lost) {
                t.epoch++;
                marks_store(marks->epoch, t.epoch);
                marks_order();
                marks_store(marks->lost, (uint64_t)range.lost_after << 32 | range.lost_until);
        }
        t.settled = range.settled;
        t.lost_after = range.lost_after;
        t.lost_until = range.lost_until;
        t.n_lost = range.n_lost;
        *ret_takeover = t;
        return true;
}

struct takeover_range takeover_read_pair(struct marks_pair *marks, bool comm_failed) {
        struct takeover_range range =
                takeover_range_of(marks_load(marks->final), marks_load(marks->lost), marks->rung, 2, !comm_failed);

        if (range.n_lost) {
                marks_order();
                marks_store(marks->lost, (uint64_t)range.lost_after << 32 | range.lost_until);
        }
        return range;
}

enum takeover_outcome takeover_outcome(uint32_t sequence, uint32_t settled, uint32_t lost_after, uint32_t lost_until) {
        if (ring_sequence_before(settled, sequence))
                return TAKEOVER_RUN;
        if (ring_sequence_before(lost_after, sequence) && !ring_sequence_before(lost_until, sequence))
                return TAKEOVER_LOST;
        return TAKEOVER_FINAL;
}
