#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves that the tests of the interpreter can fail: each mutant below breaks one thing in a copy of gpu/device, and the
# test that it names has to find it.
# One in sixteen is tried, by $RAILMUX_SEED; with RAILMUX_FULL=1 all. That each changes something is looked at always.
# A mutant that hangs spins. So each test is run once without a mutation, where it has to pass, and what takes several
# times as much of a processor is taken for hanging: machines differ, and how busy one is must not matter.
# usage: interpreter_mutants.sh CXX SOURCE_DIR LIBRARY...     (SOURCE_DIR: top of the tree; what the tests link with)
set -eu
cxx=$1
top=$2
shift 2
libraries=$*
every=16
[ "${RAILMUX_FULL:-0}" != 1 ] || every=1
turn=$((${RAILMUX_SEED:-1} % every))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=gnu++17 -O0 -D_GNU_SOURCE -DBELL_LANES=16u -DTASK_MAX=64u -DTASK_VECTORS=8u -DTASK_PARTS_FAR=32u -DTABLE_BURSTS=2u -ffp-contract=off -fno-strict-aliasing -w"
here=$top/tests/device
n=0

tests="test_burst test_hostile test_hot test_interpret test_mismatch test_nodes test_order test_reach test_served test_stages test_tables test_wraps"
for source in fiber collective_cases traffic $tests; do
        $cxx $flags -I"$top" -I"$top/include" -c "$here/$source.cc" -o "$work/$source.o" &
        n=$((n + 1))
        [ $((n % 3)) != 0 ] || wait
