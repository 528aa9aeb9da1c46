"""Prompts with the prefix of earlier ones: less is computed, and the answers are bit-identical."""
import asyncio
import random
import urllib.request

import grpc
import pytest
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from workload import GOLDEN, free_blocks, kv_bytes, run_all

BLOCK = 16
FLAGS = ["--dtype", "float32"]


def random_ids(n, seed):
    rng = random.Random(seed)
    return [rng.randrange(4, 250) for _ in range(n)]


def request(ids, max_tokens=8, salt="", **sampling):
    return pb.GenerateRequest(tokens=pb.TokenIds(ids=ids), cache_salt=salt,
                              sampling=pb.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True,
                                                         logprobs=2, **sampling))


def ask(stub, asked):
    """Returns the tokens, their log-probabilities and the number of cached prompt tokens."""
    messages = list(stub.Generate(asked))
    ids = [id for message in messages for id in message.token_ids]
    logprobs = [p.chosen.logprob for message in messages for p in message.logprobs]
    return ids, logprobs, messages[-1].usage.cached_tokens


def metric(cluster, name):
    page = urllib.request.urlopen(f"http://{cluster.metrics}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{"))


def conversation(stub, turns):
    """[(answer, log-probabilities, cached tokens, prompt length)] per turn; each prompt repeats the whole conversation
    and adds to it."""
    said = []
    answers = []
    for turn in range(turns):
        said += random_ids(50, turn)
        ids, logprobs, cached = ask(stub, request(said, max_tokens=21))
        answers.append((ids, logprobs, cached, len(said)))
        said += ids
    return answers


# Full attention; a window shorter than a turn in some layers; the same in all layers; recurrent layers.
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("model", ["opt", "gemma3", "mistral-window", "qwen3-5"])
def test_conversation(model, stages):
    with Cluster(GOLDEN / model, stages=stages, flags=[*FLAGS, "--prefix-cache", "off"]) as cluster:
        computed = conversation(cluster.stub, 5)
        assert metric(cluster, "vllm:prefix_cache_queries_total") == 0
    with Cluster(GOLDEN / model, stages=stages, flags=FLAGS) as cluster:
        answers = conversation(cluster.stub, 5)
        hits = metric(cluster, "vllm:prefix_cache_hits_total")
        n_computed = metric(cluster, "vllm:prompt_tokens_total")
        assert all(free == total for _, free, total in free_blocks(cluster.stub))
    assert [a[:2] for a in answers] == [c[:2] for c in computed]
    assert [c[2] for c in computed] == [0] * 5
    # The conversation before the turn in whole blocks, without its last token, which has no KV yet.
    n_before = [0] + [length + 21 for *_, length in answers[:-1]]
    assert [a[2] for a in answers] == [max(0, n - 1) // BLOCK * BLOCK for n in n_before]
    assert hits == sum(a[2] for a in answers)
    assert n_computed == sum(length for *_, length in answers) - hits


def test_the_same_prompt_again_computes_its_last_block():
    with Cluster(GOLDEN / "opt", flags=FLAGS) as cluster:
        prompt = random_ids(10 * BLOCK, 1)
        first = ask(cluster.stub, request(prompt))
        again = ask(cluster.stub, request(prompt))
        assert first[:2] == again[:2]
        assert (first[2], again[2]) == (0, 9 * BLOCK)
        # A prompt's log-probabilities need all its positions to be computed.
        with_logprobs = list(cluster.stub.Generate(request(prompt, prompt_logprobs=1)))
        assert with_logprobs[-1].usage.cached_tokens == 0
        assert len(with_logprobs[0].prompt.logprobs) == len(prompt) - 1


def test_choices_share_their_prompt():
    with Cluster(GOLDEN / "opt", flags=FLAGS) as cluster:
        list(cluster.stub.Generate(request(random_ids(100, 4), n=4)))
        assert metric(cluster, "vllm:prompt_tokens_total") == 100 + 3 * 4


def test_different_salts_share_no_prefix():
    with Cluster(GOLDEN / "opt", flags=FLAGS) as cluster:
        prompt = random_ids(100, 2)
        assert [ask(cluster.stub, request(prompt, salt=salt))[2] for salt in ("a", "b", "", "a", "b", "")] == \
            [0, 0, 0, 96, 96, 96]


def test_many_prompts_with_a_common_prefix_store_it_once():
    """There are 24 prompts of 1,100 tokens. KV memory holds fewer than three of them, but their first 1,024 tokens are
    the same."""
    n, common = 24, random_ids(1024, 3)
    requests = [request(common + random_ids(76, 100 + i), max_tokens=20) for i in range(n)]
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--prefix-cache", "off"]) as cluster:
        expected = asyncio.run(run_all(cluster.grpc, requests, 1))
    blocks_a_sequence = -(-(1100 + 20) // BLOCK)
    kv_memory = kv_bytes("opt", 1, blocks_a_sequence * 3 - 1)
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--kv-memory", str(kv_memory), "--max-model-len", "1200"]) as cluster:
        assert cluster.kv_blocks < 3 * blocks_a_sequence
        ask(cluster.stub, request(common, max_tokens=1))
        answers, most_running = asyncio.run(watched(cluster, requests))
    assert answers == expected
    assert most_running > 4


async def watched(cluster, requests):
    """Returns the answers and the largest number of sequences seen running at a time."""
    most = 0
    answers = asyncio.ensure_future(run_all(cluster.grpc, requests, len(requests)))
    async with grpc.aio.insecure_channel(cluster.grpc) as channel:
        stub = pb_grpc.InferenceStub(channel)
        while not answers.done():
            most = max(most, (await stub.GetModel(pb.GetModelRequest())).scheduler.running)
    return await answers, most
