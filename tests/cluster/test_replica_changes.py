"""Replicas are drained and added while streams run: no stream notices, and no token differs."""
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest
from faults import PLAIN, is_ready, pids
from harness import DEMO_MODEL, STAGECOACH, Cluster, is_running, wait_until
from recovery import TOOLS_TEMPLATE, Streams, classify, replace_weights, requests, undisturbed

N_STREAMS = 24
N_TOKENS = 300
STAGES = 2
ALL_IDENTICAL = dict(identical=N_STREAMS, error=0, hung=0, different=0)
TEMPLATE = ["--chat-template", TOOLS_TEMPLATE]


@pytest.fixture(scope="module")
def expected():
    with Cluster(DEMO_MODEL, 1, TEMPLATE) as one:
        return undisturbed(one, requests(N_STREAMS, N_TOKENS))


@pytest.fixture
def control(tmp_path):
    return tmp_path / "control"


def make_cluster(control, replicas=2, flags=()):
    return Cluster(DEMO_MODEL, STAGES, ["--replicas", replicas, "--control", control, *TEMPLATE, *flags])


def change(control, *arguments):
    """Begins `stagecoach replicas ...`."""
    return subprocess.Popen([STAGECOACH, "replicas", *map(str, arguments), "--control", str(control)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process):
    """Its exit code and all that it printed."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def listed(control):
    """The numbers of the replicas."""
    code, text = done(change(control, "list"))
    assert code == 0, text
    return [int(number) for number in re.findall(r"^replica (\d+):", text, re.MULTILINE)]


def page(cluster, path):
    return urllib.request.urlopen(f"http://{cluster.http}{path}", timeout=10).read().decode()


def replicas_shown(cluster):
    """[replica of each stage] in /status."""
    return [stage["replica"] for stage in json.loads(page(cluster, "/status"))["stages"]]


def assert_drained(cluster, workers):
    """These workers end with code 0, and nothing takes their place."""
    wait_until(lambda: not any(map(is_running, workers)), "the end of the drained workers")
    wait_until(lambda: cluster.log().count("its replica has left; the process exited with code 0") == len(workers),
               "the launcher's notice of their ends")
    assert "takes its place" not in cluster.log()


@pytest.mark.parametrize("how", [pytest.param([], marks=pytest.mark.long), ["--move"]])
def test_a_replica_is_drained_under_load(control, expected, how):
    with make_cluster(control) as cluster:
        with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            code, text = done(change(control, "drain", 0, *how))
        assert (code, text) == (0, "replica 0 is drained\n")
        assert [o.details for o in streams.outcomes if o.error] == []
        assert classify(streams.outcomes, expected) == ALL_IDENTICAL
        assert_drained(cluster, cluster.first_workers[:STAGES])
        assert listed(control) == [1]
        assert replicas_shown(cluster) == [1] * STAGES
        assert 'engine="1"' in page(cluster, "/metrics")
        assert 'stagecoach_pipeline_recovering{model_name="demo-model",engine="0"' not in page(cluster, "/metrics")
        assert is_ready(cluster)
        assert list(cluster.stub.Generate(PLAIN, timeout=60))
        code, text = done(change(control, "drain", 1))
        assert code == 1 and "no replica besides 1 works" in text
        assert list(cluster.stub.Generate(PLAIN, timeout=60))


def test_an_added_replica_gets_requests(control, expected):
    with make_cluster(control, replicas=1) as cluster:
        with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            assert done(change(control, "add")) == (0, "replica 1 is added\n")
        assert classify(streams.outcomes, expected) == ALL_IDENTICAL
        assert replicas_shown(cluster) == [0] * STAGES + [1] * STAGES
        assert classify(undisturbed(cluster, requests(N_STREAMS, N_TOKENS)), expected) == ALL_IDENTICAL
        steps = re.search(r'^stagecoach_steps_total{[^}]*engine="1"[^}]*} (\S+)$', page(cluster, "/metrics"), re.MULTILINE)
        assert float(steps[1]) > 0


def test_an_added_replica_takes_over_from_a_lost_one(control, expected):
    with make_cluster(control, replicas=1) as cluster:
        assert done(change(control, "add")) == (0, "replica 1 is added\n")
        with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            os.kill(cluster.first_workers[0], signal.SIGKILL)
        assert classify(streams.outcomes, expected) == ALL_IDENTICAL
        wait_until(lambda: "the pipeline works again" in cluster.log(), "the replacement")


def test_a_rolling_change_replaces_every_worker(control, expected):
    with make_cluster(control) as cluster:
        with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            for old, new in ((0, 2), (1, 3)):
                assert done(change(control, "add")) == (0, f"replica {new} is added\n")
                assert done(change(control, "drain", old, "--move")) == (0, f"replica {old} is drained\n")
        assert [o.details for o in streams.outcomes if o.error] == []
        assert classify(streams.outcomes, expected) == ALL_IDENTICAL
        assert_drained(cluster, cluster.first_workers)
        assert listed(control) == [2, 3]
        assert classify(undisturbed(cluster, requests(N_STREAMS, N_TOKENS)), expected) == ALL_IDENTICAL


def test_what_cannot_be_done_is_refused(control):
    with make_cluster(control) as cluster:
        for arguments, why in ((["drain", 7], "there is no replica 7"),
                               (["add", "--workers", "127.0.0.1:1"], "a replica has 2 stages, but 1 workers are named")):
            code, text = done(change(control, *arguments))
            assert code == 1 and why in text
        workers = re.search(r"workers (\S+):", done(change(control, "list"))[1])[1]
        code, text = done(change(control, "add", "--workers", workers))
        assert code == 1 and "serves replica 0 already" in text
        assert oct(control.stat().st_mode & 0o777) == "0o700"
        assert list(cluster.stub.Generate(PLAIN, timeout=60))


def test_a_replica_of_replaced_files_is_refused(control, tmp_path):
    """It would give other tokens than the replica beside it."""
    model = shutil.copytree(DEMO_MODEL, tmp_path / "model")
    with Cluster(model, STAGES, ["--control", control]) as cluster:
        replace_weights(model)
        code, text = done(change(control, "add"))
        assert code == 1 and "have read different weights" in text
        assert list(cluster.stub.Generate(PLAIN, timeout=60))
        assert listed(control) == [0]


def test_a_restarted_router_has_the_replicas_that_were_left(control, tmp_path):
    with make_cluster(control, flags=["--journal", tmp_path / "journal"]) as cluster:
        assert done(change(control, "add"))[0] == 0
        assert done(change(control, "drain", 0))[0] == 0
        os.kill(pids(cluster)[0], signal.SIGKILL)
        wait_until(lambda: cluster.log().count("serving demo-model") == 2, "another router")
        wait_until(lambda: is_ready(cluster), "the router's readiness")
        assert listed(control) == [0, 1]
        assert list(cluster.stub.Generate(PLAIN, timeout=60))
