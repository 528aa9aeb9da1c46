"""Unauthorized clients connect to the workers' ports while a stream runs: all their calls are refused, cost almost
nothing and change nothing."""
import contextlib
import pathlib
import resource
import socket
import threading

import grpc
import pytest
from harness import Cluster, children_of
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import stage_pb2
from workload import GOLDEN

CHECK = "/grpc.health.v1.Health/Check"
REQUEST = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=480, ignore_eos=True, temperature=0))
# Allowed cost at a worker of 2,000 hellos or 400 MB: sockets, HTTP/2 windows, memory kept by the allocator.
MOST_THREADS = 16
MOST_BYTES = 64 << 20


@pytest.fixture(scope="module")
def cluster():
    with Cluster(GOLDEN / "mistral", stages=2, flags=["--dtype", "float32"]) as running:
        yield running


def worker_addresses(cluster):
    return [stage.address for stage in cluster.stub.GetModel(pb.GetModelRequest()).stages]


def worker_pids(cluster):
    pids = [pid for pid, name in children_of(cluster.process.pid) if name.startswith("stagecoach-work")]
    assert len(pids) == 2
    return pids


def channel_to(address):
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1),
                                                   ("grpc.use_local_subchannel_pool", 1)])


class Usage:
    """The workers' peak numbers of threads and bytes since this object was created."""

    def __init__(self, cluster):
        self._pids = worker_pids(cluster)
        for pid in self._pids:
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM restarts now
        self._before = [self._now(pid) for pid in self._pids]

    @staticmethod
    def _now(pid):
        lines = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(lines["Threads"]), int(lines["VmHWM"].split()[0]) << 10

    def check(self):
        for pid, (threads, most_bytes) in zip(self._pids, self._before):
            threads_now, most_bytes_now = self._now(pid)
            assert threads_now - threads <= MOST_THREADS
            assert most_bytes_now - most_bytes <= MOST_BYTES


@contextlib.contextmanager
def unchanged_stream(cluster):
    """A stream that runs repeatedly in the meantime and must give the same answer as on an idle server."""
    def tokens():
        return [token for message in cluster.stub.Generate(REQUEST) for token in message.token_ids]

    alone = tokens()
    said, stop = [], threading.Event()

    def run():
        while not stop.is_set():
            said.append(tokens())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert len(alone) == 480 and said and all(one == alone for one in said)


def code_of(call):
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code()


def call(channel, path, client_streaming, server_streaming, metadata, message=b""):
    """Calls any method with raw bytes."""
    if client_streaming and server_streaming:
        return list(channel.stream_stream(path)(iter([message]), metadata=metadata, timeout=30))
    if client_streaming:
        return channel.stream_unary(path)(iter([message]), metadata=metadata, timeout=30)
    if server_streaming:
        return list(channel.unary_stream(path)(message, metadata=metadata, timeout=30))
    return channel.unary_unary(path)(message, metadata=metadata, timeout=30)


def internal_methods():
    for service in stage_pb2.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            yield f"/{service.full_name}/{method.name}", method.client_streaming, method.server_streaming
    yield "/stagecoach.v1.Stage/Drain", False, False  # a method of older versions
    yield "/grpc.health.v1.Health/Watch", False, True
    yield "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", True, True
    yield "/nobody.knows/This", False, False


SECRETS = {"none": [], "wrong": [("stagecoach-secret", "0" * 64)], "empty": [("stagecoach-secret", "")],
           "several": [("stagecoach-secret", "0" * 64), ("stagecoach-secret", "1" * 64)]}


@pytest.mark.parametrize("secret", SECRETS)
def test_every_unauthorized_call_is_refused_and_changes_nothing(cluster, secret):
    methods = list(internal_methods())
    assert len(methods) >= 13
    with unchanged_stream(cluster):
        for address in worker_addresses(cluster):
            with channel_to(address) as channel:
                for path, client_streaming, server_streaming in methods:
                    method = (path, client_streaming, server_streaming)
                    assert code_of(lambda method=method: call(channel, *method, SECRETS[secret])) \
                        == grpc.StatusCode.UNAUTHENTICATED, path
                # The health check of a probe, which gets only the status.
                assert call(channel, CHECK, False, False, SECRETS[secret]) == b"\x08\x01"


def test_two_thousand_wrong_hellos_take_no_threads_and_no_memory(cluster):
    hello = stage_pb2.Frame(hello=stage_pb2.LinkHello(epoch=1, from_stage=0)).SerializeToString()
    with unchanged_stream(cluster), contextlib.ExitStack() as stack:
        usage = Usage(cluster)
        address = worker_addresses(cluster)[1]
        ended = threading.Event()
        stack.callback(ended.set)

        def frames():
            yield hello
            ended.wait()  # the stream stays open as long as the worker keeps it

        streams = []
        for _ in range(20):
            method = stack.enter_context(channel_to(address)).stream_unary("/stagecoach.v1.StageLink/Metadata")
            streams += [method.future(frames()) for _ in range(100)]
        assert {stream.code() for stream in streams} == {grpc.StatusCode.UNAUTHENTICATED}
        usage.check()


def test_two_thousand_silent_connections(cluster):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with unchanged_stream(cluster), contextlib.ExitStack() as stack:
        usage = Usage(cluster)
        host, port = worker_addresses(cluster)[1].rsplit(":", 1)
        for _ in range(2000):
            stack.enter_context(socket.create_connection((host, int(port))))
        with channel_to(f"{host}:{port}") as channel:
            assert call(channel, CHECK, False, False, []) == b"\x08\x01"
        usage.check()


@pytest.mark.parametrize("path", ["/stagecoach.v1.Stage/PrepareGrammar", "/stagecoach.v1.Stage/Load", CHECK])
def test_a_message_of_400_mb_takes_no_memory(cluster, path):
    message = bytes(400 << 20)
    with unchanged_stream(cluster):
        usage = Usage(cluster)
        with channel_to(worker_addresses(cluster)[1]) as channel:
            if path == CHECK:
                assert call(channel, path, False, False, [], message) == b"\x08\x01"
            else:
                assert code_of(lambda: call(channel, path, False, False, [], message)) == grpc.StatusCode.UNAUTHENTICATED
        usage.check()
