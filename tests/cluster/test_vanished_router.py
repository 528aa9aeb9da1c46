"""A router that disappears without closing its connections, like one whose machine fails, does not block its worker:
the next router gets it at once."""
import contextlib
import os
import signal

from harness import parse_ready, start
from workload import GOLDEN


def test_a_stopped_router_loses_its_worker():
    with contextlib.ExitStack() as stack:
        def route():
            return start(stack, "stagecoach-router", "--model", str(GOLDEN / "mistral"), "--stages", address, "--dtype", "float32",
                         "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")

        worker = start(stack, "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1")
        address = parse_ready(worker.stdout.readline(), "listening")["grpc"]
        first = route()
        assert "grpc" in parse_ready(first.stdout.readline())
        os.kill(first.pid, signal.SIGSTOP)
        assert "grpc" in parse_ready(route().stdout.readline())
