#!/usr/bin/env python3
"""Compares generated tokens per second with a JSON schema and without a grammar.

usage: grammar_throughput.py MODEL [--stages 1,2] [--requests 64] [--max-tokens 96] [--runs 5] [--out results.jsonl]
All requests run at the same time, up to max_tokens. Runs with and without the schema alternate, so that both see the
same state of the machine. Before anything is reported, answers are compared with those of each request alone.
`wait_mask` is the share of the last stage's time in which logits were ready and a mask was not.
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
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from grammar_schema import SCHEMA  # noqa: E402
from harness import Cluster, stage_seconds  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from workload import run_all  # noqa: E402


def requests(n, max_tokens, n_prompt, grammar):
    sampling = dict(temperature=1.0, max_tokens=max_tokens, ignore_eos=True)
    if grammar:
        sampling["grammar"] = pb.Grammar(json_schema=json.dumps(SCHEMA))
    return [pb.GenerateRequest(tokens=pb.TokenIds(ids=[10 + (i * 7 + j) % 200 for j in range(n_prompt)]),
                               sampling=pb.SamplingParams(seed=i, **sampling)) for i in range(n)]


def run(cluster, load):
    """Returns the answers, tokens per second, and the share of time that the last stage waited for masks."""
    before = stage_seconds(cluster.metrics)
    started = time.perf_counter()
    answers = asyncio.run(run_all(cluster.grpc, load, len(load)))
    seconds = time.perf_counter() - started
    after = stage_seconds(cluster.metrics)
    last = max(stage for stage, _ in after)
    spent = {state: after[stage, state] - before[stage, state] for stage, state in after if stage == last}
    tokens = sum(len(choice.token_ids) for answer in answers for choice in answer)
    return answers, tokens / seconds, spent["wait_mask"] / sum(spent.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--stages", default="1,2")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    common = dict(machine=f"{os.cpu_count()} cores, {platform.machine()}", date=str(datetime.date.today()), commit=commit)
    lines = []
    for stages in map(int, args.stages.split(",")):
        loads = {name: requests(args.requests, args.max_tokens, args.prompt_tokens, name == "constrained")
                 for name in ("free", "constrained")}
        with Cluster(args.model, stages=stages, flags=["--prefix-cache", "off"]) as cluster:
            alone = {name: [asyncio.run(run_all(cluster.grpc, load[:4], 1))] for name, load in loads.items()}
            rates, waits = {name: [] for name in loads}, []
            for i in range(args.runs + 1):
                for name, load in loads.items():
                    answers, rate, wait = run(cluster, load)
                    assert answers[:4] == alone[name][0], "tokens differ: nothing is timed"
                    assert all(len(choice.token_ids) == args.max_tokens for answer in answers for choice in answer)
                    if i > 0:  # the first run of each is a warm-up
                        rates[name].append(rate)
                        waits += [wait] if name == "constrained" else []
        ratio = statistics.median(c / f for c, f in zip(rates["constrained"], rates["free"]))
        free, constrained = (statistics.median(rates[name]) for name in ("free", "constrained"))
        print(f"{stages} stages, {args.requests} requests: {free:.0f} tok/s free, {constrained:.0f} constrained, "
              f"ratio {ratio:.3f} (median of {args.runs} pairs), waiting for masks {statistics.median(waits):.4f}", flush=True)
        lines.append(dict(name=f"constrained_throughput/{stages}_stages/{args.requests}_requests", value=round(constrained, 1),
                          unit="tok/s", reference="the same run without a grammar", reference_value=round(free, 1),
                          ratio=round(ratio, 4), wait_mask=round(statistics.median(waits), 5),
                          command=f"tests/bench/grammar_throughput.py {pathlib.Path(args.model).name} --stages {stages} "
                                  f"--requests {args.requests} --max-tokens {args.max_tokens} --runs {args.runs}", **common))
    if args.out:
        with open(args.out, "a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
