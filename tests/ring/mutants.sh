#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves that the model checker can fail: each mutant below breaks one line of ring/, and model_ring has to find it.
# usage: mutants.sh CC SOURCE_DIR     (SOURCE_DIR: top of the tree)
set -eu
cc=$1
top=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=gnu17 -O2 -D_GNU_SOURCE -DRING_WORDS=3 -DRING_WAIT_YIELDS=0 -w -I$top/include"
model="-include $top/tests/ring/model_atomics.h"
$cc $flags -I"$top" -c "$top/tests/ring/model.c" -o "$work/model.o"
$cc $flags -I"$top" -c "$top/tests/ring/model_state.c" -o "$work/model_state.o"
n=0
failed=0

# mutant NAME FILE SCENARIO SED...
mutant() {
        try found "$@"
}

# A change that the model proves harmless. Listed, so that nobody thinks the line it drops is what holds the ring together.
equivalent() {
        try kept "$@"
}

try() {
        expected=$1
        shift
        name=$1 file=$2 scenario=$3
        shift 3
        rm -rf "$work/ring"
        mkdir "$work/ring"
        cp "$top"/ring/*.[ch] "$work/ring/"
        sed -E -i "$@" "$work/ring/$file"
        n=$((n + 1))
        if cmp -s "$work/ring/$file" "$top/ring/$file"; then
                echo "$name: the mutation changes nothing; $file has moved on, so must this list"
                failed=$((failed + 1))
                return
        fi
        $cc $flags -I"$work" -I"$top" $model "$top/tests/ring/model_ring.c" "$work/ring/producer.c" "$work/ring/consumer.c" \
                "$work/model.o" "$work/model_state.o" -o "$work/model_ring"
        status=0
        "$work/model_ring" "$scenario" >"$work/out" 2>&1 || status=$?
        case $expected-$status in
        found-1 | found-134) echo "$name: found ($(sed -n 1p "$work/out"))" ;; # a check, or an assert of ring/ itself
        kept-0) echo "$name: equivalent" ;;
        *)
                echo "$name: should be $expected, $scenario ended with status $status"
                failed=$((failed + 1))
                ;;
        esac
}

# The functions below take one function's body as the range of their sed expression.
publish='/^int ring_producer_publish/,/^}/'
must_wake='/^bool ring_producer_must_wake/,/^}/'
wait='/^int ring_producer_wait/,/^}/'
poll='/^int ring_producer_poll/,/^}/'
look='/^static bool consumer_look/,/^}/'
read='/^static bool line_read/,/^}/'
complete='/^void ring_consumer_complete/,/^}/'
completion='/^void ring_consumer_publish/,/^}/'
fence='/^void ring_consumer_fence/,/^}/'
wake='/^void ring_consumer_wake/,/^}/'
sleep='/^bool ring_consumer_sleep/,/^}/'
init='/^void ring_consumer_init/,/^}/'
latch='/^int ring_consumer_latch/,/^}/'
relatch='/^int ring_consumer_relatch/,/^}/'
left='/^static void consumer_wake_completed/,/^}/'
full='atomic_thread_fence\(memory_order_seq_cst\);'
weak='atomic_thread_fence(memory_order_acq_rel);'

mutant "publish without its release fence" producer.c in_order "$publish s/atomic_thread_fence\(memory_order_release\);//"
mutant "publish into a slot in flight" producer.c in_order "$publish s/if \(p->in_flight/if (0 \&\& p->in_flight/"
mutant "need_wake read without a fence" producer.c in_order "$must_wake s/$full//"
mutant "need_wake read after a weaker fence" producer.c in_order "$must_wake s/$full/$weak/"
# The kernel puts a full fence before its own compare; ours makes the handshake whole without knowing that.
equivalent "waiting announced without a fence" producer.c in_order "$wait s/$full/$weak/"
mutant "waiting not announced" producer.c in_order "$wait s/waiting\[slot\], 1/waiting[slot], 0/"
mutant "waiting wiped out by another waiter" producer.c two_waiters \
        "$wait s/atomic_fetch_sub_explicit\(&p->waiting\[slot\], 1/atomic_fetch_and_explicit(\&p->waiting[slot], 0/"
mutant "no look between announcing and sleeping" producer.c in_order \
        "$wait s/if \(\(uint32_t\)word == sequence/if (word >> 32 == 0x7fffffff/"
mutant "poll without acquire" producer.c in_order "$poll s/memory_order_acquire/memory_order_relaxed/"
mutant "wait without acquire" producer.c in_order "$wait s/memory_order_acquire/memory_order_relaxed/"
mutant "line read without its acquire fence" consumer.c in_order "$read s/atomic_thread_fence\(memory_order_acquire\);//"
mutant "only the first cell compared" consumer.c in_order "$read s/if \(\(uint32_t\)\(cell/if (!i \&\& (uint32_t)(cell/"
# Then a new line may be passed over once, but ring_consumer_sleep looks again after its fence.
equivalent "busy looked at before the line" consumer.c two_threads \
        "$look s/!line_read\(.*\) \|\| consumer_busy\(c, slot\)/consumer_busy(c, slot) || !line_read(\&c->lines[slot], sequence, \&request)/"
mutant "busy cleared after the completion" consumer.c two_threads \
        "$completion {/atomic_fetch_and_explicit/{h;d};/atomic_store_explicit/{G}}"
mutant "busy not cleared" consumer.c in_order "$completion {/atomic_fetch_and_explicit/d}"
mutant "completion without release" consumer.c in_order "$completion s/sequence, memory_order_release/sequence, memory_order_relaxed/"
mutant "waiting read without a fence" consumer.c in_order "$fence s/$full//"
mutant "waiting read after a weaker fence" consumer.c in_order "$fence s/$full/$weak/"
mutant "waiting read before the completion" consumer.c in_order \
        "$complete {/ring_consumer_publish/{h;d};/ring_consumer_wake/{G}}"
mutant "no wake-up after a completion" consumer.c in_order "$wake s/ring_futex_wake.*;/;/"
mutant "sleep without a fence" consumer.c in_order "$sleep s/$full//"
mutant "sleep after a weaker fence" consumer.c in_order "$sleep s/$full/$weak/"
mutant "sleep without another look" consumer.c in_order "$sleep s/return ring_consumer_peek.*/return false;/"
mutant "sleep looks before it announces" consumer.c in_order \
        "$sleep {s/struct ring_request request;/struct ring_request request; bool r = ring_consumer_peek(c, \&request) == RING_OK;/;s/return .*/return r;/}"
mutant "next not kept for a successor" consumer.c kill "$latch s/atomic_store_explicit\(&c->header->next.*/;/"
mutant "next kept too late" consumer.c kill "$latch s/&c->header->next, next/\&c->header->next, sequence/"
mutant "successor starts anew" consumer.c kill "$init s/next \? next : first/first/"
mutant "successor does not wake" consumer.c kill "$init s/consumer_wake_completed\(c\);/;/"
mutant "successor reads waiting without a fence" consumer.c kill "$left s/$full//"
mutant "completed requests yielded again" consumer.c kill "$relatch s/ \|\| consumer_completed\(c, sequence\)//"
mutant "relatch leaves the slot free" consumer.c kill "$relatch s/consumer_set_busy\(.*\);/;/"
mutant "relatch looks back one too few" consumer.c kill_held "s/: next - c->layout.depth;/: next - c->layout.depth + 1;/"
mutant "the irregular lap forgotten" consumer.c kill_wrap "s/return next <= c->layout.depth \?.* : /return /"
mutant "sequence 0 used" line.h kill_wrap "s/return a \+ 1 \? a \+ 1 : 1;/return a + 1;/"

echo "$n mutants, $failed wrong"
[ "$failed" = 0 ]
