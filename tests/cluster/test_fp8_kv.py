"""An FP8 cache in real processes: it holds more tokens, and blocks that leave the device meet none of another type."""
import json
import subprocess
import urllib.request

import pytest
from harness import STAGECOACH, Cluster, wait_until
from kv_metrics import kv_blocks
from protos import ROOT
from test_kv_store import N_BLOCKS, PROMPT
from test_prefix_cache import BLOCK, FLAGS, ask, random_ids, request
from workload import GOLDEN

MODEL = "gemma3"
FP8 = ["--kv-dtype", "fp8"]


def check(*flags):
    return json.loads(subprocess.run([STAGECOACH, "check", GOLDEN / MODEL, "--json", *flags],
                                     check=True, capture_output=True, text=True).stdout)


def status(cluster):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return json.loads(opener.open(f"http://{cluster.http}/status").read())


def serve(stages, *flags):
    return Cluster(GOLDEN / MODEL, stages=stages, flags=[*FLAGS, *flags])


def test_the_same_memory_holds_more_tokens():
    wide, narrow = check(*FLAGS), check(*FLAGS, *FP8)
    assert (wide["kv_dtype"], narrow["kv_dtype"]) == ("float32", "fp8")
    assert narrow["stages"][0]["weights_bytes"] == wide["stages"][0]["weights_bytes"]
    blocks = {}
    for kv_dtype in ("auto", "fp8"):
        with serve(2, "--kv-dtype", kv_dtype, "--kv-memory", "1MiB", "--max-sequences", 4) as cluster:
            blocks[kv_dtype] = cluster.kv_blocks
            told = status(cluster)
            assert (told["dtype"], told["kv_dtype"]) == ("float32", "fp8" if kv_dtype == "fp8" else "float32")
    assert blocks["fp8"] > 0.9 * blocks["auto"] * wide["kv_bytes_per_token"] / narrow["kv_bytes_per_token"]


def test_another_server_finds_blocks_of_its_type_only(tmp_path):
    """In a store, with other stages, and on disk after a restart."""
    store, disk = ["--kv-store", f"dir:{tmp_path}/store"], ["--disk-kv", f"{tmp_path}/disk:64MiB"]
    (tmp_path / "store").mkdir()
    with serve(1, *FP8, *store, *disk) as server:
        answer = ask(server.stub, request(PROMPT))
        wait_until(lambda: min(kv_blocks(server)[saved] for saved in ("saved", "saved_to_disk")) >= N_BLOCKS, "the blocks")
    for stages, flags, n_found in ((2, [*FP8, *store], N_BLOCKS), (1, [*FP8, *disk], N_BLOCKS), (1, [*store, *disk], 0)):
        with serve(stages, *flags) as other:
            again = ask(other.stub, request(PROMPT))
            assert again[2] == n_found * BLOCK
            assert (again[:2] == answer[:2]) == (n_found > 0)


def test_host_memory_keeps_what_the_device_has_no_room_for():
    prompts = [random_ids(N_BLOCKS * BLOCK + 5, i) for i in range(4)]
    memory = 24 * BLOCK * check(*FLAGS, *FP8)["kv_bytes_per_token"]
    flags = [*FP8, "--kv-memory", memory, "--max-model-len", 256, "--max-sequences", 1, "--host-kv", "16MiB"]
    with serve(2, *flags) as server:
        answers = [ask(server.stub, request(prompt)) for prompt in prompts]
        wait_until(lambda: kv_blocks(server)["in_host"] >= len(prompts) * N_BLOCKS * 2, "the blocks in host memory")
        for prompt, answer in zip(prompts, answers, strict=True):
            again = ask(server.stub, request(prompt))
            assert (again[:2], again[2]) == (answer[:2], N_BLOCKS * BLOCK)
        assert kv_blocks(server)["from_host"] > 0


@pytest.mark.parametrize("command", ["serve", "check", "plan"])
def test_latents_are_refused(command):
    model = ROOT / "docs" / "shapes" / "deepseek-v3"
    said = subprocess.run([STAGECOACH, command, model, *FP8], capture_output=True, text=True)
    assert said.returncode == 1
    assert "latent attention; leave out --kv-dtype" in " ".join((said.stdout + said.stderr).split())
