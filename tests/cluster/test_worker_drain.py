"""A worker gets SIGTERM. With recovery its place is handed over to another worker. Without, running requests finish, the
router releases the worker, and all programs exit with 0."""
import contextlib
import signal
import sys
import tempfile
import threading

import grpc
import pytest
from harness import START_TIMEOUT_S, STOP_TIMEOUT_S, parse_ready, start
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from workload import GOLDEN

MODEL = GOLDEN / "mistral"
LONG = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=480, ignore_eos=True))
REQUEST = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=60, ignore_eos=True))


class Pipeline:
    """Two workers and a router that are started directly by the test, as containers are. Without recovery, unless
    `recovery_limit` is set."""

    def __init__(self, recovery_limit=0):
        self._recovery_limit = str(recovery_limit)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile(mode="w+"))
            self._stack = stack
            self.workers = [self.start_worker() for _ in range(2)]
            self.addresses = [self._field(worker, "grpc") for worker in self.workers]
            self.router = start(stack, "stagecoach-router", "--model", str(MODEL), "--stages", ",".join(self.addresses),
                                "--dtype", "float32", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                                "--recovery-limit", self._recovery_limit, stderr=self._log)
            self.address = self._field(self.router, "grpc")
            channel = stack.enter_context(grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)]))
            self.stub = pb_grpc.InferenceStub(channel)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, exception_type, *rest):
        if exception_type is not None:
            print(self.log(), file=sys.stderr)
        return self._stack.__exit__(exception_type, *rest)

    def start_worker(self, address="127.0.0.1:0"):
        return start(self._stack, "stagecoach-worker", "--listen", address, "--threads", "1", stderr=self._log)

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def _field(self, process, name):
        timer = threading.Timer(START_TIMEOUT_S, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        assert line, "did not start"
        return parse_ready("ready " + line.split(" ", 1)[1])[name]


def n_tokens(stream):
    return sum(len(message.token_ids) for message in stream)


@pytest.mark.parametrize("victim", [0, 1])
def test_sigterm_of_a_worker_finishes_running_requests(victim):
    with Pipeline() as pipeline:
        streams = [pipeline.stub.Generate(REQUEST) for _ in range(3)]
        begun = [len(next(stream).token_ids) for stream in streams]
        pipeline.workers[victim].send_signal(signal.SIGTERM)
        assert [n + n_tokens(stream) for n, stream in zip(begun, streams)] == [60] * 3
        assert pipeline.router.wait(timeout=STOP_TIMEOUT_S) == 0
        assert pipeline.workers[victim].wait(timeout=STOP_TIMEOUT_S) == 0
        # The other worker waits for its next router.
        assert pipeline.workers[1 - victim].poll() is None
        pipeline.workers[1 - victim].send_signal(signal.SIGTERM)
        assert pipeline.workers[1 - victim].wait(timeout=STOP_TIMEOUT_S) == 0


@pytest.mark.parametrize("victim", [0, 1])
def test_sigterm_of_a_worker_hands_its_stage_over(victim):
    with Pipeline(recovery_limit=60) as pipeline:
        streams = [pipeline.stub.Generate(LONG) for _ in range(3)]
        begun = [len(next(stream).token_ids) for stream in streams]
        pipeline.workers[victim].send_signal(signal.SIGTERM)
        assert pipeline.workers[victim].wait(timeout=STOP_TIMEOUT_S) == 0
        pipeline.workers[victim] = pipeline.start_worker(pipeline.addresses[victim])
        assert [n + n_tokens(stream) for n, stream in zip(begun, streams)] == [480] * 3
        # The router lives, and so does the worker that it holds.
        assert [process.poll() for process in (pipeline.router, *pipeline.workers)] == [None] * 3
        pipeline.router.send_signal(signal.SIGTERM)
        assert pipeline.router.wait(timeout=STOP_TIMEOUT_S) == 0


def test_a_worker_with_other_numerics_does_not_get_a_stage(monkeypatch):
    with Pipeline(recovery_limit=60) as pipeline:
        stream = pipeline.stub.Generate(LONG)
        next(stream)
        pipeline.workers[1].kill()
        pipeline.workers[1].wait()
        monkeypatch.setenv("STAGECOACH_CPU_TARGET", "baseline")
        pipeline.start_worker(pipeline.addresses[1])
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert '"cpu-3 baseline"' in error.value.details() and "stage 1" in error.value.details()
        assert pipeline.router.wait(timeout=STOP_TIMEOUT_S) == 1


def test_sigterm_of_all_programs_finishes_running_requests():
    """All programs get the signal at once, as in a pod without sidecars."""
    with Pipeline(recovery_limit=60) as pipeline:
        stream = pipeline.stub.Generate(REQUEST)
        begun = len(next(stream).token_ids)
        for process in (*pipeline.workers, pipeline.router):
            process.send_signal(signal.SIGTERM)
        assert begun + n_tokens(stream) == 60
        assert [process.wait(timeout=STOP_TIMEOUT_S) for process in (pipeline.router, *pipeline.workers)] == [0, 0, 0]


def test_a_second_signal_ends_a_worker_at_once():
    with Pipeline() as pipeline:
        stream = pipeline.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(
            max_tokens=480, ignore_eos=True, n=64)))
        next(stream)
        pipeline.workers[0].send_signal(signal.SIGTERM)
        probe = grpc.insecure_channel(pipeline.address, options=[("grpc.enable_http_proxy", 0)])
        with pytest.raises(grpc.RpcError):  # until the router refuses, which shows that it received the first signal
            while True:
                n_tokens(pb_grpc.InferenceStub(probe).Generate(pb.GenerateRequest(
                    tokens=pb.TokenIds(ids=[5]), sampling=pb.SamplingParams(max_tokens=1)), timeout=60))
        probe.close()
        pipeline.workers[0].send_signal(signal.SIGTERM)
        assert pipeline.workers[0].wait(timeout=STOP_TIMEOUT_S) == 128 + signal.SIGTERM
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE and "stage 0" in error.value.details()


