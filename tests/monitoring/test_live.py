"""A real Prometheus scrapes a real cluster of two stages. Under load every panel has data. Each alert's fault is
injected; the alert must fire and resolve."""
import contextlib
import itertools
import json
import os
import signal
import threading
import time

import grpc
import pytest
import yaml
from harness import DEMO_MODEL, Cluster, children_of, wait_until
from prometheus_server import PROMETHEUS, ROOT, RULES, Prometheus, quick, quick_rules
from redis_server import RedisServer
from stagecoach.v1 import inference_pb2 as pb
from stopped_thread import stopped_thread

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus here")

SHORT = pb.GenerateRequest(text="The next train to", sampling=pb.SamplingParams(max_tokens=40, ignore_eos=True))
# A stopped worker is neither given up nor replaced.
STALLS_LAST = ["--stall-limit", "3600", "--recovery-limit", "0"]
LONG = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=1500, ignore_eos=True))


def dashboard_queries():
    """(panel, query) over all dashboards, with the variables filled in."""
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield panel["title"], quick(target["expr"].replace("$model_name", ".*"))


class Load:
    """A few threads send one stream after the other until the block ends."""

    def __init__(self, cluster, n_streams=3, request=SHORT):
        self._cluster = cluster
        self._request = request
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(n_streams)]

    def _run(self):
        with contextlib.suppress(grpc.RpcError):
            while not self._stop.is_set():
                for _ in self._cluster.stub.Generate(self._request):
                    pass

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def now(prometheus):
    """The time of Prometheus in seconds."""
    (_, seconds), = prometheus.query("vector(time())")
    return seconds


@pytest.fixture(scope="module")
def prometheus():
    with Prometheus(quick_rules()) as prometheus:
        yield prometheus


@pytest.fixture
def cluster(prometheus):
    with Cluster(DEMO_MODEL, stages=2, flags=["--max-sequences", "2", *STALLS_LAST]) as cluster:
        prometheus.set_target(cluster.metrics)
        prometheus.wait_for("a scrape", lambda: prometheus.query('up{job="stagecoach"} == 1'))
        yield cluster
        prometheus.set_target(None)


def test_every_panel_has_data_under_load(prometheus, cluster):
    with Load(cluster):
        for title, query in dashboard_queries():
            def has_data(query=query):
                samples = prometheus.query(query)
                return samples and all(value == value for _, value in samples)  # not NaN
            prometheus.wait_for(f"data for {title!r}: {query}", has_data)


def test_every_alert_s_metrics_exist(prometheus, cluster):
    """Each expression's left side, the part before the threshold, has data; so does a threshold's metric. This finds
    names that nothing exposes."""
    with Load(cluster):
        for group in yaml.safe_load(RULES.read_text())["groups"]:
            for rule in group["rules"]:
                # Tested below: the first one fires if the data is missing, the other needs a journal.
                if rule["alert"] in ("StagecoachDown", "StagecoachJournalFailing"):
                    continue
                for side in sides(quick(rule["expr"])):
                    prometheus.wait_for(f"data for {rule['alert']}: {side}", lambda side=side: prometheus.query(side))


def sides(expression):
    """The operands of an alert's comparisons, except numbers."""
    for part in expression.replace(" unless on (job, instance) ", " and ").split(" and "):
        for operator in (" == ", " > "):
            if operator in part:
                left, right = part.split(operator)
                yield left
                if "{" in right:
                    yield right.removeprefix("0.1 * ")
                break
        else:
            yield part


