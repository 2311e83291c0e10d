#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Proves the one-way rule of the tree from the include lines.

util < ring < proto < topology < plan < {gpu, fabric} < {executor, daemon}; the client, the tools and the examples see what
RULES says. Every include must resolve to a file of the tree, to a generated header or to the system; a folder without a rule
is an error, so that a new folder gets one.

    check_layers.py ROOT        check a tree
    check_layers.py --self-test plant violations in a scratch tree; each must be found
"""

import os
import re
import sys
import tempfile

import tree

# Longest match wins. A folder may always include itself and include/railmux.
RULES = {
    "include/railmux": [],
    "util": [],
    "ring": ["util"],
    "proto": ["util", "ring"],
    "topology": ["util", "ring", "proto"],
    "plan": ["util", "ring", "proto", "topology"],
    "gpu": ["util", "ring", "proto", "topology", "plan", "gpu/device"],
    "gpu/host": ["util", "ring", "proto", "topology", "plan", "gpu"],
    "gpu/hip": ["util", "ring", "proto", "topology", "plan", "gpu", "gpu/device"],
    "gpu/device": ["util", "ring", "plan"],
    "fabric": ["util", "ring", "proto", "topology", "plan"],
    "executor": ["util", "ring", "proto", "topology", "plan", "gpu", "gpu/host", "fabric"],
    "daemon": ["util", "ring", "proto", "topology", "plan", "gpu", "gpu/host", "fabric"],
    "client": ["util", "ring", "proto"],
    "client/hip": ["util", "ring", "proto", "client", "gpu/device"],
    "client/nccl": [],
    "tools": [],
    "tools/ctl": ["util", "proto", "topology"],
    "tools/perf": ["util"],
    "tools/perf/hip": ["tools/perf", "gpu/device"],
    "tools/sim": ["util", "topology", "plan"],
    "bench": ["util"],
    "examples": [],
    "tests": None,  # everything
}
# The shared-memory ABI is compiled into clients, executors, kernels and checkers: no allocation, no loop, no log.
BARRED_INCLUDES = {
    "ring": {"util/log.h", "stdlib.h", "malloc.h", "stdio.h", "event2/", "systemd/", "syslog.h"},
    "gpu/device": {"util/log.h", "stdlib.h", "stdio.h", "event2/"},
}
GENERATED = re.compile(r"^proto/[a-z_]+\.pb-c\.h$")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(.*)$", re.MULTILINE)


def component(path):
    folder = os.path.dirname(path)
    while folder:
        if folder in RULES:
            return folder
        folder = os.path.dirname(folder)
    return None


def resolve(root, path, name, quoted):
    """The file of the tree that an include names, or None for the system's."""
    candidates = [name, os.path.join("include", name)]
    if quoted:
        candidates.insert(0, os.path.join(os.path.dirname(path), name))
    for candidate in candidates:
        candidate = os.path.normpath(candidate)
        if os.path.isfile(os.path.join(root, candidate)) or GENERATED.match(candidate):
            return candidate
    return None


def check_include(root, path, owner, spelled):
    match = re.match(r'(?:"([^"]+)"|<([^>]+)>)\s*$', spelled)
    if not match:
        return f"computed include {spelled}: the rule cannot be proved"
    quoted = match.group(1) is not None
    name = match.group(1) or match.group(2)
    target = resolve(root, path, name, quoted)
    for barred in BARRED_INCLUDES.get(owner, ()):
        seen = target or name
        if seen == barred or (barred.endswith("/") and seen.startswith(barred)):
            return f"{owner}/ must not include {seen}"
    if target is None:
        return f'"{name}" is not in the tree (system headers take <>)' if quoted else None
    if os.path.isabs(name) or target.startswith(".."):
        return f"{name} lies outside the tree"
    if target.endswith((".c", ".cc", ".cpp")) and owner != "tests":
        return f"includes the source file {target}"
    layer = component(target)
    if layer is None:
        return f"{target} is in a folder without a rule"
    allowed = RULES[owner]
    if allowed is None or layer == owner or layer == "include/railmux" or layer in allowed:
        return None
    return f"{owner}/ must not include {target} ({layer}/)"


def check(root):
    """List of (path, line, sentence)."""
    violations = []
    for path in tree.sources(root):
        owner = component(path)
        if owner is None:
            violations.append((path, 1, "is in a folder without a rule; add one to RULES"))
            continue
        text = tree.without_comments(tree.read(root, path)).replace("\\\n", "  ")
        for match in INCLUDE.finditer(text):
            sentence = check_include(root, path, owner, match.group(1).strip())
            if sentence:
                violations.append((path, text.count("\n", 0, match.start()) + 1, sentence))
    return violations


