"""Through a cluster of two stages, the demo model answers its held-out samples exactly."""
import json

import pytest
from harness import DEMO_MODEL, Cluster
from stagecoach.v1 import inference_pb2 as pb

SAMPLES = [json.loads(line) for line in (DEMO_MODEL / "samples.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(DEMO_MODEL, stages=2, flags=["--dtype", "float32"]) as cluster:
        yield cluster


def test_samples(cluster):
    streams = [cluster.stub.Chat(pb.ChatRequest(messages=[pb.ChatMessage(**m) for m in sample["messages"]],
                                                sampling=pb.SamplingParams(temperature=0))) for sample in SAMPLES]
    answers = ["".join(message.text for message in stream) for stream in streams]
    assert answers == [sample["answer"] for sample in SAMPLES]
