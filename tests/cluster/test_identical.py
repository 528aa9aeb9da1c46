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


def run(model, scenario, kv_dtype):
    flags = ["--dtype", "float32", "--kv-dtype", kv_dtype, *scenario.get("flags", [])]
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

    def get(*key):
        if key not in cache:
            model, kv_dtype = key
            cache[key] = run(model, PLAN["base"], kv_dtype)
        return cache[key]

    return get


@pytest.mark.parametrize("model,scenario", [
    pytest.param(model, scenario, id=f"{model}-{scenario['name']}",
                 marks=() if model in PLAN["kv_layouts"] else pytest.mark.long) for model in MODELS for scenario in PLAN["scenario"]
    if model in PLAN["kv_layouts"] or scenario.get("every_model")])
def test_identical(model, scenario, base):
    check(model, scenario, "auto", base)


@pytest.mark.parametrize("scenario", [scenario for scenario in PLAN["scenario"] if scenario.get("fp8_kv")],
                         ids=lambda scenario: scenario["name"])
def test_identical_with_an_fp8_cache(scenario, base):
    check(PLAN["fp8_kv_model"], scenario, "fp8", base)
    assert base(PLAN["fp8_kv_model"], "fp8") != base(PLAN["fp8_kv_model"], "auto"), "the cache is not FP8"


def check(model, scenario, kv_dtype, base):
    expected = base(model, kv_dtype)
    answers = run(model, scenario, kv_dtype)
    for i, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
        assert ours == theirs, f"request {i}"
