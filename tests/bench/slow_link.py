#!/usr/bin/env python3
"""What hidden states in bfloat16 gain at two stages on CPUs whose link is slow: time to the first token of one long prompt,
and throughput of 8 requests.

usage: slow_link.py [--shape opt-125m] [--link-mb-per-s N...] [--rounds 5] [--out FILE.jsonl]
toxiproxy limits the link from stage 0 to stage 1. Two servers, which differ only in --hidden-dtype, run at the same time and
are measured alternately. Weights are random: only their shape matters.
"""
import argparse
import contextlib
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from dummy_shape import LIKE, model_of_shape  # noqa: E402
from harness import STAGECOACH  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from proxied import ProxiedPipeline, why_impossible  # noqa: E402
from results import emit  # noqa: E402

TYPES = ("float32", "bfloat16")
PROMPT = 512
REQUESTS, INPUTS, OUTPUTS = 8, 64, 32


def bench(address, batch, inputs, outputs):
    command = [STAGECOACH, "bench", "latency", "--server", address, "--json", "--repeat", "1", "--warmup", "0",
               "--batch-size", str(batch), "--input-tokens", str(inputs), "--output-tokens", str(outputs)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(address):
    """{name: (value, unit)}"""
    return {f"first token of {PROMPT}": (bench(address, 1, PROMPT, 1)["ttft_ms"]["mean"], "ms"),
            f"throughput of {REQUESTS}": (bench(address, REQUESTS, INPUTS, OUTPUTS)["output_tokens_per_s"], "tok/s")}


def measure_link(args, model, mb_per_s):
    flags = ["--load-format", "dummy", "--kv-memory", "256MiB", "--prefix-cache", "off", "--max-sequences", "16"]
    with contextlib.ExitStack() as stack:
        servers = {hidden: stack.enter_context(ProxiedPipeline(model, 2, [*flags, "--hidden-dtype", hidden])) for hidden in TYPES}
        for server in servers.values():
            measure(server.grpc)  # warm-up: excludes the first use of memory
            server.proxies["workers", 1].limit(mb_per_s)
        rounds = [{hidden: measure(server.grpc) for hidden, server in servers.items()} for _ in range(args.rounds)]
    for what, (_, unit) in rounds[0]["float32"].items():
        wide, narrow = ([one[hidden][what][0] for one in rounds] for hidden in TYPES)
        yield {"name": f"slow_link/{mb_per_s}_mb_per_s/{what}", "value": round(statistics.median(narrow), 1), "unit": unit,
               "reference": f"float32 on the same link, {round(statistics.median(wide), 1)} {unit}",
               "ratio": round(statistics.median(narrow) / statistics.median(wide), 3),
               "ratio_by_round": [round(n / w, 3) for n, w in zip(narrow, wide, strict=True)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="opt-125m", help="see random_checkpoint.py")
    parser.add_argument("--link-mb-per-s", type=float, nargs="+", default=[12.5, 2.5], help="10^6 bytes per second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if why := why_impossible():
        raise SystemExit(why)
    common = {"model": f"shape of {args.shape}", "machine": machine_of("cpu", []),
              "date": datetime.date.today().isoformat(), "commit": commit_of(),
              "command": f"tests/bench/slow_link.py --shape {args.shape} --link-mb-per-s "
                         f"{' '.join(f'{rate:g}' for rate in args.link_mb_per_s)} --rounds {args.rounds}"}
    with model_of_shape(LIKE, args.shape) as model:
        for rate in args.link_mb_per_s:
            for line in measure_link(args, model, rate):
                emit({**line, **common}, args.out)


if __name__ == "__main__":
    main()
