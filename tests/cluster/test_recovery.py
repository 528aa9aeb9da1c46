"""A stage is lost while streams run: another process takes its place, and every stream goes on as if nothing had been."""
import os
import signal
import urllib.request

import grpc
import pytest
from faults import PLAIN, pids
from harness import DEMO_MODEL, Cluster, is_running, wait_until
from recovery import Streams, await_workers, classify, requests, undisturbed

N_STREAMS = 24
N_TOKENS = 300
STAGES = 3


@pytest.fixture(scope="module")
def cluster():
    with Cluster(DEMO_MODEL, STAGES, ["--stall-limit", "2"]) as running:
        yield running


@pytest.fixture(scope="module")
def expected(cluster):
    return undisturbed(cluster, requests(N_STREAMS, N_TOKENS))


def metric(cluster, name):
    """Summed over all labels."""
    page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{cluster.metrics}/metrics").read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name + "{"))


def run_with(cluster, expected, fault):
    before = metric(cluster, "stagecoach_pipeline_recoveries_total")
    await_workers(cluster)
    with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        fault(pids(cluster)[1])
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == dict(identical=N_STREAMS, error=0, hung=0, different=0)
    wait_until(lambda: metric(cluster, "stagecoach_pipeline_recoveries_total") > before, "the recovery's count")
    assert metric(cluster, "stagecoach_pipeline_recovering") == 0


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_killed_stage_is_replaced(cluster, expected, stage):
    run_with(cluster, expected, lambda workers: os.kill(workers[stage], signal.SIGKILL))


def test_two_stages_killed_at_once(cluster, expected):
    def fault(workers):
        os.kill(workers[0], signal.SIGKILL)
        os.kill(workers[2], signal.SIGKILL)

    run_with(cluster, expected, fault)


def test_a_stage_killed_while_another_is_replaced(cluster, expected):
    def fault(workers):
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: pids(cluster)[1][0] not in (None, workers[0]), "the replacement of stage 0")
        os.kill(workers[1], signal.SIGKILL)

    run_with(cluster, expected, fault)


def test_a_stopped_stage_is_killed_and_replaced(cluster, expected):
    def fault(workers):
        os.kill(workers[1], signal.SIGSTOP)
        wait_until(lambda: not is_running(workers[1]), "the end of the stopped process")

    run_with(cluster, expected, fault)


def test_requests_that_come_during_a_recovery_wait(cluster):
    workers = await_workers(cluster)
    os.kill(workers[0], signal.SIGKILL)
    answers = [list(cluster.stub.Generate(PLAIN, timeout=60)) for _ in range(2)]
    assert all(answers)


def test_without_recovery_a_lost_stage_ends_the_pipeline():
    cluster = Cluster(DEMO_MODEL, 2, ["--recovery-limit", "0"])
    cluster.start()
    stream = cluster.stub.Generate(PLAIN, timeout=60)
    next(stream)
    os.kill(pids(cluster)[1][1], signal.SIGKILL)
    with pytest.raises(grpc.RpcError) as error:
        list(stream)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "stage 1" in error.value.details()
    assert cluster.process.wait(timeout=60) == 1
    cluster.assert_nothing_left()


def test_a_stage_that_does_not_come_back_ends_the_pipeline():
    """A worker that dies at each start, as after a driver's end."""
    cluster = Cluster(DEMO_MODEL, 2, ["--recovery-limit", "5"])
    cluster.start()
    stream = cluster.stub.Generate(PLAIN, timeout=60)
    next(stream)
    worker = pids(cluster)[1][1]
    deaths = [worker]
    os.kill(worker, signal.SIGKILL)
    while cluster.process.poll() is None:
        again = pids_or_none(cluster)
        if again and again not in deaths:
            deaths.append(again)
            os.kill(again, signal.SIGKILL)
    assert cluster.process.returncode == 1
    with pytest.raises(grpc.RpcError) as error:
        list(stream)
    assert "stage 1" in error.value.details()
    cluster.assert_nothing_left()


def pids_or_none(cluster):
    """Stage 1's worker, if it and the router run."""
    try:
        return pids(cluster)[1][1]
    except (ValueError, FileNotFoundError, ProcessLookupError):
        return None
