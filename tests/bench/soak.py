#!/usr/bin/env python3
"""A pipeline under steady load and random faults: what becomes of the streams, and whether its processes grow.

usage: soak.py [--minutes N] [--stages N] [--streams N] [--pause S] [--seed N] [--plain-malloc] [--out FILE.jsonl]
Streams of mixed kinds start again when they end. Every few seconds a random fault strikes a random stage. Each stream is
compared with the same one in a run without a fault. Resident memory, open descriptors and threads of the launcher, the
router and all workers are sampled; a line each has the slope per hour, with its standard error, and the slope of the second
half alone, which shows whether growth ends. Within noise: the slope is at most three errors away from 0. One page,
thread or descriptor more is within noise, two are not.

Resident memory also has what malloc keeps for itself: freed blocks in the cache of each thread and in up to eight arenas
per core. These fill up over some thousand recoveries. With --plain-malloc there is one arena and no cache, so nearly all
that is resident is in use, and a leak of 100 bytes per recovery shows.
"""
import argparse
import asyncio
import collections
import datetime
import os
import pathlib
import random
import re
import shlex
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

import grpc  # noqa: E402
from faults import pids  # noqa: E402
from harness import DEMO_MODEL, Cluster, is_running  # noqa: E402
from lost_stages import FAULTS, await_workers  # noqa: E402
from machine import commit_of, machine_of  # noqa: E402
from recovery import TOOLS_TEMPLATE, Outcome, classify, follow, pb_grpc, requests, undisturbed  # noqa: E402
from results import emit  # noqa: E402
from trend import second_half, slope_per_hour  # noqa: E402

SAMPLE_S = 1
ERRORS = 3
STEP = {"resident_mib": os.sysconf("SC_PAGESIZE") / 2**20}  # the least change; of a count, 1
PLAIN_MALLOC = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"


class SteadyLoad:
    """As many streams at any time as there are requests, until the end of the block."""

    def __init__(self, address, all_requests, expected):
        self.counts = collections.Counter()
        self.n_tokens = 0  # of the streams that ended as expected
        self._address, self._all = address, list(zip(all_requests, expected, strict=True))
        self._ending = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending = True
        self._thread.join()

    async def _run(self):
        async with grpc.aio.insecure_channel(self._address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = pb_grpc.InferenceStub(channel)
            await asyncio.gather(*(self._repeat(stub, first) for first in range(len(self._all))))

    async def _repeat(self, stub, first):
        n = first
        while not self._ending:
            request, expected = self._all[n % len(self._all)]
            outcome = Outcome()
            await follow(stub, request, outcome)
            if outcome.error:
                print("error:", outcome.error, outcome.details, file=sys.stderr)
            counts = classify([outcome], [expected])
            self.counts.update(counts)
            self.n_tokens += counts["identical"] * expected.n_tokens[-1]
            n += 1


def usage(processes):
    """{what: sum over the processes}. FileNotFoundError, ProcessLookupError: one has ended."""
    total = collections.Counter()
    for pid in processes:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        if (resident := re.search(r"VmRSS:\s+(\d+) kB", status)) is None:
            raise ProcessLookupError(pid)
        total["resident_mib"] += int(resident[1]) / 1024
        total["threads"] += int(re.search(r"Threads:\s+(\d+)", status)[1])
        total["descriptors"] += len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
    return total


class Sampler:
    """`series` is {(process, what): [(seconds, value)]}. Workers are sampled together, and only while all stages have one."""

    def __init__(self, cluster):
        self.series = collections.defaultdict(list)
        self._cluster = cluster
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        while not self._end.wait(SAMPLE_S):
            try:
                router, workers = pids(self._cluster)
                self._sample(launcher=[self._cluster.process.pid], router=[router])
                if all(workers) and all(map(is_running, workers)):
                    self._sample(workers=workers)
            except (FileNotFoundError, ProcessLookupError, ValueError):  # one ended meanwhile
                continue

    def _sample(self, **groups):
        now = time.monotonic()
        for name, processes in groups.items():
            for what, value in usage(processes).items():
                self.series[name, what].append((now, value))


def inflict(cluster, until, pause, rng):
    """{fault: number} of the faults, each at a random stage, until the time has come."""
    done = collections.Counter()
    while time.monotonic() < until:
        time.sleep(rng.uniform(0.5, 1.5) * pause)  # the time between faults
        name = rng.choice(list(FAULTS))
        FAULTS[name](cluster, rng.randrange(len(await_workers(cluster))))
        done[name] += 1
    return done


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--pause", type=float, default=5, help="mean seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain-malloc", action="store_true", help="no caches and one arena in malloc of all programs")
    parser.add_argument("--server-flags", default="--stall-limit 2")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.plain_malloc:
        os.environ["GLIBC_TUNABLES"] = PLAIN_MALLOC
    given = {key: value for key, value in vars(args).items() if key != "out" and value != parser.get_default(key)}
    args.command = " ".join(["tests/bench/soak.py", *(
        f"--{key.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}") for key, value in given.items())])
    return args


def main():
    args = parse()
    common = {"machine": machine_of("cpu", []), "date": datetime.date.today().isoformat(), "commit": commit_of(),
              "command": args.command}
    all_requests = requests(args.streams, args.tokens)
    flags = [*shlex.split(args.server_flags), "--chat-template", TOOLS_TEMPLATE]
    lines = []
    with Cluster(DEMO_MODEL, args.stages, flags) as cluster:
        expected = undisturbed(cluster, all_requests)
        began = time.monotonic()
        with SteadyLoad(cluster.grpc, all_requests, expected) as load, Sampler(cluster) as sampler:
            faults = inflict(cluster, began + 60 * args.minutes, args.pause, random.Random(args.seed))
            took = time.monotonic() - began
            n_tokens = load.n_tokens
    n = sum(load.counts.values())
    lines.append({"name": "soak/streams", "value": load.counts["identical"], "unit": "streams identical", "reference": "all streams",
                  "ratio": load.counts["identical"] / n, **load.counts, "seconds": round(took), "faults": dict(faults),
                  "tokens_per_s": round(n_tokens / took, 1)})
    for (process, what), samples in sampler.series.items():
        mean, slope, error = slope_per_hour(samples, STEP.get(what, 1))
        lines.append({"name": f"soak/{process}/{what}", "value": round(slope, 3), "unit": f"{what} per hour",
                      "reference": "0 within noise", "standard_error": round(error, 3), "mean": round(mean, 2),
                      "second_half": round(slope_per_hour(second_half(samples))[1], 3), "within_noise": abs(slope) <= ERRORS * error})
    for line in lines:
        emit({**line, **common}, args.out)


if __name__ == "__main__":
    main()
