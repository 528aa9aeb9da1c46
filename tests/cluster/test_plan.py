"""`stagecoach plan` and a server say the same of the same KV memory."""
import json
import subprocess

import pytest
from harness import STAGECOACH, Cluster
from workload import GOLDEN


# Windows beside full attention, windows only, experts, one kind of layer.
@pytest.mark.parametrize("model", ["gemma2", "gemma3", "mistral-window", "mixtral", "llama3"])
@pytest.mark.parametrize("stages", [1, 2])
def test_the_planned_blocks_are_the_servers(model, stages):
    flags = ["--kv-memory", "2MiB", "--max-sequences", "6", "--max-batched-tokens", "64"]
    with Cluster(GOLDEN / model, stages=stages, flags=flags) as cluster:
        served = cluster.kv_blocks
    plan = json.loads(subprocess.run([STAGECOACH, "plan", str(GOLDEN / model), "--stages", str(stages), "--json", *flags],
                                     check=True, capture_output=True, text=True).stdout)
    assert plan["kv_blocks"] == served
    assert plan["kv_tokens"] == 16 * served
