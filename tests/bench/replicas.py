#!/usr/bin/env python3
"""What several replicas behind one router gain.

usage: replicas.py [prefixes|kill] [--model DIR] [--device cpu|cuda] [--stages N] [--rounds N] [--out FILE.jsonl] ...

prefixes: requests with one of 64 prefixes of 1,500 tokens, at two replicas that hold 40 of them each. The router sends each
request to the replica that has its prefix. Beside it, the same requests go to two servers of one replica, a fair coin
choosing the server: routing at random. Both are measured in turn, in every round with new prefixes.

kill: the first stage of a replica is killed under 64 streams. How long each stream is silent, and whether it got the tokens
that it gets without a fault.
"""
import argparse
import asyncio
import contextlib
import datetime
import os
import pathlib
import random
import shlex
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

import grpc  # noqa: E402
from faults import pids  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import DEMO_MODEL, Cluster  # noqa: E402
from lost_stages import await_workers  # noqa: E402
from machine import commit_of, default_bin, machine_of  # noqa: E402
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed  # noqa: E402
from results import emit  # noqa: E402
from servers import library_path  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

BLOCK_TOKENS = 16
REPLICAS = 2


class Load:
    """The same random requests for every server: a prefix, a few tokens of their own, and a coin."""

    def __init__(self, args, seed):
        chance = random.Random(seed)

        def tokens(n):
            return chance.choices(range(300, 1500), k=n)

        prefixes = [tokens(args.prefix_tokens) for _ in range(args.prefixes)]
        self.warm_up = [self._request(prefix, tokens(1), 1) for prefix in prefixes]
        self.requests = [self._request(chance.choice(prefixes), tokens(args.own_tokens), args.new_tokens)
                         for _ in range(args.requests)]
        self.coins = [chance.randrange(REPLICAS) for _ in range(args.prefixes + args.requests)]

    def _request(self, prefix, own, n):
        return pb.GenerateRequest(tokens=pb.TokenIds(ids=prefix + own),
                                  sampling=pb.SamplingParams(max_tokens=n, ignore_eos=True, temperature=0.0))


async def run(addresses, all_requests, coins, concurrency):
    """(seconds, cached share of the prompt tokens): `concurrency` clients, each with one request after the other."""
    channels = [grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) for address in addresses]
    stubs = [pb_grpc.InferenceStub(channel) for channel in channels]
    todo = iter(zip(all_requests, coins))
    usages = []

    async def client():
        for request, coin in todo:
            async for message in stubs[coin % len(stubs)].Generate(request, timeout=600):
                last = message
            usages.append(last.usage)

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    seconds = time.monotonic() - began
    for channel in channels:
        await channel.close()
    return seconds, sum(u.cached_tokens for u in usages) / sum(u.prompt_tokens for u in usages)


def measure_load(args, addresses, load):
    asyncio.run(run(addresses, load.warm_up, load.coins, args.concurrency))
    return asyncio.run(run(addresses, load.requests, load.coins[args.prefixes:], args.concurrency))


