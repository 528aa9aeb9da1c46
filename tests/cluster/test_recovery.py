"""A stage is lost while streams run: another process takes its place, and every stream goes on as if nothing had been."""
import os
import shutil
import signal
import urllib.request

import grpc
import pytest
from faults import PLAIN, pids
from harness import DEMO_MODEL, Cluster, wait_until
from lost_stages import FAULTS, await_workers
from recovery import TOOLS_TEMPLATE, Streams, classify, long_prompts, replace_weights, requests, undisturbed

N_STREAMS = 24
N_TOKENS = 300
STAGES = 3


@pytest.fixture(scope="module")
def cluster():
    with Cluster(DEMO_MODEL, STAGES, ["--stall-limit", "2", "--chat-template", TOOLS_TEMPLATE]) as running:
        yield running


@pytest.fixture(scope="module")
def expected(cluster):
    return undisturbed(cluster, requests(N_STREAMS, N_TOKENS))


def metric(cluster, name):
    """Summed over all labels."""
    page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{cluster.metrics}/metrics").read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name + "{"))


def assert_recovers(cluster, all_requests, expected, fault, await_moment):
    before = metric(cluster, "stagecoach_pipeline_recoveries_total")
    await_workers(cluster)
    with Streams(cluster.grpc, all_requests) as streams:
        await_moment(streams)
        fault()
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == dict(identical=len(all_requests), error=0, hung=0, different=0)
    wait_until(lambda: metric(cluster, "stagecoach_pipeline_recoveries_total") > before, "the recovery's count")
    assert metric(cluster, "stagecoach_pipeline_recovering") == 0


@pytest.mark.parametrize("fault,stage", [("kill", 0), ("stop", 1), ("wedge", 2), ("two", 2), ("again", 0),
                                         *(pytest.param("kill", stage, marks=pytest.mark.long) for stage in range(1, STAGES)),
                                         pytest.param("stop_again", 0, marks=pytest.mark.long)])
def test_streams_outlive_lost_stages(cluster, expected, fault, stage):
    assert_recovers(cluster, requests(N_STREAMS, N_TOKENS), expected, lambda: FAULTS[fault](cluster, stage),
                    lambda streams: streams.await_messages(3))


def test_a_stage_killed_while_prompts_are_computed(cluster):
    prompts = long_prompts(N_STREAMS, 20)
    assert_recovers(cluster, prompts, undisturbed(cluster, prompts), lambda: FAULTS["kill"](cluster, 1),
                    lambda streams: streams.await_messages(1, of=N_STREAMS // 4))


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
    """A worker that dies at each start, as after a driver's end. The launcher gives it up long before the router does."""
    cluster = Cluster(DEMO_MODEL, 2, ["--recovery-limit", "8"])
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


def test_replaced_files_of_a_model_end_the_pipeline(tmp_path):
    """The replacement would read another model's layers, and every stream would go on with wrong tokens."""
    model = shutil.copytree(DEMO_MODEL, tmp_path / "model")
    cluster = Cluster(model, 2)
    cluster.start()
    stream = cluster.stub.Generate(PLAIN, timeout=60)
    next(stream)
    replace_weights(model)
    os.kill(pids(cluster)[1][1], signal.SIGKILL)
    with pytest.raises(grpc.RpcError) as error:
        list(stream)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "stage 1" in error.value.details() and "files have changed" in error.value.details()
    assert cluster.process.wait(timeout=60) == 1
    cluster.assert_nothing_left()


def pids_or_none(cluster):
    """Stage 1's worker, if it and the router run."""
    try:
        return pids(cluster)[1][1]
    except (ValueError, FileNotFoundError, ProcessLookupError):
        return None
