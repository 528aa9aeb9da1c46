#!/usr/bin/env python3
"""Replaces the workers of one build by those of another, one after the other, under the streams of a running router.

usage: rolling.py --old DIR --new DIR [--model DIR] [--stages N] [--streams N] [--tokens N]
DIR is a folder with stagecoach-router and stagecoach-worker. For a router of each build, the workers go from the old to the
new build and back. Every stream must end as in a run of the old build without any replacement. A new router lets workers
hand their stages over (SIGTERM). An old one may not know that, so its workers are killed.
"""
import argparse
import contextlib
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

from harness import DEMO_MODEL, parse_ready, wait_until
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed

BACK_AFTER = "the pipeline works again after"


class Pipeline:
    """A router and its workers, each of one of the two builds. `grpc` is the router's address."""

    def __init__(self, args, router):
        self._args = args
        self._router_bin = getattr(args, router)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._log = self._stack.enter_context(tempfile.TemporaryFile(mode="w+"))
        self._workers = [self._start(self._args.old, "stagecoach-worker", "--listen", "127.0.0.1:0") for _ in range(self._args.stages)]
        self._addresses = [parse_ready(worker.stdout.readline(), "listening")["grpc"] for worker in self._workers]
        self._router = self._start(self._router_bin, "stagecoach-router", "--model", self._args.model,
                                   "--stages", ",".join(self._addresses), "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                                   "--chat-template", str(TOOLS_TEMPLATE))
        line = self._router.stdout.readline()
        if not line:
            sys.exit(f"the router did not start:\n{self.log()}")
        self.grpc = parse_ready(line)["grpc"]
        return self

    def __exit__(self, *rest):
        return self._stack.__exit__(*rest)

    def _start(self, folder, program, *arguments):
        process = subprocess.Popen([str(folder / program), *arguments], stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def replace(self, stage, folder, how):
        recovered = self.log().count(BACK_AFTER)
        self._workers[stage].send_signal(how)
        self._workers[stage].wait()
        self._workers[stage] = self._start(folder, "stagecoach-worker", "--listen", self._addresses[stage])
        wait_until(lambda: self._router.poll() is not None or self.log().count(BACK_AFTER) > recovered, "the recovery")
        if self._router.poll() is not None:
            sys.exit(f"the router ended:\n{self.log()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=pathlib.Path, required=True)
    parser.add_argument("--new", type=pathlib.Path, required=True)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=800)
    args = parser.parse_args()
    streams_of = requests(args.streams, args.tokens)
    with Pipeline(args, "old") as pipeline:
        expected = undisturbed(pipeline, streams_of)
    failed = False
    for router, how in (("old", signal.SIGKILL), ("new", signal.SIGTERM)):
        for first, then in (("old", "new"), ("new", "old")):
            with Pipeline(args, router) as pipeline:
                if first == "new":
                    for stage in range(args.stages):
                        pipeline.replace(stage, args.new, signal.SIGKILL)
                with Streams(pipeline.grpc, streams_of) as streams:
                    streams.await_messages(3)
                    for stage in range(args.stages):
                        pipeline.replace(stage, getattr(args, then), how)
            counts = classify(streams.outcomes, expected)
            failed |= counts["identical"] != args.streams
            print(f"router {router}, workers {first} to {then}: {counts}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
