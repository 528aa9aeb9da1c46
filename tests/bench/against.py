#!/usr/bin/env python3
"""Compares the speed of two builds on this machine: A, B, A in each round.

usage: against.py --before BIN_DIR --before-commit COMMIT [--after BIN_DIR] [--model DIR ...] [--stages 2] [--rounds 15]
                  [--out FILE.jsonl] [--server-flags "FLAGS"]
Both builds serve the same model at the same time, and only one of them is asked at a time. Each round asks the build
before, the build after and the build before again; its ratio is after / mean of before. So a machine that becomes slower
or faster during the run changes both sides of a ratio. The result is the median of the rounds' ratios, with its confidence
interval of 95 %. The tokens of both builds are compared first, and the prefix cache is off. On a machine that others use,
too, look at the CPU time of router and workers for the same work: it hardly depends on how long they wait for a core.
  prefill       one prompt of 512 random tokens: tokens / time to the first token
  decode        128 tokens after a short prompt, one request: 1 / mean time between tokens
  decode of 16  16 requests at the same time: 16 / mean time between tokens
"""
import argparse
import contextlib
import datetime
import math
import pathlib
import shlex
import statistics
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu", "bench")]

from cpu_peer import BATCH, DECODE, PREFILL, ours  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import BIN_DIR, DEMO_MODEL, Cluster, children_of  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from results import emit  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

RATES = {
    "prefill": lambda address: PREFILL / ours(address, 1, PREFILL, 1)["ttft_ms"]["p50"] * 1e3,
    "decode": lambda address: 1e3 / ours(address, 1, 8, DECODE + 1)["tpot_ms"]["mean"],
    "decode of 16": lambda address: BATCH * 1e3 / ours(address, BATCH, 8, DECODE + 1)["tpot_ms"]["mean"],
}


def interval_of_median(values):
    """Confidence interval of 95 %, by order statistics: it needs no assumption about the distribution."""
    values = sorted(values)
    k = max(0, math.floor(len(values) / 2 - 0.98 * math.sqrt(len(values))))
    return values[k], values[-1 - k]


def cpu_seconds(server):
    """CPU time of the threads of router and workers so far."""
    nanoseconds = 0
    for pid, _ in children_of(server.process.pid):
        for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds / 1e9


def tokens_of(server):
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=range(300, 400)),
                                 sampling=pb.SamplingParams(max_tokens=200, temperature=0, ignore_eos=True))
    return [i for message in server.stub.Generate(request) for i in message.token_ids]


def measure(args, model):
    with contextlib.ExitStack() as stack:
        flags = ["--prefix-cache", "off", *shlex.split(args.server_flags)]
        before, after = (stack.enter_context(Cluster(model, args.stages, flags, program=str(path / "stagecoach")))
                         for path in (args.before, args.after))
        assert tokens_of(before) == tokens_of(after), "the builds give different tokens"
        for name, rate in RATES.items():
            rates, ratios, cpu_ratios = [], [], []
            for server in (before, after):
                rate(server.grpc)  # warm-up
            for _ in range(args.rounds):
                measured = []
                for server in (before, after, before):
                    cpu = cpu_seconds(server)
                    measured.append((rate(server.grpc), cpu_seconds(server) - cpu))
                (first, changed, again), (first_cpu, changed_cpu, again_cpu) = zip(*measured, strict=True)
                rates.append((statistics.mean([first, again]), changed))
                ratios.append(2 * changed / (first + again))
                cpu_ratios.append(2 * changed_cpu / (first_cpu + again_cpu))
            low, high = interval_of_median(ratios)
            cpu_low, cpu_high = interval_of_median(cpu_ratios)
            print(f"{model.name}, {name}: {statistics.median(ratios):.4f}, {low:.4f} to {high:.4f}; CPU time "
                  f"{statistics.median(cpu_ratios):.4f}, {cpu_low:.4f} to {cpu_high:.4f}", file=sys.stderr)
            yield {"name": f"against/{model.name}/{name}", "value": round(statistics.median(b for _, b in rates), 2),
                   "unit": "tok/s", "reference": f"build of {args.before_commit}, A/B/A",
                   "reference_value": round(statistics.median(a for a, _ in rates), 2),
                   "ratio": round(statistics.median(ratios), 4), "ratio_95": [round(low, 4), round(high, 4)],
                   "cpu_time_ratio": round(statistics.median(cpu_ratios), 4),
                   "cpu_time_ratio_95": [round(cpu_low, 4), round(cpu_high, 4)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--before-commit", required=True)
    parser.add_argument("--after", type=pathlib.Path, default=BIN_DIR)
    parser.add_argument("--model", type=pathlib.Path, action="append")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--server-flags", default="")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    common = {"stages": args.stages, "rounds": args.rounds, "machine": machine_of("cpu", all_gpus()),
              "date": datetime.date.today().isoformat(), "commit": commit_of(),
              "command": f"tests/bench/against.py --before BIN_DIR --before-commit {args.before_commit} "
                         f"--stages {args.stages} --rounds {args.rounds} --server-flags '{args.server_flags}'"}
    for model in args.model or [DEMO_MODEL]:
        for line in measure(args, model):
            emit({**line, **common}, args.out)


if __name__ == "__main__":
    main()
