#!/usr/bin/env python3
"""What becomes of resumable streams when the router is killed, and what the journal costs.

usage: journal.py [--kills N] [--pairs N] [--stages N] [--streams N] [--tokens N] [--out FILE.jsonl]
Kills: each round starts all streams over gRPC, waits until each has its first messages, kills the router, and compares
every stream with the same one in a run without a fault. A stream's silence is its longest pause from the kill on; the
router serves again when /ready says so. Cost: `stagecoach bench throughput` with resumable requests, in turn against a
server with the journal and one without; the order alternates. 0 kills or pairs: not measured.
"""
import argparse
import contextlib
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from harness import DEMO_MODEL, STAGECOACH, Cluster  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from recovery import PROMPT, TOOLS_TEMPLATE, classify, requests, undisturbed  # noqa: E402
from results import emit, spread  # noqa: E402
from resumed import ResumedStreams, await_router, kill_router  # noqa: E402


def kills(args, folder):
    counts, served, silences = dict(identical=0, error=0, hung=0, different=0), [], []
    flags = ["--chat-template", str(TOOLS_TEMPLATE), "--journal", folder / "journal"]
    all_requests = requests(args.streams, args.tokens)
    with Cluster(DEMO_MODEL, args.stages, flags) as cluster:
        expected = undisturbed(cluster, all_requests, ResumedStreams)
        for _ in range(args.kills):
            with ResumedStreams(cluster.grpc, all_requests) as streams:
                streams.await_messages(3)
                began = time.monotonic()
                kill_router(cluster)
                await_router(cluster)
                served.append(time.monotonic() - began)
            for key, value in classify(streams.outcomes, expected).items():
                counts[key] += value
            silences += [s for s in (outcome.silence_across(began) for outcome in streams.outcomes) if s is not None]
    n = args.kills * args.streams
    yield {"name": f"journal/cpu/{args.stages}_stages/router_killed", "value": counts["identical"], "unit": "streams identical",
           "reference": "all streams of all rounds", "ratio": counts["identical"] / n, **counts, "rounds": args.kills,
           "streams": args.streams, "tokens": args.tokens, "serves_again_s": spread(served), "silence_s": spread(silences)}


def cost(args, folder):
    lines = folder / "requests.jsonl"
    lines.write_text("".join(json.dumps({"prompt": PROMPT.format(8 + i % 12, i % 60), "max_tokens": args.tokens, "ignore_eos": True,
                                         "temperature": 0, "resumable": True}) + "\n" for i in range(args.streams)))
    command = [STAGECOACH, "bench", "throughput", "--file", lines, "--requests", args.streams, "--json", "--server"]

    def tokens_per_s(cluster):
        run = subprocess.run(list(map(str, [*command, cluster.grpc])), check=True, capture_output=True, text=True)
        report = json.loads(run.stdout)
        assert report["requests"]["failed"] == 0, report
        return report["output_tokens_per_s"]

    with contextlib.ExitStack() as stack:
        plain, journalled = (stack.enter_context(Cluster(DEMO_MODEL, args.stages, flags))
                             for flags in ([], ["--journal", folder / "cost"]))
        for cluster in (plain, journalled):
            tokens_per_s(cluster)
        pairs = []
        for i in range(args.pairs):
            order = [plain, journalled] if i % 2 == 0 else [journalled, plain]
            speeds = {cluster: tokens_per_s(cluster) for cluster in order}
            pairs.append((speeds[journalled], speeds[plain]))
    ratios = sorted(a / b for a, b in pairs)
    yield {"name": f"journal/cpu/{args.stages}_stages/throughput", "value": round(statistics.median(a for a, _ in pairs), 1),
           "unit": "tokens/s with the journal", "reference": round(statistics.median(b for _, b in pairs), 1),
           "ratio": round(statistics.median(ratios), 4), "ratios": [round(ratio, 3) for ratio in ratios],
           "streams": args.streams, "tokens": args.tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("--kills", 20), ("--pairs", 16), ("--stages", 2), ("--streams", 64), ("--tokens", 200)):
        parser.add_argument(flag, type=int, default=default)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    given = "".join(f" --{key} {value}" for key, value in vars(args).items() if key != "out" and value != parser.get_default(key))
    common = {"model": "demo-model", "machine": machine_of("cpu", []), "date": datetime.date.today().isoformat(),
              "commit": commit_of(), "command": "tests/bench/journal.py" + given}
    with tempfile.TemporaryDirectory() as folder:
        for count, measure in ((args.kills, kills), (args.pairs, cost)):
            for figures in measure(args, pathlib.Path(folder)) if count else ():
                emit({**figures, **common}, args.out)


if __name__ == "__main__":
    main()
