# SPDX-License-Identifier: MIT
# Sourced by scripts/compare-*, after scripts/lib.sh: one table of railmux's host backend beside another library's.
#
# Machines change their speed from minute to minute, and virtual ones most. So the two never run in blocks of their own:
# each size is measured with railmux and at once with the other, then the next size, and all of it again in the next
# round. A line of the table is the median over the rounds; the range is that of the ratios of the single rounds.
#
# The caller sets peer (its name in the table) and defines
#   measure_peer RANKS BYTES WARMUP ITERATIONS   prints: bytes calls time p50 p99 wrong
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034  # root is of scripts/lib.sh; some settings are used by the callers only

bin=$root/build/release/bin
rank_counts="2 4 8" min=8 max=4M factor=4 size_list="" rounds=5 json="" place=0
scratch="" daemon=""
limit_s=300 # for one measurement; a hang is a failure, not a wait

compare_usage() {
    cat <<'TEXT'
  --ranks LIST    rank counts (default "2 4 8")
  --min SIZE      smallest buffer in bytes (default 8); K, M and G are powers of 1024
  --max SIZE      largest (default 4M)
  --factor F      each size is F times the one before (default 4); the largest comes last in any case
  --sizes LIST    these sizes instead
  --rounds N      how often all is measured (default 5)
  --bin DIR       railmux's programs (default build/release/bin, built when it is missing)
  --json FILE     also write the results, round by round, to FILE
Prints a Markdown table. Exit status: 0 all right, 1 a wrong element was found, 2 wrong usage, 3 a run failed.
TEXT
}

# Takes one common option off the command line; $? 1: it is none. Sets taken to the number of words.
compare_option() {
    taken=2
    case $1 in
    --ranks | --min | --max | --factor | --sizes | --rounds | --bin | --json)
        [ $# -ge 2 ] || usage_error "$1 needs a value"
        ;;&
    --ranks) rank_counts=$2 ;;
    --min) min=$2 ;;
    --max) max=$2 ;;
    --factor) factor=$2 ;;
    --sizes) size_list=$2 ;;
    --rounds) rounds=$2 ;;
    --bin) bin=$2 ;;
    --json) json=$2 ;;
    *) return 1 ;;
    esac
}

usage_error() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

failed() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 3
}

is_number() { # TEXT LOW HIGH
    [[ $1 =~ ^[1-9][0-9]{0,9}$ ]] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]
}

bytes_of() {
    local digits=${1%[KMG]} shift=0
    case $1 in
    *K) shift=10 ;;
    *M) shift=20 ;;
    *G) shift=30 ;;
    esac
    is_number "$digits" 1 1073741824 && [ $((digits << shift)) -ge 4 ] && [ $((digits << shift)) -le 1073741824 ] ||
        usage_error "$1 is no size from 4 to 1G"
    echo $(((digits << shift) / 4 * 4))
}

