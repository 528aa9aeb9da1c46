"""Starting, stopping and losing the programs of a cluster."""
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time

import grpc
import pytest
from harness import BIN_DIR, DEMO_MODEL, STAGECOACH, Cluster, children_of, free_ports, wait_until
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN

MODEL = GOLDEN / "mistral"
LONG = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=400, ignore_eos=True))
FLAGS = ["--dtype", "float32"]


def test_sigterm_finishes_running_requests():
    with Cluster(MODEL, stages=2, flags=FLAGS) as cluster:
        stream = cluster.stub.Generate(LONG)
        first = next(stream)
        cluster.process.send_signal(signal.SIGTERM)
        tokens = list(first.token_ids) + [t for message in stream for t in message.token_ids]
        assert len(tokens) == 400
        assert cluster.process.wait(timeout=30) == 0


def test_sigterm_refuses_waiting_requests():
    with Cluster(MODEL, stages=1, flags=[*FLAGS, "--max-sequences", "1"]) as cluster:
        running = cluster.stub.Generate(LONG)
        next(running)
        waiting = cluster.stub.Generate(LONG)
        wait_until(lambda: cluster.stub.GetModel(pb.GetModelRequest()).scheduler.waiting, "a request waits")
        cluster.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as error:
            next(waiting)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert sum(len(message.token_ids) for message in running) == 399
        assert cluster.process.wait(timeout=30) == 0


def test_a_new_request_while_draining_is_unavailable():
    with Cluster(MODEL, stages=1, flags=FLAGS) as cluster:
        stream = cluster.stub.Generate(LONG)
        next(stream)
        cluster.process.send_signal(signal.SIGTERM)
        codes = set()
        for _ in range(10000):
            try:
                list(cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5]),
                                                              sampling=pb.SamplingParams(max_tokens=1)), timeout=30))
            except grpc.RpcError as error:
                codes.add(error.code())
                break
        assert codes == {grpc.StatusCode.UNAVAILABLE}
        list(stream)
        assert cluster.process.wait(timeout=30) == 0  # waits without cluster.stop(), because a second signal would kill it


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_the_error_after_a_lost_stage_names_it(victim):
    """Without recovery, one stage's loss ends the cluster: requests get an error that names it, and nothing stays
    behind."""
    cluster = Cluster(MODEL, stages=3, flags=[*FLAGS, "--recovery-limit", "0"])
    cluster.start()
    stream = cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(
        max_tokens=480, ignore_eos=True, n=64)))
    next(stream)
    workers = [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-work"]
    os.kill(workers[victim], signal.SIGKILL)
    with pytest.raises(grpc.RpcError) as error:
        list(stream)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "stage" in error.value.details()
    assert cluster.process.wait(timeout=30) != 0
    cluster.assert_nothing_left()


@pytest.mark.alone
def test_clients_that_do_not_read_delay_the_end_by_one_grace_period():
    """One client over HTTP and one over gRPC. Each gets a grace period of 10 s, both at the same time: one after the other
    would take 20 s."""
    large = {"prompt": [5] * 8, "ignore_eos": True, "max_tokens": 300, "n": 8, "logprobs": 20, "stream": True}
    body = json.dumps(large).encode()
    head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
    with Cluster(DEMO_MODEL) as cluster, socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = cluster.http.rsplit(":", 1)
        unread.connect((host, int(port)))
        unread.sendall(head.encode() + body)
        stream = cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(
            max_tokens=300, ignore_eos=True, logprobs=20, n=8)))
        next(stream)

        def generated():
            scheduler = cluster.stub.GetModel(pb.GetModelRequest()).scheduler
            return scheduler.steps > 300 and scheduler.running == 0

        wait_until(generated, "all tokens are generated", timeout_s=300)
        began = time.monotonic()
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(timeout=60) == 0
        assert 5 < time.monotonic() - began < 19
        stream.cancel()


def failed_start(*arguments):
    run = subprocess.run([STAGECOACH, "serve", *arguments, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
                          "--metrics", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert run.stdout == ""
    _, cause = run.stderr.split("error:")
    return cause


def test_a_failed_start_names_one_cause(tmp_path):
    assert "nowhere" in failed_start("nowhere/at-all")
    (tmp_path / "config.json").write_text("{}")
    assert "architectures" in failed_start(str(tmp_path))
    assert "99 stages" in failed_start(str(MODEL), "--stages", "99")
    assert "KV" in failed_start(str(MODEL), "--kv-memory", "1")
    assert "--max-model-len" in failed_start(str(MODEL), "--kv-memory", "256KiB", "--max-model-len", "500")


def test_a_port_in_use_is_the_cause():
    with Cluster(MODEL, stages=1, flags=FLAGS) as cluster:
        for taken, address in (("--grpc", cluster.grpc), ("--http", cluster.http), ("--metrics", cluster.metrics)):
            addresses = {"--grpc": "127.0.0.1:0", "--http": "127.0.0.1:0", "--metrics": "127.0.0.1:0", taken: address}
            run = subprocess.run([STAGECOACH, "serve", str(MODEL), *itertools.chain(*addresses.items())],
                                 capture_output=True, text=True, timeout=60)
            assert run.returncode != 0
            # Nothing else: no process was started, no weight read.
            assert re.fullmatch(rf"error: cannot listen on {address} \({taken}\): [^\n]*\n", run.stderr), run.stderr
            router = subprocess.run([BIN_DIR / "stagecoach-router", "--model", str(MODEL), "--stages", "127.0.0.1:1",
                                     *itertools.chain(*addresses.items())], capture_output=True, text=True, timeout=60)
            assert router.returncode == 1 and f"cannot listen on {address} ({taken})" in router.stderr
            assert "127.0.0.1:1:" not in router.stderr  # it does not look for its worker


def test_two_servers_with_one_address_are_refused():
    address = f"127.0.0.1:{free_ports(1)}"
    run = subprocess.run([STAGECOACH, "serve", str(MODEL), "--grpc", address, "--http", address, "--metrics", "127.0.0.1:0"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr == f"error: --grpc and --http are both {address}: give each an address of its own\n"


def test_dummy_weights_need_only_a_config(tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    with Cluster(tmp_path, stages=2, flags=["--load-format", "dummy"]) as cluster:
        tokens = [t for message in cluster.stub.Generate(pb.GenerateRequest(
            text="hello", sampling=pb.SamplingParams(max_tokens=5, ignore_eos=True))) for t in message.token_ids]
        assert len(tokens) == 5


def test_many_streams_at_once():
    """512 open streams; each ends with its own tokens."""
    with Cluster(MODEL, stages=2, flags=FLAGS + ["--max-sequences", "64"]) as cluster:
        streams = [cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5, 6 + i % 100]), sampling=pb.SamplingParams(
            max_tokens=6, temperature=0, ignore_eos=True))) for i in range(512)]
        answers = [tuple(t for message in stream for t in message.token_ids) for stream in streams]
        assert all(len(answer) == 6 for answer in answers)
        assert all(answers[i] == answers[i + 100] for i in range(412))
