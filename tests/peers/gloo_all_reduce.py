# SPDX-License-Identifier: MIT
"""all_reduce of torch.distributed over Gloo, measured the way railmux-perf measures rmx_all_reduce (tools/perf/bench.c).

    verified call - warm-up calls - barrier - measured calls, back to back - verified call

A call's time is that of its slowest rank; percentiles are nearest rank. The ranks are forked after torch is loaded, so that
a run costs one load; nothing of torch has a thread before. Gloo reduces in place only.

    gloo_all_reduce.py RANKS BYTES WARMUP ITERATIONS

Prints the version as a comment, then one line: bytes, calls, time, p50, p99 (us), wrong elements.
"""

import datetime
import math
import mmap
import os
import sys
import tempfile
import time

EXIT_RIGHT, EXIT_WRONG, EXIT_USAGE, EXIT_FAILED, EXIT_NO_TORCH = 0, 1, 2, 3, 77
PERIOD = 251  # of the data; prime, so that no power-of-two shift maps it onto itself
TIMEOUT = datetime.timedelta(seconds=60)

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one rank, one thread, as in the others
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"gloo_all_reduce.py: no torch here: {error}", file=sys.stderr)
    sys.exit(EXIT_NO_TORCH)
if not dist.is_available() or not getattr(dist, "is_gloo_available", lambda: True)():
    print("gloo_all_reduce.py: this torch was built without Gloo", file=sys.stderr)
    sys.exit(EXIT_NO_TORCH)


def part(rank, iteration, count):
    """Small whole numbers: every sum of them is exact in fp32, in any order."""
    return ((torch.arange(count) + iteration) % PERIOD * (rank + 1)).to(torch.float32)


def run_verified(tensor, rank, ranks, iteration):
    count = tensor.numel()
    tensor.copy_(part(rank, iteration, count))
    dist.all_reduce(tensor)
    expected = sum(part(r, iteration, count) for r in range(ranks))
    return int((tensor != expected).sum())


def rank_main(rank, ranks, count, warmup, iterations, store, samples):
    """samples: this rank's row of the shared table; behind the times follow the whole time and the wrong elements."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=TIMEOUT)
    tensor = torch.zeros(count, dtype=torch.float32)
    now = time.monotonic_ns
    wrong = run_verified(tensor, rank, ranks, 1)
    tensor.zero_()  # sums of sums would soon leave the range of the type
    for _ in range(warmup):
        dist.all_reduce(tensor)
    dist.barrier()
    start = after = now()
    for i in range(iterations):
        before = after
        dist.all_reduce(tensor)
        after = now()
        samples[i] = after - before
    samples[iterations] = after - start
    wrong += run_verified(tensor, rank, ranks, 2)
    samples[iterations + 1] = wrong
    dist.barrier()
    dist.destroy_process_group()


def percentile(ordered, percent):
    return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)]


def run(ranks, size, warmup, iterations):
    width = iterations + 2
    shared = mmap.mmap(-1, ranks * width * 8)
    table = memoryview(shared).cast("Q")
    rows = [table[r * width : (r + 1) * width] for r in range(ranks)]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                status = EXIT_FAILED
                try:
                    rank_main(rank, ranks, size // 4, warmup, iterations, os.path.join(folder, "store"), rows[rank])
                    status = EXIT_RIGHT
                except Exception as error:  # pylint: disable=broad-except
                    print(f"gloo_all_reduce.py: rank {rank}: {error}", file=sys.stderr)
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children.append(child)
        for child in children:
            failed |= os.waitpid(child, 0)[1] != 0
    if failed:
        return EXIT_FAILED
    slowest = sorted(max(row[i] for row in rows) for i in range(iterations))
    mean = max(row[iterations] for row in rows) / iterations
    wrong = sum(row[iterations + 1] for row in rows)
    print(f"# torch {torch.__version__}")
    print(
        f"{size} {iterations} {mean / 1e3:.2f} {percentile(slowest, 50) / 1e3:.2f} {percentile(slowest, 99) / 1e3:.2f} {wrong}"
    )
    return EXIT_WRONG if wrong else EXIT_RIGHT


def main():
    try:
        ranks, size, warmup, iterations = (int(text) for text in sys.argv[1:])
    except ValueError:
        ranks = size = warmup = iterations = 0
    if not 1 <= ranks <= 64 or size < 4 or warmup < 0 or iterations < 1:
        print("usage: gloo_all_reduce.py RANKS BYTES WARMUP ITERATIONS", file=sys.stderr)
        return EXIT_USAGE
    torch.set_num_threads(1)
    return run(ranks, size // 4 * 4, warmup, iterations)


if __name__ == "__main__":
    sys.exit(main())
