#!/usr/bin/env python3
"""Checks that every relative link in the repository's Markdown names a file, and every anchor a heading of that file."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.M | re.S)


def anchors(text):
    """The anchors that GitHub gives to the headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S), re.M):
        base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (name := f"{base}-{number}" if number else base) in found:
            number += 1
        found.add(name)
    return found


def problems(document):
    for target in LINK.findall(CODE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file.read_text()):
            yield f"{target}: no such heading"


def main():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = [f"{name}: {problem}" for name in names for problem in problems(ROOT / name)]
    print("\n".join([*found, f"{len(names)} documents, {len(found)} broken links"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
