"""Upgrades under load. The router and workers are in separate network namespaces, and clients know only a Service."""
import json
import pathlib
import subprocess
import sys

import pytest
from harness import STAGECOACH
from pods import GRPC_PORT, HTTP_PORT, SERVICE, STAGE_PORT, Network, Pipeline, router, stage, wait_until_ready, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "")
CLIENTS = pathlib.Path(__file__).with_name("clients.py")


class Load:
    def __init__(self, network, *how, n_clients=4, n_tokens=60):
        self._process = network.client.start(sys.executable, CLIENTS, f"{SERVICE}:{HTTP_PORT}", n_clients, n_tokens, *how,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.results = []

    def wait_for_answers(self, n):
        for _ in range(n):
            self.results.append(json.loads(self._process.stdout.readline()))

    def end(self):
        """Waits for all streams to end; returns the errors."""
        rest, _ = self._process.communicate()
        self.results += map(json.loads, rest.splitlines())
        return [result["error"] for result in self.results if "error" in result]

    def n_refused(self):
        return sum(result.get("refused_before", 0) for result in self.results)


@pytest.fixture
def network():
    with Network() as one:
        yield one


@pytest.mark.parametrize("connections", ["new", "kept"])
def test_pods_are_replaced_one_after_another(network, connections):
    """nodes: 1. The new pod is ready, the Service switches to it, the old one drains.

    With one connection per request, clients notice nothing. Kept connections stay on the old pod, which closes them
    when it has finished their streams. A client that sends its next request without checking the connection, such as
    Python's http.client, then gets RemoteDisconnected without any answer and sends the request again. This is the only
    case that a client must handle.
"""
    old = Pipeline(network, "old")
    wait_until_ready(network, old.router)
    network.point_service_to(old.pod)
    load = Load(network, connections, *(["retry"] if connections == "kept" else []))
    load.wait_for_answers(4)
    new = Pipeline(network, "new")
    wait_until_ready(network, new.router)
    network.point_service_to(new.pod)
    load.wait_for_answers(4)  # connections that were being opened to the old pod have arrived there
    assert old.end() == [0, 0, 0]
    load.wait_for_answers(8)
    assert load.end() == []
    assert new.end() == [0, 0, 0]


def test_router_and_workers_are_replaced_one_after_another(network):
    """nodes: 2. A worker serves one router, so there is a gap. In the gap requests are refused; no stream breaks.

    The router drains first, then each worker is replaced, then a new router starts with the new workers.
"""
    pods = [network.pod(f"node-{i}") for i in range(2)]
    addresses = [f"{pod.address}:{STAGE_PORT}" for pod in pods]
    front = network.pod("router")
    workers = [stage(pod) for pod in pods]
    old = router(front, addresses)
    wait_until_ready(network, old)
    network.point_service_to(front)
    load = Load(network, "new", "retry")
    load.wait_for_answers(4)
    assert old.end() == 0
    network.point_service_to(None)
    for i, pod in enumerate(pods):
        assert workers[i].end() == 0
        workers[i] = stage(pod)
    new = router(front, addresses)
    wait_until_ready(network, new)
    network.point_service_to(front)
    load.wait_for_answers(8)
    assert load.end() == []
    assert load.n_refused() > 0
    assert [program.end() for program in (new, *workers)] == [0, 0, 0]


def start_long_stream(network, front):
    """Starts a stream of 1500 tokens and waits for the first one."""
    stream = network.client.start(STAGECOACH, "generate", f"--server={front.pod.address}:{GRPC_PORT}", "--prompt=The next train",
                                  "--max-tokens=1500", "--ignore-eos", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert stream.stdout.read(1)
    return stream


def two_nodes(network, *flags):
    pods = [network.pod(f"node-{i}") for i in range(2)]
    workers = [stage(pod) for pod in pods]
    front = router(network.pod("router"), [f"{pod.address}:{STAGE_PORT}" for pod in pods], *flags)
    wait_until_ready(network, front)
    return workers, front


def test_replacing_a_worker_under_its_router_ends_no_stream(network):
    """nodes: 2. A node is drained: its worker hands the stage over to the pod that gets its name."""
    workers, front = two_nodes(network)
    stream = start_long_stream(network, front)
    assert workers[1].end() == 0
    workers[1] = stage(workers[1].pod)
    _, said = stream.communicate()
    assert stream.returncode == 0, said
    assert [program.end() for program in (front, *workers)] == [0, 0, 0]


def test_without_recovery_streams_of_a_killed_worker_end_with_its_name(network):
    workers, front = two_nodes(network, "--recovery-limit=0")
    stream = start_long_stream(network, front)
    workers[1].process.kill()
    _, said = stream.communicate()
    assert stream.returncode != 0 and b"stage 1" in said
    assert front.process.wait(timeout=60) != 0
