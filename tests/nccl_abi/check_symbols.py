#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library exports exactly the list, and has the soname that programs look for. The list has all that NCCL has, in
every version that is written down: a program that misses a name is not even started.

    check_symbols.py LIST VERSIONS LIBRARY SONAME
"""

import re
import subprocess
import sys


def wanted(path):
    names = set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                names.add(words[0])
                if "rccl" not in words[1:]:
                    names.add("p" + words[0])
    return names


def of_versions(path):
    """[(name, the first version that has it)]"""
    names, version = [], None
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words and words[0].startswith("["):
                version = words[0].strip("[]")
            elif words and "internal" not in words[1:]:
                names += [(words[0], version), ("p" + words[0], version)]
    return names


def main(argv):
    if len(argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    listing = subprocess.run(["nm", "-D", "--defined-only", argv[3]], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines() if line.strip()}
    dynamic = subprocess.run(["readelf", "-d", argv[3]], check=True, capture_output=True, text=True).stdout
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    names = wanted(argv[1])
    problems = [f"exported but not in the list: {name}" for name in sorted(exported - names)]
    problems += [f"in the list but not exported: {name}" for name in sorted(names - exported)]
    of_nccl = of_versions(argv[2])
    problems += [f"NCCL has it since {version}: {name}" for name, version in of_nccl if name not in exported]
    if not of_nccl:
        problems.append(f"{argv[2]} names nothing")
    if not soname or soname.group(1) != argv[4]:
        problems.append(f"soname is {soname.group(1) if soname else 'missing'}, must be {argv[4]}")
    print("\n".join(problems + [f"{len(names)} symbols, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
