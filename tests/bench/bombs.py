#!/usr/bin/env python3
"""What requests that ask for too much cost: memory of router and workers, and the token gaps of another client.

usage: bombs.py [MODEL] [--bombs NAME ...] [--stages 2] [--device cuda [--devices 0,0]] [--out results.jsonl]
                [--server-cpus 0-7 --bomber-cpus 8-14 --listener-cpus 15]
Each bomb gets a server of its own. Its lines have the peak of the router's and the workers' resident memory, with the
memory before and after the bomb, and the p99 of the gaps between the tokens of another client's stream. `met`: a peak
is within the bound; p99 is at most twice that of the stream alone, or at most 5 ms (below is noise). The server, the
client that throws the bomb and the other client share all cores, unless options give each cores of its own.

STAGECOACH_BIN_DIR is the programs' folder (default: that of a bundle, or build/DEVICE/bin).
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("cluster", "gpu")]

from bomb_requests import BOMBS, complete  # noqa: E402
from faults import pids  # noqa: E402
from gpus import all_gpus  # noqa: E402
from harness import DEMO_MODEL, Cluster  # noqa: E402
from machine import commit_of, default_bin, machine_of  # noqa: E402
from results import emit  # noqa: E402
from servers import library_path, placement  # noqa: E402

BENCH = pathlib.Path(__file__).parent
SIDES = ("server", "bomber", "listener")
NOISE_MS = 5
LOOK_S = 0.02


def cores(text):
    """{0, 1, 2, 5} of "0-2,5"."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    if missing := found - os.sched_getaffinity(0):
        raise argparse.ArgumentTypeError(f"no core {min(missing)} here")
    return found


@contextlib.contextmanager
def on_cores(chosen):
    """What starts in the block runs on these cores only; None: on all."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def text_of(value):
    """An option's value as it can be given."""
    if not isinstance(value, (set, list)):
        return str(value)
    return ",".join(map(str, sorted(value) if isinstance(value, set) else value))


class Memory:
    """Resident MiB of the process that has most of several: before, at the most since this was made, and now."""

    def __init__(self, *processes):
        self._processes = processes
        self.before = self.now()
        self._peak = self.before
        try:
            for pid in processes:
                pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM counts from now
            self._keeps_peak = True
        except OSError:  # not every kernel has it
            self._keeps_peak = False

    def _read(self, name):
        """None: a process is gone."""
        most = 0
        for pid in self._processes:
            try:
                text = pathlib.Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return None
            lines = dict(line.split(":", 1) for line in text.splitlines())
            if name not in lines:
                return None
            most = max(most, int(lines[name].split()[0]) >> 10)
        return most

    def now(self):
        return self._read("VmRSS")

    def look(self):
        """Must be called often where the kernel does not keep the peak."""
        if not self._keeps_peak:
            self._peak = max(self._peak, self.now() or 0)

    def peak(self):
        if self._keeps_peak:
            return self._read("VmHWM")
        return None if self.now() is None else self._peak


