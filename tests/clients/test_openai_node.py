"""The official openai package for Node; tests/run.sh installs it where there is Node."""
import pathlib
import shutil
import subprocess

import pytest
from harness import protos

MODULES = protos.ROOT / "build" / "node"
SCRIPT = pathlib.Path(__file__).with_name("openai_node.cjs")


@pytest.mark.skipif(not (shutil.which("node") and (MODULES / "node_modules").exists()), reason="no Node here")
def test_openai_for_node(cluster):
    run = subprocess.run(["node", SCRIPT, f"http://{cluster.http}/v1", MODULES], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
