"""The router is killed while streams run: the next one takes over the loaded workers, and every resumable stream goes on."""
import contextlib
import os
import signal
import subprocess

import grpc
import pytest
from faults import PLAIN, pids
from harness import DEMO_MODEL, STAGECOACH, Cluster, is_running, start, wait_until
from recovery import PROMPT, TOOLS_TEMPLATE, classify, requests, undisturbed
from redis_server import RedisServer
from resumed import HttpStreams, ResumedStreams, await_router, http_requests, kill_router
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc

N_STREAMS = 22
N_TOKENS = 200
STAGES = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journal")
    with Cluster(DEMO_MODEL, STAGES, ["--chat-template", TOOLS_TEMPLATE, "--journal", folder / "journal"]) as running:
        yield running


@pytest.fixture(scope="module")
def expected(cluster):
    return undisturbed(cluster, requests(N_STREAMS, N_TOKENS), ResumedStreams)


def assert_identical(streams, expected):
    assert [o.details for o in streams.outcomes if o.error] == []
    assert classify(streams.outcomes, expected) == dict(identical=len(expected), error=0, hung=0, different=0)


def all_of(cluster, request_id):
    """The messages of a stream from its beginning, as bytes."""
    with grpc.insecure_channel(cluster.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        resume = pb_grpc.InferenceStub(channel).Resume(pb.ResumeRequest(request_id=request_id), timeout=60)
        return [message.SerializeToString(deterministic=True) for message in resume]


def running(cluster):
    """The number of sequences in the scheduler."""
    return cluster.stub.GetModel(pb.GetModelRequest()).scheduler.running


def test_grpc_streams_go_on(cluster, expected):
    workers = pids(cluster)[1]
    with ResumedStreams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        kill_router(cluster)
    assert_identical(streams, expected)
    assert pids(cluster)[1] == workers
    assert cluster.log().count("keeps its layers") >= STAGES


def test_streams_go_on_when_the_next_router_is_killed_too(cluster, expected):
    with ResumedStreams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        kill_router(cluster)
        kill_router(cluster)  # it has hardly begun
        streams.await_messages(20)
        kill_router(cluster)
    assert_identical(streams, expected)


def test_before_the_first_token(cluster):
    prompts = [pb.GenerateRequest(text=PROMPT.format(8 + i, i) * 40, sampling=pb.SamplingParams(max_tokens=20, seed=i)) for i in range(12)]
    right = undisturbed(cluster, prompts, ResumedStreams)
    with ResumedStreams(cluster.grpc, prompts) as streams:
        streams.await_messages(1, of=1)
        kill_router(cluster)
    assert_identical(streams, right)


def test_http_streams_go_on(cluster):
    wanted = http_requests(15, N_TOKENS)
    with HttpStreams(cluster.http, wanted) as right:
        pass
    assert [o.error for o in right.outcomes if o.error] == []
    with HttpStreams(cluster.http, wanted) as streams:
        streams.await_events(5)
        kill_router(cluster)
    assert [o.error for o in streams.outcomes if o.error] == []
    assert [o.answers() for o in streams.outcomes] == [o.answers() for o in right.outcomes]
    assert streams.read_again() == [o.events for o in streams.outcomes]


def test_streams_that_have_ended_can_be_read_again(cluster):
    with ResumedStreams(cluster.grpc, requests(8, 20)) as grpc_streams:
        pass
    with HttpStreams(cluster.http, http_requests(5, 20)) as http_streams:
        pass
    before = [all_of(cluster, request_id) for request_id in grpc_streams.ids]
    kill_router(cluster)
    await_router(cluster)
    assert [all_of(cluster, request_id) for request_id in grpc_streams.ids] == before
    assert http_streams.read_again() == [o.events for o in http_streams.outcomes]


def test_router_and_stage_at_once(cluster, expected):
    with ResumedStreams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
        streams.await_messages(3)
        router, workers = pids(cluster)
        os.kill(workers[1], signal.SIGKILL)
        os.kill(router, signal.SIGKILL)
    assert_identical(streams, expected)


LONG = ["--temperature", "1", "--seed", "11", "--max-tokens", "600", "--ignore-eos"]


@pytest.mark.parametrize("protocol", ["grpc", pytest.param("http", marks=pytest.mark.long)])
@pytest.mark.parametrize("question", [["generate", "--prompt", PROMPT.format(9, 5), "--echo"], ["generate", "--chat", "Who are you?"],
                                      pytest.param(["generate", "--prompt", PROMPT.format(9, 5), "--n", "2"], marks=pytest.mark.long),
                                      ["chat"]], ids=lambda q: q[-1])
def test_the_command_line_goes_on(cluster, question, protocol):
    server = cluster.grpc if protocol == "grpc" else f"http://{cluster.http}"
    command = [STAGECOACH, *question, "--server", server, *LONG]
    asked = "Who are you?\n" if question == ["chat"] else ""
    right = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=True)
    assert right.stderr == ""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(asked.encode())
        process.stdin.close()
        if "--n" in question:  # its text comes at the end
            wait_until(lambda: running(cluster), "the request")
            begun = b""
        else:
            begun = os.read(process.stdout.fileno(), 4096)
        kill_router(cluster)
        said, lost = begun + process.stdout.read(), process.stderr.read()
    assert (process.returncode, lost) == (0, b"connection lost, reconnecting\n")
    assert said.decode() == right.stdout
    await_router(cluster)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_command_line_goes_on_before_the_first_token(cluster, protocol):
    server = cluster.grpc if protocol == "grpc" else f"http://{cluster.http}"
    command = [STAGECOACH, "generate", "--chat", "Who are you?", "--temperature", "0", "--server", server]
    right = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    worker = pids(cluster)[1][0]
    os.kill(worker, signal.SIGSTOP)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: running(cluster), "the request")
        os.kill(pids(cluster)[0], signal.SIGKILL)
    finally:
        os.kill(worker, signal.SIGCONT)
    said, lost = process.communicate(timeout=300)
    assert (process.returncode, lost) == (0, "connection lost, reconnecting\n")
    assert said == right.stdout
    await_router(cluster)