def last_worker(cluster):
    return [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-work"][-1]


def test_a_hung_stage_fires_and_resolves(prometheus, cluster):
    worker = last_worker(cluster)
    stream = cluster.stub.Generate(LONG)
    next(stream)
    assert "StagecoachStalled" not in prometheus.firing()
    os.kill(worker, signal.SIGSTOP)
    try:
        expected = {"StagecoachStalled", "StagecoachStageSilent"}
        prometheus.wait_for("both alerts", lambda: expected <= prometheus.firing())
        assert [labels["stage"] for labels, _ in prometheus.query("stagecoach_stage_up == 0")] == ["1"]
    finally:
        os.kill(worker, signal.SIGCONT)
    prometheus.wait_for("their end", lambda: not expected & prometheus.firing())
    stream.cancel()


def test_waiting_requests_fire_and_resolve(prometheus, cluster):
    with Load(cluster, 6, LONG):  # two run, four wait
        prometheus.wait_for("StagecoachQueueing", lambda: "StagecoachQueueing" in prometheus.firing())
    prometheus.wait_for("its end", lambda: "StagecoachQueueing" not in prometheus.firing())


def test_clients_that_leave_fire_and_resolve(prometheus, cluster):
    def fires():
        stream = cluster.stub.Generate(LONG)
        next(stream)
        stream.cancel()
        return "StagecoachAborts" in prometheus.firing()
    prometheus.wait_for("StagecoachAborts", fires)
    prometheus.wait_for("its end", lambda: "StagecoachAborts" not in prometheus.firing())


def test_a_full_kv_cache_fires_and_resolves(prometheus):
    request = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=480, ignore_eos=True))
    expected = {"StagecoachKvCacheFull", "StagecoachPreempting"}
    # 64 blocks of 16 tokens for eight sequences of up to 31 blocks each.
    with Cluster(DEMO_MODEL, stages=2, flags=["--kv-memory", "2MiB", "--max-model-len", "512"]) as cluster:
        prometheus.set_target(cluster.metrics)
        with Load(cluster, 8, request):
            prometheus.wait_for("both alerts", lambda: expected <= prometheus.firing())
        prometheus.wait_for("their end", lambda: not expected & prometheus.firing())
        prometheus.set_target(None)


def test_slow_first_tokens_fire_and_resolve(prometheus, cluster):
    """A stage is stopped for longer than the alert's threshold."""
    worker = last_worker(cluster)
    os.kill(worker, signal.SIGSTOP)
    try:
        streams = [cluster.stub.Generate(SHORT) for _ in range(2)]
        began = now(prometheus)
        prometheus.wait_for("7 s", lambda: now(prometheus) > began + 7)
    finally:
        os.kill(worker, signal.SIGCONT)
    prometheus.wait_for("StagecoachFirstTokenSlow", lambda: "StagecoachFirstTokenSlow" in prometheus.firing())
    for stream in streams:
        list(stream)
    prometheus.wait_for("its end", lambda: "StagecoachFirstTokenSlow" not in prometheus.firing())


def test_a_missing_pipeline_fires_and_resolves(prometheus):
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        prometheus.set_target(cluster.metrics)
        prometheus.wait_for("a scrape", lambda: prometheus.query('up{job="stagecoach"} == 1'))
        prometheus.wait_for("quiet", lambda: "StagecoachDown" not in prometheus.firing())
    prometheus.wait_for("StagecoachDown and StagecoachRouterDown",
                        lambda: {"StagecoachDown", "StagecoachRouterDown"} <= prometheus.firing())
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        prometheus.set_target(cluster.metrics)
        prometheus.wait_for("their end",
                            lambda: not {"StagecoachDown", "StagecoachRouterDown"} & prometheus.firing())
        prometheus.set_target(None)


def test_a_stage_that_stalls_repeatedly_fires_and_resolves():
    with Prometheus(quick_rules(hour_s=30)) as prometheus, Cluster(DEMO_MODEL, stages=2, flags=STALLS_LAST) as cluster:
        worker = last_worker(cluster)
        prometheus.set_target(cluster.metrics)

        def stalled(value):
            return prometheus.query(f'stagecoach_stage_stalled{{stage="1"}} == {value}')

        prometheus.wait_for("a scrape", lambda: stalled(0))
        for _ in range(2):
            os.kill(worker, signal.SIGSTOP)
            try:
                prometheus.wait_for("the stall", lambda: stalled(1))
            finally:
                os.kill(worker, signal.SIGCONT)
            prometheus.wait_for("its end", lambda: stalled(0))
        prometheus.wait_for("StagecoachStageStalling", lambda: "StagecoachStageStalling" in prometheus.firing())
        prometheus.wait_for("its end", lambda: "StagecoachStageStalling" not in prometheus.firing())


def test_slow_tokens_fire_and_resolve(prometheus, cluster):
    """A stage is stopped after every few tokens, so that one token in 20 is slow on a machine of any speed."""
    worker = last_worker(cluster)
    streams = (message for _ in itertools.count() for message in cluster.stub.Generate(SHORT))

    def fires():
        os.kill(worker, signal.SIGCONT)
        for _ in range(4):
            next(streams)
        os.kill(worker, signal.SIGSTOP)
        stopped = now(prometheus)
        prometheus.wait_for("the fault, longer than the alert's threshold", lambda: now(prometheus) > stopped + 0.8)
        return "StagecoachTokensSlow" in prometheus.firing()
    try:
        prometheus.wait_for("StagecoachTokensSlow", fires)
    finally:
        os.kill(worker, signal.SIGCONT)
    prometheus.wait_for("its end", lambda: "StagecoachTokensSlow" not in prometheus.firing())


