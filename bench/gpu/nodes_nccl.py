#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""peers.py with NCCL made to believe that the GPUs are on BENCH_NODES hosts, in rows: what nodes.py compares with."""

from __future__ import annotations

import argparse
import os

import crew as crews
import peers


def rank_main(crew: crews.Crew, options: argparse.Namespace) -> None:
    nodes = int(os.environ["BENCH_NODES"])
    os.environ["NCCL_HOSTID"] = f"virtual-{crew.rank * nodes // crew.ranks}"  # before NCCL looks
    peers.Peers(crew, options).run()


if __name__ == "__main__":
    crews.main(rank_main, peers.parse())
