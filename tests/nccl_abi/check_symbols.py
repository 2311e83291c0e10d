#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A library exports exactly the list, and has the soname that programs look for.

    check_symbols.py LIST LIBRARY SONAME
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


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    listing = subprocess.run(["nm", "-D", "--defined-only", argv[2]], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines() if line.strip()}
    dynamic = subprocess.run(["readelf", "-d", argv[2]], check=True, capture_output=True, text=True).stdout
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    names = wanted(argv[1])
    problems = [f"exported but not in the list: {name}" for name in sorted(exported - names)]
    problems += [f"in the list but not exported: {name}" for name in sorted(names - exported)]
    if not soname or soname.group(1) != argv[3]:
        problems.append(f"soname is {soname.group(1) if soname else 'missing'}, must be {argv[3]}")
    print("\n".join(problems + [f"{len(names)} symbols, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