# Checks what the options say; makes the list of sizes in bytes.
compare_check() {
    local size last
    sizes=()
    is_number "$rounds" 1 1000 || usage_error "--rounds takes a number from 1 to 1000"
    is_number "$factor" 2 1048576 || usage_error "--factor takes a number of 2 or more"
    for size in $rank_counts; do
        is_number "$size" 1 64 || usage_error "$size is no number of ranks from 1 to 64"
    done
    if [ -n "$size_list" ]; then
        for size in $size_list; do
            size=$(bytes_of "$size") || exit 2
            sizes+=("$size")
        done
    else
        size=$(bytes_of "$min") && last=$(bytes_of "$max") || exit 2
        for (( ; size <= last; size *= factor)); do
            sizes+=("$size")
        done
        # The largest is what was asked for, also where the steps miss it.
        [ ${#sizes[@]} -eq 0 ] || [ "${sizes[-1]}" -eq "$last" ] || sizes+=("$last")
    fi
    [ ${#sizes[@]} -gt 0 ] && [ -n "${rank_counts// /}" ] || usage_error "nothing to measure"
    [ -z "$json" ] || : >>"$json" || usage_error "cannot write $json"
}

# The same in both: many calls when they are short, and never so few that p99 is a matter of luck alone.
calls_for() { # BYTES: sets calls and warmup
    calls=$((209715200 / $1))
    [ "$calls" -le 2000 ] || calls=2000
    [ "$calls" -ge 50 ] || calls=50
    warmup=$((calls / 10))
}

install_packages() {
    local package status missing=() as_root=() command
    command -v dpkg-query >/dev/null || failed "this is no Debian system; needed are the equivalents of: $*"
    for package in "$@"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || failed "missing: ${missing[*]}; installing needs root or sudo"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}" >&2
    command=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
    if ! "${command[@]}" "${missing[@]}" >&2; then
        "${as_root[@]}" apt-get update >&2
        "${command[@]}" "${missing[@]}" >&2 || failed "cannot install ${missing[*]}"
    fi
}

build_railmux() {
    local program missing=0
    for program in railmuxd railmux-executor railmux-perf; do
        [ -x "$bin/$program" ] || missing=1
    done
    [ "$missing" -eq 1 ] || return 0
    [ "$bin" = "$root/build/release/bin" ] || failed "$bin lacks railmuxd, railmux-executor or railmux-perf"
    say "building (build/release)" >&2
    (cd "$root" && cmake --preset release &&
        cmake --build --preset release --target railmuxd railmux-executor railmux-perf) >&2 || failed "the build failed"
}

# Everything of one run lies in a folder of its own and ends with the script.
compare_begin() {
    scratch=$(mktemp -d)
    trap compare_end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

compare_end() {
    local status=$?
    trap - EXIT INT TERM
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" || true
    fi
    if [ "$status" -ge 3 ] && [ -s "$scratch/daemon.log" ]; then
        tail -n 20 "$scratch/daemon.log" >&2
    fi
    rm -rf "$scratch"
    exit "$status"
}

start_railmux() {
    export RAILMUX_SOCKET=$scratch/client.sock
    "$bin/railmuxd" --gpu host:8 --keep --socket "$RAILMUX_SOCKET" --control "$scratch/control.sock" \
        2>"$scratch/daemon.log" &
    daemon=$!
    # The library waits for the socket; the first short run thus ends when the node serves.
    until "$bin/railmux-perf" barrier --ranks 2 -n 10 >/dev/null 2>"$scratch/error"; do
        if ! kill -0 "$daemon" 2>/dev/null; then
            cat "$scratch/error" >&2
            failed "railmuxd ended"
        fi
        sleep 0.2
    done
}

measure_railmux() { # RANKS BYTES WARMUP ITERATIONS, prints what measure_peer prints
    local status=0
    timeout --foreground "$limit_s" "$bin/railmux-perf" all_reduce --ranks "$1" -b "$2" -e "$2" -f 2 -d fp32 -o sum \
        --in-place "$place" -w "$3" -n "$4" -c 1 -J "$scratch/railmux.json" >"$scratch/railmux.log" 2>&1 || status=$?
    if [ "$status" -gt 1 ]; then
        cat "$scratch/railmux.log" >&2
        return "$status"
    fi
    jq -r '.results[] | "\(.bytes) \(.calls) \(.time_us) \(.p50_us) \(.p99_us) \(.wrong)"' "$scratch/railmux.json"
}

# One measurement into the list of samples: system ranks bytes round calls time p50 p99 wrong.
take_sample() { # SYSTEM RANKS BYTES ROUND
    local line fields
    calls_for "$3"
    line=$("measure_$1" "$2" "$3" "$warmup" "$calls") || failed "$1 failed with $2 ranks, $3 bytes"
    read -r -a fields <<<"$line"
    [ ${#fields[@]} -eq 6 ] && [ "${fields[0]}" -eq "$3" ] && [ "${fields[1]}" -eq "$calls" ] ||
        failed "$1 with $2 ranks, $3 bytes, $calls calls printed \"$line\""
    printf '%s %s %s %s %s\n' "$1" "$2" "$3" "$4" "${fields[*]:1}" >>"$scratch/samples"
}

# Per cent of all CPUs that others use while this script waits for a second. Whoever yields, as Open MPI with more ranks
# than CPUs does, yields to these as well; so a table of a busy machine is no fair one.
others_busy() {
    local before after
    before=$(head -n 1 /proc/stat)
    sleep 1
    after=$(head -n 1 /proc/stat)
    printf '%s\n%s\n' "$before" "$after" | awk '
        { total = 0; for (i = 2; i <= 9; i++) total += $i; idle = $5 + $6 }
        NR == 1 { total_before = total; idle_before = idle }
        END { passed = total - total_before
              printf "%.0f", (passed > 0 ? 100 * (passed - (idle - idle_before)) / passed : 0) }'
}

# What a number depends on besides the code.
conditions() {
    printf '%s, %s CPUs, Linux %s, %s %% of them busy with others at start' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(uname -r)" "$(others_busy)"
}

compare_rounds() {
    local round ranks bytes
    : >"$scratch/samples"
    for ((round = 1; round <= rounds; round++)); do
        for ranks in $rank_counts; do
            for bytes in "${sizes[@]}"; do
                take_sample railmux "$ranks" "$bytes" "$round"
                take_sample peer "$ranks" "$bytes" "$round"
            done
        done
        say "round $round of $rounds; $(others_busy) % of the CPUs busy with others" >&2
    done
}

# Everything measured as one JSON document, on standard output.
compare_json() { # CONDITIONS NOTES-AS-JSON
    jq -R -n --arg peer "$peer" --arg conditions "$1" --argjson notes "$2" \
        --arg railmux "$("$bin/railmux-perf" --version | head -n 1)" '
        def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
        def summary: {p50_us: (map(.p50) | median), p99_us: (map(.p99) | median), time_us: (map(.time) | median),
                      wrong: (map(.wrong) | add), rounds: map({p50_us: .p50, p99_us: .p99, time_us: .time})};
        [inputs | split(" ") | {system: .[0], ranks: (.[1] | tonumber), bytes: (.[2] | tonumber), round: (.[3] | tonumber),
                                calls: (.[4] | tonumber), time: (.[5] | tonumber), p50: (.[6] | tonumber),
                                p99: (.[7] | tonumber), wrong: (.[8] | tonumber)}]
        | group_by([.ranks, .bytes])
        | map((map(select(.system == "railmux")) | sort_by(.round)) as $ours
              | (map(select(.system == "peer")) | sort_by(.round)) as $theirs
              | ([range($ours | length) | $ours[.].p50 / $theirs[.].p50]) as $ratios
              | {ranks: .[0].ranks, bytes: .[0].bytes, calls: .[0].calls, railmux: ($ours | summary),
                 peer: ($theirs | summary), ratio_lowest: ($ratios | min), ratio_highest: ($ratios | max)}
              | . + {ratio_p50: (.railmux.p50_us / .peer.p50_us), ratio_time: (.railmux.time_us / .peer.time_us)})
        | {version: 1, railmux: $railmux, peer: $peer, conditions: $conditions, notes: $notes, results: .}
        ' "$scratch/samples"
}

compare_table() { # FILE of compare_json
    jq -r '
        def places(n): (. * pow(10; n) | round) as $scaled | ($scaled / pow(10; n) | floor | tostring) as $whole
                       | if n == 0 then $whole
                         else ($scaled - ($scaled / pow(10; n) | floor) * pow(10; n) | tostring) as $rest
                              | $whole + "." + ("0" * (n - ($rest | length)) // "") + $rest end;
        def ratio: if . < 0.095 then places(4) else places(2) end;
        def us: if . < 1000 then places(1) else places(0) end;
        "| ranks | bytes | railmux p50 (us) | p99 | mean | \(.peer) p50 (us) | p99 | mean | ratio p50 (rounds) | ratio mean |",
        "|---|---|---|---|---|---|---|---|---|---|",
        (.results[] | "| \(.ranks) | \(.bytes) | \(.railmux | "\(.p50_us | us) | \(.p99_us | us) | \(.time_us | us)") | " +
                      "\(.peer | "\(.p50_us | us) | \(.p99_us | us) | \(.time_us | us)") | " +
                      "\(.ratio_p50 | ratio) (\(.ratio_lowest | ratio) - \(.ratio_highest | ratio)) | " +
                      "\(.ratio_time | ratio) |")' "$1"
}

# Table, document and the verdict on what the ranks found in their buffers.
compare_report() { # CONDITIONS NOTES-AS-JSON
    local wrong
    compare_json "$1" "$2" >"$scratch/result.json"
    [ -z "$json" ] || cp "$scratch/result.json" "$json"
    printf '%s; %s; fp32 sum all_reduce, median of %s rounds\n\n' "$1" "$(jq -r .railmux "$scratch/result.json")" "$rounds"
    compare_table "$scratch/result.json"
    wrong=$(jq '[.results[] | .railmux.wrong + .peer.wrong] | add' "$scratch/result.json")
    printf '\nWrong elements: %s. Busy with others at end: %s %%.\n' "$wrong" "$(others_busy)"
    [ "$wrong" -eq 0 ] || exit 1
}