def test_stages_that_are_lost_repeatedly_fire_and_resolve():
    """The first loss lasts: each worker is stopped as soon as it starts, so that it does not answer."""
    with Prometheus(quick_rules(hour_s=30)) as prometheus, Cluster(DEMO_MODEL, stages=2) as cluster:
        prometheus.set_target(cluster.metrics)
        recoveries = 'sum(stagecoach_pipeline_recoveries_total{stage="1", cause="lost"})'
        prometheus.wait_for("a scrape", lambda: prometheus.query(f"{recoveries} == 0"))
        for n in (1, 2):
            worker = last_worker(cluster)
            os.kill(worker, signal.SIGKILL)
            if n == 1:
                new = wait_until(lambda worker=worker: (newest := last_worker(cluster)) > worker and newest, "the next worker")
                os.kill(new, signal.SIGSTOP)
                prometheus.wait_for("StagecoachRecovering", lambda: "StagecoachRecovering" in prometheus.firing())
                os.kill(new, signal.SIGCONT)
            prometheus.wait_for("the recovery", lambda n=n: prometheus.query(f"{recoveries} == {n}"))
        prometheus.wait_for("StagecoachStageRestarting", lambda: "StagecoachStageRestarting" in prometheus.firing())
        prometheus.wait_for("the ends", lambda: not {"StagecoachRecovering", "StagecoachStageRestarting"} & prometheus.firing())


def test_a_journal_that_fails_fires_and_resolves_also_without_load():
    with RedisServer() as redis, Cluster(DEMO_MODEL, flags=["--journal", redis.url]) as cluster, Prometheus(quick_rules()) as prometheus:
        prometheus.set_target(cluster.metrics)
        prometheus.wait_for("a scrape", lambda: prometheus.query("stagecoach_journal_failing == 0"))
        redis.process.send_signal(signal.SIGSTOP)
        try:
            prometheus.wait_for("StagecoachJournalFailing", lambda: "StagecoachJournalFailing" in prometheus.firing())
        finally:
            redis.process.send_signal(signal.SIGCONT)
        prometheus.wait_for("its end", lambda: "StagecoachJournalFailing" not in prometheus.firing())


def test_routers_that_end_repeatedly_fire_and_resolve():
    began = time.monotonic()
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        list(cluster.stub.Generate(SHORT))
    # Replaces an hour: long enough for three starts on a machine of any speed.
    hour_s = 10 + 6 * (time.monotonic() - began)
    expected = {"StagecoachPipelineLost"}
    with Prometheus(quick_rules(hour_s)) as prometheus:
        for n_requests in (3, 2, 1):  # a reset is visible only if the counter was higher before
            cluster = Cluster(DEMO_MODEL, stages=2, flags=["--recovery-limit", "0"])
            cluster.start()
            prometheus.set_target(cluster.metrics)
            for _ in range(n_requests):
                list(cluster.stub.Generate(SHORT))
            prometheus.wait_for("a scrape", lambda n_requests=n_requests: [
                steps for _, steps in prometheus.query('stagecoach_steps_total{job="stagecoach"}') if steps >= 40 * n_requests])
            if n_requests > 1:
                os.kill(last_worker(cluster), signal.SIGKILL)
                assert cluster.process.wait(timeout=60) != 0
        prometheus.wait_for("the alert", lambda: expected <= prometheus.firing())
        cluster.stop()
        prometheus.set_target(None)
        prometheus.wait_for("their end", lambda: not expected & prometheus.firing())


def test_a_silent_scheduler_fires_and_resolves():
    """Only the scheduler's thread is stopped, as by a debugger: the router still answers, without the scheduler's
    metrics."""
    with Prometheus(quick_rules(), scrape_ms=3000) as prometheus, Cluster(DEMO_MODEL, stages=2) as cluster:
        prometheus.set_target(cluster.metrics)
        prometheus.wait_for("a scrape", lambda: prometheus.query('stagecoach_steps_total{job="stagecoach"}'))
        router, = [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-rout"]
        with stopped_thread(router, "scheduler"):
            prometheus.wait_for("StagecoachSchedulerSilent", lambda: "StagecoachSchedulerSilent" in prometheus.firing())
        prometheus.wait_for("its end", lambda: "StagecoachSchedulerSilent" not in prometheus.firing())
