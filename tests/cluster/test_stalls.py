"""Processes and threads that stop under load: a stall is detected at once, ends the pipeline at the limit, and is
harmless if it ends earlier.

STAGECOACH_ALL_STALLS=1 stops every process and every class of thread at 1, 2 and 4 stages, which takes some minutes;
without it only a few cases run. The time limits are those of the documents plus SLACK_S for a busy machine.
"""
import os
import signal
import subprocess
import time

import grpc
import pytest
from faults import LONG, PLAIN, Load, is_ready, metric, pids
from harness import DEMO_MODEL, Cluster, is_running
from polling import seconds_until
from stagecoach.v1 import inference_pb2 as pb
from stopped_thread import stopped_thread, thread_names

pytestmark = pytest.mark.alone
ALL = os.environ.get("STAGECOACH_ALL_STALLS") == "1"
SLACK_S = float(os.environ.get("STAGECOACH_SLACK_S", 2))
LIMIT_S = 2
NOTICE_S = 1
# Without recovery, so that a stall ends the pipeline.
FLAGS = ["--stall-limit", LIMIT_S, "--threads-per-worker", 1, "--recovery-limit", 0]
# Names of a worker's threads; some of gRPC's threads have the same name.
CLASSES = {"compute", "metadata", "hidden", "tokens", "progress", "masks", "grammars", "log", "signals", "stagecoach-work"}


@pytest.fixture(scope="module")
def figures():
    """Seconds until a stall was detected, by the stopped process or thread."""
    noticed = []
    yield noticed
    for what, seconds in noticed:
        print(f"noticed after {seconds:.2f} s: {what}")


def victims():
    for stages in (1, 2, 4) if ALL else (2,):
        for victim in range(stages):
            yield stages, victim


@pytest.mark.parametrize("stages,victim", list(victims()))
def test_a_stopped_worker_is_detected_and_can_continue(stages, victim, figures):
    with Cluster(DEMO_MODEL, stages=stages, flags=FLAGS) as cluster, Load(cluster.stub) as load:
        _, workers = pids(cluster)
        os.kill(workers[victim], signal.SIGSTOP)
        took = seconds_until(lambda: not is_ready(cluster), NOTICE_S + SLACK_S)
        stalled = metric(cluster, "stagecoach_stage_stalled")
        os.kill(workers[victim], signal.SIGCONT)
        assert took is not None
        figures.append((f"process of stage {victim} of {stages}", took))
        assert stalled == {stage: float(stage == victim) for stage in range(stages)}
        assert seconds_until(lambda: is_ready(cluster), 1 + SLACK_S) is not None
        load.await_tokens(50)
        assert metric(cluster, "stagecoach_stage_stalls_total")[victim] == 1
        for said in (f"stage {victim} (", "its process is stopped", f" I worker {victim}: process {workers[victim]} is stopped"):
            assert seconds_until(lambda said=said: said in cluster.log(), 1 + SLACK_S) is not None


def await_errors(load, began, stage):
    """Checks that all streams end in time with an error that names the stage; returns the seconds it took."""
    load.await_end()
    assert len(load.errors) == 3
    for at, error in load.errors:
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert f"stage {stage} (" in error.details(), error.details()
        assert at - began < NOTICE_S + LIMIT_S + 1 + SLACK_S
    return max(at for at, _ in load.errors) - began


class Doomed(Cluster):
    """A cluster that must end with an error."""

    def __exit__(self, *_):
        self.kill()


def assert_failed(cluster):
    assert cluster.process.wait(timeout=30) == 1
    cluster.assert_nothing_left()
    cluster.channel.close()


@pytest.mark.parametrize("stages,victim", [pair for pair in victims() if ALL or pair[1] == 1])
def test_a_stopped_worker_ends_the_pipeline(stages, victim):
    with Doomed(DEMO_MODEL, stages=stages, flags=FLAGS) as cluster:
        _, workers = pids(cluster)
        with Load(cluster.stub) as load:
            began = time.monotonic()
            os.kill(workers[victim], signal.SIGSTOP)
            print(f"ended after {await_errors(load, began, victim):.2f} s")
        assert_failed(cluster)
        assert seconds_until(lambda: "has said nothing" in cluster.log(), 1 + SLACK_S) is not None


@pytest.mark.parametrize("stages", [1, 2, 4] if ALL else [1])
def test_a_stopped_compute_thread_ends_the_pipeline(stages):
    with Doomed(DEMO_MODEL, stages=stages, flags=FLAGS) as cluster:
        _, workers = pids(cluster)
        with Load(cluster.stub) as load:
            began = time.monotonic()
            with stopped_thread(workers[-1], "compute"):
                print(f"ended after {await_errors(load, began, stages - 1):.2f} s")
        assert_failed(cluster)