class Clients:
    """A few threads send one stream after the other to the current pipeline."""

    def __init__(self, stub, n=3):
        self._stub = stub
        self._changed = threading.Condition()
        self._stop = False
        self.n_answers = 0
        self.errors = []
        self._threads = [threading.Thread(target=self._run) for _ in range(n)]

    def point_to(self, stub):
        with self._changed:
            self._stub = stub

    def wait_for_answers(self, n):
        with self._changed:
            wanted = self.n_answers + n
            assert self._changed.wait_for(lambda: self.errors or self.n_answers >= wanted, timeout=120)

    def _run(self):
        while not self._stop and not self.errors:
            try:
                # The stream has begun when the lock is released, so a pipeline that is no longer current gets no new
                # request.
                with self._changed:
                    stream = self._stub.Generate(REQUEST)
                    first = len(next(stream).token_ids)
                assert first + n_tokens(stream) == 60
            except Exception as error:
                self.errors.append(error)
            with self._changed:
                self.n_answers += 1
                self._changed.notify_all()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        for thread in self._threads:
            thread.join()


def test_pipelines_are_replaced_under_load_without_a_failed_request():
    """The new pipeline is ready, the clients switch to it, then a worker of the old one gets SIGTERM as in a node
    drain; twice."""
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(Pipeline())
        clients = stack.enter_context(Clients(old.stub))
        for _ in range(2):
            new = stack.enter_context(Pipeline())
            clients.wait_for_answers(2)
            clients.point_to(new.stub)
            old.workers[1].send_signal(signal.SIGTERM)
            assert old.router.wait(timeout=STOP_TIMEOUT_S) == 0
            assert old.workers[1].wait(timeout=STOP_TIMEOUT_S) == 0
            old = new
        clients.wait_for_answers(4)
        clients.__exit__()
        assert clients.errors == []
