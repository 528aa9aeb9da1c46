"""The same requests give bit-identical results, however they are scheduled (scenarios.toml)."""
import asyncio
import pathlib

import pytest
import tomllib
from harness import Cluster
from workload import GOLDEN, free_blocks, kv_bytes, mixed_requests, run_all

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


@pytest.fixture(scope="module")
def base(request):
    cache = {}

    def get(model):
        if model not in cache:
            cache[model] = run(model, PLAN["base"])
        return cache[model]

    return get


@pytest.mark.parametrize("model,scenario", [
    pytest.param(model, scenario, id=f"{model}-{scenario['name']}",
                 marks=() if model in PLAN["kv_layouts"] else pytest.mark.long) for model in MODELS for scenario in PLAN["scenario"]
    if model in PLAN["kv_layouts"] or scenario.get("every_model")])
def test_identical(model, scenario, base):
    expected = base(model)
    answers = run(model, scenario)
    for i, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
        assert ours == theirs, f"request {i}"
