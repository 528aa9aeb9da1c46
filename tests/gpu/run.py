#!/usr/bin/env python3
"""Runs all checks for machines with GPUs with one command; prints a table and appends JSON lines as it goes.

usage: tests/gpu/run.py [--out FILE | --resume FILE] [--only PART...] [--skip PART...] [--list] [more below]

It needs the programs (build/cuda/bin, or a bundle of tests/gpu/bundle.sh) and Python 3 without further packages. It
runs 1, 2 and 4 stages if there are enough GPUs. If a check fails or hangs, its server is killed, the end of its log is
printed, and the other checks continue. If a run was interrupted, `--resume FILE` continues where FILE ends. Without
GPUs, `--device cpu --smoke` runs all checks with tiny models, to test these scripts.

PART: a name, or a pattern of a check's name, such as "speed/4_stages/*". Parts of --only run in the given order. Checks
with the same server share its start.
"""
import argparse
import collections
import fnmatch
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import client
import gpus
import servers
import shapes
from checks import LeftOut, Options
from machine import commit_of, default_bin, machine_of, model_of
from parts import PARTS, waves
from results import Results, read_lines

MODEL_LIMIT_S = 400  # time limit for writing a checkpoint
ALIKE = 2  # after this many equal failures of one mode, its other checks are left out


class OutOfTime(Exception):
    pass


class Limit:
    """Raises OutOfTime in the main thread after a time, whatever the thread waits for."""

    def __init__(self, seconds):
        self._seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise OutOfTime(f"not done after {self._seconds:g} s")

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)


def numbers(kind):
    return lambda text: [kind(item) for item in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE", help="lines are appended to this file (default: gpu_results.jsonl in --work)")
    where.add_argument("--resume", metavar="FILE",
                       help="like --out, but skips checks that have ended in it with this commit on this model of GPU")
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: runs failed checks again")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART")
    parser.add_argument("--skip", nargs="+", default=[], metavar="PART")
    parser.add_argument("--list", action="store_true", help="prints parts and checks; runs nothing")
    parser.add_argument("--bin", type=pathlib.Path, metavar="DIR", help="folder of the programs")
    parser.add_argument("--work", type=pathlib.Path, metavar="DIR", default=shapes.ROOT / "build" / "gpu",
                        help="folder of models and logs; runs at the same time need different folders")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--smoke", action="store_true", help="tiny models and small counts")
    parser.add_argument("--stages", type=numbers(int), metavar="N,N...",
                        help="numbers of stages (default: those of 1,2,4 for which there are GPUs)")
    parser.add_argument("--devices", type=numbers(int), metavar="N,N...", help="GPU of each stage (0,1,2...); 0,1,0,1 puts four stages "
                        "on two GPUs, which tests that they work, but not their speed")
    parser.add_argument("--transport", choices=("auto", "host"), help="transport between stages")
    parser.add_argument("--starts", type=int, metavar="N", help="starts of the waves in each setting (5)")
    parser.add_argument("--waves", type=int, metavar="N", help="waves in each start (200)")
    parser.add_argument("--fractions", type=numbers(float), metavar="F,F...", help="memory fractions for the waves (0.3,0.5,0.9)")
    parser.add_argument("--speed-flags", default="", metavar="'FLAG...'", help="additional flags for the servers of speed and constrained")
    parser.add_argument("--tokens-model", action="append", default=[], type=pathlib.Path, metavar="DIR",
                        help="another checkpoint for `tokens`; can be given several times")
    parser.add_argument("--start-limit", type=float, default=180, metavar="S", help="seconds until a server must be ready (180)")
    parser.add_argument("--check-limit", type=float, default=3600, metavar="S",
                        help="upper limit of each check in seconds; its own limit may be lower")
    parser.add_argument("--minutes", type=float, metavar="N", help="no check begins after this many minutes")
    parser.add_argument("--machine", help="name of the machine in the lines (default: from the system)")
    parser.add_argument("--commit", help="commit of the programs (default: that of the checkout or the bundle)")
    return parser.parse_args()


def options_of(args, found):
    n_gpus = len(args.devices or found) if args.device == "cuda" else 2
    return Options(device=args.device, smoke=args.smoke, stages=args.stages or [n for n in (1, 2, 4) if n <= max(1, n_gpus)],
                   bin_dir=(args.bin or default_bin(args.device)).resolve(),
                   models=shapes.Models(args.work, args.smoke, args.tokens_model),
                   starts=args.starts or (1 if args.smoke else waves.ALL_STARTS),
                   waves=args.waves or (5 if args.smoke else waves.ALL_WAVES),
                   fractions=args.fractions or ([0.5] if args.smoke else list(waves.ALL_FRACTIONS)),
                   speed_flags=tuple(args.speed_flags.split()), gpu_bytes=min((size for _, size in found), default=None),
                   n_gpus=len(found), devices=tuple(args.devices or ()))


