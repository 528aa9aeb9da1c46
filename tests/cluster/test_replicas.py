"""Several pipelines behind one router: the tokens are those of one, and when a pipeline is lost its streams go on at another."""
import json
import os
import re
import signal
import urllib.request

import grpc
import pytest
from faults import PLAIN, is_ready, pids
from harness import DEMO_MODEL, Cluster, is_running, wait_until
from lost_stages import await_workers
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed
from stagecoach.v1 import inference_pb2 as pb

N_STREAMS = 24
N_TOKENS = 300
STAGES = 2
REPLICAS = 2
WORKERS = STAGES * REPLICAS
ALL_IDENTICAL = dict(identical=N_STREAMS, error=0, hung=0, different=0)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(DEMO_MODEL, STAGES, ["--replicas", REPLICAS, "--stall-limit", "2", "--chat-template", TOOLS_TEMPLATE]) as running:
        yield running


@pytest.fixture(scope="module")
def expected():
    with Cluster(DEMO_MODEL, 1, ["--chat-template", TOOLS_TEMPLATE]) as one:
        return undisturbed(one, requests(N_STREAMS, N_TOKENS))


def by_replica(cluster, name):
    """[value of each replica], summed over other labels."""
    page = urllib.request.urlopen(f"http://{cluster.metrics}/metrics", timeout=10).read().decode()
    values = [0.0] * REPLICAS
    for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE):
        values[int(re.search(r'engine="(\d+)"', labels)[1])] += float(value)
    return values


def status(cluster):
    return json.load(urllib.request.urlopen(f"http://{cluster.http}/status", timeout=10))


def await_all_work(cluster):
    """Pids of all workers, once every replica works."""
    wait_until(lambda: by_replica(cluster, "stagecoach_pipeline_recovering") == [0, 0], "the recovery of all replicas")
    return await_workers(cluster)


def run_with(cluster, expected, fault):
    await_all_work(cluster)
    with Streams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        fault(pids(cluster)[1])
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == ALL_IDENTICAL


def test_replicas_give_the_tokens_of_one_pipeline(cluster, expected):
    before = by_replica(cluster, "vllm:generation_tokens_total")
    assert classify(undisturbed(cluster, requests(N_STREAMS, N_TOKENS)), expected) == ALL_IDENTICAL
    after = by_replica(cluster, "vllm:generation_tokens_total")
    assert all(b - a > 1000 for a, b in zip(before, after, strict=True)), "a replica had nothing to do"


def test_every_stage_of_every_replica_is_shown(cluster):
    stages = status(cluster)["stages"]
    assert [stage["replica"] for stage in stages] == [0, 0, 1, 1]
    assert all(stage["compute_ms"] is not None for stage in stages)
    assert stages[0]["n_layers"] + stages[1]["n_layers"] == stages[2]["n_layers"] + stages[3]["n_layers"]
    page = urllib.request.urlopen(f"http://{cluster.metrics}/metrics", timeout=10).read().decode()
    names = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert sorted(set(names)) == sorted(names), "a metric is declared twice"


@pytest.mark.parametrize("worker", [0, *(pytest.param(worker, marks=pytest.mark.long) for worker in range(1, WORKERS))])
def test_streams_of_a_killed_pipeline_go_on_at_another(cluster, expected, worker):
    run_with(cluster, expected, lambda workers: os.kill(workers[worker], signal.SIGKILL))


def test_the_loss_of_one_replica_does_not_touch_the_other(cluster):
    await_all_work(cluster)
    request = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=400, ignore_eos=True))
    before = by_replica(cluster, "stagecoach_pipeline_recoveries_total")
    streams = [cluster.stub.Generate(request, timeout=60) for _ in range(4)]
    for stream in streams:
        next(stream)
    os.kill(pids(cluster)[1][STAGES], signal.SIGKILL)
    for stream in streams:
        assert list(stream)
    wait_until(lambda: by_replica(cluster, "stagecoach_pipeline_recoveries_total") == [before[0], before[1] + 1],
               "one recovery, of the second replica")


