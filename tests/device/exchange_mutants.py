#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Proves that the tests of exchange kernels can fail: each mutant breaks one thing of how blocks leave and end, or of
transfers, in a copy of client/hip, and test_exchange.cc, test_pairs.cc or test_line_form.cc has to find it with one of
three seeds.

One in eight is tried, by $RAILMUX_SEED; with RAILMUX_FULL=1 all. That each changes something is looked at always. The test
is run without a mutation first: it has to pass, and a mutant that takes several times as long hangs. (None is listed of where
a block begins to look for the next part: that changes who goes on first, and the test cannot tell.)

    exchange_mutants.py CXX SOURCE_DIR DEFINITIONS LIBRARY...       (SOURCE_DIR: top of the tree; "A=1 B=2"; what tests link with)
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

LEAVE, BULK, RUN, PAIR = "exchange_leave.h", "exchange_bulk.h", "exchange_run.h", "exchange_pair.h"
KERNEL, CHUNK, LINE, FORM = "exchange_kernel.h", "exchange_chunk.h", "exchange_line.h", "exchange_line_form.h"
TILE, STEP = "exchange_tile.h", "exchange_pair_step.h"
SEEDS = ("1", "2", "3")
FLAGS = "-std=gnu++17 -O0 -D_GNU_SOURCE -ffp-contract=off -fno-strict-aliasing -w".split()