def chosen(checks, only, skip):
    """The selected checks, in the order of `only`."""
    def place(check, patterns):
        return next((i for i, pattern in enumerate(patterns) if check.part == pattern or fnmatch.fnmatchcase(check.name, pattern)), None)

    checks = [check for check in checks if place(check, skip) is None]
    if not only:
        return checks
    return sorted((check for check in checks if place(check, only) is not None), key=lambda check: place(check, only))


def placed(args, n_stages):
    """Fields that distinguish servers of this run from others with the same number of stages."""
    devices = (args.devices or list(range(n_stages)))[:n_stages]
    gpus_of_stages = [list(dict.fromkeys(devices)).index(device) for device in devices]  # only which stages share a GPU matters
    return dict(gpus_of_stages=gpus_of_stages, **({"wanted_transport": args.transport or "auto"} if n_stages > 1 else {}))


class Runner:
    def __init__(self, args, options, results):
        self._args, self._options, self._results = args, options, results
        self._n_servers = 0
        self._deadline = time.monotonic() + 60 * args.minutes if args.minutes else None
        self.n_failed = 0
        self._failures = collections.Counter()  # by mode and kind of error
        self._server = None

    def state(self, check, state, seconds, error=None, during=""):
        of_server = self._results.of_server(check.spec.stages) if check.spec else {}
        self._results.end(during + check.name, state, seconds, error, **of_server, **check.sizes)

    def end(self, check, error, began, server=None, during=""):
        """Records a check's end. `during`: "stop/" if the server's stop has ended."""
        seconds = time.monotonic() - began
        if error is None:
            self.state(check, "ok", seconds, during=during)
            return
        self.n_failed += 1
        self._failures[check.mode, type(error)] += 1
        text = str(error) or type(error).__name__
        self.state(check, "failed", seconds, text[:1000], during)
        print(f"FAILED {during}{check.name} after {seconds:.0f} s: {text}", flush=True)
        if not isinstance(error, (client.CheckFailed, servers.ServerError, OutOfTime)):
            traceback.print_exception(error)
        if server is not None:
            print(f"  the end of the log of {server.command}:\n{server.tail()}", flush=True)

    def leave_out(self, check, why):
        print(f"left out: {check.name}: {why}", flush=True)
        self.state(check, "left out", 0, why)

    def why_leave(self, check):
        """Why to leave the check out: failures of its mode; empty: run it."""
        kinds = [kind.__name__ for (mode, kind), n in self._failures.items() if mode and mode == check.mode and n >= ALIKE]
        return f"{ALIKE} of {check.mode} have failed alike ({kinds[0]})" if kinds else ""

    def is_late(self):
        return self._deadline is not None and time.monotonic() > self._deadline

    def start(self, spec):
        with Limit(MODEL_LIMIT_S):
            model_dir = self._options.models.folder(spec.model)
        self._n_servers += 1
        log = self._args.work / "logs" / f"{os.getpid()}_{self._n_servers:03}_{spec.model}_{spec.stages}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        more = ["--transport", self._args.transport] if self._args.transport else []
        if self._args.devices:
            more += servers.placement(self._args.devices[:spec.stages], spec.flags)
        on_gpus = self._args.device == "cuda"
        self._server = servers.Server(spec, model_dir, self._options.bin_dir, self._args.device, log, more,
                                      gpus=(self._args.devices or range(spec.stages))[:spec.stages] if on_gpus else (),
                                      wants_nccl=on_gpus and self._args.transport != "host")
        print(f"--- {self._server.command}", flush=True)
        self._server.start(self._args.start_limit)
        self._results.beside = (self._results.of_server(spec.stages)
                                | ({"transport": self._server.transport()} if spec.stages > 1 else {}))

    def run_check(self, check):
        began = time.monotonic()
        try:
            with Limit(min(check.limit_s, self._args.check_limit)):
                check.run(self._server, self._results)
        except LeftOut as why:
            self.leave_out(check, str(why))
        except Exception as error:
            self.end(check, error, began, self._server)
            if self._server is not None and not isinstance(error, client.CheckFailed):
                self._server.kill()
        else:
            self.end(check, None, began)

    def run_without_server(self, checks):
        self._server = None
        for check in checks:
            if not self.is_late():
                self.run_check(check)

    def run_group(self, spec, checks):
        """Runs all checks with one spec of server, with as few starts as failures allow."""
        while checks and not self.is_late():
            if why := self.why_leave(checks[0]):
                self.leave_out(checks.pop(0), why)
                continue
            began = time.monotonic()
            try:
                self.start(spec)
            except Exception as error:
                for check in checks:
                    self.end(check, error, began, self._server if check is checks[0] else None)
                return
            check = None
            # The first check runs even if the server has died since its start, so that the loop makes progress.
            while checks and (check is None or self._server.is_alive() and not self.is_late()):
                check = checks.pop(0)
                self.run_check(check)
                if check.ends_server:
                    self._server.kill()
            began = time.monotonic()
            try:
                self._server.stop()
            except servers.ServerError as error:
                self.end(check, error, began, self._server, during="stop/")
            else:
                if f"stop/{check.name}" in self._results.failures():
                    self.end(check, None, began, during="stop/")

    def run(self, checks):
        groups = {}
        for check in checks:
            if check.why_not:
                self.leave_out(check, check.why_not)
            else:
                groups.setdefault(check.spec or check.part, []).append(check)
        try:
            for group in groups.values():
                if self.is_late():
                    break
                self.run_group(group[0].spec, group) if group[0].spec else self.run_without_server(group)
                self._results.beside = {}
        finally:
            if self._server is not None:
                self._server.kill()


