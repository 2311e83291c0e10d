#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A plug-in exports its one symbol and nothing else, and loads where there is no GPU.

check_plugin.py FILE SYMBOL
"""

import ctypes
import os
import subprocess
import sys


def main(path, symbol):
    listed = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    exported = sorted(line.split()[-1].split("@")[0] for line in listed.splitlines())
    if exported != [symbol]:
        print(f"{path} exports {exported}, should be {symbol}")
        return 1
    # As it is loaded for real: all symbols at once, seen by nobody else.
    if not ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_LOCAL), symbol)):
        return 1
    print(f"{path}: {symbol}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
