#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds one library of a build tree once more, in another way, for compare.py.

    variant.py BUILD-TREE OUT.so [--target lib/librailmux-hip.so] [--source TREE] [-DNAME=VALUE ...]

The commands are those of the build tree (Ninja), with these macros besides, or the sources of another tree (a worktree
of git at another commit); the build tree stays as it is. Constants that are to be tried stand in #ifndef for that.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

WITH_VALUE = ("-MT", "-MF", "-keep-dir")  # lists of dependencies are not wanted, nor what the build tree keeps
ALONE = ("-MD", "-MMD", "-keep")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="configured with Ninja; what the library is made of need not be built")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--target", default="lib/librailmux-hip.so", help="default: %(default)s")
    parser.add_argument("--source", type=pathlib.Path, help="of another tree (default: the build tree's)")
    parser.add_argument("-D", dest="macros", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.build, options.out = options.build.resolve(), options.out.resolve()
    if not (options.build / "build.ninja").is_file():
        parser.error(f"{options.build} is no build tree of Ninja")
    if options.source and not (options.source / "CMakeLists.txt").is_file():
        parser.error(f"{options.source} is no source tree")
    return options


def source_of(build: pathlib.Path) -> pathlib.Path:
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    if not found:
        raise RuntimeError(f"{build}/CMakeCache.txt does not name the sources")
    return pathlib.Path(found.group(1))


def words_of(command: str) -> list[str]:
    """Of the part that compiles or links, without what writes down dependencies and reports."""
    for part in re.split(r"\s&&\s", command):
        words = shlex.split(part)
        if words and pathlib.Path(words[0]).name == "keep-report":
            words = words[2:]
        if "-o" not in words:
            continue
        kept: list[str] = []
        skip = False
        for word in words:
            if not skip and word not in WITH_VALUE and word not in ALONE:
                kept.append(word)
            skip = not skip and word in WITH_VALUE
        return kept
    return []


class Variant:
    def __init__(self, options: argparse.Namespace, scratch: pathlib.Path) -> None:
        self.options, self.scratch = options, scratch
        self.source = source_of(options.build)
        listed = subprocess.run(
            ["ninja", "-C", str(options.build), "-t", "commands", options.target], capture_output=True, text=True, check=False
        )
        if listed.returncode:
            raise RuntimeError(listed.stderr.strip() or listed.stdout.strip())
        self.objects: dict[str, str] = {}  # as the build tree names them: ours
        self.compiles: list[list[str]] = []
        self.link: list[str] = []
        for line in listed.stdout.splitlines():
            self.take(words_of(line))
        if not self.link or not self.compiles:
            raise RuntimeError(f"{options.target} is not compiled from sources here")

    def take(self, words: list[str]) -> None:
        if not words:
            return
        at = words.index("-o") + 1
        if "-c" in words:
            ours = str(self.scratch / f"{len(self.objects)}.o")
            self.objects[os.path.relpath(self.options.build / words[at], self.options.build)] = ours
            words[at] = ours
            self.compiles.append([words[0], *(f"-D{macro}" for macro in self.options.macros), *map(self.moved, words[1:])])
        elif words[at] == self.options.target:
            words[at] = str(self.options.out)
            self.link = words

    def moved(self, word: str) -> str:
        """Names in the source tree, but for those of the build tree in it."""
        if not self.options.source:
            return word
        inside = rf"{re.escape(str(self.source))}(?!{re.escape(str(self.options.build)[len(str(self.source)):])})(?=/|$)"
        return re.sub(inside, str(self.options.source.resolve()), word)

    def run(self, words: list[str]) -> None:
        done = subprocess.run(words, cwd=self.options.build, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(words)}\n{done.stdout}{done.stderr}")

    def make(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.run, self.compiles))
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.run([self.objects.get(os.path.normpath(word), word) for word in self.link])


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="rmx-variant-") as scratch:
        try:
            Variant(options, pathlib.Path(scratch)).make()
        except (OSError, RuntimeError) as error:
            print(f"variant.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
