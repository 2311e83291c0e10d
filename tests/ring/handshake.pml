/* SPDX-License-Identifier: MIT */
/*
 * Both sleep handshakes on a machine with store buffers (x86; the two directions of Dekker's pattern).
 *
 * A client publishes N requests one by one and waits for each. Its line and its `waiting` go through its store buffer, the executor's
 * need_wake and completion through the other; each buffer drains in order, at any time. A fence waits until the own buffer is empty.
 * The event is an edge: it is set by a write and taken by the wait, and nothing reads the eventfd. The futex compare in the kernel is done
 * without a fence, so the fences of the code have to suffice. A lost wake-up is an invalid end state.
 *
 * To be found as errors: -DNO_FENCE_PUBLISH -DNO_FENCE_SLEEP -DNO_RESCAN -DNO_FENCE_COMPLETE -DNO_FENCE_WAIT -DNO_COMPARE
 */
#ifndef N
#define N 3
#endif

#define LINE 0
#define NEED_WAKE 1
#define COMPLETION 2
#define WAITING 3
#define N_WORDS 4
#define CLIENT 0
#define EXECUTOR 1

byte memory[N_WORDS];
bool event = false;
bool asleep = false; /* the client in its futex */

chan buffer_client = [3] of { byte, byte };
chan buffer_executor = [3] of { byte, byte };

#define put(b, word, value) b!word, value
#define fence(b) (empty(b))

/* the youngest own store is seen before memory; here no thread reads what it writes, so memory is enough */

active proctype drain_client() {
        byte word, value;
end:    do
        :: d_step { buffer_client?word, value -> memory[word] = value }
        od
}

active proctype drain_executor() {
        byte word, value;
end:    do
        :: d_step { buffer_executor?word, value -> memory[word] = value }
        od
}

active proctype client() {
        byte k = 0;

        do
        :: k < N ->
                k++;
                put(buffer_client, LINE, k);
#ifndef NO_FENCE_PUBLISH
                fence(buffer_client);
#endif
                if
                :: memory[NEED_WAKE] -> event = true
                :: else
                fi;
                /* ring_producer_wait */
                if
                :: memory[COMPLETION] == k -> goto harvested
                :: memory[COMPLETION] != k
                fi;
                put(buffer_client, WAITING, 1);
#ifndef NO_FENCE_WAIT
                fence(buffer_client);
#endif
                do
                :: memory[COMPLETION] == k -> break
                :: memory[COMPLETION] != k ->
                        atomic {
                                if
#ifdef NO_COMPARE
                                :: asleep = true
#else
                                :: memory[COMPLETION] != k -> asleep = true
                                :: else
#endif
                                fi
                        }
                        (!asleep)
                od;
                put(buffer_client, WAITING, 0);
harvested:      skip
        :: else -> break
        od
}

active proctype executor() {
        byte next = 1;

        do
        :: next > N -> break
        :: else ->
                if
                :: memory[LINE] == next ->
                        put(buffer_executor, COMPLETION, next);
#ifndef NO_FENCE_COMPLETE
                        fence(buffer_executor);
#endif
                        if
                        :: memory[WAITING] -> asleep = false
                        :: else
                        fi;
                        next++
                :: memory[LINE] != next ->
                        put(buffer_executor, NEED_WAKE, 1);
#ifndef NO_FENCE_SLEEP
                        fence(buffer_executor);
#endif
                        if
#ifndef NO_RESCAN
                        :: memory[LINE] == next
                        :: memory[LINE] != next ->
#else
                        :: true ->
#endif
                                d_step { event -> event = false }
                        fi;
                        put(buffer_executor, NEED_WAKE, 0)
                fi
        od
}
