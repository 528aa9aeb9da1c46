"""Faults of the connections of a ProxiedPipeline to one stage, from the router or from the other workers. Each function
returns once the connections work again."""
import functools
import time

from harness import wait_until

SLOW_MS = 200
SLOW_S = 10


def _until_lost(pipeline, begin, mend):
    def n_losses():
        return pipeline.log().count("the pipeline waits for its replacement")
    before = n_losses()
    begin()
    wait_until(lambda: n_losses() > before, "the loss of a connection")
    mend()


def cut(side, pipeline, stage):
    proxy = pipeline.proxies[side, stage]
    _until_lost(pipeline, proxy.cut, proxy.mend)


def hang(side, pipeline, stage):
    """The connections stay, and nothing comes."""
    proxy = pipeline.proxies[side, stage]
    _until_lost(pipeline, proxy.hang, proxy.mend)


def slow(side, pipeline, stage):
    """Every message is late for some time. Nothing should be lost."""
    proxy = pipeline.proxies[side, stage]
    proxy.delay(SLOW_MS)
    time.sleep(SLOW_S)  # the injected fault
    proxy.mend()


FAULTS = {f"{fault.__name__}_{side}": functools.partial(fault, side) for fault in (cut, hang, slow) for side in ("router", "workers")}
