"""A stage's process is lost, but not its memory: the replacement finds weights and KV cache, and streams go on without
computing anything again."""
import os
import pathlib
import re
import signal

import pytest
from faults import pids, spares
from harness import DEMO_MODEL, Cluster, wait_until
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed

N_STREAMS = 24
N_TOKENS = 200
STAGES = 3
RESTORED = re.compile(r"the pipeline works again after .* in epoch [0-9]+, (with|without) its KV cache")


@pytest.fixture(scope="module", params=[(0, "auto"), (1, "fp8")], ids=["no spare", "a spare, FP8 cache"])
def cluster(request):
    n_spares, kv_dtype = request.param
    flags = ["--spares", str(n_spares), "--kv-dtype", kv_dtype, "--chat-template", TOOLS_TEMPLATE]
    with Cluster(DEMO_MODEL, STAGES, flags) as running:
        running.n_spares = n_spares
        yield running


@pytest.fixture(scope="module")
def expected(cluster):
    return undisturbed(cluster, requests(N_STREAMS, N_TOKENS))


def workers_of(cluster):
    """Pids of all stages, once none is being replaced and as many spares wait as the cluster has."""
    wait_until(lambda: all(pids(cluster)[1]) and len(spares(cluster)) == cluster.n_spares, "all workers")
    return pids(cluster)[1]


def kept_memory(cluster):
    """How many pieces of memory the launcher holds."""
    fds = pathlib.Path(f"/proc/{cluster.process.pid}/fd")
    return sum(os.readlink(fd).startswith("/memfd:stagecoach") for fd in fds.iterdir() if fd.is_symlink())


def lose(cluster, expected, stages, number):
    """Sends a signal to the workers of `stages` under load. Returns what the launcher and the router said."""
    workers = workers_of(cluster)
    said_before = len(cluster.log())
    with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        for stage in stages:
            os.kill(workers[stage], number)
    assert classify(streams.outcomes, expected) == dict(identical=N_STREAMS, error=0, hung=0, different=0)
    return cluster.log()[said_before:]


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.long) for stage in range(1, STAGES))])
def test_streams_go_on_with_the_kv_cache_of_a_killed_stage(cluster, expected, stage):
    said = lose(cluster, expected, [stage], signal.SIGKILL)
    assert RESTORED.findall(said) == ["with"]
    assert said.count("; a spare takes its place") == cluster.n_spares


def test_streams_go_on_with_the_kv_caches_of_two_stages(cluster, expected):
    said = lose(cluster, expected, [0, 2], signal.SIGKILL)
    assert set(RESTORED.findall(said)) == {"with"}
    assert said.count("takes its place") == 2


def test_memory_of_a_process_that_failed_by_itself_is_not_used(cluster, expected):
    said = lose(cluster, expected, [1], signal.SIGSEGV)
    assert RESTORED.findall(said) == ["without"]


def kill_and_await_replacement(cluster, stage):
    worker = workers_of(cluster)[stage]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: pids(cluster)[1][stage] not in (None, worker), "the replacement")


def test_losses_leave_no_memory_behind(cluster):
    workers_of(cluster)
    before = kept_memory(cluster)
    assert before == 2 * STAGES
    for i in range(4):
        kill_and_await_replacement(cluster, i % STAGES)
    workers_of(cluster)
    wait_until(lambda: kept_memory(cluster) == before, "the same memory")
