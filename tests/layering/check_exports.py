#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""librailmux.so exports exactly what the public header declares with RMX_API, and all of it begins with rmx_.

    check_exports.py HEADER LIBRARY
"""

import re
import subprocess
import sys

import tree


def declared(header):
    code = tree.code_only(header)
    return set(re.findall(r"^RMX_API\b[^;()]*?\b(\w+)\s*\(", code, re.MULTILINE))


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as file:
        wanted = declared(file.read())
    listing = subprocess.run(["nm", "-D", "--defined-only", argv[2]], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.strip()}
    # The names of symbol versions are listed as absolute symbols.
    versions = {line.split()[-1].split("@")[0] for line in listing.splitlines() if " A " in line}
    exported -= versions
    problems = [f"exported but not declared: {name}" for name in sorted(exported - wanted)]
    problems += [f"declared but not exported: {name}" for name in sorted(wanted - exported)]
    problems += [f"declared without the prefix: {name}" for name in sorted(wanted) if not name.startswith("rmx_")]
    if not wanted:
        problems.append("the header declares nothing")
    print("\n".join(problems + [f"{len(wanted)} functions, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