class Listener:
    """The other client, in a process of its own."""

    def __init__(self, address, n_streams):
        self._process = subprocess.Popen([sys.executable, BENCH / "gap_listener.py", address, str(n_streams)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.communicate()

    def take(self):
        """The gaps since the call before."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def throw(name, cluster, memories):
    """(outcomes of the bomb's requests, seconds)"""
    began = time.monotonic()
    command = [sys.executable, BENCH / "bomb_requests.py", name, cluster.http, cluster.grpc]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bomber:
        while bomber.poll() is None:
            for memory in memories:
                memory.look()
            time.sleep(LOOK_S)
        said, error = bomber.communicate()
    return json.loads(said) if bomber.returncode == 0 else error[-300:], round(time.monotonic() - began, 1)


def measure(args, name):
    """(memory by process, gaps alone, gaps beside the bomb, fields for every line)"""
    flags = ["--device", args.device, "--max-waiting", "4096", *args.server_flags.split()]
    if args.devices:
        flags += placement(args.devices[:args.stages], flags)
    bin_dir = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR") or default_bin(args.device))
    os.environ["LD_LIBRARY_PATH"] = library_path(bin_dir, args.device == "cuda")
    cluster = Cluster(args.model, args.stages, flags, program=str(bin_dir / "stagecoach"))
    with contextlib.ExitStack() as stack:
        with on_cores(args.server_cpus):
            stack.enter_context(cluster)
        complete(cluster.http)
        router, workers = pids(cluster)
        with on_cores(args.listener_cpus):
            listener = stack.enter_context(Listener(cluster.grpc, args.streams))
        listener.take()
        time.sleep(args.seconds)
        alone = listener.take()
        memory = {"router": Memory(router), "worker": Memory(*workers)}
        with on_cores(args.bomber_cpus):
            outcomes, seconds = throw(name, cluster, memory.values())
        beside = listener.take()
        complete(cluster.http)
        found = {who: {"before": one.before, "peak": one.peak(), "kept": one.now()} for who, one in memory.items()}
    return found, alone, beside, {"outcomes": outcomes, "seconds": seconds, "stream_error": beside["error"]}


def lines_of(args, name, memory, alone, beside):
    setup = [] if (args.device, args.stages) == ("cpu", 1) else [args.device, f"{args.stages}_stages"]
    if args.model != str(DEMO_MODEL):
        setup.append(pathlib.Path(args.model).name)
    prefix = "/".join(["bombs", *setup, name])
    for who, mib in memory.items():
        peak = mib["peak"]  # None: the process is gone
        yield {"name": f"{prefix}/{who}_peak", "value": peak, "unit": "MiB resident",
               "reference": f"bound of {args.bound_mib} MiB", "ratio": peak and round(peak / args.bound_mib, 3),
               "met": peak is not None and peak <= args.bound_mib, "before": mib["before"], "kept": mib["kept"]}
    p99, p99_alone = beside["p99"], alone["p99"]  # None: no token came
    yield {"name": f"{prefix}/gap_p99", "value": p99, "unit": "ms between tokens of another client's stream",
           "reference": "the same stream before the bomb; goal: 2 times that, or 5 ms",
           "ratio": round(p99 / p99_alone, 2) if p99 and p99_alone else None,
           "met": None not in (p99, p99_alone) and p99 <= max(2 * p99_alone, NOISE_MS),
           **{key: beside[key] for key in ("p50", "max", "n")},
           **{f"{key}_before": alone[key] for key in ("p50", "p99", "max", "n")}}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO_MODEL))
    parser.add_argument("--bombs", nargs="+", choices=BOMBS, default=list(BOMBS), metavar="NAME", help=", ".join(BOMBS))
    parser.add_argument("--seconds", type=float, default=5, help="for the undisturbed gaps")
    parser.add_argument("--streams", type=int, default=1, help="of the other client; gaps of all count")
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", type=lambda text: [int(gpu) for gpu in text.split(",")], metavar="N,N...",
                        help="GPU of each stage")
    parser.add_argument("--server-flags", default="", metavar="'FLAG...'", help="additional flags of the server")
    for who in SIDES:
        parser.add_argument(f"--{who}-cpus", type=cores, metavar="N-N,N...", help=f"cores of the {who} (all)")
    parser.add_argument("--bound-mib", type=int, default=1024)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    args.command = "tests/bench/bombs.py"  # without paths of this machine
    if args.model != str(DEMO_MODEL):
        args.command += f" {pathlib.Path(args.model).name}"
    for name, value in vars(args).items():
        if name not in ("model", "bombs", "out", "command") and value != parser.get_default(name):
            args.command += f" --{name.replace('_', '-')} {shlex.quote(text_of(value))}"
    return args


def main():
    args = parse()
    common = {"model": pathlib.Path(args.model).name, "device": args.device, "stages": args.stages,
              "gpus_of_stages": args.devices,
              "cores": {who: text_of(getattr(args, f"{who}_cpus") or "all") for who in SIDES},
              "machine": machine_of(args.device, all_gpus()), "date": datetime.date.today().isoformat(),
              "commit": commit_of()}
    for name in args.bombs:
        memory, alone, beside, more = measure(args, name)
        for line in lines_of(args, name, memory, alone, beside):
            emit({**line, **more, **common, "command": f"{args.command} --bombs {name}"}, args.out)


if __name__ == "__main__":
    main()
