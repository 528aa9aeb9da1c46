import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))

import pytest  # noqa: E402
from harness import DEMO_MODEL, Cluster  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    """The demo model on two stages, for tests that only ask."""
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        yield cluster
