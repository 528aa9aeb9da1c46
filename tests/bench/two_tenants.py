#!/usr/bin/env python3
"""Measures the share of a quiet tenant with few connections beside a tenant with 300 connections at the best priority
that its key allows.

usage: two_tenants.py [MODEL] [--seconds 20] [--slots 8] [--out results.jsonl]
Each line compares the quiet tenant's computed tokens, while both load the server, with its weighted fair share of all
tokens. If it has fewer connections than slots, it cannot use its share; then they are compared with its tokens when it
runs alone.
"""
import argparse
import asyncio
import datetime
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster")]

from harness import DEMO_MODEL, Cluster  # noqa: E402
from tenants import Load, ask_for_metrics, tokens_computed  # noqa: E402


async def over(cluster, seconds):
    before, start = tokens_computed(await ask_for_metrics(cluster.metrics)), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = tokens_computed(await ask_for_metrics(cluster.metrics)), time.monotonic() - start
    return {tenant: (after[tenant] - before.get(tenant, 0)) / passed for tenant in after}


async def measure(cluster, n_quiet, seconds):
    """Tokens per second: (of the quiet tenant alone, {tenant: tokens of both}), then the quiet tenant's answers and
    refusals."""
    async with Load(cluster.http, "sk-quiet", n_quiet) as quiet:
        await quiet.served(n_quiet)
        alone = await over(cluster, seconds)
    async with Load(cluster.http, "sk-flood", 300, priority=-100) as flood:
        await flood.served(30)
        async with Load(cluster.http, "sk-quiet", n_quiet) as quiet:
            await quiet.served(n_quiet)
            served = quiet.n_served
            both = await over(cluster, seconds)
            return alone["quiet"], both, quiet.n_served - served, quiet.n_refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO_MODEL))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    for weight, n_quiet in [(1, 24), (3, 24), (1, 5)]:
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(f"sk-flood tenant=flood\nsk-quiet tenant=quiet weight={weight}\n")
            with Cluster(args.model, flags=["--api-keys", keys, "--max-sequences", args.slots]) as cluster:
                alone, both, n_served, n_refused = asyncio.run(measure(cluster, n_quiet, args.seconds))
        share = weight / (weight + 1)
        line = json.dumps({
            "date": datetime.date.today().isoformat(), "bench": "two_tenants", "command": " ".join(sys.argv),
            "model": pathlib.Path(args.model).name, "cpu": platform.machine(), "cores": os.cpu_count(), "slots": args.slots,
            "flood_connections": 300, "quiet_connections": n_quiet, "quiet_weight": weight, "seconds": args.seconds,
            "quiet_alone_tokens_s": round(alone), "quiet_tokens_s": round(both["quiet"]),
            "flood_tokens_s": round(both["flood"]), "quiet_answers": n_served, "quiet_refused": n_refused,
            "of_share": round(both["quiet"] / (share * sum(both.values())), 3), "of_alone": round(both["quiet"] / alone, 3)})
        print(line, flush=True)
        if args.out:
            with args.out.open("a") as out:
                out.write(line + "\n")


if __name__ == "__main__":
    main()
