#!/usr/bin/env python3
"""Measures the busy share of each stage while microbatches are in flight, with plan-ahead on and off.

usage: stage_busy.py MODEL [--stages 2,4] [--requests 64] [--max-tokens 64] [--runs 3] [--out results.jsonl]
The share is the worker's own compute time divided by the time in which the router had at least one microbatch in
flight, both over the same part of the run. Answers are compared before anything is reported. A machine with fewer cores
than stages cannot keep all stages computing: the upper limit of the mean share is cores / stages, which is the
`reference` of each line.
"""
import argparse
import asyncio
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

from harness import Cluster, stage_seconds  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from workload import run_all  # noqa: E402


def run(model, stages, plan_ahead, requests):
    with Cluster(model, stages=stages, flags=["--plan-ahead", plan_ahead, "--prefix-cache", "off"]) as cluster:
        asyncio.run(run_all(cluster.grpc, requests[:8], 8))  # warm-up: excludes the first use of memory
        status = cluster.stub.GetModel(pb.GetModelRequest())
        began = stage_seconds(cluster.metrics)
        before = status.scheduler.in_flight_ms
        answers = asyncio.run(run_all(cluster.grpc, requests, len(requests)))
        after = cluster.stub.GetModel(pb.GetModelRequest()).scheduler.in_flight_ms
        ended = stage_seconds(cluster.metrics)
        compute_ms = [(ended[i, "compute"] - began[i, "compute"]) * 1e3 for i in range(stages)]
        tokens = sum(len(choice.token_ids) for answer in answers for choice in answer)
        in_flight_ms = after - before
        return answers, [ms / in_flight_ms for ms in compute_ms], tokens / in_flight_ms * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--stages", default="2,4")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out")
    args = parser.parse_args()

    requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=[10 + (i * 7 + j) % 200 for j in range(args.prompt_tokens)]),
                                   sampling=pb.SamplingParams(temperature=0, max_tokens=args.max_tokens, ignore_eos=True))
                for i in range(args.requests)]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    lines, expected = [], None
    for stages in map(int, args.stages.split(",")):
        runs = {mode: [] for mode in ("on", "off")}
        for _ in range(args.runs):  # on and off alternate
            for mode in runs:
                answers, shares, rate = run(args.model, stages, mode, requests)
                expected = expected or answers
                assert answers == expected, "tokens differ: nothing is timed"
                runs[mode].append((shares, rate))
        median = {mode: ([statistics.median(r[0][s] for r in runs[mode]) for s in range(stages)],
                         statistics.median(r[1] for r in runs[mode])) for mode in runs}
        ceiling = min(1.0, os.cpu_count() / stages)
        for mode, (shares, rate) in median.items():
            print(f"{stages} stages, plan-ahead {mode:3}: busy share by stage "
                  + " ".join(f"{share:.2f}" for share in shares) + f"  (ceiling {ceiling:.2f})  {rate:8.0f} tok/s", flush=True)
            common = dict(machine=machine, date=str(datetime.date.today()), commit=commit,
                          command=f"tests/bench/stage_busy.py {pathlib.Path(args.model).name} --stages {stages} "
                                  f"--requests {args.requests} --max-tokens {args.max_tokens} --runs {args.runs}")
            mean = statistics.mean(shares)
            lines.append(dict(name=f"stage_busy_share/{stages}_stages/plan_ahead_{mode}", value=round(mean, 4), unit="1",
                              by_stage=[round(s, 4) for s in shares], reference="cores / stages, at most 1",
                              ratio=round(mean / ceiling, 4), **common))
            lines.append(dict(name=f"decode_rate/{stages}_stages/plan_ahead_{mode}", value=round(rate, 1), unit="tok/s",
                              reference="the same run with plan-ahead off", ratio=round(rate / median["off"][1], 4), **common))
    if args.out:
        with open(args.out, "a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
