#!/usr/bin/env python3
"""What host memory for KV blocks (--host-kv) gains when the device holds only some of the conversations that are going on.

usage: kv_host.py [--like DIR] [--shape opt-125m] [--conversations 12] [--together] [--held 3] [--history 1200]
                  [--turns 4] [--input 60] [--output 16] [--stages N] [--rounds N] [--device cpu|cuda] [--host-kv 2GiB]
                  [--server-flags "FLAGS"] [--out FILE.jsonl]
Each conversation begins with a history, and each of its turns adds --input tokens and gets --output tokens. The KV cache has
room for --held conversations. They take turns, or all go on at once (--together). So the cache has lost a conversation when
its next turn comes.
Measured is the time of all turns after the first one, without and with --host-kv, in turn in each round with new
conversations. The tokens of both are compared, if batches do not change them.
"""
import argparse
import concurrent.futures
import datetime
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from dummy_shape import LIKE, model_of_shape, programs  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import Cluster  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from results import emit  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

BLOCK = 16


def answer(server, tokens, n):
    ids = []
    for message in server.stub.Generate(pb.GenerateRequest(
            tokens=pb.TokenIds(ids=tokens), sampling=pb.SamplingParams(max_tokens=n, temperature=0, ignore_eos=True))):
        ids += message.token_ids
    return ids, message.usage.cached_tokens


def talk(server, args, seed):
    """(seconds of the turns after the first, all tokens, cached share of their prompts)."""
    chance = random.Random(seed)

    def tokens(n):
        return chance.choices(range(10, 1000), k=n)

    said = [tokens(args.history) for _ in range(args.conversations)]
    inputs = [[tokens(args.input) for _ in range(args.conversations)] for _ in range(args.turns + 1)]
    counts = []  # (cached, prompt tokens) of the turns after the first

    def turn(i, number):
        said[i] += inputs[number][i]
        ids, n_cached = answer(server, said[i], args.output)
        if number > 0:
            counts.append((n_cached, len(said[i])))
        said[i] += ids

    def go_on(i):
        for number in range(1, args.turns + 1):
            turn(i, number)

    for i in range(args.conversations):
        turn(i, 0)
    began = time.monotonic()
    if args.together:
        with concurrent.futures.ThreadPoolExecutor(args.conversations) as clients:
            list(clients.map(go_on, range(args.conversations)))
    else:
        for number in range(1, args.turns + 1):
            for i in range(args.conversations):
                turn(i, number)
    took = time.monotonic() - began
    cached, asked = (sum(one) for one in zip(*counts, strict=True))
    return took, said, cached / asked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=pathlib.Path, default=LIKE,
                        help="small model whose architecture it is")
    parser.add_argument("--shape", default="opt-125m", help="see random_checkpoint.py")
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--together", action="store_true", help="all conversations go on at once")
    parser.add_argument("--held", type=int, default=3)
    parser.add_argument("--history", type=int, default=1200)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--input", type=int, default=60)
    parser.add_argument("--output", type=int, default=16)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--host-kv", default="2GiB")
    parser.add_argument("--server-flags", default="")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    bin_dir = programs(args.device)
    exact = args.device == "cpu" or "--batch-invariant" in args.server_flags
    longest = args.history + (args.turns + 1) * (args.input + args.output)
    with model_of_shape(args.like, args.shape) as model:

        def start(*flags):
            return Cluster(model, args.stages, ["--device", args.device, "--load-format", "dummy", "--max-sequences", max(4, args.held),
                                               *args.server_flags.split(), *flags],
                           program=str(bin_dir / "stagecoach"))

        with start("--kv-memory", 1 << 30) as probe:
            block_bytes = (1 << 30) // probe.kv_blocks
        small = ["--kv-memory", args.held * (longest // BLOCK + 1) * block_bytes, "--max-model-len", longest + BLOCK]
        with start(*small) as without, start(*small, "--host-kv", args.host_kv) as with_host:
            seconds, shares = [], []
            for i in range(args.rounds):
                (before, expected, few), (after, found, most) = (talk(server, args, i) for server in (without, with_host))
                assert found == expected or not exact
                seconds.append((before, after))
                shares.append((few, most))
                print(f"round {i}: {before:.2f} s, {few:.2f} cached; {after:.2f} s, {most:.2f} cached", file=sys.stderr)
    n_turns = args.conversations * args.turns
    rates = [n_turns / statistics.median(times) for times in zip(*seconds, strict=True)]
    emit({"name": f"kv_host/{args.device}/{args.conversations}_conversations_{args.held}_held", "value": round(rates[1], 3),
          "unit": "turns/s", "reference": "without --host-kv", "reference_value": round(rates[0], 3),
          "ratio": round(statistics.median(before / after for before, after in seconds), 3),
          "ratio_by_round": [round(before / after, 3) for before, after in seconds],
          "cached_share": [round(statistics.median(one), 3) for one in zip(*shares, strict=True)], "rounds": args.rounds,
          "model": f"shape of {args.shape}", "machine": machine_of(args.device, all_gpus()),
          "date": datetime.date.today().isoformat(), "commit": commit_of(),
          "command": "tests/bench/kv_host.py" + f" --like {args.like}" * (args.like != LIKE) +
                     f" --device {args.device} --shape {args.shape} --conversations {args.conversations} --held {args.held} "
                     f"--history {args.history} --turns {args.turns} --input {args.input} --output {args.output} "
                     f"--stages {args.stages} --rounds {args.rounds} --host-kv {args.host_kv}" + " --together" * args.together}, args.out)


if __name__ == "__main__":
    main()
