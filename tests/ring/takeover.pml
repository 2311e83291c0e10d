/* SPDX-License-Identifier: MIT */
/*
 * The life of requests in a ring whose executor is killed at any step and succeeded, with sequences of 3 or 4 bits (wrapping, 0 left out).
 * Interleavings only; what weak memory adds is the subject of handshake.pml and model_ring.c.
 *
 * The client keeps up to DEPTH requests in flight, harvests in any order and sleeps on what it waits for. The executor latches in order,
 * completes in any order, and may die before every step, KILLS times. Checked:
 *   - a request is begun as new at most once, and completed at most once;
 *   - no completion is taken for another request's; a slot is never latched while its request is in flight;
 *   - in the end every request was harvested (else: invalid end state).
 *
 * To be found as errors: -DUSE_ZERO -DNO_LAP -DNO_TAKEOVER_WAKE -DNEXT_LATE -DNO_RELATCH -DNO_FULL_CHECK -DWAKE_FIRST
 */
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef N
#define N 5
#endif
#ifndef KILLS
#define KILLS 2
#endif
#ifndef LAST
#define LAST 7 /* the last sequence before the wrap: 2^bits - 1, more than two laps */
#endif
#ifndef FIRST
#define FIRST 6
#endif

#define slot(s) ((s) % DEPTH)
#define before(a, b) ((((a) - (b)) & LAST) > LAST / 2)
#ifdef USE_ZERO
#define following(s) (((s) + 1) & LAST)
#else
#define following(s) ((s) == LAST -> 1 : (s) + 1)
#endif

#ifdef NO_FULL_CHECK
#define is_free(s) true
#else
#define is_free(s) (in_flight[s] == 0)
#endif

/* shared memory: the line as two cells, the request's number (its text) beside the sequence */
byte line_a[DEPTH], line_b[DEPTH], text[DEPTH];
byte completion[DEPTH], answer[DEPTH];
bool waiting[DEPTH];
byte header_next = 0;
/* the futex: which slot the client sleeps on, + 1 */
byte asleep = 0;
/* ghosts */
bool begun[N], completed[N];
byte harvested_total = 0;

proctype client() {
        byte next = FIRST, k = 0, s, w;
        byte in_flight[DEPTH]; /* sequence, 0: free */
        byte number[DEPTH];

        do
        :: harvested_total == N -> break
        :: k < N && is_free(slot(next)) ->
                s = slot(next);
                in_flight[s] = next;
                number[s] = k;
                text[s] = k;
                if /* cells become visible in any order */
                :: line_a[s] = next; line_b[s] = next
                :: line_b[s] = next; line_a[s] = next
                fi;
                next = following(next);
                k++
        :: harvested_total < N ->
                select(w: 0 .. (DEPTH - 1));
                if
                :: in_flight[w] == 0
                :: in_flight[w] != 0 ->
                        if
                        :: completion[w] == in_flight[w] -> skip
                        :: completion[w] != in_flight[w] ->
                                waiting[w] = true;
                                do
                                :: completion[w] == in_flight[w] -> break
                                :: completion[w] != in_flight[w] ->
                                        atomic {
                                                if
                                                :: completion[w] != in_flight[w] -> asleep = w + 1
                                                :: else
                                                fi
                                        }
                                        (asleep == 0)
                                od;
                                waiting[w] = false
                        fi;
                        assert(answer[w] == number[w]);
                        in_flight[w] = 0;
                        harvested_total++
                fi
        od
}

#define is_last(s) (s != 0 && (((s + DEPTH) & LAST) == 0 || !before((s + DEPTH) & LAST, next)))

/* one executor life after the other */
#define may_die if :: kills < KILLS -> kills++; goto born :: true fi

proctype executor() {
        byte next, s, w, kills = 0, sequence, held[DEPTH], number[DEPTH];
        bool any;

born:
        skip;
        d_step { /* private memory dies with the process */
                s = 0;
                do
                :: s < DEPTH -> held[s] = 0; number[s] = 0; s++
                :: else -> break
                od;
                next = (header_next == 0 -> FIRST : header_next);
                any = header_next != 0
        }
        if
        :: any ->
#ifndef NO_TAKEOVER_WAKE
                may_die;
                s = 0;
                do /* each slot with a completion: whoever sleeps there is woken; a needless wake-up does no harm */
                :: s < DEPTH ->
                        atomic {
                                if
                                :: waiting[s] && asleep == s + 1 -> asleep = 0
                                :: else
                                fi
                        }
                        s++
                :: else -> break
                od;
#endif
#ifndef NO_RELATCH
#ifdef NO_LAP
                sequence = (next - DEPTH) & LAST;
#else
                sequence = (next <= DEPTH -> (LAST + 1 - DEPTH) : (next - DEPTH) & LAST);
#endif
                do
                :: sequence == next -> break
                :: else ->
                        may_die;
                        s = slot(sequence);
                        if
                        :: is_last(sequence) && completion[s] != sequence && line_a[s] == sequence && line_b[s] == sequence ->
                                assert(held[s] == 0);
                                held[s] = sequence;
                                number[s] = text[s]
                        :: else
                        fi;
                        sequence = (sequence + 1) & LAST
                od
#endif
        :: else
        fi;
serve:
        if
        :: harvested_total == N
        :: atomic { line_a[slot(next)] == next && line_b[slot(next)] == next && held[slot(next)] == 0 -> s = slot(next) }
                may_die;
                held[s] = next;
                number[s] = text[s];
                next = following(next);
#ifdef NEXT_LATE
                d_step { assert(!begun[number[s]]); begun[number[s]] = true }
                may_die;
                header_next = next
#else
                header_next = next;
                may_die;
                d_step { assert(!begun[number[s]]); begun[number[s]] = true }
#endif
                goto serve
        :: atomic { (held[0] != 0) -> w = 0 } goto complete
#if DEPTH > 1
        :: atomic { (held[1] != 0) -> w = 1 } goto complete
#endif
#if DEPTH > 3
        :: atomic { (held[2] != 0) -> w = 2 } goto complete
        :: atomic { (held[3] != 0) -> w = 3 } goto complete
#endif
        fi;
        goto done;
complete:
        may_die;
        sequence = held[w];
        held[w] = 0;
        may_die;
#ifdef WAKE_FIRST
        atomic {
                if
                :: waiting[w] && asleep == w + 1 -> asleep = 0
                :: else
                fi
        }
#endif
        d_step {
                assert(!completed[number[w]]);
                completed[number[w]] = true;
                completion[w] = sequence;
                answer[w] = number[w]
        }
        may_die;
#ifndef WAKE_FIRST
        if
        :: waiting[w] ->
                may_die;
                atomic {
                        if
                        :: asleep == w + 1 -> asleep = 0
                        :: else
                        fi
                }
        :: else
        fi;
#endif
        goto serve;
done:
        skip
}

init {
        atomic {
                run client();
                run executor()
        }
}
