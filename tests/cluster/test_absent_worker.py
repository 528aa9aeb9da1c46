"""A router without its worker: it reports that once and says what to do, and serves as soon as the worker is up."""
import contextlib
import threading

from harness import START_TIMEOUT_S, free_ports, parse_ready, start
from workload import GOLDEN


def test_a_missing_worker_is_reported_once():
    address = f"127.0.0.1:{free_ports(1)}"
    with contextlib.ExitStack() as stack:
        router = start(stack, "stagecoach-router", "--model", str(GOLDEN / "mistral"), "--stages", address, "--dtype", "float32",
                       "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--recovery-limit", "0")
        timer = threading.Timer(START_TIMEOUT_S, router.kill)
        timer.start()
        stack.callback(timer.cancel)
        said = [router.stderr.readline()]
        while "does not answer" not in said[-1]:
            assert said[-1], "ended:\n" + "".join(said)
            said.append(router.stderr.readline())
        assert f"stage 0 ({address})" in said[-1] and "stagecoach-worker" in said[-1] and "60 s" in said[-1]
        worker = start(stack, "stagecoach-worker", "--listen", address, "--threads", "1")
        assert "grpc" in parse_ready(router.stdout.readline())
        worker.kill()
        rest = router.stderr.read()
        assert router.wait(timeout=60) != 0 and "does not answer" not in rest
