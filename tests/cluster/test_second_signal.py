"""On the first SIGTERM or SIGINT each program finishes its work; on the second it ends immediately, wherever it is
blocked."""
import contextlib
import os
import pathlib
import signal

import grpc
import pytest
from harness import STOP_TIMEOUT_S, Cluster, parse_ready, start, wait_until
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from stopped_thread import stopped_thread
from workload import GOLDEN

LONG = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=480, ignore_eos=True, n=64))
SIGNALS = [signal.SIGTERM, signal.SIGINT]


def connect(stack, address):
    return stack.enter_context(grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]))


def await_refusal(stub):
    """Waits until the router refuses requests, which shows that it received the first signal."""
    with pytest.raises(grpc.RpcError) as error:
        while True:
            list(stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5]), sampling=pb.SamplingParams(max_tokens=1)), timeout=60))
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def is_pending(process, number):
    """Whether a signal is pending."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    pending = int(next(line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd")), 16)
    return bool(pending >> number - 1 & 1)


def worker_with_log(stack):
    """Returns (process, read end of its log, write end of its log)."""
    read_end, write_end = os.pipe()
    log = stack.enter_context(open(read_end))
    stack.callback(os.close, write_end)
    worker = start(stack, "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1", stderr=write_end)
    while "listening on" not in log.readline():
        pass
    return worker, log, write_end


def test_one_signal_ends_a_worker_whose_log_is_not_read():
    with contextlib.ExitStack() as stack:
        worker, _, write_end = worker_with_log(stack)
        filler = os.open(f"/proc/self/fd/{write_end}", os.O_WRONLY | os.O_NONBLOCK)
        stack.callback(os.close, filler)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filler, b"x")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=STOP_TIMEOUT_S) == 0


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_a_stuck_worker(second):
    """The worker's main thread is stopped."""
    with contextlib.ExitStack() as stack:
        worker, *_ = worker_with_log(stack)
        with stopped_thread(worker.pid, "stagecoach-work"):
            worker.send_signal(signal.SIGTERM)
            wait_until(lambda: not is_pending(worker, signal.SIGTERM), "a thread takes the signal")
            assert worker.poll() is None
            worker.send_signal(second)
            assert worker.wait(timeout=STOP_TIMEOUT_S) == 128 + second


def test_a_second_signal_ends_a_router():
    with contextlib.ExitStack() as stack:
        worker = start(stack, "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1")
        router = start(stack, "stagecoach-router", "--model", str(GOLDEN / "mistral"), "--stages",
                       parse_ready(worker.stdout.readline(), "listening")["grpc"], "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
        stub = pb_grpc.InferenceStub(connect(stack, parse_ready(router.stdout.readline())["grpc"]))
        stream = stub.Generate(LONG)
        next(stream)
        router.send_signal(signal.SIGTERM)
        await_refusal(stub)
        router.send_signal(signal.SIGTERM)
        assert router.wait(timeout=STOP_TIMEOUT_S) == 128 + signal.SIGTERM


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_the_launcher(second):
    cluster = Cluster(GOLDEN / "mistral", stages=2)
    cluster.start()
    stream = cluster.stub.Generate(LONG)
    next(stream)
    cluster.process.send_signal(signal.SIGTERM)
    await_refusal(cluster.stub)
    cluster.process.send_signal(second)
    assert cluster.process.wait(timeout=STOP_TIMEOUT_S) == 128 + second
    cluster.assert_nothing_left()
