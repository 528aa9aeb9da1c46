import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """The folder of a release, from programs that are built already."""
    from harness import BIN_DIR
    out = tmp_path_factory.mktemp("release")
    made = subprocess.run([ROOT / "deploy" / "release.sh", "--fast", "--bin", BIN_DIR, "--out", out], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return out
