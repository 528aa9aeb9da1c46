#!/usr/bin/env python3
"""How soon a second server answers a long context that another one has computed, through a store that both share.

usage: kv_store.py [--store redis|dir] [--shape opt-125m] [--tokens 2000] [--stages N...] [--rounds N] [--device cpu|cuda]
                   [--out FILE.jsonl]
Server A computes each context first. Then server B, a process that never saw it, gets it: the time to its first token, as a
ratio to that of a server without the store (cold), measured with the same contexts. A and B have every combination of
--stages. Weights are random (only their shape matters), and the tokens of both answers are compared before anything is
timed. Redis is a redis-server of this machine.
"""
import argparse
import contextlib
import datetime
import pathlib
import random
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from dummy_shape import LIKE, model_of_shape, programs  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import Cluster, wait_until  # noqa: E402
from kv_metrics import kv_blocks  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from results import emit  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

BLOCK = 16
NEW_TOKENS = 8


def contexts(args):
    return [random.Random(i).choices(range(10, 1000), k=args.tokens) for i in range(args.rounds)]


def ask(server, tokens):
    """(seconds to the first token, tokens, cached prompt tokens)."""
    began = time.monotonic()
    first, ids = None, []
    for message in server.stub.Generate(pb.GenerateRequest(
            tokens=pb.TokenIds(ids=tokens),
            sampling=pb.SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True))):
        ids += message.token_ids
        if ids and first is None:
            first = time.monotonic() - began
    return first, ids, message.usage.cached_tokens


def compute(args, start, stages, store):
    """Server A computes all contexts and saves them."""
    with start(stages, store) as server:
        answers = [ask(server, tokens) for tokens in contexts(args)]
        n_blocks = args.rounds * (args.tokens // BLOCK) * stages
        wait_until(lambda: kv_blocks(server)["saved"] >= n_blocks, "the blocks in the store")
        assert kv_blocks(server)["dropped"] == 0
    return answers


def measure(args, start, new_store):
    cold = {}
    for stages in args.stages:
        with start(stages, None) as server:
            cold[stages] = [ask(server, tokens) for tokens in contexts(args)]
    expected = [ids for _, ids, _ in cold[args.stages[0]]]
    for of_a in args.stages:
        with new_store() as store:
            answers = compute(args, start, of_a, store)
            for of_b in args.stages:
                with start(of_b, store) as server:
                    warm = [ask(server, tokens) for tokens in contexts(args)]
                for found in (answers, cold[of_b], warm):
                    assert [ids for _, ids, _ in found] == expected
                assert all(cached == (args.tokens - 1) // BLOCK * BLOCK for _, _, cached in warm)
                of_cold = [after / before for (after, *_), (before, *_) in zip(warm, cold[of_b], strict=True)]
                yield {"name": f"kv_store/{args.device}/{args.store}/{args.tokens}_tokens/{of_a}_to_{of_b}_stages",
                       "value": round(statistics.median(t for t, *_ in warm), 4), "unit": "s to the first token",
                       "reference": "the same server without the store",
                       "reference_value": round(statistics.median(t for t, *_ in cold[of_b]), 4),
                       "ratio": round(statistics.median(of_cold), 4), "ratio_by_round": [round(r, 4) for r in of_cold],
                       "rounds": args.rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("redis", "dir"), default="redis")
    parser.add_argument("--like", type=pathlib.Path, default=LIKE,
                        help="small model whose architecture it is")
    parser.add_argument("--shape", default="opt-125m", help="see random_checkpoint.py")
    parser.add_argument("--tokens", type=int, default=2000, help="of a context")
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3, help="contexts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    bin_dir = programs(args.device)
    with model_of_shape(args.like, args.shape) as model:

        def start(stages, store):
            flags = ["--device", args.device, "--load-format", "dummy", "--max-sequences", 4, "--kv-memory", "1GiB"]
            return Cluster(model, stages, [*flags, *(["--kv-store", store] if store else [])], program=str(bin_dir / "stagecoach"))

        @contextlib.contextmanager
        def new_store():
            if args.store == "redis":
                with RedisServer() as redis:
                    yield redis.url
            else:
                with tempfile.TemporaryDirectory() as path:
                    yield f"dir:{path}"

        common = {"model": f"shape of {args.shape}", "machine": machine_of(args.device, all_gpus()),
                  "date": datetime.date.today().isoformat(), "commit": commit_of(),
                  "command": f"tests/bench/kv_store.py --store {args.store} --shape {args.shape} --tokens {args.tokens} "
                             f"--stages {' '.join(map(str, args.stages))} --rounds {args.rounds}"}
        for line in measure(args, start, new_store):
            emit({**line, **common}, args.out)


if __name__ == "__main__":
    main()