MUTANTS = (
    ("leaves though too few stay", LEAVE, "late % EXCHANGE_LATE_TIME > EXCHANGE_KEEPERS", "late % EXCHANGE_LATE_TIME >= EXCHANGE_KEEPERS"),
    ("the word does not say that a part was left", LEAVE, "late + EXCHANGE_LATE_TIME - ends", "late - ends"),
    ("who leaves does not go out", LEAVE, "late + EXCHANGE_LATE_TIME - ends", "late + EXCHANGE_LATE_TIME"),
    ("goes out whatever has been left", LEAVE, "late / EXCHANGE_LATE_TIME == times && word_exchange(&own->late, late, late - 1)", "word_exchange(&own->late, late, late - 1)"),
    ("is late for ever", LEAVE, "                word_store(&own->is_late[exchange_block(shared)], 0);", "                ;"),
    ("each warp counts", LEAVE, "word_add(&own->is_late[exchange_block(shared)], 1) == 0", "(word_add(&own->is_late[exchange_block(shared)], 1), true)"),
    ("each part counts the call", LEAVE, "        if (part == 0)\n", ""),
    ("ends are not counted anew", LEAVE, "        word_store(&own->ended, 0);\n", ""),
    ("every block tells the end", LEAVE, "if (a->blocks > 1 && counter_next(&own->ended) != a->blocks)", "if (a->blocks > 1 && counter_next(&own->ended) > a->blocks)"),
    ("the number of a part that others began", LEAVE, "taken_up ? exchange_last(a, part) : shared->number", "shared->number"),
    ("the first part is not marked", LEAVE, "        word_store(&own->left[part], 1);", "        if (part)\n                word_store(&own->left[part], 1);"),
    ("two take up a part", LEAVE, "word_exchange(&own->left[part], 1, 0) == 1", "true"),
    ("a part that was taken up does not end", LEAVE, "        if (!left)\n                exchange_through", "        if (!left && !taken_up)\n                exchange_through"),
    ("calls by another part", BULK, "exchange_through(a, part, shared->number, shared->calls);", "exchange_through(a, part, shared->number, shared->calls + 1);"),
    ("a block that is late forgets it", BULK, "        *exchange_is_late(shared, thread) = 1; /* all of the block */\n", "        *exchange_is_late(shared, thread) = 0;\n"),
    ("a block that is late and through does not look", BULK, "exchange_any(shared, *exchange_is_late(shared, thread))", "exchange_any(shared, *exchange_is_late(shared, thread) && !through)"),
    ("a warp that is through is not written down", BULK, "                if (through)\n                        exchange_write_down(a, part, thread, EXCHANGE_THROUGH, 0);\n", ""),
    ("who moves from part to part cannot be stopped", RUN, "return warp_any(over) ? EXCHANGE_NEVER : EXCHANGE_LATE;", "return EXCHANGE_LATE;"),
    ("says that one less has begun", RUN, "(uint64_t)(calls + 1 - first) << 32", "(uint64_t)(calls - first) << 32"),
    ("does not say who called something else", RUN, "word_store(&told->differs, 1 + other);", "word_store(&told->differs, 1);"),
    ("does not say what it called", RUN, "cell_store(&told->count, count);", ";"),
    ("a part is sent whatever has failed before", BULK, "        if (a->gated && exchange_is_shut(a, thread, shared))\n                return;\n", ""),
    ("a part is never sent", BULK, "thread == 0 && word_load(&exchange_header_of(a, a->rank)->failed)", "thread == 0"),
    ("a block ends with each part", BULK, "                if (shared->next == EXCHANGE_NO_BLOCK)\n                        exchange_ended(a);", "                exchange_ended(a);"),
    ("who has taken a part up waits for ever", LEAVE, "        if (warp_any(*exchange_is_late(shared, thread))) /* none says so below before all have read */\n                return true;\n", ""),
    ("a line's last unit need not have come", FORM, "                is &= (raw[k].y >> 16 == flag) & (raw[k].w >> 16 == flag);", "                is &= k == U - 1 || ((raw[k].y >> 16 == flag) & (raw[k].w >> 16 == flag));"),
    ("upper bytes of a line are in each other's way", FORM, "high[1] |= b >> 48 << 16 * k;", "high[1] |= b >> 48;"),
    ("flags of lines are all the same", FORM, "(uint64_t)(number % 65535 + 1) << 48", "(uint64_t)(number % 1 + 1) << 48"),
    ("lines of odd and even numbers are at one place", LINE, "((number & 1) * EXCHANGE_LINE_BLOCKS(N) + block)", "(0 * EXCHANGE_LINE_BLOCKS(N) + block)"),
    ("a block's warps have one number", LINE, "+ block * EXCHANGE_LANES +\n               thread / WARP_THREADS;", "+ block * EXCHANGE_LANES;"),
    ("a warp's number is forgotten", LINE, "                word_store(line_number_of(a, block, thread), p.number);", "                ;"),
    ("sums of lines that were sent are added up anew", LINE, "second ? tile | EXCHANGE_SECOND : tile", "tile"),
    ("lines that were left begin anew", LINE, "        if (p.tile == EXCHANGE_THROUGH)\n                return true;", "        if (p.tile == EXCHANGE_THROUGH)\n                return true;\n        p.tile = 0;"),
    ("who has no data does not compare", LINE, " ||\n               (tile == 0 && block == 0 && thread / WARP_THREADS * WARP_THREADS < N);", ";"),
    ("a tile is whole if it is for the first rank", LINE, "exchange_piece(a, N - 1);", "exchange_piece(a, 0);"),
    ("one flag: another line's unit", FORM, "two + t : two", "two + t + 1 : two"),
    ("one flag: eighth threads have a unit more", FORM, "return k % 2 == 0 || !line_is_last(thread);", "return true;"),
    ("one flag: a line ends a thread early", FORM, "thread % LINE_THREADS == LINE_THREADS - 1", "thread % LINE_THREADS == LINE_THREADS - 2"),
    ("one flag: the lower half goes twice", FORM, "x[k + 1].x = line_is_last(thread) ? x[k].z", "x[k + 1].x = line_is_last(thread) ? x[k].x"),
    ("one flag: half of a unit does not come back", FORM, "v.z = line_is_last(thread) ? x[k + 1].x : v.z;", ";"),
    ("one flag: half of it is enough", FORM, "((raw[k].z == number) & (raw[k].w == number))", "((raw[k].z == number) | (raw[k].w == number))"),
    ("one flag: that of the first line is enough", FORM, "(!line_is_last(thread)) |", "(k > 0) | (!line_is_last(thread)) |"),
    ("sums of lines go nowhere", LINE, "                                if (a->back)\n                                        line_send", "                                if (!a->back)\n                                        line_send"),
    ("a step that was made is made anew", RUN, "second ? tile | EXCHANGE_SECOND : tile", "tile"),
    ("a chunk more is sent than there are places", STEP, "l->sends ? l->number - PAIR_TURNS : l->number", "l->sends ? l->number - PAIR_TURNS - 1 : l->number"),
    ("nobody waits for room", STEP, "UNIT_WAITS) {\n                const uint32_t *word", "UNIT_WAITS && l->sends) {\n                shared->heard = EXCHANGE_CAME;\n        } else if (thread / WARP_THREADS == UNIT_WAITS) {\n                const uint32_t *word"),
    ("a chunk is told before it is there", STEP, "        place = pair_place(a, l->peer, a->rank, l, l->lane, thread);\n        pair_await(x);", "        word_store(pair_word_of(a, PAIR_FLAG, l->peer, a->rank, l->lane), l->number);\n        place = pair_place(a, l->peer, a->rank, l, l->lane, thread);\n        pair_await(x);"),
    ("a chunk counts as taken before it is", STEP, "                        flag_looked();\n", "                        flag_looked();\n                        word_store(pair_word_of(a, PAIR_CREDIT, l->peer, a->rank, l->lane), l->number);\n"),
    ("what was called is not compared", STEP, "if (first && warp_any(!pair_agrees(a, op, l)))", "if (false)"),
    ("the sender's words are always at one place", STEP, "        if (thread == 0) {\n                cell_store(&pair_words_of(a, l->peer, a->rank)->told[l->turn % PAIR_CELLS]", "        if (thread == 0) {\n                cell_store(&pair_words_of(a, l->peer, a->rank)->told[0]"),
    ("and those of chunks", STEP, "                if (chunk == 0 && thread == 0)\n                        cell_store(&pair_words_of(a, l->peer, a->rank)->told[l->turn % PAIR_CELLS]", "                if (chunk == 0 && thread == 0)\n                        cell_store(&pair_words_of(a, l->peer, a->rank)->told[0]"),
    ("nor where they carry nothing", PAIR, "                if (!carries)\n", "                if (false)\n"),
    ("both places are one", STEP, "writer * PAIR_TURNS + l->number % PAIR_TURNS", "writer * PAIR_TURNS"),
    ("all senders have one place", STEP, "writer = from < to ? from : from - 1", "writer = 0 * from"),
    ("a lane does not remember what it has sent", PAIR, "word_store(pair_kept_of(a, &l), heard == EXCHANGE_LATE ? l.number - 1 : l.number);", ";"),
    ("turns are not counted on", PAIR, "word_store(pair_turn_of(a, &l), l.turn);", ";"),
    ("who waits never says so", STEP, "PAIR_TURNS);\n\n                if (says)", "PAIR_TURNS);\n\n                if (says && there)"),
    ("nor who waits for packets", STEP, "warp_all(all);\n                if (says)", "warp_all(all);\n                if (says && there)"),
    ("who has waited says so for ever", STEP, "else if (!waits && said == own)", "else if (false)"),
    ("all that wait say so in turn", STEP, "if (waits && !said)", "if (waits)"),
    ("a rank that has failed goes on", STEP, "if (warp_any(l->failed)) { /* what", "if (false) { /* what"),
    ("nobody copies the own piece", STEP, "chunk * op->units * PAIR_STEP < op->bytes; chunk += blocks", "false; chunk += blocks"),
    ("a chunk is told before all have sent", STEP, "        EXCHANGE_STEP();\n        fence_settle();\n        warp_sync();\n        exchange_meet(shared);\n        if (thread / WARP_THREADS == UNIT_TELLS) {\n                if (chunk", "        EXCHANGE_STEP();\n        fence_settle();\n        warp_sync();\n        if (thread / WARP_THREADS == UNIT_TELLS) {\n                if (chunk"),
    ("of a chunk that is not full only the first units are sent", STEP, "if (u < op->units && at + u * PAIR_STEP < op->bytes)\n                                bulk_store", "if (u < 1 && at + u * PAIR_STEP < op->bytes)\n                                bulk_store"),
    ("a step is told before all have sent", CHUNK, "        fence_settle();\n        warp_sync();\n        exchange_meet(shared);\n        if (thread / WARP_THREADS != UNIT_TELLS)", "        fence_settle();\n        warp_sync();\n        if (thread / WARP_THREADS != UNIT_TELLS)"),
    ("who waits does not meet the others", CHUNK, "                        shared->heard = heard;\n        }\n        warp_sync();\n        exchange_meet(shared);", "                        shared->heard = heard;\n        }\n        warp_sync();"),
    ("two places for tiles", KERNEL, "#define EXCHANGE_TILE_TURNS           3u", "#define EXCHANGE_TILE_TURNS           2u"),
    ("one place for what is sent back", KERNEL, "#define EXCHANGE_BACK_TURNS           2u", "#define EXCHANGE_BACK_TURNS           1u"),
    ("long chunks of all blocks are at one place", CHUNK, "block * EXCHANGE_LONG_TURNS + turn", "turn"),
    ("long chunks take no turns", CHUNK, "block * EXCHANGE_LONG_TURNS + turn", "block * EXCHANGE_LONG_TURNS"),
    ("a long chunk has a unit more than there is", CHUNK, "(bytes - at - 16) / CHUNK_STEP + 1 : 0;", "(bytes - at - 16) / CHUNK_STEP + 2 : 0;"),
    ("two ranks' sums are not sent back", CHUNK, "return (N > 2 || LONG) && a->back;", "return N > 2 && a->back;"),
    ("of a long chunk only whole groups are added up", TILE, "                        chunk_reduce_units<N, KIND, AT_ONCE, LONG, CHUNK_WHOLE>(a, block, thread, at, u, number);\n                        return;", "                        return;"),
    ("sums of a tile are sent to the root's piece, too", TILE, "(a->root == EXCHANGE_NO_ROOT || a->root == to))\n                        chunk_send", "(a->root == EXCHANGE_NO_ROOT || a->root != to))\n                        chunk_send"),
    ("a root keeps its first piece alone", TILE, "        for (uint32_t i = 1; i < N; i++)\n                chunk_keep_piece", "        for (uint32_t i = 1; i < 2; i++)\n                chunk_keep_piece"),
    ("pieces are not turned", CHUNK, "const uint32_t i = r + a->turn < N ? r + a->turn : r + a->turn - N;", "const uint32_t i = r;"),
    ("the last sums are not waited for", LEAVE, "return a->tiles + a->back;", "return a->tiles;"),
    ("all units of a thread lie at one place", CHUNK, "                       (LONG ? a->room : EXCHANGE_UNITS(N)) +\n", "                       (LONG ? a->room : 1) +\n"),
    ("places lie by what a call has in a tile", CHUNK, "                       (LONG ? a->room : EXCHANGE_UNITS(N)) +\n", "                       (LONG ? a->room : a->units) +\n"),
    ("of units that go one by one only the first does", CHUNK, "return AT_ONCE < EXCHANGE_UNITS(N) ? a->units : 1;", "return 1;"),
    ("a unit less is sent than there are", CHUNK, "(a->piece_bytes - at + CHUNK_STEP - 1) / CHUNK_STEP : 0;", "(a->piece_bytes - at) / CHUNK_STEP : 0;"),
    ("of packets what was called is not compared", STEP, "if (called && warp_any(!pair_agrees(a, op, l)))", "if (false)"),
    ("packets count as taken before they are", STEP, "        warp_sync();\n        if (exchange_any(shared, heard != EXCHANGE_CAME)) /* and all have read */", "        if (thread == 0)\n                word_store(pair_word_of(a, PAIR_CREDIT, l->peer, a->rank, l->lane), l->number);\n        if (exchange_any(shared, heard != EXCHANGE_CAME)) /* and all have read */"),
    ("packets have the flag of those before", STEP, "return number * 2 + 1;", "return (number & ~UINT32_C(3)) * 2 + 1;"),
    ("who waits for chunks hears nothing of packets", STEP, "                word_store(pair_word_of(a, PAIR_FLAG, l->peer, a->rank, l->lane), l->number);\n        }\n        warp_sync();\n        exchange_meet(shared); /* before", "        }\n        warp_sync();\n        exchange_meet(shared); /* before"),
    ("blocks of transfers never leave", STEP, "if (round % EXCHANGE_WHILE == 0 && exchange_patience(a, thread, round, shared))", "if (false)"),
    ("a lane that was left counts the chunk twice", PAIR, "heard == EXCHANGE_LATE ? l.number - 1 : l.number", "l.number"),
    ("a lane that was left begins anew", PAIR, "                chunk = progress & PAIR_CHUNK;", "                chunk = l.lane;"),
    ("turns before the lane was left do not count", PAIR, "i = p->op[i].next)\n                        l.turn++;", "i = p->op[i].next)\n                        ;"),
    ("a block of transfers that is late ends", PAIR, "                if (!pair_is_late(shared))\n                        break;", "                if (through)\n                        break;"),
    ("all bytes say who is late", PAIR, "warp < EXCHANGE_THREADS / WARP_THREADS", "warp < EXCHANGE_LANES"),
    ("who waits for packets has failed", STEP, "EXCHANGE_NEVER : EXCHANGE_LATE;", "EXCHANGE_NEVER : EXCHANGE_NEVER;"),
    ("who leaves does not say who is waited for", PAIR, "                if (l.lane == 0)\n                        pair_names(a, &l, true);\n", ""),
    ("all receives are waited for ahead", PAIR, "                        there |= flag_look(flag)", "                        there = flag_look(flag)"),
    ("nothing is waited for ahead", PAIR, "                if (there || warp_any(exchange_gives_up(a, 0, thread, round)))", "                if (true)"),
    ("who waits ahead waits for ever", PAIR, "                if (there || warp_any(exchange_gives_up(a, 0, thread, round)))", "                if (there)"),
    ("the second unit is the first", STEP, "x[u] = unit_load_any(op->address + here, op->bytes - here", "x[u] = unit_load_any(op->address + at, op->bytes - here"),
)
TESTS = {PAIR: "test_pairs", STEP: "test_pairs"}  # of all others: test_exchange
ONE_FLAG = "test_line_form"  # of those whose names begin with "one flag": lines as on NVIDIA's GPUs


