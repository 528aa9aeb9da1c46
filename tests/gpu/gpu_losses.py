#!/usr/bin/env python3
"""What the loss of a stage costs on a machine with one GPU, with and without spares, and where the time goes.

usage: tests/gpu/gpu_losses.py [--minutes N] [--rounds N] [--nccl FILE] [--only NAME...] --out DIR
Runs the tests of kept memory if their programs are there, then tests/bench/recovery.py on the demo model. DIR gets
tests.log, recovery.jsonl with a line per stage, NAME.log with each server's log, and phases.txt: the log lines that give
the phases of each start. --nccl: a library that takes several ranks on one GPU (tests/gpu/pack_nccl.py).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

from machine import default_bin
from servers import library_path

ROOT = pathlib.Path(__file__).parents[2]
TESTS = {"kernels_cuda_test": ["Kept*", "L2*"], "golden_cuda_test": ["Captured*"]}
PHASES = re.compile(r".*(?:ended|(?:is|are) ready after|listening on|loaded after|joined after|works again|pipeline waits).*")
FLAGS = "--stall-limit 2 --kv-memory 2GiB --batch-invariant --log-level debug"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=["tests", *runs(None)], default=["tests", *runs(None)], help="only these runs")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nccl", type=pathlib.Path, metavar="FILE")
    return parser.parse_args()


def runs(nccl):
    """{name: arguments of recovery.py}"""
    link = f"--nccl-library {nccl} --nccl-setting NCCL_MULTI_RANK_GPU_ENABLE=1" if nccl else "--transport host"

    def run(stages, faults, flags=""):
        links = link if stages > 1 else ""
        return ["--faults", *faults, "--stages", str(stages), "--devices", ",".join("0" * stages),
                "--server-flags", f"{FLAGS} {links} {flags}".strip()]

    found = {}
    for stages in (1, 2, 4):
        found |= {f"{stages}_stages": run(stages, ["kill", "prefill"]),
                  f"{stages}_stages_spare": run(stages, ["kill", "device_error", "endless_kernel"], "--spares 1 --disturb 7")}
    return found


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    bin_dir = default_bin("cuda")
    env = dict(os.environ, LD_LIBRARY_PATH=library_path(bin_dir, wants_nccl=True))

    def run(command, log):
        with log.open("a") as out:
            print(f"--- {' '.join(map(str, command))}", file=out, flush=True)
            try:
                code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=env,
                                      timeout=max(1, deadline - time.monotonic())).returncode
            except subprocess.TimeoutExpired:
                code = "no time left"
        print(f"{log.name}: {' '.join(map(str, command))[:150]}: {code}", flush=True)

    for program, names in TESTS.items():
        if (bin_dir / program).exists() and "tests" in args.only:
            run([bin_dir / program, ",".join(names)], args.out / "tests.log")
    all_runs = runs(args.nccl)
    for name in [name for name in args.only if name != "tests"]:
        arguments = all_runs[name]
        log = args.out / f"{name}.log"
        run([sys.executable, ROOT / "tests/bench/recovery.py", "--device", "cuda", "--rounds", str(args.rounds), "--streams", "64",
             "--tokens", "200", "--out", args.out / "recovery.jsonl", "--log", log, *arguments], args.out / f"{name}.out")
        if log.exists():
            with (args.out / "phases.txt").open("a") as phases:
                print(name, *PHASES.findall(log.read_text()), sep="\n", file=phases)


if __name__ == "__main__":
    main()