CLEAN = {
    "include/railmux/railmux.h": "#include <stdint.h>\n",
    "util/a.h": "#pragma once\n#include <stdlib.h>\n",
    "util/log.h": "",
    "ring/a.h": '#include "util/a.h"\n#include "railmux/railmux.h"\n',
    "proto/a.h": '#include "ring/a.h"\n#include "proto/session.pb-c.h"\n',
    "topology/a.h": '#include "proto/a.h"\n',
    "plan/a.h": '#include "topology/a.h"\n#include "ring/a.h"\n',
    "gpu/gpu.h": '#include "plan/a.h"\n',
    "gpu/host/a.c": '#include "gpu/gpu.h"\n',
    "gpu/device/a.h": '#include "ring/a.h"\n',
    "gpu/hip/a.c": '#include "gpu/device/a.h"\n#include "gpu/gpu.h"\n',
    "fabric/a.h": '#include "plan/a.h"\n',
    "executor/a.h": '#include "gpu/gpu.h"\n#include "fabric/a.h"\n',
    "daemon/a.h": '#include "fabric/a.h"\n#include "a.h"\n',
    "client/a.h": '#include "proto/a.h"\n#include "ring/a.h"\n/* #include "daemon/a.h" */\n',
    "client/hip/a.c": '#include "gpu/device/a.h"\n#include "client/a.h"\n',
    "client/nccl/a.c": '#include <railmux/railmux.h>\n#include <dlfcn.h>\n',
    "tools/ctl/a.c": '#include "proto/a.h"\n',
    "tools/perf/a.c": '#include "util/a.h"\n#include <railmux/railmux.h>\n',
    "tools/sim/a.c": '#include "plan/a.h"\n',
    "examples/block/a.c": "#include <railmux/railmux.h>\n// #include \"util/a.h\"\n",
    "tests/daemon/a.c": '#include "daemon/a.h"\n#include "executor/a.h"\n',
}
PLANTED = [
    ("util/b.c", '#include "ring/a.h"\n'),
    ("ring/b.c", '#include "proto/a.h"\n'),
    ("ring/b.c", '#include "util/log.h"\n'),
    ("ring/b.c", "#include <stdlib.h>\n"),
    ("ring/b.c", "#include <event2/event.h>\n"),
    ("proto/b.c", '#include "topology/a.h"\n'),
    ("topology/b.c", '#include "plan/a.h"\n'),
    ("plan/b.c", '#include "gpu/gpu.h"\n'),
    ("plan/b.c", '#include "fabric/a.h"\n'),
    ("gpu/b.c", '#include "fabric/a.h"\n'),
    ("gpu/host/b.c", '#include "executor/a.h"\n'),
    ("gpu/host/b.c", '#include "../../executor/a.h"\n'),
    ("gpu/device/b.h", '#include "topology/a.h"\n'),
    ("fabric/b.c", '#include "gpu/gpu.h"\n'),
    ("executor/b.c", '#include "daemon/a.h"\n'),
    ("daemon/b.c", '#include "executor/a.h"\n'),
    ("daemon/b.c", "#  include   <executor/a.h>\n"),
    ("daemon/b.c", '#include \\\n"executor/a.h"\n'),
    ("daemon/b.c", '/* a comment */ #define X\n#include "client/a.h"\n'),
    ("daemon/b.c", '#include "gpu/hip/a.c"\n'),
    ("client/b.c", '#include "plan/a.h"\n'),
    ("client/b.c", '#include "daemon/a.h"\n'),
    ("client/b.c", '#include "gpu/device/a.h"\n'),
    ("client/nccl/b.c", '#include "util/a.h"\n'),
    ("client/nccl/b.c", '#include "client/a.h"\n'),
    ("tools/ctl/b.c", '#include "ring/a.h"\n'),
    ("tools/ctl/b.c", '#include "daemon/a.h"\n'),
    ("tools/perf/b.c", '#include "proto/a.h"\n'),
    ("tools/sim/b.c", '#include "gpu/gpu.h"\n'),
    ("tools/perf/b.c", '#include "tools/ctl/a.h"\n'),
    ("examples/b.c", '#include "util/a.h"\n'),
    ("include/railmux/b.h", '#include "util/a.h"\n'),
    ("include/railmux/b.h", '#include "gpu/device/a.h"\n'),
    ("examples/b.hip", '#include "gpu/device/a.h"\n'),
    ("util/b.c", '#include "tests/daemon/a.c"\n'),
    ("util/b.c", '#include "missing.h"\n'),
    ("util/b.c", '#define HEADER "a.h"\n#include HEADER\n'),
    ("util/b.c", '#include "a.c"\n'),
    ("novel/b.c", "int x;\n"),
    ("b.c", "int x;\n"),
]


def write(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        for path, text in CLEAN.items():
            write(root, path, text)
        write(root, "util/a.c", "int a;\n")
        write(root, "tools/ctl/a.h", "")
        for violation in check(root):
            print("false alarm:", violation)
            failures += 1
        for path, text in PLANTED:
            write(root, path, text)
            found = check(root)
            if len(found) != 1 or found[0][0] != path:
                print(f"planted {path}: {text!r}: found {found}")
                failures += 1
            os.remove(os.path.join(root, path))
    print(f"{len(PLANTED)} planted violations, {failures} problems")
    return failures


def main(argv):
    if argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    violations = check(argv[1])
    for path, line, sentence in violations:
        print(f"{path}:{line}: {sentence}")
    print(f"{len(tree.sources(argv[1]))} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
