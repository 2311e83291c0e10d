# SPDX-License-Identifier: MIT
"""Walking the sources: which files count, and what is left of a C file without comments and strings."""

import os
import re

SOURCE_ENDINGS = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".hip", ".inc")
SKIPPED_FOLDERS = {"build", "__pycache__"}

# A string keeps its quotes, a comment becomes one blank; both keep their line breaks, so line numbers stay right.
_TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//(?:[^\\\n]|\\.|\\\n)*)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)


def sources(root):
    """Paths relative to root of all C and C++ sources, sorted."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        for name in sorted(files):
            if name.endswith(SOURCE_ENDINGS):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def _blank(text):
    return "".join(c if c == "\n" else " " for c in text)


def without_comments(text):
    return _TOKEN.sub(lambda m: _blank(m.group()) if m.group("comment") else m.group(), text)


def code_only(text):
    """Without comments and without the contents of strings."""

    def replace(match):
        whole = match.group()
        if match.group("comment"):
            return _blank(whole)
        return whole[0] + _blank(whole[1:-1]) + whole[-1]

    return _TOKEN.sub(replace, text)
