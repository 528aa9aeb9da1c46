#!/usr/bin/env python3
"""What becomes of running streams when stages of their pipeline are lost, and how long they are silent.

usage: recovery.py [--model DIR] [--device cpu|cuda] [--stages N] [--streams N] [--tokens N] [--rounds N] [--out FILE.jsonl]
                   [--faults NAME...] [--lost STAGE...] [--server-flags "FLAGS"]
Every round starts all streams, waits until each has its first messages, causes the fault, and compares every stream with
the same one in a run without a fault. Faults: kill (each stage in turn), stop (SIGSTOP, each stage in turn), two (neighbours
at once), again (a second stage dies while the first is replaced). One JSON line per fault and stage. On a GPU, with
--disturb SEED among the server's flags, also device_error (a kernel that traps) and endless_kernel.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from faults import pids  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import DEMO_MODEL, Cluster, is_running, wait_until  # noqa: E402
from machine import commit_of, default_bin, machine_of  # noqa: E402
from recovery import Streams, await_workers, classify, requests, undisturbed  # noqa: E402
from servers import library_path, placement  # noqa: E402

RECOVERED = re.compile(r"the pipeline works again after ([0-9.]+) s")


def kill(cluster, workers, stage):
    os.kill(workers[stage], signal.SIGKILL)


def stop(cluster, workers, stage):
    os.kill(workers[stage], signal.SIGSTOP)
    wait_until(lambda: not is_running(workers[stage]), "the end of the stopped process")


def two(cluster, workers, stage):
    for one in (stage, (stage + 1) % len(workers)):
        os.kill(workers[one], signal.SIGKILL)


def again(cluster, workers, stage):
    os.kill(workers[stage], signal.SIGKILL)
    wait_until(lambda: pids(cluster)[1][stage] not in (None, workers[stage]), "the replacement")
    os.kill(workers[(stage + 1) % len(workers)], signal.SIGKILL)


def device_error(cluster, workers, stage):
    os.kill(workers[stage], signal.SIGRTMIN + 1)


def endless_kernel(cluster, workers, stage):
    os.kill(workers[stage], signal.SIGRTMIN + 2)


FAULTS = dict(kill=kill, stop=stop, two=two, again=again)
GPU_FAULTS = dict(device_error=device_error, endless_kernel=endless_kernel)


def one_round(cluster, all_requests, expected, fault, stage):
    """(counts, seconds to the next message of each running stream, longest gap of each stream, seconds of each recovery)"""
    workers = await_workers(cluster)
    log_before = len(cluster.log())
    with Streams(cluster.grpc, all_requests) as streams:
        streams.await_messages(3)
        began = time.monotonic()
        fault(cluster, workers, stage)
    outcomes = streams.outcomes
    for outcome in outcomes:
        if outcome.error:
            print("error:", outcome.error, outcome.details, file=sys.stderr)
    silences = [s for s in (outcome.silence_after(began) for outcome in outcomes) if s is not None]
    longest = [max((b - a for a, b in zip(o.times, o.times[1:])), default=0) for o in outcomes]
    recoveries = [float(text) for text in RECOVERED.findall(cluster.log()[log_before:])]
    return classify(outcomes, expected), silences, longest, recoveries


def measure(args, cluster, all_requests, expected, name, stage):
    totals, silent, recoveries, n_to_come = dict(identical=0, error=0, hung=0, different=0), [], [], []
    for _ in range(args.rounds):
        counts, silences, longest, took = one_round(cluster, all_requests, expected, (FAULTS | GPU_FAULTS)[name], stage)
        for key, value in counts.items():
            totals[key] += value
        silent.append(max(longest))
        n_to_come.append(len(silences))
        recoveries += took
    setup = f"{args.device}/{args.stages}_stages"
    return {"name": f"recovery/{setup}/{name}_stage_{stage}", "value": totals["identical"], "unit": "streams identical",
            "reference": "all streams of all rounds", "ratio": totals["identical"] / (args.rounds * len(all_requests)),
            **totals, "rounds": args.rounds, "streams": len(all_requests), "least_streams_running_at_the_fault": min(n_to_come),
            "longest_silence_s": {"median": round(statistics.median(silent), 3), "max": round(max(silent), 3)},
            "recovery_s": {"n": len(recoveries), "median": round(statistics.median(recoveries), 3) if recoveries else None,
                           "max": round(max(recoveries), 3) if recoveries else None}}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", type=lambda text: [int(gpu) for gpu in text.split(",")], help="GPU of each stage")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="per fault and stage")
    parser.add_argument("--faults", nargs="+", choices=FAULTS | GPU_FAULTS, default=list(FAULTS))
    parser.add_argument("--lost", type=int, nargs="+", metavar="STAGE", help="only these stages are lost")
    parser.add_argument("--server-flags", default="--stall-limit 2")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path, help="gets the programs' log, up to 1 MiB")
    args = parser.parse_args()
    args.command = "tests/bench/recovery.py"
    for key, value in vars(args).items():
        if key not in ("model", "out", "log", "command") and value != parser.get_default(key):
            values = value if isinstance(value, list) and key != "devices" else [value]
            text = ",".join(map(str, value)) if key == "devices" else " ".join(shlex.quote(str(one)) for one in values)
            args.command += f" --{key.replace('_', '-')} {text}"
    return args


def main():
    args = parse()
    bin_dir = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR") or default_bin(args.device))
    os.environ["LD_LIBRARY_PATH"] = library_path(bin_dir, args.device == "cuda")
    flags = ["--device", args.device, *shlex.split(args.server_flags)]
    if args.devices:
        flags += placement(args.devices, flags)
    common = {"model": pathlib.Path(args.model).name, "machine": machine_of(args.device, all_gpus()),
              "date": datetime.date.today().isoformat(), "commit": commit_of(), "command": args.command}
    all_requests = requests(args.streams, args.tokens)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(args.model, args.stages, flags, program=str(bin_dir / "stagecoach")))
        expected = undisturbed(cluster, all_requests)
        stack.callback(lambda: args.log and args.log.write_text(cluster.log()))
        assert classify_again(cluster, all_requests, expected), "two runs without a fault differ"
        for name in args.faults:
            for stage in args.lost or range(args.stages):
                line = json.dumps({**measure(args, cluster, all_requests, expected, name, stage), **common})
                print(line, flush=True)
                if args.out:
                    with args.out.open("a") as out:
                        out.write(line + "\n")


def classify_again(cluster, all_requests, expected):
    return undisturbed(cluster, all_requests) == expected


if __name__ == "__main__":
    main()
