"""The same requests give the same tokens, bit by bit, however they are scheduled (scenarios.toml)."""
import asyncio
import pathlib
import tomllib

import pytest
from harness import Cluster
from workload import GOLDEN, free_blocks, mixed_requests, run_all

PLAN = tomllib.loads((pathlib.Path(__file__).parent / "scenarios.toml").read_text())
MODELS = sorted(path.parent.name for path in GOLDEN.glob("*/golden.json"))
N_REQUESTS = 64


def run(model, scenario):
    flags = ["--dtype", "float32", *scenario.get("flags", [])]
    if "kv_blocks" in scenario:
        flags += ["--kv-memory", str(kv_bytes(model, scenario["stages"], scenario["kv_blocks"]))]
    with Cluster(GOLDEN / model, stages=scenario["stages"], flags=flags) as cluster:
        answers = asyncio.run(run_all(cluster.grpc, mixed_requests(model, N_REQUESTS), scenario["concurrency"]))
        for window, free, total in free_blocks(cluster.stub):
            assert free == total, f"blocks of the group with window {window} were not returned"
        return answers


def kv_bytes(model, stages, blocks):
    """Memory for about `blocks` blocks on the stage with the most layers."""
    import json
    config = json.loads((GOLDEN / model / "config.json").read_text())

    def size(*keys):
        return next((config[key] for key in keys if config.get(key)), None)

    query_heads = size("num_attention_heads", "n_head")
    heads = size("num_key_value_heads") or query_heads
    head_dim = size("head_dim") or size("hidden_size", "n_embd") // query_heads
    layers = -(-size("num_hidden_layers", "n_layer") // stages)
    return blocks * 16 * 2 * heads * head_dim * 4 * layers


@pytest.fixture(scope="module")
def base(request):
    cache = {}

    def get(model):
        if model not in cache:
            cache[model] = run(model, PLAN["base"])
        return cache[model]

    return get


@pytest.mark.parametrize("scenario", PLAN["scenario"], ids=lambda scenario: scenario["name"])
@pytest.mark.parametrize("model", MODELS)
def test_identical(model, scenario, base):
    expected = base(model)
    answers = run(model, scenario)
    for i, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
        assert ours == theirs, f"request {i}"
