"""grpcurl has none of our .proto files: it gets all it needs from the server's reflection service."""
import json
import os
import shutil
import subprocess

import pytest
from harness import protos

GRPCURL = shutil.which("grpcurl", path=f"{protos.ROOT / 'build' / 'tools'}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(GRPCURL is None, reason="no grpcurl: tests/run.sh builds it where Go is to be had")


def grpcurl(*arguments):
    run = subprocess.run([GRPCURL, "-plaintext", *arguments], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


def objects(text):
    """The consecutive JSON objects in `text`."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def test_health(cluster):
    answer = grpcurl("-d", '{"service": "stagecoach.v1.Inference"}', cluster.grpc, "grpc.health.v1.Health/Check")
    assert json.loads(answer) == {"status": "SERVING"}


def test_reflection(cluster):
    services = grpcurl(cluster.grpc, "list").split()
    assert {"stagecoach.v1.Inference", "grpc.health.v1.Health"} <= set(services)
    description = grpcurl(cluster.grpc, "describe", "stagecoach.v1.SamplingParams")
    assert "temperature" in description


def test_streaming(cluster):
    request = {"messages": [{"role": "user", "content": "Hello!"}], "sampling": {"temperature": 0, "max_tokens": 12}}
    messages = objects(grpcurl("-d", json.dumps(request), cluster.grpc, "stagecoach.v1.Inference/Chat"))
    assert len(messages) > 1
    assert "".join(message.get("text", "") for message in messages)
    (finish_reason,) = [message["finish_reason"] for message in messages if "finish_reason" in message]
    assert finish_reason in ("FINISH_REASON_STOP", "FINISH_REASON_LENGTH")
    assert messages[-1]["usage"]["completion_tokens"] > 0


def test_errors_have_a_code(cluster):
    run = subprocess.run([GRPCURL, "-plaintext", "-d", '{"text": "a", "sampling": {"temperature": -1}}', cluster.grpc,
                          "stagecoach.v1.Inference/Generate"], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    assert "InvalidArgument" in run.stderr
    assert "temperature" in run.stderr