@pytest.mark.parametrize("stages", [1, 2, 4] if ALL else [2])
def test_each_stopped_worker_thread_is_detected_or_harmless(stages, figures):
    flags = ["--stall-limit", 30, "--threads-per-worker", 1, "--recovery-limit", 0]
    with Cluster(DEMO_MODEL, stages=stages, flags=flags) as cluster, Load(cluster.stub) as load:
        _, workers = pids(cluster)
        for stage, worker in enumerate(workers):
            names = set(thread_names(worker))
            assert {"compute", "metadata", "progress"} <= names
            for name in sorted(names if ALL else names & CLASSES):
                with stopped_thread(worker, name):
                    took = seconds_until(lambda: not is_ready(cluster), NOTICE_S + SLACK_S)
                    if took is None:
                        load.await_tokens(3)  # nothing needs this thread now, so the streams continue
                if took is not None:
                    figures.append((f"thread {name} of stage {stage} of {stages}", took))
                assert seconds_until(lambda: is_ready(cluster), 1 + SLACK_S) is not None, (stage, name)
                load.await_tokens(30)
                assert took is not None or name not in ("compute", "metadata", "progress"), (stage, name)


@pytest.mark.parametrize("stages,victim", list(victims()))
@pytest.mark.parametrize("fault", ["stopped", "held"])
def test_a_stage_that_would_never_go_on_is_replaced_at_once(stages, victim, fault, figures):
    with Cluster(DEMO_MODEL, stages=stages, flags=["--stall-limit", 60]) as cluster, Load(cluster.stub) as load:
        worker = pids(cluster)[1][victim]
        if fault == "stopped":
            os.kill(worker, signal.SIGSTOP)
            took = seconds_until(lambda: not is_running(worker), NOTICE_S + SLACK_S)
        else:
            with stopped_thread(worker, "compute"):
                took = seconds_until(lambda: not is_running(worker), NOTICE_S + SLACK_S)
        assert took is not None
        figures.append((f"{fault} process of stage {victim} of {stages}, until its kill", took))
        assert seconds_until(lambda: pids(cluster)[1][victim] not in (None, worker), 10 + SLACK_S) is not None
        assert seconds_until(lambda: is_ready(cluster), 10 + SLACK_S) is not None
        load.await_tokens(50)


def test_a_stage_that_only_seems_to_be_stalled_is_not_killed():
    """Its progress is not heard, but it computes: one request, so that the stage has work even if this test gets no core."""
    busy = pb.GenerateRequest()
    busy.CopyFrom(PLAIN)
    busy.sampling.max_tokens = 1500
    with Cluster(DEMO_MODEL, stages=2, flags=["--stall-limit", 60]) as cluster, Load(cluster.stub, [busy]) as load:
        before = pids(cluster)[1]
        with stopped_thread(before[1], "progress"):
            assert seconds_until(lambda: not is_ready(cluster), NOTICE_S + SLACK_S) is not None
            load.await_tokens(1000)
        assert pids(cluster)[1] == before
        assert seconds_until(lambda: is_ready(cluster), 1 + SLACK_S) is not None


def test_serve_reports_a_stopped_router_and_blames_no_stage():
    with Cluster(DEMO_MODEL, stages=2, flags=FLAGS) as cluster, Load(cluster.stub) as load:
        router, _ = pids(cluster)
        os.kill(router, signal.SIGSTOP)
        said = seconds_until(lambda: f" I router: process {router} is stopped" in cluster.log(), 1 + SLACK_S)
        time.sleep(2 * LIMIT_S)  # the injected fault: longer than the limit
        os.kill(router, signal.SIGCONT)
        assert said is not None
        load.await_tokens(50)
        assert metric(cluster, "stagecoach_stage_stalls_total") == {0: 0.0, 1: 0.0}
        assert seconds_until(lambda: " I router: the process continues" in cluster.log(), 1 + SLACK_S) is not None


# Threads of a router that streams depend on; the rest are gRPC's, the signals' and the watches'.
ROUTER_CLASSES = {"scheduler", "text", "prompts", "grammars", "http", "nexting_thread", "default-executo", "stagecoach-rout"}


@pytest.mark.parametrize("stages", [1, 2, 4] if ALL else [2])
def test_each_stopped_router_thread_is_detected_or_harmless(stages, figures):
    flags = ["--stall-limit", 30, "--threads-per-worker", 1]
    with Cluster(DEMO_MODEL, stages=stages, flags=flags) as cluster, Load(cluster.stub) as load:
        router, _ = pids(cluster)
        names = set(thread_names(router))
        assert {"scheduler", "text", "prompts", "http"} <= names
        for name in sorted(names if ALL else names & ROUTER_CLASSES):
            n_said = len(cluster.log())
            with stopped_thread(router, name):
                # The log says it, because a held "http" thread cannot answer.
                took = seconds_until(lambda n_said=n_said: "W router: the router's " in cluster.log()[n_said:],
                                     NOTICE_S + SLACK_S)
                if took is None:
                    load.await_tokens(3)
            if took is not None:
                figures.append((f"thread {name} of the router of {stages} stages", took))
            assert took is not None or name in ("log", "thread watch"), name
            assert seconds_until(lambda: is_ready(cluster), 1 + SLACK_S) is not None, name
            load.await_tokens(30)


