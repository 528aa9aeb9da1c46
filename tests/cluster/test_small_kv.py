"""131 prompts of 2,040 tokens at the same time with KV memory for only a few: all finish with the tokens that each gets
alone."""
import asyncio
import random

import pytest
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, free_blocks, run_all

N_REQUESTS = 131
N_PROMPT = 2040
KV_MEMORY = "12MiB"
FLAGS = ["--dtype", "float32", "--kv-memory", KV_MEMORY]
N_CHECKED_ALONE = 8


def requests():
    rng = random.Random(2040)
    return [pb.GenerateRequest(tokens=pb.TokenIds(ids=[rng.randrange(4, 250) for _ in range(N_PROMPT)]),
                               sampling=pb.SamplingParams(temperature=0, max_tokens=4 + i % 5, ignore_eos=True))
            for i in range(N_REQUESTS)]


@pytest.fixture(scope="module")
def alone():
    with Cluster(GOLDEN / "opt", stages=1, flags=["--dtype", "float32", "--plan-ahead", "off"]) as cluster:
        return asyncio.run(run_all(cluster.grpc, requests()[:N_CHECKED_ALONE], 1))


@pytest.fixture(scope="module")
def answers_by_stages():
    return {}


@pytest.mark.parametrize("stages", [*(pytest.param(stages, marks=pytest.mark.long) for stages in (1, 2)), 4])
def test_all_requests_finish(stages, alone, answers_by_stages):
    with Cluster(GOLDEN / "opt", stages=stages, flags=FLAGS) as cluster:
        answers = asyncio.run(run_all(cluster.grpc, requests(), N_REQUESTS))
        assert all(free == total for _, free, total in free_blocks(cluster.stub))
        blocks = cluster.kv_blocks
    assert all(len(answer[0].token_ids) == 4 + i % 5 for i, answer in enumerate(answers))
    assert answers[:N_CHECKED_ALONE] == alone
    # The KV cache grows with the number of stages, because each stage holds fewer layers in the same memory.
    for fewer, (fewer_blocks, fewer_answers) in answers_by_stages.items():
        assert blocks >= fewer_blocks * (stages // fewer)
        assert answers == fewer_answers
    answers_by_stages[stages] = (blocks, answers)
