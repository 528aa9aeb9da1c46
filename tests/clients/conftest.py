import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

import pytest  # noqa: E402
from harness import Cluster, protos  # noqa: E402

DEMO_MODEL = protos.ROOT / "deploy" / "demo-model"


@pytest.fixture(scope="session")
def cluster():
    """The demo model on two stages, for tests that only ask."""
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        yield cluster
