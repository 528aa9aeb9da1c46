"""Hidden states that travel as bfloat16, in real processes: half the bytes, and the same tokens for one number of stages."""
import asyncio
import re
import urllib.request

import pytest
from harness import DEMO_MODEL, Cluster
from lost_stages import FAULTS
from recovery import TOOLS_TEMPLATE, requests, undisturbed
from stagecoach.v1 import inference_pb2 as pb
from test_recovery import assert_recovers
from workload import GOLDEN, golden_cases, mixed_requests, run_all

MODEL = "gemma3"
BFLOAT16 = ["--hidden-dtype", "bfloat16"]
ONE_AT_A_TIME = ["--plan-ahead", "off", "--prefix-cache", "off"]
N_REQUESTS = 24


def run(all_requests, stages, concurrency, *flags):
    """The answers, and the bytes of hidden states that stages have sent."""
    with Cluster(GOLDEN / MODEL, stages=stages, flags=["--dtype", "float32", *flags]) as cluster:
        answers = asyncio.run(run_all(cluster.grpc, all_requests, concurrency))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        page = opener.open(f"http://{cluster.metrics}/metrics").read().decode()
        name = r'stagecoach_stage_channel_bytes_total\{(?=.*channel="hidden")(?=.*direction="sent").*\}'
        sent = sum(int(float(value)) for value in re.findall(rf"^{name} (\S+)$", page, re.M))
        told = opener.open(f"http://{cluster.http}/status").read().decode()
        assert ('"hidden_dtype":"bfloat16"' in told) == ("bfloat16" in flags)
        return answers, sent


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_half_the_bytes_travel(stages):
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=golden_cases(MODEL)[0]["prompt_ids"]),
                                 sampling=pb.SamplingParams(max_tokens=9, temperature=0, ignore_eos=True, logprobs=1))
    (wide,), of_wide = run([request], stages, 1, *ONE_AT_A_TIME)
    (narrow,), of_narrow = run([request], stages, 1, *ONE_AT_A_TIME, *BFLOAT16)
    assert of_wide == 2 * of_narrow
    assert (of_narrow > 0) == (wide != narrow) == (stages > 1)


@pytest.mark.parametrize("stages", [2, 4])
def test_the_same_tokens_alone_in_batches_in_chunks_and_after_preemption(stages):
    all_requests = mixed_requests(MODEL, N_REQUESTS)
    alone, _ = run(all_requests, stages, 1, *BFLOAT16, *ONE_AT_A_TIME)
    for concurrency, flags in ((N_REQUESTS, ["--prefill-chunk", "7"]), (8, ["--preempt-every", "5"])):
        answers, _ = run(all_requests, stages, concurrency, *BFLOAT16, *flags)
        for i, (ours, theirs) in enumerate(zip(answers, alone, strict=True)):
            assert ours == theirs, f"request {i} with {flags}"


def test_the_same_tokens_after_the_loss_of_a_stage():
    with Cluster(DEMO_MODEL, 2, [*BFLOAT16, "--stall-limit", "2", "--chat-template", TOOLS_TEMPLATE]) as cluster:
        all_requests = requests(N_REQUESTS, 200)
        assert_recovers(cluster, all_requests, undisturbed(cluster, all_requests), lambda: FAULTS["kill"](cluster, 1),
                        lambda streams: streams.await_messages(3))


def test_refused_with_batch_invariant():
    with pytest.raises(AssertionError, match="--batch-invariant says that they do not: leave one of the two out"):
        Cluster(GOLDEN / MODEL, 2, ["--batch-invariant", *BFLOAT16]).start()