def test_a_second_router_is_refused(cluster):
    folder = cluster.command[cluster.command.index("--journal") + 1]
    with contextlib.ExitStack() as stack:
        router = start(stack, "stagecoach-router", "--model", str(DEMO_MODEL), "--stages", "127.0.0.1:1", "--grpc", "127.0.0.1:0",
                       "--metrics", "127.0.0.1:0", "--journal", folder)
        error = router.communicate(timeout=60)[1]
    assert router.returncode == 1
    assert "another router has this journal open" in error


@pytest.fixture
def redis():
    with RedisServer() as server:
        yield server


def with_journal(redis, grpc_address="127.0.0.1:0"):
    return Cluster(DEMO_MODEL, STAGES, ["--chat-template", TOOLS_TEMPLATE, "--journal", f"{redis.url}/1?name=chat"], grpc_address)


def test_streams_go_on_with_a_journal_in_redis(redis, expected):
    with with_journal(redis) as cluster:
        workers = pids(cluster)[1]
        with ResumedStreams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            kill_router(cluster)
            streams.await_messages(20)
            kill_router(cluster)
        assert_identical(streams, expected)
        assert pids(cluster)[1] == workers
        assert "goes on with" in cluster.log()
    assert redis.ask("-n", "1", "EXISTS", "stagecoach:journal:{chat}:lease") == "0"


def test_streams_go_on_when_everything_but_redis_is_lost(redis, expected):
    with contextlib.ExitStack() as stack:
        lost = with_journal(redis)
        stack.callback(lost.kill)
        lost.start()
        with ResumedStreams(lost.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            lost.kill()
            wait_until(lambda: not any(map(is_running, lost.first_workers)), "the workers' end")
            cluster = stack.enter_context(with_journal(redis, lost.grpc))
        assert_identical(streams, expected)
        assert "goes on with" in cluster.log()


def test_a_lost_redis_ends_no_stream(redis, expected):
    with with_journal(redis) as cluster:
        with ResumedStreams(cluster.grpc, requests(N_STREAMS, N_TOKENS)) as streams:
            streams.await_messages(3)
            redis.process.kill()
        assert_identical(streams, expected)
        assert cluster.log().count("would not outlive the router any more") == 1


def test_without_a_journal_the_router_ends_everything():
    cluster = Cluster(DEMO_MODEL, 1)
    cluster.start()
    stream = cluster.stub.Generate(PLAIN, timeout=60)
    next(stream)
    router = pids(cluster)[0]
    os.kill(router, signal.SIGKILL)
    assert cluster.process.wait(timeout=60) == 1
    wait_until(lambda: not is_running(router), "the router's end")
    cluster.assert_nothing_left()
