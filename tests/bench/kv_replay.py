#!/usr/bin/env python3
"""How long streams are silent when the worker of a stage is killed that nobody keeps memory for, with a KV store and without.

usage: kv_replay.py [--like DIR] [--shape opt-125m] [--stages 2] [--lost 1] [--streams 8] [--prompt 1500] [--tokens 200]
                    [--rounds 3] [--store DIR] [--worker-flags "FLAGS"] [--router-flags "FLAGS"] [--store-flags "FLAGS"]
                    [--out FILE.jsonl]
Workers are started by hand, as in pods, so the KV cache of a killed one is gone. Every round starts all streams, waits until
each has its first tokens, kills the worker of one stage with SIGKILL and starts another one at its address. Without a
store, the pipeline computes all tokens again; with one (a Redis, or the folder DIR), it reads the blocks. The tokens are
compared with those of a run in which nothing is killed. Weights are random (only the shape matters). Both pipelines run at
the same time and are asked in turn.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import pathlib
import random
import shlex
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

import grpc  # noqa: E402
from dummy_shape import LIKE, model_of_shape, programs  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import parse_ready, start, wait_until  # noqa: E402
from kv_metrics import kv_blocks  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from results import emit  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

N_FIRST = 5  # tokens that each stream has before the kill


class Pipeline:
    """Workers and a router, each a process of its own. `log` is a file."""

    def __init__(self, stack, args, model, log, *flags):
        self._stack, self._args, self._log = stack, args, log
        self._workers, self._addresses = [], []
        for _ in range(args.stages):
            worker = self._start_worker("127.0.0.1:0")
            self._addresses.append(parse_ready(worker.stdout.readline(), "listening")["grpc"])
            self._workers.append(worker)
        router = start(stack, "stagecoach-router", "--model", str(model), "--stages", ",".join(self._addresses), "--grpc",
                       "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--load-format", "dummy", "--max-sequences",
                       str(args.streams), *shlex.split(args.router_flags), *flags, stderr=log)
        ready = parse_ready(router.stdout.readline())
        self.metrics = ready["metrics"]
        channel = grpc.insecure_channel(ready["grpc"], options=[("grpc.enable_http_proxy", 0)])
        stack.callback(channel.close)
        self.stub = pb_grpc.InferenceStub(channel)

    def _start_worker(self, address):
        return start(self._stack, "stagecoach-worker", "--listen", address, *shlex.split(self._args.worker_flags),
                     stderr=self._log)

    def replace(self, stage):
        self._workers[stage].kill()
        self._workers[stage].wait()
        self._workers[stage] = self._start_worker(self._addresses[stage])


def run(pipeline, args, prompts, kills):
    """(tokens of each stream, its longest silence from the kill on in seconds)."""
    started = threading.Barrier(len(prompts) + 1)
    killed_at = None

    def stream(prompt):
        ids, silence, last, waits = [], 0.0, None, True
        for message in pipeline.stub.Generate(pb.GenerateRequest(
                tokens=pb.TokenIds(ids=prompt),
                sampling=pb.SamplingParams(max_tokens=args.tokens, temperature=0, ignore_eos=True))):
            ids += message.token_ids
            now = time.monotonic()
            if killed_at is not None:
                silence = max(silence, now - max(last, killed_at))
            last = now
            if waits and len(ids) >= N_FIRST:
                waits = False
                started.wait()
        return ids, silence

    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as clients:
        streams = [clients.submit(stream, prompt) for prompt in prompts]
        started.wait()
        if kills:
            killed_at = time.monotonic()
            pipeline.replace(args.lost)
        return list(zip(*(one.result() for one in streams), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=pathlib.Path, default=LIKE)
    parser.add_argument("--shape", default="opt-125m", help="see random_checkpoint.py")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--lost", type=int, default=1, help="stage")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--worker-flags", default="--threads 1")
    parser.add_argument("--router-flags", default="")
    parser.add_argument("--store", type=pathlib.Path, metavar="DIR", help="folder on this machine; default: a Redis")
    parser.add_argument("--store-flags", default="", help="of the router with a store")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    programs(args.device)
    exact = args.device == "cpu" or "--batch-invariant" in args.worker_flags + args.router_flags
    silences = {"without": [], "with": []}
    n_same = n_streams = 0
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(model_of_shape(args.like, args.shape))
        url = f"dir:{args.store}" if args.store else stack.enter_context(RedisServer()).url
        log = stack.enter_context(open(args.out.with_suffix(".log") if args.out else "/dev/null", "w"))
        pipelines = {"without": Pipeline(stack, args, model, log),
                     "with": Pipeline(stack, args, model, log, "--kv-store", url, *shlex.split(args.store_flags))}
        for number in range(args.rounds):
            chance = random.Random(number)
            prompts = [chance.choices(range(10, 1000), k=args.prompt) for _ in range(args.streams)]
            expected, _ = run(pipelines["without"], args, prompts, kills=False)
            for name, pipeline in pipelines.items():
                if name == "with":
                    wait_until(lambda pipeline=pipeline: kv_blocks(pipeline)["waiting"] == 0, "all blocks to be saved")
                # Other prompts than those that are cached; the tokens are compared where the prompts are the same.
                tokens, silent = run(pipeline, args, prompts, kills=True)
                n_streams += len(prompts)
                n_same += sum(one == other for one, other in zip(tokens, expected, strict=True))
                silences[name].append(statistics.median(silent))
            print(f"round {number}: {silences['without'][-1]:.2f} s without a store, {silences['with'][-1]:.2f} s with one",
                  file=sys.stderr)
    assert n_same == n_streams or not exact, f"{n_streams - n_same} of {n_streams} streams have other tokens"
    before, after = (statistics.median(silences[name]) for name in ("without", "with"))
    emit({"name": f"kv_replay/{args.device}/{args.stages}_stages/stage_{args.lost}/{args.streams}x{args.prompt}_tokens",
          "value": round(after, 3), "unit": "s of silence", "reference": "without --kv-store", "reference_value": round(before, 3),
          "ratio": round(after / before, 3),
          "ratio_by_round": [round(b / a, 3) for a, b in zip(*silences.values(), strict=True)],
          "identical": [n_same, n_streams], "rounds": args.rounds, "model": f"shape of {args.shape}",
          "machine": machine_of(args.device, all_gpus()), "date": datetime.date.today().isoformat(), "commit": commit_of(),
          "command": "tests/bench/kv_replay.py" + f" --like {args.like}" * (args.like != LIKE) +
                     f" --shape {args.shape} --stages {args.stages} --lost {args.lost} --streams {args.streams} "
                     f"--prompt {args.prompt} --tokens {args.tokens} --rounds {args.rounds} --device {args.device} "
                     f"--worker-flags '{args.worker_flags}' --router-flags '{args.router_flags}'" +
                     f" --store {args.store} --store-flags '{args.store_flags}'" * bool(args.store)}, args.out)


if __name__ == "__main__":
    main()
