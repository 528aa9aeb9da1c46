#!/usr/bin/env python3
"""Writes the table of values in README.md from values.yaml and its comments; with --check only tells whether it is current."""
import json
import pathlib
import re
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- values: made by readme.py -->\n", "<!-- end of values -->\n"


def comments(text):
    """{("model", "path"): "the comment lines above the key"}"""
    found, path, above = {}, [], []
    for line in text.splitlines():
        key = re.match(r"( *)([A-Za-z]+):", line)
        comment = re.match(r" *# (.*)", line)
        if key:
            path = path[: len(key[1]) // 2] + [key[2]]
            found[tuple(path)] = " ".join(above)
        above = above + [comment[1]] if comment else []
    return found


def rows(values, told, path=()):
    for key, value in values.items():
        here = path + (key,)
        is_group = isinstance(value, dict) and value and any(told.get(here + (inner,)) is not None for inner in value)
        comment = told.get(here, "")
        if is_group:
            if comment:
                yield ".".join(here), None, comment
            yield from rows(value, told, here)
        else:
            yield ".".join(here), json.dumps(value), comment


def table(text):
    lines = ["| value | default | |", "|---|---|---|"]
    for name, default, comment in rows(yaml.safe_load(text), comments(text)):
        default = "" if default is None else f"`{default}`"
        lines.append(f"| `{name}` | {default} | {comment.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def main():
    readme = HERE / "README.md"
    old = readme.read_text()
    head, rest = old.split(BEGIN)
    _, tail = rest.split(END)
    new = head + BEGIN + "\n" + table((HERE / "values.yaml").read_text()) + "\n" + END + tail
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if new == old else "helm/README.md is not current: run helm/readme.py")
    readme.write_text(new)


if __name__ == "__main__":
    main()
