#!/usr/bin/env python3
"""Measures the cost of splitting a model into stages on the same cores: throughput of 8 requests, and latency of one.

usage: stages_cost.py MODEL [--stages 2] [--rounds 5] [--threads N] [--out results.jsonl]
Both servers run at the same time and are measured alternately. A ratio of 1 means that the split costs nothing.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from harness import STAGECOACH, Cluster  # noqa: E402

REQUESTS, INPUTS, OUTPUTS = 8, 64, 64


def bench(address, batch):
    command = [STAGECOACH, "bench", "latency", "--server", address, "--json", "--repeat", "1", "--warmup", "0",
               "--batch-size", str(batch), "--input-tokens", str(INPUTS), "--output-tokens", str(OUTPUTS)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(address):
    return {"throughput of 8": bench(address, REQUESTS)["output_tokens_per_s"],
            "rate of 1": 1e3 / bench(address, 1)["tpot_ms"]["mean"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of each worker; default: as `serve` does")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    flags = ["--kv-memory", "256MiB", "--prefix-cache", "off"]
    split = flags + (["--threads-per-worker", str(args.threads)] if args.threads else [])
    split += ["--plan-ahead", "off"]
    rates = {"one": [], "split": []}
    with Cluster(args.model, stages=1, flags=flags) as one, Cluster(args.model, stages=args.stages, flags=split) as more:
        for server in (one, more):
            measure(server.grpc)  # warm-up: excludes the first use of memory
        for _ in range(args.rounds):
            rates["one"].append(measure(one.grpc))
            rates["split"].append(measure(more.grpc))
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    for what in rates["one"][0]:
        value, reference = (statistics.median(r[what] for r in rates[who]) for who in ("split", "one"))
        line = {"name": f"{what}/{args.stages}_stages", "value": round(value, 1), "unit": "tok/s",
                "reference": f"one stage on the same cores, {round(reference, 1)} tok/s",
                "ratio": round(value / reference, 3), "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                "date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                "command": "tests/bench/stages_cost.py " + " ".join(
                    [pathlib.Path(args.model).name, f"--stages {args.stages}", f"--rounds {args.rounds}"]
                    + ([f"--threads {args.threads}"] if args.threads else []))}
        print(json.dumps(line), flush=True)
        if args.out:
            with args.out.open("a") as out:
                out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
