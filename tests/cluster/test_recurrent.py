"""Models with recurrent layers: a lost stage's sequences are computed again, and flags that do not go with states are
refused."""
import os
import re
import signal

import pytest
from harness import Cluster
from lost_stages import await_workers
from recovery import Streams, classify, undisturbed
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, golden_cases

MODEL = "qwen3-5"
RESTORED = re.compile(r"the pipeline works again after .* in epoch [0-9]+, (with|without) its KV cache")


def test_streams_outlive_a_killed_stage():
    cases = golden_cases(MODEL)
    requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=cases[i % len(cases)]["prompt_ids"]),
                                   sampling=pb.SamplingParams(max_tokens=200, ignore_eos=True, seed=i, temperature=i % 3 / 2))
                for i in range(12)]
    with Cluster(GOLDEN / MODEL, 2, ["--dtype", "float32"]) as cluster:
        expected = undisturbed(cluster, requests)
        workers = await_workers(cluster)
        with Streams(cluster.grpc, requests) as streams:
            streams.await_messages(3)
            os.kill(workers[1], signal.SIGKILL)
        assert classify(streams.outcomes, expected) == dict(identical=len(requests), error=0, hung=0, different=0)
        assert RESTORED.findall(cluster.log()) == ["without"]


def test_a_server_with_a_kv_tier_does_not_start():
    with pytest.raises(Exception, match="--host-kv, --disk-kv and --kv-store hold keys and values only"):
        with Cluster(GOLDEN / MODEL, 1, ["--host-kv", "16MiB"]):
            pass
