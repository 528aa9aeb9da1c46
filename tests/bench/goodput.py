#!/usr/bin/env python3
"""What a server completes when clients ask for several times what it can do: goodput beside capacity.

usage: goodput.py [MODEL] [--times 5] [--stages N] [--seconds S] [--rounds N] [--out FILE.jsonl]
Capacity: output tokens per second with as many requests at a time as the server runs. Goodput: output tokens per second of
the requests that complete when `--times` as many arrive (Poisson); the others find the queue full. Both are measured in
turn, in each round.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from harness import DEMO_MODEL, STAGECOACH, Cluster  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from results import emit  # noqa: E402

SEQUENCES = 64
WAITING = 64  # so few that the queue is soon full
INPUTS, OUTPUTS = 128, 128


def bench(address, n_requests, *flags):
    command = [STAGECOACH, "bench", "serve", "--server", address, "--json", "--requests", str(n_requests), "--warmup", "0",
               "--input-tokens", str(INPUTS), "--output-tokens", str(OUTPUTS), *map(str, flags)]
    ended = subprocess.run(command, capture_output=True, text=True)  # exit code 1: some requests were refused
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout)


def measure(address, args):
    capacity = bench(address, 8 * SEQUENCES, "--concurrency", SEQUENCES)
    rate = args.times * capacity["requests_per_s"]
    offered = bench(address, int(rate * args.seconds), "--concurrency", 0, "--request-rate", rate)
    print(f"capacity {capacity['output_tokens_per_s']:.0f} tokens/s; {rate:.1f} requests/s: {offered['requests']}, "
          f"{offered['output_tokens_per_s']:.0f} tokens/s", file=sys.stderr)
    return capacity["output_tokens_per_s"], offered["output_tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO_MODEL))
    parser.add_argument("--times", type=float, default=5)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20, help="during which requests arrive")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    flags = ["--max-sequences", SEQUENCES, "--max-waiting", WAITING]
    with Cluster(args.model, args.stages, flags) as cluster:
        measured = [measure(cluster.grpc, args) for _ in range(args.rounds)]
    capacity, goodput = (statistics.median(values) for values in zip(*measured, strict=True))
    line = {"name": f"goodput/{args.stages}_stages/{args.times:g}_times", "value": round(goodput, 1), "unit": "tok/s",
            "reference": f"capacity, {round(capacity, 1)} tok/s",
            "ratio": round(statistics.median(good / most for most, good in measured), 3), "rounds": args.rounds,
            "model": pathlib.Path(args.model).name, "machine": machine_of("cpu", []), "date": datetime.date.today().isoformat(),
            "commit": commit_of(), "command": f"tests/bench/goodput.py --times {args.times:g} --stages {args.stages} "
                                              f"--seconds {args.seconds:g} --rounds {args.rounds}"}
    emit(line, args.out)


if __name__ == "__main__":
    main()
