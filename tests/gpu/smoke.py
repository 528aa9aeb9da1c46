"""Runs tests/gpu/run.py on CPUs with tiny models, for the tests of these scripts."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR", ROOT / "build" / "cpu" / "bin"))


def command(work, *flags, bin_dir=BIN_DIR, device="cpu"):
    return [sys.executable, ROOT / "tests" / "gpu" / "run.py", "--device", device, "--smoke", "--stages", "1,2", "--bin", bin_dir,
            "--work", work, *map(str, flags)]


def run(*args, env=None, **more):
    return subprocess.run(command(*args, **more), capture_output=True, text=True, env=env)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def states(lines):
    return {line["check"]: line["state"] for line in lines if "state" in line}
