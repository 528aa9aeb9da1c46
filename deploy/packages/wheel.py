#!/usr/bin/env python3
"""Packs a release's tree as a Python wheel. It holds no Python: installers put the programs into the environment's bin, and
lib and share beside it, so that a program is started without an interpreter.

  wheel.py --tree DIR --version VERSION --glibc VERSION --out DIR [--level N]

The same tree gives the same bytes.
"""
import argparse
import base64
import csv
import hashlib
import io
import os
import pathlib
import time
import zipfile

SUMMARY = "A pipeline-parallel server for large language models"


def entries(tree, data):
    """(name in the wheel, file): programs are scripts of the wheel, the rest is data below the environment's root."""
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        name = file.relative_to(tree)
        if name.parts[0] == "bin":
            yield f"{data}/scripts/{name.name}", file
        elif name.parts[0] in ("lib", "share"):
            yield f"{data}/data/{name}", file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--tree", "--out"):
        parser.add_argument(flag, type=pathlib.Path, required=True)
    for flag in ("--version", "--glibc"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--level", type=int, default=9, help="of compression, 1 to 9 [9]")
    flags = parser.parse_args()
    name, tag = f"stagecoach-{flags.version}", f"py3-none-manylinux_{flags.glibc.replace('.', '_')}_x86_64"
    info = f"{name}.dist-info"
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # a zip's first year is 1980
    doc = flags.tree / "share" / "doc" / "stagecoach"
    contents = [(entry, file.read_bytes(), file.stat().st_mode & 0o111) for entry, file in entries(flags.tree, f"{name}.data")]
    contents += [(f"{info}/licenses/{one}", (doc / one).read_bytes(), 0) for one in ("LICENSE", "NOTICE")]
    contents += [
        (f"{info}/METADATA", (f"Metadata-Version: 2.4\nName: stagecoach\nVersion: {flags.version}\nSummary: {SUMMARY}\n"
                              "License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: NOTICE\n"
                              f"Description-Content-Type: text/markdown\n\n{(flags.tree / 'README.md').read_text()}").encode(), 0),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: stagecoach\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0)]
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(flags.out / f"{name}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=flags.level) as wheel:
        def add(entry, content, executable=0):
            one = zipfile.ZipInfo(entry, date)
            one.compress_type = zipfile.ZIP_DEFLATED
            one.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(one, content)
        for entry, content, executable in contents:
            add(entry, content, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            rows.writerow((entry, f"sha256={digest}", len(content)))
        rows.writerow((f"{info}/RECORD", "", ""))
        add(f"{info}/RECORD", record.getvalue().encode())


if __name__ == "__main__":
    main()
