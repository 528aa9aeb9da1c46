"""Faults of the connections of a ProxiedPipeline to one stage, from the router or from the other workers. Each function
returns once the connections work again."""
import functools
import time

from harness import wait_until

HANG_MS = 600_000
SLOW_MS = 200
SLOW_S = 10


def _until_lost(pipeline, begin, side, stage):
    def n_losses():
        return pipeline.log().count("the pipeline waits for its replacement")
    before = n_losses()
    begin(side, stage)
    wait_until(lambda: n_losses() > before, "the loss of a connection")
    pipeline.mend(side, stage)


def cut(side, pipeline, stage):
    _until_lost(pipeline, pipeline.cut, side, stage)


def hang(side, pipeline, stage):
    """The connections stay, and nothing comes."""
    _until_lost(pipeline, functools.partial(pipeline.delay, ms=HANG_MS), side, stage)


def slow(side, pipeline, stage):
    """Every message is late for some time. Nothing should be lost."""
    pipeline.delay(side, stage, SLOW_MS)
    time.sleep(SLOW_S)  # the injected fault
    pipeline.mend(side, stage)


FAULTS = {f"{fault.__name__}_{side}": functools.partial(fault, side) for fault in (cut, hang, slow) for side in ("router", "workers")}
