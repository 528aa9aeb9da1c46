"""Quantized weights in real processes: made at load, read from a copy, counted in `/status` and the metrics."""
import json
import re
import subprocess
import urllib.request

import pytest
from harness import BIN_DIR, DEMO_MODEL, Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, golden_cases

PROMPTS = ("When does the next coach leave from Greywell to Elmstead after 12:00 on Sunday?", "Who founded the line?",
           "What does a ticket from Juniper to Inkwell cost?")
FORMATS = {"fp8": "FP8", "int8": "INT8 in groups of 128", "int4": "INT4 in groups of 128"}


def answers(cluster):
    """Token ids of all prompts, side by side."""
    calls = [cluster.stub.Chat(pb.ChatRequest(messages=[pb.ChatMessage(role="user", content=prompt)],
                                              sampling=pb.SamplingParams(max_tokens=40, temperature=0))) for prompt in PROMPTS]
    return [[token for message in call for token in message.token_ids] for call in calls]


def page(address, path):
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{address}{path}").read().decode()


def weights(cluster):
    """{encoding: bytes} of each stage. The metrics say the same."""
    by_stage = [stage["weights"] for stage in json.loads(page(cluster.http, "/status"))["stages"]]
    for labels, value in re.findall(r"^stagecoach_stage_weights_bytes\{(.*)\} (\S+)$", page(cluster.metrics, "/metrics"), re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert by_stage[int(of["stage"])][of["encoding"]] == float(value)
    return by_stage


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_gives_the_tokens_of_quantize_at_load(tmp_path, form):
    copy = tmp_path / "copy"
    said = subprocess.run([BIN_DIR / "stagecoach", "quantize", DEMO_MODEL, copy, "--format", form], capture_output=True, text=True)
    assert said.returncode == 0 and "56 matrices quantized" in said.stdout, said.stdout + said.stderr
    with Cluster(DEMO_MODEL, 2, ["--quantize", form]) as cluster:
        expected = answers(cluster)
        held = weights(cluster)
        assert all(FORMATS[form] in stage for stage in held), held
    with Cluster(copy) as cluster:
        assert answers(cluster) == expected
        stage, = weights(cluster)
        assert FORMATS[form] in stage and sum(stage.values()) < 0.6 * (DEMO_MODEL / "model.safetensors").stat().st_size


def test_a_copy_leaves_what_quantize_at_load_leaves(tmp_path):
    """Gate and up of this model's shared expert have rows that no quantized matrix can hold side by side."""
    def tokens(cluster):
        calls = [cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=case["prompt_ids"]),
                                                          sampling=pb.SamplingParams(max_tokens=20, temperature=0)))
                 for case in golden_cases("qwen3-next")]
        return [[token for message in call for token in message.token_ids] for call in calls]

    copy = tmp_path / "copy"
    subprocess.run([BIN_DIR / "stagecoach", "quantize", GOLDEN / "qwen3-next", copy, "--format", "int4"], check=True)
    with Cluster(GOLDEN / "qwen3-next", flags=["--quantize", "int4"]) as cluster:
        expected = tokens(cluster)
    with Cluster(copy) as cluster:
        assert tokens(cluster) == expected


def test_what_does_not_fit_is_refused_at_once(tmp_path):
    def error(*command):
        said = subprocess.run([BIN_DIR / "stagecoach", *command], capture_output=True, text=True, timeout=60)
        assert said.returncode != 0
        return said.stdout + said.stderr

    assert "--quantize and --dtype" in error("serve", DEMO_MODEL, "--quantize", "int4", "--dtype", "bfloat16")
    subprocess.run([BIN_DIR / "stagecoach", "quantize", DEMO_MODEL, tmp_path / "copy", "--format", "int8"], check=True)
    assert "quantized already" in error("serve", tmp_path / "copy", "--quantize", "int4")
