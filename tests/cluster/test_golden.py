"""Golden models through the whole cluster in float32: the same tokens as the reference implementation, except at its
ties."""
import asyncio

import pytest
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, golden_cases, log_softmax, run_all

MODELS = sorted(path.parent.name for path in GOLDEN.glob("*/golden.json"))
TOLERANCE = 1e-3


# golden_test has every model at 1, 2 and 4 stages in one process.
@pytest.mark.parametrize("model,stages", [(model, stages) for model in MODELS for stages in ((1, 2, 4) if model == "gemma3" else (2,))])
def test_golden(model, stages):
    cases = golden_cases(model)
    vocab = len(cases[0]["logits"])
    with Cluster(GOLDEN / model, stages=stages, flags=["--dtype", "float32", "--max-logprobs", str(vocab)]) as cluster:
        requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=case["prompt_ids"]), sampling=pb.SamplingParams(
            temperature=0, max_tokens=len(case["greedy_ids"]), ignore_eos=True, logprobs=vocab, prompt_logprobs=0))
            for case in cases]
        answers = asyncio.run(run_all(cluster.grpc, requests, len(requests)))
    for case, (answer,) in zip(cases, answers, strict=True):
        expected = log_softmax(case["logits"])
        first = dict(answer.logprobs[0][2])
        assert len(first) == vocab
        assert max(abs(first[i] - expected[i]) for i in range(vocab)) < TOLERANCE
        assert len(answer.prompt_logprobs) == len(case["prompt_ids"]) - 1
        for ours, theirs in zip(answer.prompt_logprobs, case["prompt_logprobs"][1:], strict=True):
            assert abs(ours[1] - theirs) < TOLERANCE
        for at, token in enumerate(case["greedy_ids"]):
            logprob, margin = case["greedy_logprob_and_margin"][at]
            if margin <= TOLERANCE:
                break  # either token is right, and the following tokens depend on it
            assert answer.token_ids[at] == token, f"token {at} of {case['text']!r}"
            assert abs(answer.logprobs[at][1] - logprob) < TOLERANCE
