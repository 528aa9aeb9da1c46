"""Layers split by what a layer takes on each stage's device: the tokens are those of one stage, and a next start can name
the layers. Which split it is depends on the machine's speed; layer_choice_test has devices with known speeds."""
import contextlib
import re

import grpc
from harness import Cluster, parse_ready, start
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from test_prefix_cache import ask, random_ids, request
from workload import GOLDEN

MODEL = GOLDEN / "llama3"


def router_with_workers(stack, threads, *flags):
    """The router and its first lines of standard error, up to the one that it is ready."""
    workers = [start(stack, "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", str(n)) for n in threads]
    addresses = [parse_ready(worker.stdout.readline(), "listening")["grpc"] for worker in workers]
    router = start(stack, "stagecoach-router", "--model", str(MODEL), "--stages", ",".join(addresses), "--dtype", "float32",
                   "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--recovery-limit", "0", *flags)
    ready = parse_ready(router.stdout.readline())
    channel = stack.enter_context(grpc.insecure_channel(ready["grpc"], options=[("grpc.enable_http_proxy", 0)]))
    return router, pb_grpc.InferenceStub(channel)


def test_stages_that_differ_are_measured_and_give_the_same_tokens():
    with Cluster(MODEL, flags=["--dtype", "float32"]) as alone:
        expected = ask(alone.stub, request(random_ids(40, 1)))[:2]
    with contextlib.ExitStack() as stack:
        router, stub = router_with_workers(stack, [1, 2])
        assert ask(stub, request(random_ids(40, 1)))[:2] == expected
        router.terminate()
        measured = re.findall(r"stage (\d): a layer takes", router.stderr.read())
        assert measured == ["0", "1"]
        assert router.wait(timeout=60) == 0


def test_equal_stages_are_not_measured():
    with contextlib.ExitStack() as stack:
        router, _ = router_with_workers(stack, [1, 1])
        router.terminate()
        assert "a layer takes" not in router.stderr.read()