@pytest.mark.parametrize("name", ["text", "prompts", "http", "nexting_thread"] if ALL else ["text"])
def test_a_stopped_router_thread_ends_the_router(name):
    with Doomed(DEMO_MODEL, stages=2, flags=FLAGS) as cluster:
        router, _ = pids(cluster)
        with Load(cluster.stub) as load:
            began = time.monotonic()
            with stopped_thread(router, name):
                load.await_end()
            assert time.monotonic() - began < NOTICE_S + LIMIT_S + 1 + SLACK_S
            assert {error.code() for _, error in load.errors} == {grpc.StatusCode.UNAVAILABLE}
        assert_failed(cluster)
        assert seconds_until(lambda: "and does not get on" in cluster.log(), 1 + SLACK_S) is not None


def test_a_stopped_launcher_blocks_nothing():
    with Cluster(DEMO_MODEL, stages=2, flags=FLAGS) as cluster, Load(cluster.stub) as load:
        os.kill(cluster.process.pid, signal.SIGSTOP)
        time.sleep(2 * LIMIT_S)  # the injected fault: longer than the limit
        load.await_tokens(200)
        assert is_ready(cluster)
        os.kill(cluster.process.pid, signal.SIGCONT)
        load.await_tokens(200)
        assert metric(cluster, "stagecoach_stage_stalls_total") == {0: 0.0, 1: 0.0}


def test_a_stopped_scheduler_is_detected_and_ends_the_router():
    """It drives every stream, and no stage is to blame."""
    with Doomed(DEMO_MODEL, stages=2, flags=FLAGS) as cluster:
        router, _ = pids(cluster)
        with Load(cluster.stub) as load:
            began = time.monotonic()
            with stopped_thread(router, "scheduler"):
                took = seconds_until(lambda: not is_ready(cluster), NOTICE_S + SLACK_S)
                assert took is not None
                load.await_end()
            assert time.monotonic() - began < NOTICE_S + LIMIT_S + 1 + SLACK_S
            assert {error.code() for _, error in load.errors} == {grpc.StatusCode.UNAVAILABLE}
        assert_failed(cluster)
        assert seconds_until(lambda: "the router's scheduler has not answered for" in cluster.log(), 1 + SLACK_S) is not None
        assert "has said nothing" not in cluster.log() and "has not finished step" not in cluster.log()


def test_a_scheduler_that_continues_in_time_is_not_an_error():
    with Cluster(DEMO_MODEL, stages=2, flags=["--stall-limit", 60]) as cluster, Load(cluster.stub) as load:
        router, _ = pids(cluster)
        with stopped_thread(router, "scheduler"):
            assert seconds_until(lambda: not is_ready(cluster), NOTICE_S + SLACK_S) is not None
        assert seconds_until(lambda: is_ready(cluster), 1 + SLACK_S) is not None
        load.await_tokens(50)
        assert seconds_until(lambda: "the router's threads continue" in cluster.log(), 1 + SLACK_S) is not None


def test_sigterm_ends_a_cluster_whose_router_is_stopped():
    with Doomed(DEMO_MODEL, stages=2, flags=FLAGS) as cluster:
        router, _ = pids(cluster)
        os.kill(router, signal.SIGSTOP)
        assert seconds_until(lambda: "is stopped" in cluster.log(), 1 + SLACK_S) is not None
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(timeout=12 + SLACK_S) == 1
        assert seconds_until(lambda: "the router was stopped" in cluster.log(), 1 + SLACK_S) is not None
        cluster.assert_nothing_left()
        cluster.channel.close()


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL])
def test_a_stage_lost_during_the_drain_is_an_error(fault):
    with Doomed(DEMO_MODEL, stages=2, flags=FLAGS) as cluster:
        _, workers = pids(cluster)
        with Load(cluster.stub, [LONG] * 3) as load:  # they still run when the stage is lost
            cluster.process.send_signal(signal.SIGTERM)
            assert seconds_until(lambda: not is_ready(cluster), 10) is not None
            began = time.monotonic()
            os.kill(workers[1], fault)
            load.await_end()
        assert time.monotonic() - began < NOTICE_S + LIMIT_S + 1 + SLACK_S
        assert {error.code() for _, error in load.errors} == {grpc.StatusCode.UNAVAILABLE}
        assert any("stage 1 (" in error.details() for _, error in load.errors)
        assert cluster.process.wait(timeout=30) == 1
        cluster.assert_nothing_left()
        cluster.channel.close()


def test_a_log_that_is_not_read_blocks_nothing():
    """The launcher's log is a pipe that is full from the start and that nobody reads."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write_end, True)
    cluster = Cluster(DEMO_MODEL, stages=2, flags=[*FLAGS, "--log-level", "trace"])
    popen = subprocess.Popen
    try:
        subprocess.Popen = lambda *arguments, **options: popen(*arguments, **{**options, "stderr": write_end})
        cluster.start()
    finally:
        subprocess.Popen = popen
    try:
        with Load(cluster.stub) as load:
            load.await_tokens(200)
            assert is_ready(cluster)
        cluster.stop()
    finally:
        cluster.kill()
        os.close(read_end)
        os.close(write_end)