@pytest.mark.long
def test_both_replicas_lose_a_stage(cluster, expected):
    def fault(workers):
        os.kill(workers[0], signal.SIGKILL)
        os.kill(workers[WORKERS - 1], signal.SIGKILL)

    run_with(cluster, expected, fault)


@pytest.mark.long
def test_the_second_replica_is_lost_while_the_first_is_replaced(cluster, expected):
    def fault(workers):
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: pids(cluster)[1][0] not in (None, workers[0]), "the replacement in the first replica")
        os.kill(workers[STAGES], signal.SIGKILL)

    run_with(cluster, expected, fault)


def test_a_stopped_stage_costs_only_its_replica(cluster, expected):
    def fault(workers):
        os.kill(workers[1], signal.SIGSTOP)
        wait_until(lambda: not is_running(workers[1]), "the end of the stopped process")

    run_with(cluster, expected, fault)


def test_requests_go_to_the_replica_that_works(cluster):
    """The router stays ready, and new requests do not wait for the replacement."""
    workers = await_all_work(cluster)
    os.kill(workers[0], signal.SIGSTOP)
    wait_until(lambda: not is_running(workers[0]) or status(cluster)["stages"][0]["stalled"], "the stall's notice")
    assert is_ready(cluster)
    for _ in range(4):
        assert list(cluster.stub.Generate(PLAIN, timeout=60))
        assert is_ready(cluster)
    wait_until(lambda: not is_running(workers[0]), "the end of the stopped process")


def test_a_replica_that_is_lost_for_good_is_left_out(expected):
    pair = Cluster(DEMO_MODEL, 1, ["--replicas", 2, "--recovery-limit", "0", "--chat-template", TOOLS_TEMPLATE])
    pair.start()
    with Streams(pair.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        os.kill(pair.first_workers[0], signal.SIGKILL)
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == ALL_IDENTICAL
    assert is_ready(pair)
    assert classify(undisturbed(pair, requests(N_STREAMS, N_TOKENS)), expected) == ALL_IDENTICAL
    stream = pair.stub.Generate(PLAIN, timeout=60)
    next(stream)
    os.kill(pair.first_workers[1], signal.SIGKILL)
    with pytest.raises(grpc.RpcError) as error:
        list(stream)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert pair.process.wait(timeout=60) == 1
    pair.assert_nothing_left()


def test_a_drain_finishes_the_streams_of_all_replicas():
    with Cluster(DEMO_MODEL, 1, ["--replicas", 2, "--chat-template", TOOLS_TEMPLATE]) as pair:
        with Streams(pair.grpc, requests(8, 200)) as streams:
            streams.await_messages(2)
            pair.process.send_signal(signal.SIGTERM)
        assert pair.process.wait(timeout=60) == 0
        assert [o.details for o in streams.outcomes if o.error] == []


def test_a_conversation_stays_at_its_replica(cluster):
    """Every turn finds what the turns before left in the prefix cache."""
    await_all_work(cluster)
    turns = ["The coach from Greywell to Elmstead leaves at eight. " * 12]
    for i in range(4):
        answer = list(cluster.stub.Generate(pb.GenerateRequest(
            text="".join(turns), sampling=pb.SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.0)), timeout=60))
        usage = answer[-1].usage
        if i > 0:
            assert usage.cached_tokens > 0.6 * usage.prompt_tokens, f"turn {i}"
        turns.append("".join(message.text for message in answer) + " And then? ")


def test_stages_that_do_not_divide_among_the_replicas_are_refused():
    with pytest.raises(AssertionError, match="--devices names 3 GPUs for 2 replicas of 2 stages"):
        Cluster(DEMO_MODEL, 2, ["--replicas", 2, "--device", "cuda", "--devices", "0,1,2"]).start()
