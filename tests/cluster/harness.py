"""A cluster of real processes for tests: `stagecoach serve` on free ports, watched until its end.

    with Cluster(model_dir, stages=2, flags=["--dtype", "float32"]) as cluster:
        cluster.stub.Generate(...)

STAGECOACH_BIN_DIR is the programs' folder (default: build/cpu/bin). STAGECOACH_START_TIMEOUT_S is the timeout of a
start, for builds that are slow on purpose.
"""
import os
import pathlib
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import protos

protos.make_importable()

import grpc  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

BIN_DIR = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR", protos.ROOT / "build" / "cpu" / "bin"))
STAGECOACH = str(BIN_DIR / "stagecoach")
DEMO_MODEL = protos.ROOT / "deploy" / "demo-model"
START_TIMEOUT_S = float(os.environ.get("STAGECOACH_START_TIMEOUT_S", 120))
STOP_TIMEOUT_S = 60
TCP_LISTEN = "0A"  # A state in /proc/net/tcp.


def wait_until(condition, what, timeout_s=60):
    """Polls `condition`, for events that no program reports by itself."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.01)
    return value


def children_of(pid):
    """[(pid, name)] of the direct children; the kernel cuts names to 15 characters."""
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(tail.split()[1]) == pid:
            children.append((int(stat.parent.name), head.partition("(")[2]))
    return sorted(children)


def arguments_of(pid):
    """A process's command line."""
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def is_running(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _is_free(port):
    try:
        socket.create_server(("", port)).close()
        return True
    except OSError:
        return False


def free_ports(n):
    """The first of n consecutive ports on which nothing listens, below the kernel's range of ephemeral ports. Processes
    of pytest-xdist have ranges of their own, because a port is free until its program has started."""
    end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = (end - 10_000) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    begin = 10_000 + process * share
    while True:
        first = random.randrange(begin, begin + share - n)
        if all(_is_free(port) for port in range(first, first + n)):
            return first


def listeners(addresses):
    """The inodes of the sockets that listen at the ports of these "HOST:PORT". An inode names one socket, also after its
    program ended and another one got the port."""
    ports = {int(address.rpartition(":")[2]) for address in addresses}
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == TCP_LISTEN and int(local.rpartition(":")[2], 16) in ports:
                inodes.add(inode)
    return inodes


def start(stack, program, *arguments, stderr=subprocess.PIPE):
    """Starts a program by its name; it is killed when the ExitStack ends."""
    process = subprocess.Popen([str(BIN_DIR / program), *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def stage_seconds(metrics_address):
    """{(stage, state): seconds} of the router's metrics page: how each stage spent its time since it joined."""
    page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{metrics_address}/metrics").read().decode()
    times = {}
    for labels, value in re.findall(r"^stagecoach_stage_seconds_total\{(.*)\} (\S+)$", page, re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        times[int(of["stage"]), of["state"]] = float(value)
    return times


def parse_ready(line, word="ready"):
    """{"grpc": "HOST:PORT", ...} of a router's ready line, or of a worker's line, which begins with "listening"."""
    first, *fields = line.split()
    assert first == word, line
    return dict(field.split("=", 1) for field in fields)


class Cluster:
    """`process` is the launcher; `grpc`, `http`, `metrics`, `kv_events` and `kv_events_replay` are addresses; `kv_blocks`
    is a count; `channel` and `stub` are connected to the router."""

    def __init__(self, model, stages=1, flags=(), grpc_address="127.0.0.1:0", program=STAGECOACH):
        self.command = [program, "serve", str(model), "--stages", str(stages), "--grpc", grpc_address,
                        "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *map(str, flags)]
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, exception_type, *_):
        if exception_type is None:
            self.stop()
        else:
            print(self.log(), file=sys.stderr)
            self.kill()

    def start(self):
        self._log_file = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self._log_file, text=True)
        try:
            ready = parse_ready(self._read_line())
        except BaseException:
            self.kill()
            raise
        children = children_of(self.process.pid)
        self._children = [pid for pid, _ in children]
        self.first_workers = [pid for pid, name in children
                              if name == "stagecoach-work" and "--spare" not in arguments_of(pid)]
        self.grpc = ready.get("grpc")
        self.http = ready.get("http")
        self.metrics = ready["metrics"]
        self.kv_blocks = int(ready["kv_blocks"])
        self.kv_events = ready.get("kv_events")
        self.kv_events_replay = ready.get("kv_events_replay")
        self._listeners = listeners(self.addresses())
        assert self._listeners, f"nothing listens at {self.addresses()}"
        if self.grpc:
            self.channel = grpc.insecure_channel(self.grpc, options=[("grpc.max_receive_message_length", -1),
                                                                     ("grpc.enable_http_proxy", 0)])
            self.stub = pb_grpc.InferenceStub(self.channel)

    def _read_line(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(START_TIMEOUT_S):
                raise AssertionError(f"not ready after {START_TIMEOUT_S} s: {self.command}\n{self.log()}")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(timeout=STOP_TIMEOUT_S)
            raise AssertionError(f"did not start (exit code {code}): {self.command}\n{self.log()}")
        return line

    def addresses(self):
        return [address for address in (self.grpc, self.http, self.metrics) if address]

    def log(self):
        """The programs' standard error so far."""
        log = self._log_file.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def stop(self):
        """Stops the cluster in order if it still runs; it must exit with code 0 and leave nothing behind."""
        if self.grpc:
            self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=STOP_TIMEOUT_S)
        assert code == 0, f"exit code {code}: {self.command}\n{self.log()}"
        self.assert_nothing_left()

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=STOP_TIMEOUT_S)

    def assert_nothing_left(self):
        """Checks that no process and no listening socket of the ended cluster remains."""
        assert self.process.poll() is not None
        left = [pid for pid in self._children if is_running(pid)]
        assert not left, f"processes {left} still run"
        # The port alone says nothing: as soon as it is free, a server of another test may get it.
        left = self._listeners & listeners(self.addresses())
        assert not left, f"sockets {left} still listen at {self.addresses()}"