def prefixes(args, start):
    """Two servers of one replica and one of two take turns; each stands still while the other is measured."""
    with start(["--kv-memory", 1 << 30]) as probe:
        block_bytes = (1 << 30) // probe.kv_blocks
    held = args.held * (args.prefix_tokens // BLOCK_TOKENS + 1)
    flags = ["--kv-memory", held * block_bytes, "--max-model-len", args.prefix_tokens + 128, "--max-sequences", args.concurrency]
    with contextlib.ExitStack() as stack:
        together = stack.enter_context(start([*flags, "--replicas", REPLICAS]))
        cores = max(1, (os.cpu_count() or 1) // REPLICAS)
        alone = [*flags, "--threads-per-worker", cores] if args.device == "cpu" else flags
        apart = [stack.enter_context(start([*alone, *(["--devices", i] if args.device == "cuda" else [])]))
                 for i in range(REPLICAS)]
        print("KV blocks of a replica:", together.kv_blocks, [one.kv_blocks for one in apart], file=sys.stderr)
        seconds = {"aware": [], "random": []}
        shares = {"aware": [], "random": []}
        for i in range(args.rounds):
            load = Load(args, seed=i)
            for name, addresses in (("aware", [together.grpc]), ("random", [one.grpc for one in apart])):
                took, share = measure_load(args, addresses, load)
                seconds[name].append(took)
                shares[name].append(share)
                print(f"round {i} {name}: {took:.2f} s, {share:.2f} cached", file=sys.stderr)
        rate = {name: args.requests / statistics.median(times) for name, times in seconds.items()}
        yield {"name": f"replicas/{args.device}/{args.prefixes}_prefixes", "value": round(rate["aware"], 2), "unit": "requests/s",
               "reference": "two servers, each request to one of them at random", "reference_value": round(rate["random"], 2),
               "ratio": round(rate["aware"] / rate["random"], 3),
               "ratio_by_round": [round(b / a, 3) for a, b in zip(seconds["aware"], seconds["random"], strict=True)],
               "cached_share": {name: round(statistics.median(all_shares), 3) for name, all_shares in shares.items()},
               "kv_blocks_per_replica": together.kv_blocks, "prefix_tokens": args.prefix_tokens, "own_tokens": args.own_tokens,
               "new_tokens": args.new_tokens, "requests": args.requests, "concurrency": args.concurrency, "rounds": args.rounds}


def kill(args, start):
    all_requests = requests(args.streams, args.tokens)
    with start(["--replicas", REPLICAS, *shlex.split(args.server_flags)]) as cluster:
        expected = undisturbed(cluster, all_requests)
        for replica in range(REPLICAS):
            counts, next_token, longest, running = dict(identical=0, error=0, hung=0, different=0), [], [], []
            for _ in range(args.rounds):
                workers = await_workers(cluster)
                with Streams(cluster.grpc, all_requests) as streams:
                    streams.await_messages(3)
                    began = time.monotonic()
                    os.kill(workers[replica * args.stages], signal.SIGKILL)
                    assert pids(cluster)
                silences = [s for o in streams.outcomes if (s := o.silence_across(began)) is not None]
                running.append(len(silences))
                next_token.append(max(silences))
                longest.append(max(b - a for o in streams.outcomes for a, b in zip(o.times, o.times[1:])))
                for key, value in classify(streams.outcomes, expected).items():
                    counts[key] += value
            yield {"name": f"replicas/{args.device}/{args.stages}_stages/kill_replica_{replica}", "value": counts["identical"],
                   "unit": "streams identical", "reference": "all streams of all rounds",
                   "ratio": counts["identical"] / (args.rounds * args.streams), **counts, "rounds": args.rounds,
                   "streams": args.streams, "least_streams_running_at_the_fault": min(running),
                   "last_stream_goes_on_after_s": {"median": round(statistics.median(next_token), 3), "max": round(max(next_token), 3)},
                   "longest_silence_s": {"median": round(statistics.median(longest), 3), "max": round(max(longest), 3)}}


PARTS = dict(prefixes=prefixes, kill=kill)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="prefixes, kill (default: both)")
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--stages", type=int, default=1, help="of each replica")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefixes", type=int, default=64)
    parser.add_argument("--prefix-tokens", type=int, default=1500)
    parser.add_argument("--held", type=int, default=40, help="prefixes that the KV cache of a replica holds")
    parser.add_argument("--own-tokens", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--requests", type=int, default=400, help="per round")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300, help="of each stream")
    parser.add_argument("--server-flags", default="", help="of the server whose replica is killed")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    args.command = " ".join(["tests/bench/replicas.py", *args.parts])
    for key, value in vars(args).items():
        if key not in ("parts", "model", "out", "command") and value != parser.get_default(key):
            args.command += f" --{key.replace('_', '-')} {shlex.quote(str(value))}"
    return args


def main():
    args = parse()
    bin_dir = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR") or default_bin(args.device))
    os.environ["LD_LIBRARY_PATH"] = library_path(bin_dir, args.device == "cuda")
    common = {"model": pathlib.Path(args.model).name, "machine": machine_of(args.device, all_gpus()),
              "date": datetime.date.today().isoformat(), "commit": commit_of(), "command": args.command}

    def start(flags):
        common = ["--device", args.device, "--chat-template", str(TOOLS_TEMPLATE)]
        return Cluster(args.model, args.stages, [*common, *flags], program=str(bin_dir / "stagecoach"))

    for part in args.parts or PARTS:
        for line in PARTS[part](args, start):
            emit({**line, **common}, args.out)


if __name__ == "__main__":
    main()