def build(root: pathlib.Path, definitions: list[str], cxx: str, libraries: list[str], work: pathlib.Path, test: str) -> str:
    """work/<test>, with the sources in work/client. What the compiler says if it cannot be built; else empty."""
    command = [cxx, *FLAGS, *definitions, f"-I{work}", f"-I{root}", f"-I{root}/include", str(root / f"tests/device/{test}.cc")]
    command += ["-o", str(work / test), *libraries, "-lcmocka", "-lm"]
    built = subprocess.run(command, capture_output=True, text=True)
    return built.stderr[-400:] or "no reason given" if built.returncode else ""


def passes(program: pathlib.Path, seed: str, seconds: float | None) -> bool:
    environment = {**os.environ, "RAILMUX_SEED": seed, "RAILMUX_FULL": "0"}
    try:
        return subprocess.run([program], env=environment, capture_output=True, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def mutant(root: pathlib.Path, make: tuple, work: pathlib.Path, m: tuple, seconds: float) -> str:
    """What is wrong with it; empty: nothing."""
    name, file, old, new = m
    shutil.copytree(root / "client", work / "client")
    at = work / "client/hip" / file
    text = at.read_text()
    if text.count(old) != 1:
        return f"{name}: its place in {file} is there {text.count(old)} times"
    at.write_text(text.replace(old, new))
    test = ONE_FLAG if name.startswith("one flag") else TESTS.get(file, "test_exchange")
    said = build(root, *make, work, test)
    if said:
        return f"{name}: does not compile: {said}"
    return f"{name}: is not found" if all(passes(work / test, seed, seconds) for seed in SEEDS) else ""


def main(cxx: str, root: str, definitions: str, *libraries: str) -> int:
    every = 1 if os.environ.get("RAILMUX_FULL") == "1" else 8
    turn = int(os.environ.get("RAILMUX_SEED", "1")) % every
    chosen = [m for i, m in enumerate(MUTANTS) if i % every == turn]
    wrong = []
    for name, file, old, new in MUTANTS:
        if (pathlib.Path(root) / "client/hip" / file).read_text().count(old) != 1 or old == new:
            wrong.append(f"{name}: changes nothing")
    top, make = pathlib.Path(root).resolve(), ([f"-D{word}" for word in definitions.split()], cxx, list(libraries))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        at = pathlib.Path(folder)
        began = time.monotonic()
        for test in ("test_exchange", ONE_FLAG, *sorted(set(TESTS.values()))):
            said = build(top, *make, at, test)
            if said:
                print(f"{test} cannot be built: {said}")
                return 1
            if not all(passes(at / test, seed, None) for seed in SEEDS):
                print(f"{test} fails without any mutation")
                return 1
        seconds = 10 + 5 * (time.monotonic() - began) / len(SEEDS)
        runs = [pool.submit(mutant, top, make, at / str(i), m, seconds) for i, m in enumerate(chosen)]
        wrong += [run.result() for run in runs if run.result()]
    for line in wrong:
        print(line)
    print(f"{len(chosen)} of {len(MUTANTS)} mutants, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
