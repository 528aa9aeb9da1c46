#!/usr/bin/env python3
"""How long it takes from the file of a release to the first answer, on a bare system (tests/release/bare.py).

usage: install.py [--release DIR] [--rounds N] [--out FILE.jsonl]
Each round starts with a new system and installs the bundle, the wheel and the Debian package, one after the other: the
commands are those of docs/install.md. The clock runs from the first command until the answer is complete; the download of
the file is not part of it. The wheel's system has Python with venv, the Debian package's has libssl3: what it takes to get
these is not part of it either.
"""
import argparse
import datetime
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("release", "gpu")]

from bare import Root  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from results import emit  # noqa: E402

GOAL_S = 30
ASK = "--stages 2 --chat 'Who are you?' --temperature 0"
WAYS = {  # file of the release, packages of the system, commands
    "bundle": ("*-linux-*.tar.gz", (), ("bash quickstart.sh --bundle {file}",)),
    "wheel": ("*.whl", ("python3-venv",), ("python3 -m venv venv", "venv/bin/pip install -q --no-index {file}",
                                           f"venv/bin/stagecoach generate --model venv/share/stagecoach/demo-model {ASK}")),
    "deb": ("*.deb", ("libssl3",), ("dpkg --install ./{file}",
                                             f"stagecoach generate --model /usr/share/stagecoach/demo-model {ASK}")),
}


def seconds(file, packages, commands):
    with tempfile.TemporaryDirectory() as folder:
        root = Root(folder)
        if packages:
            root.add(*packages)
        for one in (file, ROOT / "deploy" / "quickstart.sh"):
            (root.folder / "tmp" / one.name).write_bytes(one.read_bytes())
        began = time.monotonic()
        for command in commands:
            said = root.run("sh", "-c", f"cd /tmp && {command.format(file=file.name)}")
            if said.returncode:
                sys.exit(f"{command}: {said.stdout}{said.stderr}")
        took = time.monotonic() - began
        if not re.search(r"coach|timetable", said.stdout):
            sys.exit(f"no answer: {said.stdout}")
        return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=pathlib.Path, default=ROOT / "build" / "release", help="made by deploy/release.sh")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    files = {way: next(iter(args.release.glob(pattern)), None) for way, (pattern, _, _) in WAYS.items()}
    if None in files.values():
        sys.exit(f"{args.release} is not complete: run deploy/release.sh")
    load = round(os.getloadavg()[0], 1)
    took = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, (_, packages, commands) in WAYS.items():
            took[way].append(seconds(files[way], packages, commands))
    for way, (_, _, commands) in WAYS.items():
        median = statistics.median(took[way])
        emit({"name": f"install/{way}", "value": round(median, 2), "unit": "s to the first answer",
              "reference": f"goal: at most {GOAL_S} s", "ratio": round(median / GOAL_S, 3), "met": median <= GOAL_S,
              "seconds": [round(one, 2) for one in sorted(took[way])], "commands": len(commands),
              "file_bytes": files[way].stat().st_size, "model": "demo-model", "machine": machine_of("cpu", []),
              "load_average_before": load,
              "date": datetime.date.today().isoformat(), "commit": commit_of(),
              "command": f"tests/bench/install.py --rounds {args.rounds}"}, args.out)


if __name__ == "__main__":
    main()