def plan(args, found, out):
    """Returns the options, results and checks of the run, and the names of checks that have already ended."""
    options = options_of(args, found)
    common = dict(machine=args.machine or machine_of(args.device, found), commit=args.commit or commit_of(),
                  gpu=model_of(args.device, found))
    results = Results(out, read_lines(args.resume), common, args.smoke, lambda n_stages: placed(args, n_stages))
    checks = chosen([check for part in PARTS.values() for check in part.checks(options)], args.only, args.skip)
    done = {check.name for check in checks if results.has_ended(check, ("ok",) if args.retry_failed else ("ok", "failed"))}
    if args.retry_failed:
        done -= {name.removeprefix("stop/") for name in results.failures()}
    if results.n_of_others:
        print(f"{results.n_of_others} lines of {args.resume} do not count: another commit or GPU than {common['commit']}, "
              f"{common['gpu']}, or stages placed otherwise", flush=True)
    return options, results, checks, done


def print_list(args, found):
    with tempfile.TemporaryDirectory() as scratch:  # for the configurations of the large shapes
        args.work = pathlib.Path(scratch)
        _, _, checks, done = plan(args, found, out=None)
    for name, part in PARTS.items():
        print(f"{name}: {part.__doc__}")
        for check in (check for check in checks if check.part == name):
            print(f"  {check.name:<56} at most {check.limit_s:.0f} s{', left out: ' + check.why_not if check.why_not else ''}"
                  f"{', done' if check.name in done else ''}")


def main():
    args = parse()
    found = gpus.all_gpus() if args.device == "cuda" else []
    if args.list:
        print_list(args, found)
        return
    if args.device == "cuda" and not found:
        sys.exit("nvidia-smi names no GPU here; without one: --device cpu --smoke")
    args.work = args.work.resolve()
    out = pathlib.Path(args.resume or args.out or args.work / "gpu_results.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    options, results, checks, done = plan(args, found, out)
    parts = dict.fromkeys(check.part for check in checks)
    # Checks that were left out on another machine may run on this one.
    checks = [check for check in checks
              if check.name not in done and not (check.why_not and results.has_ended(check, ("left out",)))]
    for stop in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, lambda number, _: sys.exit(128 + number))
    runner = Runner(args, options, results)
    try:
        runner.run(checks)
    finally:
        # Also if there was nothing to run: an earlier run may have ended before this, or written to another file.
        for name in parts:
            PARTS[name].summarize(options, results)
        before = results.failures_before()
        print(f"\n{results.table()}\n")
        for line in results.missed():
            print(f"missed: {line['name']}: {line['value']:,.6g} {line['unit']}; {line['reference']}")
        for name, error in before.items():
            print(f"failed in a run before: {name}: {error}")
        print(f"{len(checks)} checks, {runner.n_failed} failures" + (f", {len(before)} of runs before" if before else "")
              + f"; lines are in {out}", flush=True)
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
