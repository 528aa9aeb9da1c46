#!/usr/bin/env python3
"""Compares a cluster's greedy text of a real checkpoint with a reference's, except at the reference's ties.

usage: check_text.py MODEL GOLDEN.json [--stages 1,2] [--tie 1e-3]
GOLDEN.json: {"cases": [{"prompt_ids": [...], "greedy_ids": [...], "greedy_logprob_and_margin": [[lp, margin], ...]}]}.
At a position whose margin to the second-best token is at most --tie, either token is right. The tokens after it depend
on the choice, so they are not compared.
"""
import argparse
import asyncio
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import run_all


def compare(case, answer, tie):
    """Returns (equal tokens, compared tokens, largest logprob difference)."""
    worst = 0.0
    for at, token in enumerate(case["greedy_ids"]):
        logprob, margin = case["greedy_logprob_and_margin"][at]
        if answer.token_ids[at] != token:
            return (at, at, worst) if margin <= tie else (at, at + 1, worst)
        worst = max(worst, abs(answer.logprobs[at][1] - logprob))
    return len(case["greedy_ids"]), len(case["greedy_ids"]), worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("golden")
    parser.add_argument("--stages", default="1,2")
    parser.add_argument("--tie", type=float, default=1e-3)
    args = parser.parse_args()
    cases = json.loads(pathlib.Path(args.golden).read_text())["cases"]
    requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=case["prompt_ids"]), sampling=pb.SamplingParams(
        temperature=0, max_tokens=len(case["greedy_ids"]), ignore_eos=True, logprobs=1)) for case in cases]
    failed = False
    for stages in map(int, args.stages.split(",")):
        with Cluster(args.model, stages=stages, flags=["--dtype", "float32"]) as cluster:
            answers = asyncio.run(run_all(cluster.grpc, requests, len(requests)))
        for case, (answer,) in zip(cases, answers, strict=True):
            agree, compared, worst = compare(case, answer, args.tie)
            failed |= agree < compared
            print(f"{stages} stage(s), prompt of {len(case['prompt_ids']):5}: {agree}/{compared} tokens of "
                  f"{len(case['greedy_ids'])} agree, logprob difference at most {worst:.1e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
