# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by scripts/demo: several nodes on this machine. Each is a daemon of its own with two rails. As root they live in
# network namespaces, joined by two bridges in another one, and talk TLS with certificates made here; otherwise they are
# addresses of the loopback interface.

nodes_spaces= # names of namespaces to delete
nodes_pids=

nodes_certificates() { # FOLDER N
    local folder=$1 n=$2 i quiet=$1/openssl.log
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj "/CN=railmux demo CA" \
        -keyout "$folder/ca.key" -out "$folder/ca.crt" >"$quiet" 2>&1 || return
    for i in $(seq "$n"); do
        printf 'subjectAltName=URI:railmux:railmux/node%s\n' "$i" >"$folder/node$i.ext"
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=node$i" -keyout "$folder/node$i.key" \
            -out "$folder/node$i.csr" >>"$quiet" 2>&1 || return
        openssl x509 -req -in "$folder/node$i.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -days 2 \
            -extfile "$folder/node$i.ext" -out "$folder/node$i.crt" >>"$quiet" 2>&1 || return
    done
}

# One namespace has a bridge for each rail, each node's has an end of a cable to both.
nodes_spaces_new() { # N
    local n=$1 i rail switch=railmux-$$-switch
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null || return 1
    ip netns add "$switch" 2>/dev/null || return 1
    nodes_spaces=$switch
    for rail in 0 1; do
        ip -n "$switch" link add "rail$rail" type bridge && ip -n "$switch" link set "rail$rail" up || return 1
    done
    for i in $(seq "$n"); do
        local space=railmux-$$-node$i
        ip netns add "$space" || return 1
        nodes_spaces="$nodes_spaces $space"
        ip -n "$space" link set lo up || return 1
        for rail in 0 1; do
            ip link add "rail$rail" netns "$space" type veth peer name "n${i}r$rail" netns "$switch" &&
                ip -n "$space" address add "10.77.$rail.$i/24" dev "rail$rail" &&
                ip -n "$space" link set "rail$rail" up &&
                ip -n "$switch" link set "n${i}r$rail" master "rail$rail" up || return 1
        done
    done
} 2>/dev/null

nodes_end() {
    local pid space
    for pid in $nodes_pids; do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    nodes_pids=
    for space in $nodes_spaces; do
        ip netns delete "$space" 2>/dev/null || true
    done
    nodes_spaces=
}

# Starts N daemons; their client sockets, with commas between, go to `nodes_sockets`.
nodes_start() { # BIN FOLDER N
    local bin=$1 folder=$2 n=$3 i where prefix
    nodes_sockets=
    nodes_certificates "$folder" "$n" || die "cannot make certificates: $(tail -n 2 "$folder/openssl.log")"
    if nodes_spaces_new "$n"; then
        where="network namespaces with TLS"
    else
        nodes_end
        where="loopback addresses without TLS: network namespaces need root"
    fi
    say "starting $n daemons with four emulated GPUs each ($where)"
    for i in $(seq "$n"); do
        local options=(--gpu host:4 --socket "$folder/node$i.sock" --control "$folder/node$i.control.sock")
        if [ -n "$nodes_spaces" ]; then
            prefix=(ip netns exec "railmux-$$-node$i")
            printf 'peer:\n  ca: %s/ca.crt\n  certificate: %s/node%s.crt\n  key: %s/node%s.key\n' "$folder" "$folder" "$i" \
                "$folder" "$i" >"$folder/node$i.yaml"
            options+=(--config "$folder/node$i.yaml" --listen "10.77.0.$i:7600" --rail "rail0=10.77.0.$i" --rail "rail1=10.77.1.$i")
        else
            prefix=(env)
            options+=(--listen "127.0.10.$i:0" --rail "rail0=127.0.10.$i" --rail "rail1=127.0.11.$i")
        fi
        "${prefix[@]}" "$bin/railmuxd" "${options[@]}" 2>"$folder/node$i.log" &
        nodes_pids="$nodes_pids $!"
        nodes_sockets="$nodes_sockets${nodes_sockets:+,}$folder/node$i.sock"
    done
    for i in $(seq "$n"); do
        nodes_await "$bin" "$folder/node$i.control.sock" || {
            cat "$folder/node$i.log" >&2
            die "node $i does not serve after 10 s"
        }
    done
}

nodes_await() { # BIN CONTROL
    local _
    for _ in $(seq 100); do
        "$1/railmuxctl" --control "$2" --json status 2>/dev/null |
            jq -e '[.. | objects | .state?] | index("ready")' >/dev/null && return
        sleep 0.1
    done
    return 1
}

nodes_demo() { # BIN FOLDER N
    local bin=$1 folder=$2 n=$3 operation view load pid _
    local ranks=$((4 * n))
    nodes_start "$bin" "$folder" "$n"
    for operation in all_reduce reduce_scatter all_gather all_to_all broadcast barrier; do
        say "$operation, $ranks ranks on $n nodes"
        "$bin/railmux-perf" "$operation" --ranks "$ranks" --socket "$nodes_sockets" -b 8 -e 4M -f 8 ||
            die "$operation failed with status $?"
    done
    for operation in reduce gather scatter all_to_all_v sendrecv; do
        say "$operation, $ranks ranks on $n nodes, every type"
        "$bin/railmux-perf" "$operation" --ranks "$ranks" --socket "$nodes_sockets" -b 4K -e 1M -f 256 -d all -n 5 ||
            die "$operation failed with status $?"
    done
    say "what an operator of the first node sees while they work"
    "$bin/railmux-perf" all_reduce --ranks "$ranks" --socket "$nodes_sockets" -b 64K -e 64K --duration 60 \
        >"$folder/load.log" 2>&1 &
    load=$!
    for _ in $(seq 100); do
        "$bin/railmuxctl" --control "$folder/node1.control.sock" --json comms 2>/dev/null |
            jq -e '[.. | objects | .state?] | index("ready")' >/dev/null && break
        kill -0 "$load" 2>/dev/null || { cat "$folder/load.log" >&2; die "the load ended early"; }
        sleep 0.1
    done
    for view in comms peers rails routes; do
        printf '\n$ railmuxctl %s\n' "$view"
        "$bin/railmuxctl" --control "$folder/node1.control.sock" "$view"
    done
    kill "$load"
    wait "$load" 2>/dev/null || true
    say "stopping the daemons"
    for pid in $nodes_pids; do
        kill "$pid" 2>/dev/null && wait "$pid" || die "a daemon ended with status $?"
    done
    nodes_end
    say "done: every result was verified"
}
