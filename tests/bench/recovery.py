#!/usr/bin/env python3
"""What becomes of running streams when parts of their pipeline fail, and how long they are silent.

usage: recovery.py [--model DIR] [--device cpu|cuda] [--stages N] [--streams N] [--tokens N] [--rounds N] [--out FILE.jsonl]
                   [--faults NAME...] [--lost STAGE...] [--server-flags "FLAGS"]
Every round starts all streams, waits until each has its first messages, causes the fault, and compares every stream with
the same one in a run without a fault. One JSON line per fault and stage. Faults, of each stage in turn:
  kill, stop, wedge        SIGKILL; SIGSTOP; one thread held, like by a debugger
  two, again               this stage and the next one at once; the next one while this one is replaced
  prefill                  SIGKILL while long prompts are computed
  cut_, hang_, slow_ and   connections closed and refused until the loss is noticed; open, but nothing comes; 200 ms late
    router or workers      for 10 s: those of the router, or of the other workers, to the stage (CPU only; toxiproxy)
  device_error, and        on a GPU, with --disturb SEED among the server's flags: a kernel that traps; one that never ends
    endless_kernel
Detection is the time until the router's health service says that it does not serve. A stream's silence is its longest
pause between messages from the fault on.
"""
import argparse
import contextlib
import dataclasses
import datetime
import os
import pathlib
import re
import shlex
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

import broken_links  # noqa: E402
import lost_stages  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import DEMO_MODEL, Cluster, wait_until  # noqa: E402
from health import HealthWatch  # noqa: E402
from machine import commit_of, default_bin, machine_of  # noqa: E402
from proxied import ProxiedPipeline, why_impossible  # noqa: E402
from recovery import TOOLS_TEMPLATE, Streams, classify, long_prompts, n_with_tokens_to_come, requests, undisturbed  # noqa: E402
from results import emit, spread  # noqa: E402
from servers import library_path, placement  # noqa: E402

RECOVERED = re.compile(r"the pipeline works again after ([0-9.]+) s")
TO_COME = 100  # tokens that a stream should still wait for at the fault
SHARE_STARTED = 8  # prompts: the fault comes when one stream in so many has its first token


@dataclasses.dataclass(frozen=True)
class Fault:
    cause: Callable  # (pipeline, stage); returns when the fault is complete
    pipeline: str = "served"  # or "proxied"
    prompts: bool = False  # while long prompts are computed, instead of mixed streams


FAULTS = {name: Fault(cause) for name, cause in lost_stages.FAULTS.items()}
FAULTS |= {"prefill": Fault(lost_stages.kill, prompts=True)}
FAULTS |= {name: Fault(cause, pipeline="proxied") for name, cause in broken_links.FAULTS.items()}
ALL_FAULTS = FAULTS | {name: Fault(cause) for name, cause in lost_stages.GPU_FAULTS.items()}


@dataclasses.dataclass
class Figures:
    """Of all rounds with one fault. Times in seconds."""
    counts: dict = dataclasses.field(default_factory=lambda: dict(identical=0, error=0, hung=0, different=0))
    n_to_come: list = dataclasses.field(default_factory=list)
    detections: list = dataclasses.field(default_factory=list)
    silences: list = dataclasses.field(default_factory=list)  # of all streams that ran at the fault
    recoveries: list = dataclasses.field(default_factory=list)


def await_spares(pipeline, n):
    wait_until(lambda: pipeline.log().count("waits for a place") - pipeline.log().count("; a spare takes its place") >= n,
               f"{n} spares")


