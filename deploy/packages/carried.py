#!/usr/bin/env python3
"""Prints the libraries that a release carries beside its programs, a line each: name, file, package. Only the C library is
left out, which comes with the machine.

  carried.py PROGRAM...
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "images"))

import rootfs


def carried(programs):
    """[(name, file, package)]; the package is None if the file is from no package."""
    loaded = rootfs.libraries(programs)
    owner = rootfs.owners(loaded)
    return [(name, loaded[name], owner[name]) for name in sorted(loaded) if owner[name] != rootfs.C_LIBRARY]


if __name__ == "__main__":
    for line in carried(sys.argv[1:]):
        print(*line)
