"""Requests that want too much memory: the router stays below 1 GiB, and other clients' streams go on.

tests/bench/bombs.py sends the same requests, and more of them, and measures.
"""
import concurrent.futures
import json
import pathlib
import re
import shutil

import grpc
import httpx
import pytest
from harness import DEMO_MODEL, Cluster, children_of
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc

BOUND_BYTES = 1 << 30
WORDS = "The next train leaves at noon. "


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The demo model with a longer context. It refuses texts of 15 MB by their length, texts of 3 MB only by their tokens."""
    model = tmp_path_factory.mktemp("model") / "demo-model"
    shutil.copytree(DEMO_MODEL, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 262_144}))
    with Cluster(model, flags=["--kv-memory", "2GiB"]) as cluster:
        yield cluster


@pytest.fixture
def router(cluster):
    """The router's process. Afterwards: it still answers, and has never had more than the bound."""
    pid = [pid for pid, name in children_of(cluster.process.pid) if name.startswith("stagecoach-rout")][0]
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
    yield pid
    answer = httpx.post(f"http://{cluster.http}/v1/completions", json={"prompt": "The next", "max_tokens": 4}, timeout=60)
    assert answer.status_code == 200
    most = int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024
    assert most < BOUND_BYTES, f"{most >> 20} MiB"


def together(n, call):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(call, range(n)))


def complete(cluster, **fields):
    body = {"prompt": "The next", "max_tokens": 4, "ignore_eos": True, **fields}
    return httpx.post(f"http://{cluster.http}/v1/completions", json=body, timeout=300)


def test_long_prompts(cluster, router):
    """Prompts are refused if tokenizing them would need too much memory; the server never fails."""
    answers = together(12, lambda i: complete(cluster, prompt=f"{i} " + WORDS * (15_000_000 // len(WORDS))))
    assert {answer.status_code for answer in answers} <= {400, 429, 503}
    assert any("context length" in answer.text or "--request-memory" in answer.text for answer in answers)
    answers = together(12, lambda i: complete(cluster, prompt=f"{i} " + WORDS * (3_000_000 // len(WORDS)), max_tokens=1))
    assert {answer.status_code for answer in answers} <= {200, 400, 429, 503}


def test_long_prompts_over_grpc(cluster, router):
    text = WORDS * (15_900_000 // len(WORDS))
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]

    def ask(i):
        with grpc.insecure_channel(cluster.grpc, options=options) as channel:
            request = pb.GenerateRequest(text=f"{i} {text}", sampling=pb.SamplingParams(max_tokens=1))
            with pytest.raises(grpc.RpcError) as error:
                list(pb_grpc.InferenceStub(channel).Generate(request, timeout=300))
            return error.value.code()

    assert set(together(24, ask)) <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_whole_answers_with_log_probabilities(cluster, router):
    """A whole answer with log-probabilities can exceed the memory limit; the same answer as a stream does not."""
    large = {"n": 64, "max_tokens": 1000, "logprobs": 20}
    refused = complete(cluster, **large)
    assert refused.status_code == 400
    assert "ask for a stream" in refused.json()["error"]["message"]
    body = {"prompt": "The next", "ignore_eos": True, "stream": True, **large}
    n_chunks = 0
    with httpx.stream("POST", f"http://{cluster.http}/v1/completions", json=body, timeout=300) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            n_chunks += line.startswith("data: ")
            if n_chunks == 2000:
                break
    assert n_chunks == 2000