done
wait
for source in tests/device/nodes gpu/hip/error gpu/plane; do
        $cxx -x c ${flags#-std=* } -std=gnu17 -I"$top" -I"$top/include" -c "$top/$source.c" -o "$work/${source##*/}.o"
done

# make FOLDER TEST : FOLDER/test, with the sources that are in FOLDER. False: FOLDER/out says why not.
make() {
        more=$1/programs.o
        {
                $cxx $flags -I"$1" -I"$top" -I"$top/include" -c "$here/emulator.cc" -o "$1/emulator.o" &&
                        $cxx -x c ${flags#-std=* } -std=gnu17 -I"$1" -I"$top" -I"$top/include" -c "$1/gpu/hip/programs.c" -o "$more"
        } 2>"$1/out" || return 1
        if [ "$2" = test_nodes ] || [ "$2" = test_stages ]; then
                more="$more $1/wires.o $work/nodes.o $work/error.o $work/plane.o"
                $cxx -x c ${flags#-std=* } -std=gnu17 -I"$1" -I"$top" -I"$top/include" -c "$1/gpu/hip/wires.c" -o "$1/wires.o" 2>"$1/out" ||
                        return 1
        fi
        $cxx "$work/$2.o" $more "$work/fiber.o" "$work/collective_cases.o" "$work/traffic.o" "$1/emulator.o" $libraries -lm \
                -o "$1/test" 2>"$1/out"
}

# copy FOLDER : what mutants change
copy() {
        mkdir -p "$1/gpu/device" "$1/gpu/hip"
        cp "$top"/gpu/device/*.h "$1/gpu/device/"
        cp "$top/gpu/mirror.h" "$1/gpu/"
        cp "$top/gpu/hip/wires.c" "$top/gpu/hip/programs.c" "$top/gpu/hip/programs.h" "$top/gpu/hip/copies.h" "$1/gpu/hip/"
}

# measure TEST : how many seconds of a processor a mutant may take, into $work/TEST.limit; none if it fails unchanged
measure() {
        copy "$work/$1"
        make "$work/$1" "$1" || { cat "$work/$1/out" && return; }
        (
                RAILMUX_SEED=1 RAILMUX_FULL=0 "$work/$1/test" >"$work/$1/out" 2>&1 || { cat "$work/$1/out" && exit; }
                times | awk 'NR == 2 { split($1, at, "[ms]"); print int(10 + 4 * (60 * at[1] + at[2])) }' >"$work/$1.limit"
        )
        rm -rf "$work/$1"
}

n=0
for test in $tests; do
        measure "$test" &
        n=$((n + 1))
        [ $((n % 2)) != 0 ] || wait
done
wait
for test in $tests; do
        [ -s "$work/$test.limit" ] || { echo "$test fails without any mutation" && exit 1; }
done
n=0

# mutant NAME FILE[,FILE...] TEST SED...
mutant() {
        start found "$@"
}

# A change that does no harm, with the reason. Listed, so that nobody thinks that it is what holds things together.
equivalent() {
        start kept "$@"
}

# Two at a time: who begins takes a line out of the pipe, and puts it back when it ends, however it does.
mkfifo "$work/places"
exec 3<>"$work/places"
printf '\n\n' >&3
start() {
        read -r _ <&3
        n=$((n + 1))
        mkdir "$work/$n"
        (
                trap 'echo >&3' EXIT
                try "$work/$n" "$@" >"$work/$n.report" 2>&1 || echo "$3: failed itself" >>"$work/$n.report"
        ) &
}

try() {
        at=$1 expected=$2 name=$3 file=$4 test=$5
        shift 5
        copy "$at"
        for one in $(echo "$file" | tr , ' '); do
                case $one in
                hip/*) one=gpu/$one ;;
                *.c) one=gpu/hip/$one ;;
                *) one=gpu/device/$one ;;
                esac
                sed -E -i "$@" "$at/$one"
                if cmp -s "$at/$one" "$top/$one"; then
                        echo "$name: wrong: the mutation changes nothing; $one has moved on, so must this list"
                        return
                fi
        done
        if [ $((n % every)) != "$turn" ]; then
                rm -rf "$at"
                return
        fi
        if ! make "$at" "$test"; then
                echo "$name: wrong: cannot be built: $(grep -m1 'error\|undefined' "$at/out")"
                return
        fi
        status=0
        limit=$(cat "$work/$test.limit")
        [ "$expected" = found ] || limit=$((limit * 10)) # some do nothing but take time
        for seed in 1 2 3 4; do # tests draw samples; what does no harm is looked at once
                (ulimit -c 0 && ulimit -t "$limit" && RAILMUX_SEED=$seed RAILMUX_FULL=0 timeout -s KILL $((limit * 20)) "$at/test") >"$at/out" 2>&1 || status=$?
                [ "$status" = 0 ] && [ "$expected" = found ] || break
        done 2>/dev/null # where the shell says that a test was aborted
        case $expected-$status in
        found-0 | kept-[1-9]*) echo "$name: wrong: should be $expected, $test ended with status $status" ;;
        found-*) echo "$name: found by $test ($(grep -v RAILMUX_SEED "$at/out" | sed -n 1p))$([ "$status" -lt 128 ] || echo ", status $status")" ;;
        *) echo "$name: equivalent" ;;
        esac
        rm -rf "$at"
}

# Bodies of functions, as ranges of sed expressions.
room='/^DEVICE bool run_to/,/^}/'
room_for='/^DEVICE bool run_room/,/^}/'
from='/^DEVICE bool run_from/,/^}/'
arrived='/^DEVICE bool run_arrived/,/^}/'
pushed='/^DEVICE void run_pushed/,/^}/'
resume='/^DEVICE uint32_t run_resume/,/^}/'
unit_sum='/^DEVICE bool unit_sum/,/^}/'
copy_packets='/DEVICE bool copy_packets/,/^}/'
find_rank='/^DEVICE uint32_t take_find_rank/,/^}/'
address='/^DEVICE uint64_t take_address/,/^}/'
check='/^DEVICE uint32_t take_check/,/^}/'
refresh='/^DEVICE_OUTLINE void worker_refresh/,/^}/'
forget='/^DEVICE void memo_forget\(/,/^}/'
forget_buffer='/^DEVICE void memo_forget_buffer/,/^}/'
refresh_few='/^DEVICE_OUTLINE bool worker_refresh_few/,/^}/'
save='/^DEVICE_OUTLINE void worker_save/,/^}/'
restore='/^DEVICE_OUTLINE void worker_restore/,/^}/'
task_run='/^DEVICE bool task_run\(/,/^}/'
acknowledge='/^DEVICE_OUTLINE void worker_acknowledge/,/^}/'

# ---- chunks and credits
mutant "credit not looked at" part.h test_order "$room s/room = false;/room = true;/"
mutant "one credit too many" part.h test_order "$room s/>= \(int32_t\)slots/> (int32_t)slots/"
mutant "room never looked at again" part.h test_order "$room s/r->counter->room\[region\]\[p\] = word/uint32_t unused = word/"
mutant "room believed before it is looked at" task_run.h test_order "s/c->pushed\[region\]\[p\] - WIRE_SLOTS;/c->pushed[region][p];/"
# It is looked at all the same.
equivalent "less room believed than there can be" task_run.h test_order "s/c->pushed\[region\]\[p\] - WIRE_SLOTS;/c->pushed[region][p] - WIRE_SLOTS - 1;/"
mutant "packets numbered from 0" part.h test_interpret "$room s/= pushed \+ 1;/= pushed;/"
mutant "bulk chunks numbered from 0" part.h test_interpret "$pushed s/\+\+r->counter->pushed\[region\]\[p\]\)/r->counter->pushed[region][p]++)/"
mutant "bulk flags not waited for" part.h test_interpret "$from s/return spins < r->spins;/return true;/"
mutant "only one slot" part.h test_interpret "$from s/r->lane, taken, p\)/r->lane, 0, p)/"
mutant "credit given twice" part.h test_interpret "s/\+\+r->counter->taken\[region\]\[p\]/(r->counter->taken[region][p] += 2)/"

# ---- a part in pieces
mutant "progress forgotten" part.h test_interpret "$resume s/return .*;/return 0;/"
mutant "progress of another phase" part.h test_interpret "$resume s/== phase_number \+ 1/!= 0/"
mutant "a reduction's progress overwritten" phase_copy.h test_order "$copy_packets s/if \(!r->task->begun .*/if (1)/"

# ---- what comes out
mutant "fold in reverse" phase_reduce.h test_interpret "s/for \(uint32_t p = 1; p < r->n; p\+\+\)/for (uint32_t p = r->n - 1; p > 0; p--)/"
mutant "sum of the wrong ranks" quick.h test_interpret "s/ret_value\[i\]\[p\] = /ret_value[i][N - 1 - p] = /"
mutant "usual requests: credit not looked at" quick.h test_order "s/return warp_all\(room\);/return true;/"
mutant "usual requests: packets not waited for" quick.h test_interpret "s/all = warp_all\(all\);/all = true;/"
mutant "usual requests: inbox not waited for" quick.h test_interpret "s/ready = warp_all\(ready\);/ready = true;/"
mutant "usual requests: the same slot again" quick.h test_interpret "s/\+ pushed % STAGING_SLOTS \*/+ 0 */"
mutant "usual requests: tails taken for full parts" quick.h test_interpret "s/return end <= q->stride \&\& .*/return true;/"
mutant "usual requests: the last piece taken for as long as the others" quick.h test_interpret "s/ \&\& \(quick_whole\(MODE\) \|\| .*;/;/"
mutant "usual requests: what is left begins anew" serve.h test_order "s/STAGING_DATA_LANES \* direct_done\(.*\);/0;/"
mutant "staying: no credit" hot.h test_hot "s/^( *)quick_taken<N>\(\&q, quick_last\(mode\)\);/\1;/"
mutant "staying: reduced twice" hot.h test_hot "s/done\[1\] = 1;/done[1] = 0;/"
mutant "staying: what is left is served again" hot.h test_hot "s/^( *)\(void\)hot_next\(w, ring, m, next\);/\1;/"
mutant "staying: memory of the request before" hot.h test_hot "s/q.in = m->task.in;/q.in = w->memo->task.in;/"
mutant "staying: sequence not kept" hot.h test_hot "s/state->sequence = sequence;/;/"
mutant "staying: another communicator's request" hot_wait.h test_hot "s/m->task.rank == form->rank/true/"
mutant "staying: a request of another length" hot_wait.h test_hot "s/m->task.stride == form->stride/true/; s/m->task.total == form->total/true/"
mutant "staying: other rings not looked at" hot_wait.h test_hot "s/others = others \|\|/others = false \&\&/"
mutant "staying: a root's request with another root" hot_root.h test_hot "s/ \|\| m->task.root != root\)/)/"
mutant "staying: a part that is not full taken for one" hot.h test_hot "s/if \(end > k->stride \|\|/if (/"
mutant "staying: not with a part that is not full" hot.h test_hot "s/^( *)hot_ranks<INLINE, 0>\(w\);/\1;/"
mutant "staying: not with a root's requests" hot.h test_hot "s/else if \(quick_rooted\(.*/else if (quick_rooted(w->memo->task.quick)) {}/; s/^ *inlined \? hot_roots.*//"
mutant "staying: a root that does not wait for room" quick.h test_hot "s/return warp_all\(room\);/return true;/"
mutant "staying: a root's chunks kept" hot_root.h test_hot "s/quick_root_taken<N>\(\&q, MODE, root\);/;/"
mutant "staying: a root's request left is served again" hot_root.h test_hot "s/^( *)\(void\)hot_next\(w, ring, m, next\);/\1;/"
mutant "staying: memory of the root's request before" hot_root.h test_hot "s/q.out = m->task.out;/q.out = w->memo->task.out;/"
mutant "a root: everybody pushes" quick_root.h test_interpret "s/return mode == QUICK_REDUCE \|\| root;/return true;/"
mutant "a root: everybody reduces" quick_root.h test_hot "s/return mode == QUICK_BROADCAST \|\| root;/return true;/"
mutant "a root: room at another rank" quick.h test_hot "s/\(ONE \&\& p != one\) \|\|\$/(ONE \&\& p != (one + 1) % N) ||/"
mutant "a root: packets not waited for" quick_root.h test_interpret "s/all = warp_all\(all\);/all = true;/"
mutant "a root: inbox not waited for" quick_root.h test_hot "/if \(!quick_inbox/,/return false;/ s/return false;/;/"
mutant "a root: another rank's place" quick_root.h test_hot "s/pushed % STAGING_SLOTS \* N \+ q->me/pushed % STAGING_SLOTS * N + root/"
mutant "a root: the same slot again" quick_root.h test_interpret "s/taken % STAGING_SLOTS \* N/0 * N/"
mutant "a root: units of the part before" quick_root.h test_interpret "s/quick_deliver<INLINE>\(q, at \+ k/quick_deliver<INLINE>(q, 8 * q->thread + k/"
mutant "a root: its chunk given back to nobody" quick_root.h test_interpret "s/quick_taken<N, true>\(q, 0, root\);/;/"
mutant "a root: sums given back to one" quick_root.h test_hot "s/quick_taken<N>\(q, 0\);/quick_taken<N, true>(q, 0, root);/"
mutant "a root: its own output left as it is" quick_root.h test_interpret "s/ \&\& q->in == q->out\)\$/)/"
mutant "a root: what is left begins anew" direct.h test_order "s/resumed \? task->part\[1\] : first - 1, \&ended/first - 1, \&ended/"
mutant "a root: one round ahead of itself too many" direct.h test_hot "s/pushed.n <= ended.n \+ d.lanes/1/"
mutant "a root: tells nobody" quick_check.h test_mismatch "s/sent = out \? quick_tell<false>\(s, c, call, 0\)/sent = out ? true/"
mutant "a root: is not told" quick_check.h test_mismatch "s/: quick_tell<true>\(s, c, call, root\);/: true;/"
mutant "a root: not compared with" quick_check.h test_mismatch "s/out \? quick_hear<true>\(.*/out ? true/"
mutant "a root: compares with nobody" quick_check.h test_mismatch "s/: quick_hear<false>\(s, c, call, 0, spins, \&status\);/: true;/"
mutant "a root: parts of the phase that it has" fill.h test_interpret "s/quick_rooted\(t->quick\) \&\& .* \? take_parts\(k\) : //"
mutant "usual requests: tail too long" quick.h test_interpret "s/return x < q->stride \&\& .*;/return x < q->stride;/"
mutant "tail of the shards too long" part.h test_interpret "s/t->count - span.offset < t->shard \? t->count - span.offset : t->shard/t->shard/"
mutant "factor left out" part.h test_interpret "s/return r->task->redop == RMX_PREMUL_SUM \?/return 0 ?/"
# It copies what is there to where it is.
equivalent "copies onto itself" phase_copy.h test_interpret "s/if \(in == out && /if (0 \&\& /"

# ---- lanes that parts are made for
mutant "as many lanes as there are" fill.h test_tables "s/lanes \? lanes : STAGING_DATA_LANES/STAGING_DATA_LANES/"
mutant "no number of lanes taken for one" fill.h test_tables "s/lanes \? lanes : STAGING_DATA_LANES/lanes ? lanes : 1/"
mutant "lanes not cached" take.h test_tables "s/^                c->index = index;/c->lanes = 0;&/"

# ---- lines
mutant "root not checked" take.h test_hostile "$check s/k->root >= c->n_ranks/0/"
mutant "end of a buffer not checked" take.h test_hostile "$address s/ \|\| bytes > cache->bytes - offset//"
mutant "end of a buffer overflows" take.h test_hostile "$address s/offset > cache->bytes \|\| bytes > cache->bytes - offset/offset + bytes > cache->bytes/"
mutant "handles of other rings" take.h test_hostile "$find_rank s/of == ring && //"
mutant "buffers of other rings" take.h test_hostile "$address s/of == ring &&/1 \&\&/"
mutant "buffers of other rings, while cached" take.h test_hostile "$address s/ \|\| cache->ring != ring//;s/id \+ 2 \* ring/id/"
mutant "counts of any size" take.h test_hostile "s/if \(k->count >> 44\)/if (0)/"
mutant "inline requests of any size" take.h test_hostile "$check s/take_inline_fits\(k\)/1/"
mutant "arguments from anywhere" take.h test_hostile "s/argument \/ BELL_ARGUMENT_BYTES < BELL_DEPTH/1/"
mutant "lines of a later epoch" take.h test_hostile "$check s/ \|\| \(int32_t\)\(c->epoch - line\[RING_W_EPOCH\]\) < 0//"
mutant "sequence not checked" serve.h test_hostile "s/const bool right = sequence == .*;/const bool right = true;/"
mutant "places not counted" vector.h test_order "s/if \(used \+ want > most\)/if (0)/;s/return used \+ want \+ kept <= most;/return true;/"
mutant "places for whoever comes first" vector.h test_hostile "s/kept \+= own - held\[i\];/;/;s/kept = own;/kept = 0;/"
# Others have their turn all the same, later.
equivalent "a ring without a place looked at for ever" poll.h test_hostile "s/ \&\& !\(s->full >> ring \& 1\)//"
mutant "a ring without a place never looked at again" list.h test_hostile "s/s->full = 0;//"
mutant "a ring that never stops" poll.h test_hostile "s/\|\| others_first/|| 0/"
mutant "many lines of one ring before another's" poll.h test_hostile "s/POLL_STREAK 1u/POLL_STREAK 16u/"
mutant "places counted twice" list.h test_hostile "s/s->held\[ring\]--;/;/"
mutant "who has few requests waits for its turn" list.h test_hostile "s/each \? 0 : list_few\(w\)/0/"
mutant "no turns" list.h test_hostile "s/ \|\| i - turn < LIST_TURNS//"
mutant "turns that stay" list.h test_hostile "s/next_turn = turn \+ LIST_TURNS/next_turn = turn/"
mutant "tasks of a lane in any order" list.h test_order "s/behind = behind \|\| waiting.*;/;/"

# ---- what is called
# Who sends something, and who gets it, agree on the root already.
equivalent "root not compared" take.h test_mismatch "s/ \| k->root;/;/"
mutant "reduction not compared" take.h test_mismatch "s/ \| k->redop << 8//"
mutant "what is told has no sequence" take.h test_mismatch "s/return call \+ .*;/return call;/"
mutant "mismatch forgotten" task_run.h test_mismatch "s/state->broken = \*ret_status;/;/"
mutant "mismatch not told" task_run.h,serve.h test_mismatch \
        "s/lane_done\(t->area, t->ring_sequence, t->lane, status\)/lane_done(t->area, t->ring_sequence, t->lane, 0)/;s/lane_done\(m->task.area, ring_sequence, 0, status\)/lane_done(m->task.area, ring_sequence, 0, 0)/"

# ---- tables that change
mutant "memos kept" memo.h test_tables "$forget s/s->memo\[i\].ring = TABLE_RINGS;/;/"
mutant "far memos kept" memo.h test_tables "s/!warp_all\(epoch == w->epoch\) \|\| //"
mutant "buffers kept" update.h test_tables "$refresh s/s->buffer\[i\].id = 0;/;/"
mutant "memo of a buffer kept" memo.h test_tables "$forget_buffer s/s->memo\[i\].ring = TABLE_RINGS;/;/"
mutant "far memo of a buffer kept" memo.h test_tables "s/w->scratch->memos\[i\].memo.ring = TABLE_RINGS;/;/"
mutant "far memo of another line" memo.h test_hot "s/ \|\| !memo_fits\(w, \&f->memo, ring, word\)//"
mutant "far memo not fetched" memo.h test_hot "s/\(void \*\)m\)\[i\] = value\[k\];/(void *)m)[i];/"
mutant "one buffer kept" update.h test_tables "$refresh_few s/s->buffer\[k\].id = 0;/;/"
mutant "changes of another version" update.h test_tables "$refresh_few s/if \(!warp_all.*/if (0)/"
mutant "plan kept" update.h test_tables "$refresh s/s->cached_plan = 0;//"
mutant "choices kept" update.h test_tables "$refresh s/s->cached_choices = ~0u;//"
mutant "rank kept" update.h test_tables "$refresh s/s->rank.index = TABLE_RANKS;//"
mutant "abort not seen by what is under way" update.h,task_run.h test_tables "$acknowledge s/else if \(abort\)/else if (0)/; $task_run s/if \(s->rank.abort .*/if (0) {/"
memory_gone='/^DEVICE bool worker_memory_gone/,/^}/'
mutant "kept: whoever has the rank's place" update.h test_tables "$acknowledge s/same = key == t->key;/same = true;/"
mutant "kept: reported as another's" update.h test_tables "$acknowledge s/if \(same \&\& t->role/if (t->role/"
mutant "kept: the key that is there" fill.h test_tables "s/t->key = s->rank.key;/t->key = 0;/"
mutant "kept: whatever lies there" take.h test_tables "s/ \&\& address \+ offset == at//"
mutant "kept: what is shorter now" take.h test_tables "s/ \&\& offset \+ bytes <= size//"
mutant "kept: a vector without an end" update.h test_tables "$memory_gone s/k.out_bytes \*= t->element_bytes;/k.out_bytes = 0;/"
mutant "kept: a root like others" update.h test_tables "$memory_gone s/t->root == word_load\(\&rank->rank\)/false/"
mutant "one more after the last" task_run.h,serve.h test_wraps "s/- s->rank.last\) > 0/- s->rank.last - 1) > 0/"

# ---- memory of other ranks
reach_over='/^DEVICE void reach_over/,/^}/'
reach_room='/^DEVICE bool reach_room/,/^}/'
mutant "reaching: credit not looked at" reach.h test_reach "$reach_room s/return warp_all\(room\);/return true;/"
mutant "reaching: nobody is waited for" reach.h test_reach "s/there = warp_all\(there\);/there = true;/"
mutant "reaching: a no taken for a yes" reach.h test_reach "s/yes = yes \&\& word >> 32 == 1;/;/"
mutant "reaching: always yes" fill.h test_reach "s/t->reaches = take_reaches.*/t->reaches = 1;/"
mutant "reaching: yes for memory that is mapped somewhere" fill.h test_reach "s/\& gpus\) == gpus;/\& gpus) != 0;/"
mutant "reaching: whatever is called" reach.h test_reach "s/ \&\& word != call\)/ \&\& 0)/"
mutant "reaching: memory that was taken out" reach.h test_reach "s/key != 2 \|\|/0 ||/"
mutant "reaching: beyond the end" reach.h test_reach "s/ \|\| bytes > have - offset//"
mutant "reaching: broken, and goes on" reach.h test_reach "s/return reach_break\(\&r, RMX_E_INVALID.*/;/"
mutant "reaching: another call not told" reach.h test_reach "s/return reach_break\(\&r, RMX_E_MISMATCH.*/return REACH_WAITS;/"
mutant "reaching: workers beyond the lanes" serve.h test_reach "s/ \&\& w->index < STAGING_LANES//; s/m->task.reach \&\& m->parts >/m->task.spread < STAGING_DATA_LANES \&\& &/"
equivalent "reaching: workers beyond the lanes, but not beyond the parts (of which there are as many as lanes at most)" serve.h test_reach "s/ \&\& w->index < STAGING_LANES//"
mutant "reaching: told when a rank leaves, or memory goes" reach.h test_reach "s/ \|\| \(aborted \&\& !freeze\)/ || !freeze/"
mutant "reaching: another rank's share" reach_data.h test_reach "s/\(uint64_t\)me \* t->stride;/(uint64_t)(N - 1 - me) * t->stride;/"
mutant "reaching: the last share as long as the others" reach_data.h test_reach "s/: t->total - mine < t->stride \? t->total - mine : t->stride;/: t->stride;/"
mutant "reaching: units of another part" reach_data.h test_reach "s/\(i >> u->shift\) \* u->step/(i >> u->shift) * (u->step + 16)/"
mutant "reaching: everybody has the same parts" reach_data.h test_reach "s/t->spread \* share, step/0 * share, step/"
# The root's links carry more.
equivalent "reaching: the root has a share, too" reach_data.h test_reach "s/n_ranks > 2 \? n_ranks - 1 : n_ranks;/n_ranks;/"
mutant "reaching: the root's own output forgotten" reach_data.h test_reach "s/me != t->root \|\| t->in == t->out/1/"
mutant "reaching: of two ranks' broadcast the root copies only its own share" reach_data.h test_reach "s/reach_units_init\(t, me, 0, n_ranks > 2 \? 1 : n_ranks, u\);/reach_units_init(t, me, n_ranks == 2, n_ranks > 2 ? 1 : n_ranks, u);/"
mutant "reaching: what the root copies begins anew with each turn" reach_data.h test_reach "s/from > share \? from - share : 0, until - share\);/0, from > share ? 1 : until - share);/"
mutant "reaching: what others pass on goes to the root, not to the last rank" reach_data.h test_reach "s/\+ \(first \+ p >= without\)\]/]/"
mutant "reaching: the wrong transport afterwards" reach.h test_reach "s/r->t->transport = r->t->through;/;/"
mutant "reaching: turns forgotten" reach.h test_reach "s/return until == n;/return true;/"
mutant "reaching: done twice" reach.h test_reach "s/r->t->reached = until;/;/"
mutant "reaching: left before the others" reach.h test_reach "s/return warp_all\(alone\);/return true;/"
mutant "reaching: chunks kept" reach.h test_reach "s/^( *)reach_taken\(\&r, 1\);/\1;/"
mutant "reaching: packets kept" reach.h test_reach "$reach_over s/reach_taken\(\&r, 0\);/;/"
mutant "reaching: remembered whatever others enter with" reach.h test_reach "s/same = same \&\& .*/;/"
mutant "reaching: remembered whatever this rank asks for" reach.h test_reach "s/name\[i\] == reach_name\(r, i\)/(i == 1 || &)/; s/mixed >> 16 \& \(WORKER_REACHES - 1\)/0/"
mutant "reaching: remembered though tables changed" reach.h test_reach "s/return \(uint64_t\)r->s->w.epoch << 32 \| r->s->w.version;/return 1;/"
mutant "reaching: told while others reach" update.h test_reach "s/reach_keeps\(w, t, abort/0 \&\& reach_keeps(w, t, abort/"
mutant "reaching: told at the next turn while others reach" task_run.h test_reach "s/if \(reach_keeps.*/if (0)/"

# ---- bursts
mutant "bursts: not taken back" update.h test_burst "s/reach_take_back\(w, t\);/;/"
mutant "bursts: kept when the kernel ends" worker.h test_burst "s/reach_take_back\(w, worker_task/(void)(w, worker_task/"
mutant "bursts: a running one not waited for" burst.h test_burst "s/while \(word_load\(\&job->state\) == burst_state\(number, BURST_RUNNING\)\)/while (0)/"
mutant "bursts: taken back, and runs" burst.h test_burst "s/return BURST_NO;/return BURST_YES;/"
mutant "bursts: moves before all have met" burst.h test_burst "s/burst_change\(job, number, BURST_POSTED, BURST_WAITING\)/burst_change(job, number, BURST_POSTED, BURST_RUNNING)/"
mutant "bursts: given up, and not asked for again" burst.h test_burst "s/return !gone;/return true;/"
mutant "bursts: nobody gives up" burst.h test_burst "s/else if \(last\)/else if (0)/"
mutant "bursts: asked for, and never taken back" reach.h test_burst "s/\(void\)burst_quiet\(\&s->w, t\);/;/"
mutant "bursts: the first block to end ends it" burst.h test_burst "s/\+ 1 < n_blocks/+ 1 < 1/"
mutant "bursts: another request's verdict" burst.h test_burst "s/\(uint32_t\)\(cell >> 32\) == t->sequence \? \(uint32_t\)cell : 0/(uint32_t)cell/"
mutant "bursts: a no told as a yes" reach.h test_burst "s/burst_tell\(s, t, BURST_NO\)/burst_tell(s, t, BURST_YES)/"
mutant "bursts: all lanes meet" reach.h test_burst "s/if \(t->burst \&\& t->lane != 1\)/if (0)/"
mutant "bursts: left before the data has been moved" reach.h test_burst "s/!burst_ended\(s, t, spins\) \|\| !reach_leave/!reach_leave/"
mutant "bursts: whatever the size" fill.h test_burst "s/most < least \|\|/0 ||/"
mutant "bursts: slices overlap" burst.h test_burst "s/from = slice \* n;/from = 0;/"
equivalent "bursts: what does not divide is left (parts have 16 units at least, and there are four slices at most)" burst.h test_burst "s/share \+ u.n \+ slices - 1\)/share + u.n)/"
mutant "reaching: few lanes, and workers for the others" serve.h test_reach "s/if \(m->task.reach \&\& m->parts > .*/if (0)/"
mutant "reaching: few lanes, and the short way after a no" reach.h test_reach "s/if \(r->t->spread != STAGING_DATA_LANES\)/if (0)/"
mutant "reaching: few lanes, and phases of others after a no" fill.h test_reach "s/ \&\& t->spread == STAGING_DATA_LANES \? take_parts/ ? take_parts/"
mutant "reaching: few lanes, and the steps of many" reach_data.h test_reach "s/step = t->spread \* shares/step = STAGING_DATA_LANES * shares/"

# ---- copies
mutant "copies: also of what is added up" copies.h test_burst "/copies_can/,/^}/ s/return .*/return true;/"
mutant "copies: whatever the size" fill.h test_burst "s/ \&\& most >= copies//"
mutant "copies: asked for before all have met" reach.h test_burst "s/t->burst == BURST_BY_KERNEL \&\& t->reaches/t->burst \&\& t->reaches/"
mutant "copies: blocks of others" copies.h test_burst "s/\(uint64_t\)p \* t->stride/(uint64_t)(p ^ 1) * t->stride/"
mutant "copies: a broadcast's shares overlap" copies.h test_burst "s/first = share \* most;/first = share * most \/ 2;/"
mutant "copies: no share where only some copy" copies.h test_burst "/copies_need_all/,/^}/ s/return .*/return false;/"
mutant "copies: what others say not listened to" reach.h test_burst "s/copies = copies \&\& word >> 32;/;/"
mutant "copies: passed on before it is there" copies.h test_burst "s/\(p - me - root\)/(p - me - 1)/"
mutant "copies: a root without its own output" copies.h test_burst "s/if \(root \&\& own\)/if (0)/"
equivalent "copies: memory onto itself (which takes time, and that is all)" copies.h test_burst "s/piece.from == piece.to \? 0 : piece.bytes/piece.bytes/"
mutant "copies: taken back as kernels are" reach.h test_burst "s/t->burst == BURST_BY_COPIES \? copies_quiet\(w, t\) : //"
mutant "copies: taken back without a word" copies.h test_burst "s/word_store\(\&w->report->copies\[place\].withdrawn, number\);/;/"
mutant "copies: taken back though they have begun" copies.h test_burst "s/if \(cell_load\(begun\) >> 32 == number\)/if (0)/"
mutant "copies: begun ones not waited for" copies.h test_burst "s/while \(word_load\(\&job->state\) == burst_state\(number, BURST_COPYING\) \&\&/while (0 \&\&/"
mutant "copies: waited for though they are passed" copies.h test_burst "s/cell_load\(begun\) != .*TABLE_BEGUN_PASSED\)\)/true)/"
mutant "copies: moved, and asked for again" copies.h test_burst "s/moved = word_load\(\&job->state\) == burst_state\(number, BURST_DONE\);/moved = 0;/"
mutant "copies: a place keeps the number that was withdrawn there" copies.h test_burst "s/word_store\(\&copies->withdrawn, number - 1\);/;/"
mutant "copies: withdrawn from the beginning" copies.h test_burst "s/word_store\(\&copies->withdrawn, number - 1\);/word_store(\&copies->withdrawn, number);/"
mutant "copies: the host does not say that it begins" hip/copies.h test_burst "s/__atomic_store_n\(begun, .*TABLE_BEGUN_YES.*/;/"
mutant "copies: the host does not look" hip/copies.h test_burst "s/if \(\(int32_t\)\(withdrawn - number\) < 0\)/if (1)/"
mutant "copies: later numbers are no withdrawal" hip/copies.h test_burst "s/\(int32_t\)\(withdrawn - number\) < 0/withdrawn != number/"
mutant "copies: the host does not say that it passes" hip/copies.h test_burst "s/__atomic_store_n\(begun, .*TABLE_BEGUN_PASSED.*/;/"

# ---- ranks on other nodes (what else the proxy does is for tests/gpu_hip/test_proxy.c)
mutant "far: not known" take.h test_nodes "s/\&from->far \+ \(i - run\)/\&from->session + (i - run)/"
mutant "far: usual requests go the short way" fill.h test_nodes "s/ \|\| shared_of\(w\)->rank.far\)/)/"
mutant "far: another's room" channel.h test_nodes "s/return \(const uint32_t \*\)wire_room\(/return (const uint32_t *)wire_given(/"
mutant "far: one credit too many" channel.h test_nodes "s/\? WIRE_SLOTS :/? WIRE_SLOTS + 1 :/"
mutant "far: as many slots as there" channel.h test_order "s/: STAGING_SLOTS;/: WIRE_SLOTS;/"
mutant "far: nobody is told of chunks" channel.h test_nodes "s/wire_pushed\(s->rank.peer\[p\], staging/wire_room(s->rank.peer[p], staging/"
mutant "far: nothing given back" channel.h test_nodes "s/\(uint32_t \*\)wire_given\(/(uint32_t *)wire_room(/"
mutant "far: no length" channel.h test_nodes "/channel_size/,/^}/ s/^( *)bytes\);/\1 0);/"
mutant "far: length of the chunk before" part.h test_nodes "s/r->counter->pushed\[region\]\[p\] \+ 1,/r->counter->pushed[region][p],/"
mutant "far: each piece as long as the first" part.h test_nodes "s/all \? bytes : r->s->view.bytes\[p\]/all ? bytes : r->s->view.bytes[0]/"
mutant "far: sends without a length" p2p.h test_nodes "s/p2p_pushed\(r, transport, STAGING_REGION_P2P, bytes\);/p2p_pushed(r, transport, STAGING_REGION_P2P, 8);/"
mutant "far: packets looked at before they are told of" part.h test_nodes "$arrived s/: channel_far\(r->s\);/: 0;/"
mutant "far: a phase stays while it goes on" task_run.h test_nodes "s/if \(run_looks_up\(.*/if (0)/"
mutant "far: a task stays while it goes on" task_run.h test_nodes "s/if \(!moved \|\| channel_far\(s\)\)/if (!moved)/"
mutant "far: a send stays while it goes on" p2p.h test_nodes "s/if \(run_looks_up\(/if (0 \&\& (/"
mutant "far: channels share a number" staging.h test_nodes "s/region \* STAGING_LANES \+ lane : STAGING/lane : STAGING/"
mutant "far: pairs of nodes share a mirror both ways" ../mirror.h test_nodes "s/\(a < b \? 0 : nodes->n_nodes\)/0/"
mutant "far: pairs of nodes share a mirror" ../mirror.h test_nodes "s/\(a \+ b\) % nodes->n_nodes/0 * nodes->n_nodes/"
mutant "ranks of a later round at the place of an earlier one's" part.h test_interpret "$room_for s/ << base;/;/"
mutant "counters of another region" task_run.h test_interpret "s/state->channel\[staging_channel\(transport, region, lane\)\]/state->channel[staging_channel(transport, 0, lane)]/"
mutant "counters of channels that there are not" task_run.h test_interpret "s/return staging_has\(transport, region, lane\) \?/return region < 4 ?/"
mutant "proxy: strands have the same mirrors" wires.c test_nodes "s/\(size_t\)strand \* wire_mirrors\(nodes, n_ranks\)/0/"
mutant "proxy: nobody is told of packets" wires.c test_nodes "s/^( *)(__atomic_store_n\(\&end->wire->come)/\1if (c >= STAGING_PACKET_CHANNELS) \2/"
mutant "proxy: chunks carried again" wires.c test_nodes "s/\+\+end->pushed\[channel\]\)/end->pushed[channel] + 1)/"
mutant "proxy: looks for arrivals once" wires.c test_nodes "s/ \|\| arrivals != wires->arrivals//"
mutant "proxy: only one slot" wires.c test_nodes "s/slot = \(entry->number - 1\) % WIRE_SLOTS/slot = 0/"
mutant "proxy: packets with the number before" wires.c test_nodes "s/\[slot\], entry->number, from/[slot], entry->number - 1, from/"
mutant "proxy: no credit" wires.c test_nodes "s/room\[c\], entry->number,/room[c], 0,/"
mutant "proxy: what fits the line looked for elsewhere" wires.c test_nodes "s/batch_in\(wires, end, line->data/batch_in(wires, end, mirror->ring/"
mutant "proxy: no credit for batches" wires.c test_nodes "s/line->taken = end->taken;/line->taken = 0;/; s/end->taken - end->told < TELL_BATCHES \&\& end->untold_bytes < TELL_BYTES/true/"
mutant "proxy: what was given back forgotten" wires.c test_nodes "s/batch_entry\(batch, channel, WIRE_CREDIT, given\);//"
mutant "proxy: one chunk at a look, and the rest forgotten" wires.c test_nodes "s/\+\+end->pushed\[channel\]\);/end->pushed[channel] = pushed);/"

# ---- plans over nodes
mutant "stages: room not looked at" pass.h test_stages "s/room = warp_all\(room\);/room = true;/"
mutant "stages: packets not waited for" pass.h test_stages "s/ready = warp_all\(ready\);/ready = true;/"
mutant "stages: inbox not waited for" pass.h test_stages "s/if \(\(x->flags \& PROGRAM_INPUT\) \&\& r->task->inlined\)/if (0)/"
mutant "stages: a step done packet by packet" pass.h test_stages "s/if \(!pass_ready\(\*r, in, bytes\)\)/if (!pass_ready(*r, in, bytes > 64 ? 64 : bytes))/"
mutant "stages: what was never put down is there" pass.h test_stages "s/if \(flag \&\& pass_come\(/if (pass_come(/"
mutant "stages: what has come is not put down" pass.h test_stages "s/n \&\& packet_is\(packet\[k\], flag\)\)/n \&\& 0)/"
mutant "stages: chunks of other nodes put down in one place" pass.h test_stages "s/packet_store\(\(struct quad \*\)place \+ base \+/packet_store((struct quad *)place + base % 64 +/"
mutant "stages: chunks of other nodes put down in the other slot" pass.h test_stages "s/\(flag - 1\) % STAGING_SLOTS/flag % STAGING_SLOTS/"
mutant "stages: sums in the order of ranks" pass.h test_stages "s/if \(x->flags \& PROGRAM_LISTED\) \{/if (0) {/"
mutant "stages: sums in the order of ranks, says the program" programs.c test_stages "s/source->rank < last/0/"
mutant "stages: factor left out of what is sent" pass.h test_stages "s/own \? unit_scale<ACCESS_ANY>\(r, value\) : value/value/"
mutant "stages: factor left out of what is added" pass.h test_stages "s/unit_scale<ACCESS_ANY>\(r, payload\)/payload/"
mutant "stages: sums rounded on their way" pass.h test_stages "s/return \(r->s->pass.step.flags \& flag\) \&\&/return false \&\&/; s/const uint32_t widens = .*/const uint32_t widens = 0;/"
mutant "stages: halves of sums mixed up" reduce.h test_stages "s/value_bits\(a.x\[2 \* i \+ 1\]\) << 32 \| value_bits\(a.x\[2 \* i\]\)/value_bits(a.x[2 * i]) << 32 | value_bits(a.x[2 * i + 1])/"
mutant "stages: parts that are too long for sums" fill.h test_stages "s/plan->partials \? reduce_widens\(k->type, k->redop\) : 0/0/"
mutant "stages: one step of each part" pass.h test_stages "s/t->part\[f\] = k \+ 1 < n \? part : part \+ STAGING_DATA_LANES;/t->part[f] = part + STAGING_DATA_LANES;/"
mutant "stages: steps of the task before" fill.h test_stages "s/t->step\[f\] = 0;/;/"
mutant "stages: phases of other ranks" fill.h test_stages "s/->pass.phases.n\[f\] \? k->parts\[f\] : 0;/->pass.phases.n[f] ? k->parts[f] : k->parts[f];/"
mutant "stages: nothing given back" pass.h test_stages "s/^( *)run_taken\(r, phase->region_in, chunks\);/\1;/"
mutant "stages: nobody is told of chunks" pass.h test_stages "s/^( *)run_pushed\(r, phase->region_out, targets\);/\1;/"
mutant "stages: the program of another root" pass.h test_stages "s/roots > 1 \? root : 0/0/"
mutant "stages: the program of another rank" pass.h test_stages "s/before \* roots/0 * roots/"
mutant "stages: program not cached anew for another rank" pass.h test_stages "s/const uint32_t name = s->rank.rank << 16 \|/const uint32_t name =/"
mutant "stages: program of the plan before" take.h test_stages "s/shared_of\(w\)->pass.name = shared_of\(w\)->pass.at = 0;/;/"
mutant "stages: programs of the first root" programs.c test_stages "s/= shape_of\(root\);/= shape_of(0 * root);/"
mutant "stages: what others call is not looked at" pass.h test_stages "s/\*ret_differs = differs;/;/"
mutant "stages: what was heard is not told" pass.h test_stages "s/: differs \? PASS_DIFFERS\(differs - 1\)/: 0 ? PASS_DIFFERS(differs - 1)/"
mutant "stages: told before it is heard" pass.h test_stages "s/\? hear \& ~tell :/? 0 :/; s/\? tell : hear \& tell;/? tell : hear;/"
mutant "stages: heard before it is told" pass.h test_stages "s/\? hear \& ~tell :/? hear :/; s/\? tell : hear \& tell;/? tell : 0;/"

# ---- kernels that end
mutant "counters not written back" worker.h test_order "$save s/counter_flush_all\(w\);//"
mutant "tasks forgotten" worker.h test_order "$restore s/saved \? from->n_tasks : 0/0/"
mutant "places forgotten" worker.h test_order "$restore s/saved \? from->taken\[i\] : 0/0/"
mutant "looks for the first line again" worker.h test_order "$restore s/saved \? from->key\[i\] : 0/0/"

mutant "served: ends with tasks in hand" worker.h test_served "s/found \|\| w->n_tasks \? 0 : quiet/found ? 0 : quiet/"
mutant "served: ends though lines come" worker.h test_served "s/quiet = found \|\| w->n_tasks \?/quiet = w->n_tasks ?/"
mutant "served: ends at once" worker.h test_served "s/w->stop != TABLE_STOP_SERVED \|\| quiet/true || quiet/"
mutant "served: one look is enough" worker.h test_served "s/#define WORKER_QUIET 3u/#define WORKER_QUIET 1u/"
mutant "served: does not say how far it has looked" worker.h test_served "s/word_store\(\&w->report->next.*/;/"

# ---- numbers that wrap
mutant "a number that was passed on taken for a request" serve.h test_order "s/shared_of\(w\)->line\[RING_W_FLAGS\] == BELL_FLAG_PASSED/0/"
mutant "sequence 0 used" bell.h test_wraps "s/return sequence \+ 1 \? sequence \+ 1 : 1;/return sequence + 1;/"
mutant "room compared as if nothing wrapped" part.h test_wraps "$room s/\(int32_t\)\(pushed - r->counter->room\[region\]\[p\]\) >= \(int32_t\)slots/pushed >= r->counter->room[region][p] + slots/"
mutant "last compared as if nothing wrapped" task_run.h test_wraps "s/\(int32_t\)\(t->sequence - s->rank.last\) > 0/t->sequence > s->rank.last/"

wait
failed=0
for i in $(seq "$n"); do
        cat "$work/$i.report"
        ! grep -q ': wrong: \|: failed itself' "$work/$i.report" || failed=$((failed + 1))
done
echo "$n mutants, of which one in $every was tried; $failed wrong"
[ "$failed" = 0 ]
