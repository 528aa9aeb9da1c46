"""Connections of a pipeline break or hang while all its processes live: the stages join again, and every stream goes on as
if nothing had been."""
import pytest
from broken_links import FAULTS
from harness import DEMO_MODEL
from proxied import ProxiedPipeline, why_impossible
from recovery import TOOLS_TEMPLATE, Streams, classify, requests, undisturbed

pytestmark = pytest.mark.skipif(bool(why_impossible()), reason=str(why_impossible()))
N_STREAMS = 22
STAGES = 3


@pytest.fixture(scope="module")
def pipeline():
    with ProxiedPipeline(DEMO_MODEL, STAGES, ["--stall-limit", "2", "--chat-template", TOOLS_TEMPLATE]) as running:
        yield running


@pytest.fixture(scope="module")
def expected(pipeline):
    return undisturbed(pipeline, requests(N_STREAMS, 300))


# The connections of other workers to stage 0 carry the tokens from the last stage.
@pytest.mark.parametrize("fault,stage", [("cut_router", 0), ("cut_router", 2), ("cut_workers", 0), ("cut_workers", 1),
                                         ("hang_router", 1), ("hang_workers", 0), ("hang_workers", 2)])
def test_streams_outlive_broken_connections(pipeline, expected, fault, stage):
    with Streams(pipeline.grpc, requests(N_STREAMS, 300)) as streams:
        streams.await_messages(3)
        FAULTS[fault](pipeline, stage)
    assert [o.details for o in streams.outcomes if o.error] == [], pipeline.log()
    assert classify(streams.outcomes, expected) == dict(identical=N_STREAMS, error=0, hung=0, different=0)
