"""A mixed load of requests, and answers that can be compared bit by bit."""
import asyncio
import dataclasses
import json
import math
import os
import pathlib
import random

import grpc
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc

GOLDEN = pathlib.Path(os.environ.get("STAGECOACH_GOLDEN_DIR", pathlib.Path(__file__).parents[1] / "golden" / "data"))

MAX_PROMPT = 200  # together with the generated tokens well below the smallest context of scenarios.toml


def golden_cases(model):
    return json.loads((GOLDEN / model / "golden.json").read_text())["cases"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Everything that a stream reports about one choice. Floats are compared for equality, because a row's result does
    not depend on its neighbours."""
    token_ids: tuple
    text: str
    finish_reason: int
    logprobs: tuple
    prompt_logprobs: tuple


def logprob_tuple(positions):
    return tuple((p.chosen.token_id, p.chosen.logprob, tuple((t.token_id, t.logprob) for t in p.top)) for p in positions)


async def generate(stub, request):
    """The answers to a Generate request, by choice index."""
    parts = {}
    prompt_logprobs = ()
    async for message in stub.Generate(request):
        if message.HasField("prompt"):
            prompt_logprobs = logprob_tuple(message.prompt.logprobs)
        part = parts.setdefault(message.index, [[], "", 0, []])
        part[0] += message.token_ids
        part[1] += message.text
        part[2] = message.finish_reason or part[2]
        part[3] += logprob_tuple(message.logprobs)
    return [Answer(tuple(p[0]), p[1], p[2], tuple(p[3]), prompt_logprobs) for _, p in sorted(parts.items())]


def mixed_requests(model, n, seed=1):
    """n requests over the golden prompts: greedy and sampled, with penalties, bias and logprobs, short and long."""
    rng = random.Random(seed)
    cases = golden_cases(model)
    requests = []
    for i in range(n):
        case = cases[i % len(cases)]
        ids = (case["prompt_ids"] * (1 + i % 3))[:MAX_PROMPT]
        sampling = pb.SamplingParams(max_tokens=8 + rng.randrange(24), temperature=0.0 if i % 3 == 0 else 0.5 + rng.random(),
                                     seed=rng.randrange(2**63), ignore_eos=i % 2 == 0)
        if i % 4 == 1:
            sampling.top_k, sampling.top_p, sampling.min_p = 20, 0.9, 0.01
        if i % 4 == 2:
            sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty = 0.5, 0.3, 1.2
        if i % 5 == 3:
            sampling.logit_bias[7], sampling.logit_bias[9] = 5.0, -5.0
        if i % 3 == 0:
            sampling.logprobs = 3
        if i % 7 == 0:
            sampling.prompt_logprobs = 2
        requests.append(pb.GenerateRequest(tokens=pb.TokenIds(ids=ids), sampling=sampling, priority=rng.randrange(3)))
    return requests


async def run_all(address, requests, concurrency):
    """Returns the answers in the order of the requests; runs at most `concurrency` streams at a time."""
    gate = asyncio.Semaphore(concurrency)
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.InferenceStub(channel)

        async def one(request):
            async with gate:
                return await generate(stub, request)

        return await asyncio.gather(*(one(request) for request in requests))


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def kv_bytes(model, stages, blocks):
    """Memory for about `blocks` blocks on the stage with the most layers."""
    config = json.loads((GOLDEN / model / "config.json").read_text())
    config = config.get("text_config", config)

    def size(*keys):
        return next((config[key] for key in keys if config.get(key)), None)

    query_heads = size("num_attention_heads", "n_head")
    heads = size("num_key_value_heads") or query_heads
    head_dim = size("head_dim") or size("hidden_size", "n_embd") // query_heads
    n_layers = size("num_hidden_layers", "n_layer") or len(config["layers_block_type"])
    of_layers = config.get("per_layer_config", {})
    widths = []
    for i in range(n_layers - config.get("num_kv_shared_layers", 0)):
        layer = {"num_key_value_heads": heads, "head_dim": head_dim, **of_layers.get(str(i), {})}
        widths.append(layer["num_key_value_heads"] * layer["head_dim"])
    widest = sorted(widths, reverse=True)[: -(-n_layers // stages)]
    return blocks * 16 * 2 * 4 * sum(widest)


def free_blocks(stub):
    """[(window, free, total)] by KV group, as the router counts them."""
    kv = stub.GetModel(pb.GetModelRequest()).kv
    return [(group.window, group.free_blocks, group.total_blocks) for group in kv.groups]
