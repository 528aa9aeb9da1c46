"""Fault injection: load, and the observable effects while a process or a thread of a cluster is stopped."""
import os
import pathlib
import re
import threading
import time
import urllib.error
import urllib.request

import protos

protos.make_importable()

import grpc  # noqa: E402
from harness import arguments_of, children_of  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

PLAIN = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=200, ignore_eos=True, n=2))
LONG = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=1900, ignore_eos=True, n=16))
FORMED = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(
    max_tokens=200, ignore_eos=True, grammar=pb.Grammar(regex="[a-z ]{1000}")))


AWAIT_TOKENS_S = 300


class Load:
    """Streams that restart until one fails; `errors` holds (time, RpcError) of each stream's end."""

    def __init__(self, stub, requests=(PLAIN, PLAIN, FORMED)):
        self.n_tokens = 0
        self.errors = []
        self._stub = stub
        self._stopping = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(request,)) for request in requests]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.await_tokens(len(self._threads) * 4)
        return self

    def __exit__(self, *_):
        self._stopping = True
        self.await_end()

    def _run(self, request):
        try:
            while not self._stopping:
                for message in self._stub.Generate(request, timeout=300):
                    with self._changed:
                        self.n_tokens += len(message.token_ids)
                        self._changed.notify_all()
        except grpc.RpcError as error:
            with self._changed:
                self.errors.append((time.monotonic(), error))
                self._changed.notify_all()

    def await_tokens(self, n):
        """Waits for n more tokens; fails if they do not come."""
        with self._changed:
            wanted = self.n_tokens + n
            came = self._changed.wait_for(lambda: self.errors or self.n_tokens >= wanted, timeout=AWAIT_TOKENS_S)
            assert self.n_tokens >= wanted or not self.errors, self.errors[0][1]
            assert came, f"{wanted - self.n_tokens} of {n} tokens did not come within {AWAIT_TOKENS_S} s"

    def await_end(self):
        for thread in self._threads:
            thread.join()


def _option(pid, name):
    """The value of a running program's option."""
    arguments = arguments_of(pid)
    return arguments[arguments.index(name) + 1]


def _addresses(pid):
    """Where a worker listens; empty: a spare without a place. ValueError: it is ending."""
    if "--spare" not in arguments_of(pid):
        return [_option(pid, "--listen")]
    return [f"127.0.0.1:{port}" for port in _local_ports(pid)]  # one of them may be NCCL's


def _local_ports(pid):
    """The TCP ports of 127.0.0.1 on which a process listens; gRPC's sockets know it as an IPv6 address."""
    sockets = {os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows
            if row[3] == "0A" and "0100007F:" in row[1] and f"socket:[{row[9]}]" in sockets]


def spares(cluster):
    """Pids of workers that wait for a place."""
    (router,) = [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-rout"]
    stages = set(_option(router, "--stages").split(","))
    return [pid for pid, name in children_of(cluster.process.pid)
            if name == "stagecoach-work" and "--spare" in arguments_of(pid) and stages.isdisjoint(_addresses(pid))]


def pids(cluster):
    """Pids (router, [worker by stage]). A stage whose worker is being replaced has None."""
    children = children_of(cluster.process.pid)
    (router,) = [pid for pid, name in children if name == "stagecoach-rout"]
    stages = dict.fromkeys(_option(router, "--stages").split(","))
    first_ones = []
    for pid in (pid for pid, name in children if name == "stagecoach-work"):
        try:
            addresses = _addresses(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):  # it is ending
            continue
        # A replacement listens at its predecessor's address. The first ones started in stage order.
        if taken := stages.keys() & addresses:
            stages[taken.pop()] = pid
        elif addresses:
            first_ones.append(pid)
    return router, [pid or (first if first in first_ones else None)
                    for pid, first in zip(stages.values(), cluster.first_workers, strict=True)]


def is_ready(cluster):
    try:
        with urllib.request.urlopen(f"http://{cluster.http}/ready", timeout=10) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return False


def metric(cluster, name):
    """{stage: value}, summed over other labels."""
    with urllib.request.urlopen(f"http://{cluster.metrics}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    values = {}
    for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE):
        stage = int(re.search(r'stage="(\d+)"', labels)[1])
        values[stage] = values.get(stage, 0) + float(value)
    return values
