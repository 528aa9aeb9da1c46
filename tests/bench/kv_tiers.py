#!/usr/bin/env python3
"""How soon the first token of a prompt comes whose KV blocks are in host memory, on disk or in a store, beside computing it.

usage: kv_tiers.py [--tiers host disk redis] [--like DIR --shape NAME] [--tokens N...] [--rounds N] [--device cpu|cuda]
                   [--stages N] [--devices N,N...] [--folder DIR] [--server-flags "FLAGS"] [--out FILE.jsonl]
A server computes prompts of each length (cold). Host memory: other prompts take their place on the device, then they come
again. Disk and Redis: the server ends, and another process gets the same prompts. Weights are random (only the shape
matters). The tokens of both answers are compared, and must be the same on CPUs and with --batch-invariant. Each line tells
which share of the tokens came from the tier: the rest was computed, because the server knows the tier to be slower.
"""
import argparse
import contextlib
import datetime
import pathlib
import random
import shlex
import statistics
import sys
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
from servers import placement  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

NEW_TOKENS = 4


def ask(server, tokens):
    """(seconds to the first token, tokens, usage)"""
    began = time.monotonic()
    first, ids = None, []
    for message in server.stub.Generate(pb.GenerateRequest(
            tokens=pb.TokenIds(ids=tokens), sampling=pb.SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True))):
        ids += message.token_ids
        if ids and first is None:
            first = time.monotonic() - began
    return first, ids, message.usage


def prompt(n, seed):
    return random.Random(seed).choices(range(10, 1000), k=n)


class Bench:
    def __init__(self, args, model, bin_dir):
        self.args, self._model, self._bin_dir = args, model, bin_dir
        self.exact = args.device == "cpu" or "--batch-invariant" in args.server_flags
        self.prompts = {n: [prompt(n, 1000 * n + i) for i in range(args.rounds)] for n in args.tokens}

    @contextlib.contextmanager
    def server(self, *flags):
        args = self.args
        flags = ["--device", args.device, "--load-format", "dummy", "--max-sequences", 4, *args.server_flags.split(), *flags]
        if args.devices:
            flags += placement(args.devices, flags)
        with Cluster(self._model, args.stages, flags, program=str(self._bin_dir / "stagecoach")) as cluster:
            yield cluster

    def ask_all(self, server, between=lambda server: None):
        answers = {}
        for n in self.args.tokens:
            answers[n] = []
            for tokens in self.prompts[n]:
                between(server)
                answers[n].append(ask(server, tokens))
        return answers

    def await_saved(self, server):
        wait_until(lambda: kv_blocks(server)["waiting"] == 0, "all blocks to be saved", timeout_s=120)

    def host(self, size):
        """Cold and warm answers of one server, whose device forgets each prompt before it comes again."""
        with self.server("--kv-memory", "1GiB", "--max-model-len", 256) as probe:
            block_bytes = (1 << 30) // probe.kv_blocks
        held = (max(self.args.tokens) + 128) // 16 * block_bytes
        with self.server("--kv-memory", held, "--max-model-len", max(self.args.tokens) + 64, "--host-kv", size) as server:
            ask(server, prompt(max(self.args.tokens), 1))  # warms up
            cold = self.ask_all(server)
            # Only host memory is to hold them: a prompt of full length takes all of the device.
            return cold, self.ask_all(server, lambda server: ask(server, prompt(max(self.args.tokens), 1)))

    def restarted(self, *flags):
        with self.server(*flags) as server:
            ask(server, prompt(max(self.args.tokens), 2))  # warms up
            cold = self.ask_all(server)
            self.await_saved(server)
        with self.server(*flags) as server:
            ask(server, prompt(max(self.args.tokens), 3))
            return cold, self.ask_all(server)

    def lines(self, tier, cold, warm):
        for n in self.args.tokens:
            n_identical = sum(found == expected for (_, expected, _), (_, found, _) in zip(cold[n], warm[n], strict=True))
            assert n_identical == self.args.rounds or not self.exact, f"{tier}: another answer to a prompt of {n} tokens"
            before, after = ([seconds for seconds, _, _ in answers[n]] for answers in (cold, warm))
            where = "store" if tier == "redis" else tier
            share = statistics.median(getattr(usage.stored_tokens, where) for _, _, usage in warm[n]) / n
            yield {"name": f"kv_tiers/{self.args.device}/{self.args.stages}_stages/{tier}/{n}_tokens",
                   "value": round(statistics.median(after), 4), "unit": "s to the first token", "reference": "computed",
                   "reference_value": round(statistics.median(before), 4),
                   "ratio": round(statistics.median(after) / statistics.median(before), 4), "share_from_tier": round(share, 3),
                   "identical": n_identical,
                   "rounds": self.args.rounds}


def measure(bench, tier, folder):
    if tier == "host":
        return bench.host(bench.args.host_kv)
    if tier == "disk":
        return bench.restarted("--host-kv", "4GiB", "--disk-kv", f"{folder}/disk")
    with RedisServer() as redis:
        return bench.restarted("--host-kv", "4GiB", "--kv-store", redis.url)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiers", nargs="+", choices=("host", "disk", "redis"), default=["host", "disk", "redis"])
    parser.add_argument("--like", type=pathlib.Path, default=LIKE)
    parser.add_argument("--shape", default="opt-125m", help="see random_checkpoint.py")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 1900])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--devices", type=lambda text: [int(gpu) for gpu in text.split(",")], help="GPU of each stage")
    parser.add_argument("--host-kv", default="4GiB", help="of the server with host memory alone")
    parser.add_argument("--folder", type=pathlib.Path, help="of the disk tier; default: a temporary one")
    parser.add_argument("--server-flags", default="")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.command = "tests/bench/kv_tiers.py"
    for key, value in vars(args).items():
        if key not in ("out", "folder", "command") and value != parser.get_default(key):
            text = ",".join(map(str, value)) if key == "devices" else shlex.join(map(str, value if isinstance(value, list) else [value]))
            args.command += f" --{key.replace('_', '-')} {text}"
    bin_dir = programs(args.device)
    with model_of_shape(args.like, args.shape) as model:
        bench = Bench(args, model, bin_dir)
        for tier in args.tiers:
            for line in bench.lines(tier, *measure(bench, tier, args.folder or model.parent)):
                emit({**line, "model": f"shape of {args.shape}", "machine": machine_of(args.device, all_gpus()),
                      "date": datetime.date.today().isoformat(), "commit": commit_of(),
                      "command": args.command}, args.out)


if __name__ == "__main__":
    main()
