"""Upgrades under load, with router and workers in network namespaces of their own, and clients that know a Service alone."""
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
        """What went wrong; and no stream is under way any more."""
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
def test_one_pod_after_the_other(network, connections):
    """nodes: 1. The new pod is ready, the Service points to it, the old one drains.

    With a connection a request nobody notices. Kept connections go on to the old pod; when it has finished their streams it
    closes them, and a client that does not look before it sends the next request, such as Python's http.client, finds that
    out by RemoteDisconnected, with nothing of an answer, and asks again: the only case that a client has to know.
    """
    old = Pipeline(network, "old")
    wait_until_ready(network, old.router)
    network.point_service_to(old.pod)
    load = Load(network, connections, *(["retry"] if connections == "kept" else []))
    load.wait_for_answers(4)
    new = Pipeline(network, "new")
    wait_until_ready(network, new.router)
    network.point_service_to(new.pod)
    load.wait_for_answers(4)  # what was on its way to the old pod has arrived there
    assert old.end() == [0, 0, 0]
    load.wait_for_answers(8)
    assert load.end() == []
    assert new.end() == [0, 0, 0]


def test_router_and_workers_one_after_the_other(network):
    """nodes: 2. A worker serves one router, so there is a gap; it is made of requests that are refused, none that breaks off.

    The router drains first, then each worker is replaced, then a router comes up on the new ones.
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
    """Of 1500 tokens, the first of which is here."""
    stream = network.client.start(STAGECOACH, "generate", f"--server={front.pod.address}:{GRPC_PORT}", "--prompt=The next train",
                                  "--max-tokens=1500", "--ignore-eos", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert stream.stdout.read(1)
    return stream


def two_nodes(network):
    pods = [network.pod(f"node-{i}") for i in range(2)]
    workers = [stage(pod) for pod in pods]
    front = router(network.pod("router"), [f"{pod.address}:{STAGE_PORT}" for pod in pods])
    wait_until_ready(network, front)
    return workers, front


def test_a_worker_that_is_replaced_under_its_router_ends_no_stream(network):
    """nodes: 2, a node is drained: its worker asks the router to finish."""
    workers, front = two_nodes(network)
    stream = start_long_stream(network, front)
    assert workers[1].end() == 0
    assert front.process.wait(timeout=60) == 0
    _, said = stream.communicate()
    assert stream.returncode == 0, said


def test_a_worker_that_is_killed_ends_its_streams_by_name(network):
    workers, front = two_nodes(network)
    stream = start_long_stream(network, front)
    workers[1].process.kill()
    _, said = stream.communicate()
    assert stream.returncode != 0 and b"stage 1" in said
    assert front.process.wait(timeout=60) != 0
