"""Workers are told to end, one stage after the other, while streams run: each place is handed over to another process, and
every stream goes on as if nothing had been."""
import os
import re
import signal
import urllib.request

import pytest
from faults import pids
from harness import DEMO_MODEL, Cluster, wait_until
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed

STAGES = 3


@pytest.fixture(scope="module")
def cluster():
    with Cluster(DEMO_MODEL, STAGES, ["--chat-template", TOOLS_TEMPLATE]) as running:
        yield running


def recoveries(cluster):
    """{(stage, cause): number of recoveries}, without zeros."""
    with urllib.request.urlopen(f"http://{cluster.metrics}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    found = {}
    for labels, value in re.findall(r"^stagecoach_pipeline_recoveries_total{(.*)} (\S+)$", page, re.MULTILINE):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if float(value) > 0:
            found[int(of["stage"]), of["cause"]] = float(value)
    return found


def hand_over(cluster, stage):
    worker = pids(cluster)[1][stage]
    before = recoveries(cluster).get((stage, "handed_over"), 0)
    os.kill(worker, signal.SIGTERM)
    wait_until(lambda: recoveries(cluster).get((stage, "handed_over"), 0) > before, f"the handover of stage {stage}")
    assert pids(cluster)[1][stage] not in (None, worker)


def test_each_stage_is_handed_over_in_turn(cluster):
    some = requests(24, 300)
    expected = undisturbed(cluster, some)
    with Streams(cluster.grpc, some) as streams:
        streams.await_messages(3)
        for stage in range(STAGES):
            hand_over(cluster, stage)
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == dict(identical=24, error=0, hung=0, different=0)
    assert recoveries(cluster) == {(stage, "handed_over"): 1 for stage in range(STAGES)}
