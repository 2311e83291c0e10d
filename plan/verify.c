/* SPDX-License-Identifier: MIT */
/*
 * How a plan is proved
 *
 * One execution shows them all. Which chunk a step takes, which credit it needs and which steps come before it on its
 * own rank are fixed by the plan; no step asks what time it is or who was first. Phases of ranks are then processes
 * that talk through bounded FIFOs with blocking reads and writes (a step waits for several, in any order: each stays
 * true once it is true). Such a network computes the same and gets stuck at the same place under every schedule,
 * provided that each end of each FIFO belongs to one process at a time, and that memory which several of them use is
 * never used without order. So the machine (verify_machine.c, verify_step.c) runs all phases of all ranks once, in any
 * order, on symbols, and keeps apart what is ordered from what merely happened so:
 *
 *   Every (rank, phase) has a vector clock with a component for every (rank, phase). Clocks are joined only where
 *   the plan promises order: from step to step of a phase, from a part of the `after` phase (or all of them), from a
 *   chunk's flag to its use, from a slot's release to its next write, from the end of a rank's request to the beginning
 *   of its next. Every access to memory, to a slot and to the counter at either end of a channel is compared with the
 *   clocks of the conflicting accesses before it.
 *
 * The machine executes plan_step() and knows no algorithm. So a plan, a schedule in pass.c and a range are wrong
 * together or right together, whoever wrote them. What it does not take from there is what the result must be.
 *
 * Faults:
 *
 *   malformed   fields outside their enums, or a combination without meaning (verify_form.c)
 *   deadlock    nothing moves and something is unfinished; credits belong to the machine, so a cycle may contain them
 *   race        conflicting accesses without order: input against output in place, the data in a slot, two phases at
 *               the same end of a channel (the proviso above), a completion before all phases are done; and any access
 *               to another rank's memory, conflicting or not, that does not come after that rank has begun the request
 *               and before it completes it
 *   bounds      an access outside input, output or slot, whose size depends on the form of what it carries
 *   value       an output element that is not what the operation promises (verify_tree.c): the right rank's element, or
 *               a reduction of the right element of every rank as the declared tree has it. What nobody writes is
 *               poison or old input. What nobody is promised must not be written: an output that a rank does not have
 *               is empty, and gaps between pieces stay poison. A barrier promises that all have begun
 *   far         an access in place to memory of a rank of another node
 *   unconsumed  chunks pushed and taken differ on a channel within one request
 *
 * Symbols. A run of consecutive elements is one symbol: what the first is made of, and the length (verify_cut.c cuts
 * buffers where spans begin and end). So the real geometry and real counts are used, and cost depends on the number of
 * chunks only.
 *
 * Unfinished values. An element of a reduction is a contribution, a combination, or finished, and these do not mix:
 * only an input that is still one is read as a contribution (its reader multiplies it), only what is unfinished is
 * combined and finished, and only what is finished is written to an output. A combination travels as accumulators, what
 * is finished as elements, a contribution either way; who takes a chunk must take it in the form in which it was
 * written. So each output element is rounded and divided once.
 *
 * Sequences. A request alone is the first half of every pair; one plan after another on the same channels is the pair;
 * plan.c argues why one plan that leaves nothing behind is right after any other.
 *
 * Cases. The count of a request decides the number of parts, and the lengths of the last ones, and nothing else.
 * plan_verify_all (verify_case.c) takes none, less than a granule, empty and ragged shards, exactly one part, one
 * element more than full parts, and enough parts to write every slot three times. Beyond that, part i does what part
 * i - slots did. Plans over nodes are run once more with fewer slots in ranks' channels to themselves (verify_case.c).
 * This last sentence is an argument, not a computation; tests add random counts. Roots, peers, sizes of elements (with
 * accumulators that are as large, and larger) and the numbers of an all_to_all_v change from run to run, also between
 * the two requests of a run. With more than 16 ranks, where a run costs n^2 clocks of n components, there are fewer
 * runs: each count is executed in place or not, as first or second request, but not both; ragged is what the laps end
 * with. What is left out could only be wrong if a fault depended on the place and on one small count together, and that
 * for these numbers of ranks only.
 *
 * Chunk numbers. The machine has flags and credits of counter_bits bits which may start anywhere and wrap. In a slot
 * that waits for chunk c lies the flag of chunk c - slots (or the start), so comparing for equality fails only if slots
 * is a multiple of 2^bits; and credit is at most `slots` behind, so the difference is exact if slots < 2^bits. Tests
 * run the wrap with narrow counters, and find the race when slots is too large for them.
 *
 * Not shown: several requests of one rank at once (sends and receives of a group). Their channels are apart from those
 * of collectives, and each pair and direction takes its turn; plan.c has the argument.
 *
 * An executor's own mistakes (a flag before its data, a credit not waited for) cannot be written as a plan. The machine
 * can make them (struct verify_mutation), for one reason: to test that it sees them.
 */
#include "plan/verify.h"

#include "plan/verify_machine.h"

int verify_pair(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, const struct verify_options *options,
                struct plan_verdict *ret_verdict) {
        const struct verify_request requests[VERIFY_REQUESTS_MAX] = {{plan, pcase}, {next, next_case}};
        int r;

        r = verify_form(plan, ret_verdict);
        if (!r)
                r = verify_form_case(plan, pcase, ret_verdict);
        if (!r && next) {
                r = verify_form(next, ret_verdict);
                if (!r)
                        r = verify_form_case(next, next_case, ret_verdict);
                if (!r && (next->n_ranks != plan->n_ranks || next_case->geometry.slots != pcase->geometry.slots ||
                           next_case->geometry.part_bytes != pcase->geometry.part_bytes))
                        r = verify_fault(ret_verdict, PLAN_FAULT_MALFORMED, NULL,
                                         "the next plan does not share the channels");
        }
        return r ? r : verify_machine_run(requests, next ? 2 : 1, options, ret_verdict);
}

int plan_verify(const struct plan *plan, const struct plan_case *pcase, const struct plan *next,
                const struct plan_case *next_case, struct plan_verdict *ret_verdict) {
        const struct verify_options options = VERIFY_OPTIONS_NULL;

        return verify_pair(plan, pcase, next, next_case, &options, ret_verdict);
}
