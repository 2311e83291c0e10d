#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Habits of the house that a script can see: functions that are not used here, licence lines, notes left behind.

    check_habits.py ROOT        check a tree
    check_habits.py --self-test plant violations in a scratch tree; each must be found
"""

import os
import re
import sys
import tempfile

import tree

# name -> what to use instead
FORBIDDEN = {
    "strcpy": "snprintf or memcpy with a known size",
    "stpcpy": "snprintf or memcpy with a known size",
    "strcat": "snprintf",
    "strncpy": "snprintf: strncpy does not terminate",
    "strncat": "snprintf",
    "sprintf": "snprintf",
    "vsprintf": "vsnprintf",
    "gets": "fgets",
    "strtok": "strsep or strchr",
    "atoi": "strtoul with its end checked, or util/parse.h",
    "atol": "strtoul with its end checked, or util/parse.h",
    "atoll": "strtoul with its end checked, or util/parse.h",
    "system": "posix_spawn or fork and exec",
    "popen": "posix_spawn or fork and exec",
    "alloca": "malloc or a bounded array",
    "mktemp": "mkstemp or memfd_create",
    "tmpnam": "mkstemp or memfd_create",
    "tempnam": "mkstemp or memfd_create",
    "tmpfile": "memfd_create",
    "rand": "getrandom",
    "srand": "getrandom",
    "setjmp": "an error that is returned",
    "longjmp": "an error that is returned",
    "gethostbyname": "getaddrinfo",
    "localtime": "gmtime_r",
    "gmtime": "gmtime_r",
    "asctime": "strftime",
    "ctime": "strftime",
}
# A printed seed makes a random test repeatable; a model checker leaves an execution where it stands.
ALLOWED_IN_TESTS = {"rand", "srand", "setjmp", "longjmp"}
# A test waits for a condition (poll, futex, condition variable), never for time to pass.
FORBIDDEN_IN_TESTS = {name: "wait for the condition itself" for name in ("sleep", "usleep", "nanosleep", "clock_nanosleep")}
# Only main() ends the process; a forked child uses _exit().
FORBIDDEN_BELOW_MAIN = {name: "return an error to main()" for name in ("exit", "quick_exit", "err", "errx")}
NOTES = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def calls(code):
    return re.finditer(r"(?<![\w.>])([a-z_]\w*)\s*\(", code)


def check(root):
    violations = []
    for path in tree.sources(root):
        text = tree.read(root, path)
        code = tree.code_only(text)
        in_tests = path.startswith("tests/")
        in_main = os.path.basename(path) == "main.c" or path.startswith(("tests/", "examples/"))
        if "SPDX-License-Identifier: MIT" not in text.split("\n", 1)[0]:
            violations.append((path, 1, "the first line has no SPDX-License-Identifier: MIT"))
        if path.endswith(".h") and not path.startswith("include/") and not re.search(r"^#pragma once$", code, re.MULTILINE):
            violations.append((path, 1, "has no #pragma once"))
        for match in calls(code):
            name = match.group(1)
            advice = FORBIDDEN.get(name)
            if in_tests and name in ALLOWED_IN_TESTS:
                advice = None
            if not advice and in_tests:
                advice = FORBIDDEN_IN_TESTS.get(name)
            if not advice and not in_main:
                advice = FORBIDDEN_BELOW_MAIN.get(name)
            if advice:
                violations.append((path, code.count("\n", 0, match.start()) + 1, f"{name}(): use {advice}"))
        for match in NOTES.finditer(text):
            violations.append((path, text.count("\n", 0, match.start()) + 1, f"{match.group()}: do it or drop it"))
    return violations


HEAD = "/* SPDX-License-Identifier: MIT */\n"
CLEAN = {
    "util/a.h": HEAD + "#pragma once\nint a(void);\n",
    "util/a.c": HEAD + '/* strcpy(a, b) */\nconst char *t = "system(x)";\nint b(void) { return s.rand(1) + p->exit(2); }\n',
    "daemon/main.c": HEAD + "int main(void) { exit(1); }\n",
    "client/a.c": HEAD + "void f(void) { nanosleep(a, b); _exit(1); my_strcpy(a, b); }\n",
    "tests/a.c": HEAD + "int main(void) { srand(1); exit(0); }\n",
}
PLANTED = (
    [("util/b.c", HEAD + f"void f(void) {{ {name}(x); }}\n") for name in FORBIDDEN]
    + [("tests/b.c", HEAD + f"void f(void) {{ {name} (1); }}\n") for name in FORBIDDEN_IN_TESTS]
    + [("daemon/b.c", HEAD + f"void f(void) {{ {name}(1); }}\n") for name in FORBIDDEN_BELOW_MAIN]
    + [("util/b.c", HEAD + f"/* {word}: later */\n") for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX")]
    + [("util/b.c", "int x;\n"), ("util/b.h", HEAD + "int x;\n")]
)


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        for path, text in CLEAN.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        for violation in check(root):
            print("false alarm:", violation)
            failures += 1
        for path, text in PLANTED:
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
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
