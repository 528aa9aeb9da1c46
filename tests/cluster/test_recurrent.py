"""Models with recurrent layers: a lost stage's sequences are computed again, and the tiers below the device keep states
with the blocks before them."""
import os
import re
import signal

import pytest
from harness import Cluster, wait_until
from kv_metrics import kv_blocks
from lost_stages import await_workers
from recovery import Streams, classify, undisturbed
from stagecoach.v1 import inference_pb2 as pb
from test_prefix_cache import BLOCK, FLAGS, ask, random_ids, request
from workload import GOLDEN, golden_cases

MODEL = "qwen3-5"
PROMPT = random_ids(12 * BLOCK + 5, 1)
END_OF_PROMPT = 12 * BLOCK  # where its state is saved
ANSWER = 80
RESTORED = re.compile(r"the pipeline works again after .* in epoch [0-9]+, (with|without) its KV cache")


def kill_a_stage_of_two(flags, requests):
    """Every stream gives the tokens that it gives undisturbed. Returns how the pipeline was restored, from its log."""
    with Cluster(GOLDEN / MODEL, 2, [*FLAGS, *flags]) as cluster:
        expected = undisturbed(cluster, requests)
        workers = await_workers(cluster)
        with Streams(cluster.grpc, requests) as streams:
            streams.await_messages(3)
            os.kill(workers[1], signal.SIGKILL)
        assert classify(streams.outcomes, expected) == dict(identical=len(requests), error=0, hung=0, different=0)
        return RESTORED.findall(cluster.log())


def test_streams_outlive_a_killed_stage():
    cases = golden_cases(MODEL)
    requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=cases[i % len(cases)]["prompt_ids"]),
                                   sampling=pb.SamplingParams(max_tokens=200, ignore_eos=True, seed=i, temperature=i % 3 / 2))
                for i in range(12)]
    assert kill_a_stage_of_two([], requests) == ["without"]


# The first stage of two has no layer with attention in nemotron-h.
@pytest.mark.parametrize("model", ["qwen3-5", "nemotron-h"])
@pytest.mark.parametrize("stages, other_stages", [(1, 2), (2, 1)])
def test_another_server_goes_on_from_a_stored_state(model, stages, other_stages, tmp_path):
    flags = [*FLAGS, "--kv-store", f"dir:{tmp_path}", "--host-kv", "16MiB"]
    with Cluster(GOLDEN / model, stages=stages, flags=flags) as server:
        answer = ask(server.stub, request(PROMPT, max_tokens=ANSWER))
        # A worker that ends saves what is queued.
    next_turn = [*PROMPT, *answer[0], *random_ids(20, 2)]
    with Cluster(GOLDEN / model, stages=1, flags=[*FLAGS, "--prefix-cache", "off"]) as plain:
        expected = [ask(plain.stub, asked)[:2] for asked in (request(PROMPT), request(next_turn))]
    with Cluster(GOLDEN / model, stages=other_stages, flags=flags) as other:
        again, turn = ask(other.stub, request(PROMPT)), ask(other.stub, request(next_turn))
    assert [again[:2], turn[:2]] == expected
    assert again[2] == END_OF_PROMPT
    assert turn[2] == (len(PROMPT) + ANSWER - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("tier", ["--host-kv", "--disk-kv"])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_tier_keeps_states_that_the_device_has_no_room_for(tier, stages, tmp_path):
    """The device has room for one prompt's blocks, so each prompt removes the one before."""
    def flags(stages, *more):
        return [*FLAGS, "--max-model-len", 256, "--max-sequences", 1, "--kv-memory", f"{620 // stages}KiB", *more]

    prompts = [random_ids(len(PROMPT), i) for i in range(5)]
    with Cluster(GOLDEN / MODEL, stages=stages, flags=flags(stages)) as plain:
        answers = [ask(plain.stub, request(prompt)) for prompt in prompts]
        assert ask(plain.stub, request(prompts[0]))[2] == 0, "the device still has the first one"
    value = "64MiB" if tier == "--host-kv" else f"{tmp_path}:64MiB"
    with Cluster(GOLDEN / MODEL, stages=stages, flags=flags(stages, tier, value)) as server:
        assert [ask(server.stub, request(prompt)) for prompt in prompts] == answers
        wait_until(lambda: kv_blocks(server)["in_host"] >= len(prompts) * END_OF_PROMPT // BLOCK * stages, "the blocks in host memory")
        if tier == "--disk-kv":
            wait_until(lambda: kv_blocks(server)["waiting"] == 0, "nothing to save")
        for prompt, answer in zip(prompts, answers, strict=True):
            again = ask(server.stub, request(prompt))
            assert again[:2] == answer[:2]
            assert again[2] == END_OF_PROMPT
        assert kv_blocks(server)["states_fetched"] >= len(prompts) * stages
    if tier == "--host-kv":
        return
    with Cluster(GOLDEN / MODEL, stages=3 - stages, flags=flags(3 - stages, tier, value)) as restarted:
        assert ask(restarted.stub, request(prompts[-1]))[2] == END_OF_PROMPT


def test_streams_that_a_tier_keeps_outlive_a_killed_stage():
    cases = golden_cases(MODEL)
    requests = [pb.GenerateRequest(tokens=pb.TokenIds(ids=(cases[i % len(cases)]["prompt_ids"] * 9)[:150 + i]),
                                   sampling=pb.SamplingParams(max_tokens=100, ignore_eos=True, seed=i, temperature=i % 3 / 2))
                for i in range(8)]
    kill_a_stage_of_two(["--host-kv", "64MiB", "--max-sequences", 4], requests)
