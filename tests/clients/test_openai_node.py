"""The official openai package for Node; tests/run.sh installs it if Node is installed."""
import json
import pathlib
import shutil
import subprocess

import pytest
import structured
from harness import protos
from workload import GOLDEN

MODULES = protos.ROOT / "build" / "node"
SCRIPT = pathlib.Path(__file__).with_name("openai_node.cjs")


pytestmark = pytest.mark.skipif(not (shutil.which("node") and (MODULES / "node_modules").exists()), reason="no Node here")


def run(cluster, *arguments):
    process = subprocess.run(["node", SCRIPT, f"http://{cluster.http}/v1", MODULES, *arguments], capture_output=True, text=True,
                             timeout=120)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("name", ["cluster", "chatty_cluster"])
def test_openai_for_node(name, request):
    run(request.getfixturevalue(name))


def test_tools_and_structured_output(tool_cluster):
    run(tool_cluster, json.dumps(structured.closing_bias(GOLDEN / "qwen2")))
