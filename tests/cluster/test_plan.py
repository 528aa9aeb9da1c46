"""`stagecoach plan` and a server report the same numbers for the same KV memory."""
import json
import shutil
import subprocess

import pytest
from harness import STAGECOACH, Cluster
from protos import ROOT
from workload import GOLDEN


def plan(model, *flags):
    return json.loads(subprocess.run([STAGECOACH, "plan", str(model), "--json", *flags],
                                     check=True, capture_output=True, text=True).stdout)


# Sliding windows mixed with full attention, windows only, experts, recurrent layers, and one kind of layer.
@pytest.mark.parametrize("model", ["gemma2", "gemma3", "mistral-window", "mixtral", "qwen3-next", "llama3"])
@pytest.mark.parametrize("stages, kv_dtype, prefix_cache", [(1, "auto", "on"), (2, "fp8", "off")])
def test_the_plan_has_as_many_blocks_as_the_server(model, stages, kv_dtype, prefix_cache):
    flags = ["--kv-memory", "2MiB", "--kv-dtype", kv_dtype, "--prefix-cache", prefix_cache,
             "--max-sequences", "6", "--max-batched-tokens", "64"]
    with Cluster(GOLDEN / model, stages=stages, flags=flags) as cluster:
        served = cluster.kv_blocks
    planned = plan(GOLDEN / model, "--stages", str(stages), *flags)
    assert planned["kv_blocks"] == served
    assert planned["kv_tokens"] == 16 * served


def test_a_model_that_gpus_cannot_run_is_refused(tmp_path):
    config = json.loads((ROOT / "docs" / "shapes" / "qwen3-next-80b-a3b" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "linear_key_head_dim": 512}))
    done = subprocess.run([STAGECOACH, "plan", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Qwen3NextForCausalLM" in done.stderr and "runs on CPUs only" in done.stderr


def test_a_prompt_that_fills_the_context_is_refused():
    command = [STAGECOACH, "plan", ROOT / "docs" / "shapes" / "mistral-7b", "--prompt-tokens", "128"]
    done = subprocess.run([*command, "--context", "128"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "--prompt-tokens 128 leaves no room for an answer: it must be less than 128" in done.stderr
    said = subprocess.run([*command, "--context", "384"], check=True, capture_output=True, text=True).stdout
    assert "with prompts of 128 tokens computed in the same time" in said


def test_weights_are_counted_in_the_dtype_that_a_gpu_stores(tmp_path):
    """All weights are counted in config.json's dtype, whatever their stored encoding."""
    model = shutil.copytree(GOLDEN / "mistral", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    sizes = {}
    for dtype in ("float32", "bfloat16"):
        (model / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype, "dtype": dtype}))
        assert plan(model) == plan(model, "--dtype", dtype)
        sizes[dtype] = plan(model)["stages"][0]["weights_bytes"]
    assert sizes["float32"] > 1.9 * sizes["bfloat16"]


def test_the_document_shows_the_command_s_real_output():
    document = (ROOT / "docs" / "sizing.md").read_text()
    block = next(block for block in document.split("```") if "$ stagecoach plan " in block)
    command, printed = block.strip().split("\n", 1)
    said = subprocess.run([STAGECOACH, *command.split()[2:]], check=True, capture_output=True, text=True, cwd=ROOT)
    assert said.stdout == printed + "\n"