def one_round(pipeline, all_requests, expected, fault, stage, figures, n_spares):
    if n_spares:
        await_spares(pipeline, n_spares)
    log_before = len(pipeline.log())
    with HealthWatch(pipeline.grpc) as health:
        health.await_serving(True)
        with Streams(pipeline.grpc, all_requests) as streams:
            if fault.prompts:
                streams.await_messages(1, of=len(all_requests) // SHARE_STARTED)
            else:
                streams.await_messages(3)
            began = time.monotonic()
            fault.cause(pipeline, stage)
        health.await_serving(True)
        noticed = health.noticed_after(began)
    for outcome in streams.outcomes:
        if outcome.error:
            print("error:", outcome.error, outcome.details, file=sys.stderr)
    for key, value in classify(streams.outcomes, expected).items():
        figures.counts[key] += value
    figures.n_to_come.append(n_with_tokens_to_come(streams.outcomes, expected, began, TO_COME))
    if noticed is not None:
        figures.detections.append(noticed)
    figures.silences += [s for s in (outcome.silence_across(began) for outcome in streams.outcomes) if s is not None]
    figures.recoveries += [float(text) for text in RECOVERED.findall(pipeline.log()[log_before:])]


def measure(args, pipeline, all_requests, expected, name, stage):
    figures = Figures()
    for _ in range(args.rounds):
        one_round(pipeline, all_requests, expected, ALL_FAULTS[name], stage, figures, args.n_spares)
    n = args.rounds * len(all_requests)
    return {"name": f"recovery/{args.device}/{args.stages}_stages/{name}_stage_{stage}", "value": figures.counts["identical"],
            "unit": "streams identical", "reference": "all streams of all rounds", "ratio": figures.counts["identical"] / n,
            **figures.counts, "rounds": args.rounds, "streams": len(all_requests),
            f"least_streams_with_{TO_COME}_tokens_to_come": min(figures.n_to_come), "detection_s": spread(figures.detections),
            "silence_s": spread(figures.silences), "recovery_s": spread(figures.recoveries)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", type=lambda text: [int(gpu) for gpu in text.split(",")], help="GPU of each stage")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="per fault and stage")
    parser.add_argument("--faults", nargs="+", choices=ALL_FAULTS, default=list(FAULTS))
    parser.add_argument("--lost", type=int, nargs="+", metavar="STAGE", help="only these stages are lost")
    parser.add_argument("--server-flags", default="--stall-limit 2", help="with the faults of connections, of the router")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path, help="gets the programs' log, up to 1 MiB")
    args = parser.parse_args()
    args.command = "tests/bench/recovery.py"
    spares = re.search(r"--spares[ =](\d+)", args.server_flags)
    args.n_spares = int(spares[1]) * (len(set(args.devices)) if args.devices else 1) if spares else 0
    for key, value in vars(args).items():
        if key not in ("model", "out", "log", "command", "n_spares") and value != parser.get_default(key):
            values = value if isinstance(value, list) and key != "devices" else [value]
            text = ",".join(map(str, value)) if key == "devices" else " ".join(shlex.quote(str(one)) for one in values)
            args.command += f" --{key.replace('_', '-')} {text}"
    return args


def start(args, stack, kind, bin_dir):
    flags = [*shlex.split(args.server_flags), "--chat-template", str(TOOLS_TEMPLATE)]
    if kind == "proxied":
        return stack.enter_context(ProxiedPipeline(args.model, args.stages, flags))
    flags += ["--device", args.device]
    if args.devices:
        flags += placement(args.devices, flags)
    return stack.enter_context(Cluster(args.model, args.stages, flags, program=str(bin_dir / "stagecoach")))


def possible(args, kind):
    names = [name for name in args.faults if ALL_FAULTS[name].pipeline == kind]
    if kind == "proxied" and names and (why := "CPU only" if args.device != "cpu" else why_impossible()):
        print(f"without {', '.join(names)}: {why}", file=sys.stderr)
        return []
    return names


def main():
    args = parse()
    bin_dir = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR") or default_bin(args.device))
    os.environ["LD_LIBRARY_PATH"] = library_path(bin_dir, args.device == "cuda")
    common = {"model": pathlib.Path(args.model).name, "machine": machine_of(args.device, all_gpus()),
              "date": datetime.date.today().isoformat(), "commit": commit_of(), "command": args.command}
    mixed, prompts = requests(args.streams, args.tokens), long_prompts(args.streams, TO_COME + 20)
    for kind in ("served", "proxied"):
        if not (names := possible(args, kind)):
            continue
        with contextlib.ExitStack() as stack:
            pipeline = start(args, stack, kind, bin_dir)
            if args.log:
                stack.callback(lambda pipeline=pipeline: args.log.write_text(pipeline.log()))
            expected = undisturbed(pipeline, mixed)
            assert classify(undisturbed(pipeline, mixed), expected)["identical"] == len(mixed), "two runs without a fault differ"
            expected_of_prompts = undisturbed(pipeline, prompts) if any(ALL_FAULTS[name].prompts for name in names) else None
            for name in names:
                load = (prompts, expected_of_prompts) if ALL_FAULTS[name].prompts else (mixed, expected)
                for stage in args.lost or range(args.stages):
                    emit({**measure(args, pipeline, *load, name, stage), **common}, args.out)


if __name__ == "__main__":
    main()
