"""Faults of a pipeline's processes. Each function returns once the fault is complete; the pipeline recovers later."""
import os
import signal

from faults import pids
from harness import is_running, wait_until
from stopped_thread import stopped_thread


def await_workers(cluster):
    """Pids of all workers, once every stage has one."""
    return wait_until(lambda: (found := pids(cluster)[1]) and all(found) and found, "a worker for every stage")


def kill(cluster, stage):
    os.kill(await_workers(cluster)[stage], signal.SIGKILL)


def stop(cluster, stage):
    """SIGSTOP; whoever started the worker kills it later."""
    worker = await_workers(cluster)[stage]
    os.kill(worker, signal.SIGSTOP)
    wait_until(lambda: not is_running(worker), "the end of the stopped process")


def wedge(cluster, stage):
    """One thread of the worker is held, while the others say that all is well."""
    worker = await_workers(cluster)[stage]
    with stopped_thread(worker, "compute"):
        wait_until(lambda: not is_running(worker), "the end of the wedged process")


def two(cluster, stage):
    """The stage and the next one at once."""
    workers = await_workers(cluster)
    for one in (stage, (stage + 1) % len(workers)):
        os.kill(workers[one], signal.SIGKILL)


def again(cluster, stage):
    """The next stage while this one is replaced; of a single stage, the replacement."""
    workers = await_workers(cluster)
    os.kill(workers[stage], signal.SIGKILL)
    wait_until(lambda: pids(cluster)[1][stage] not in (None, workers[stage]), "the replacement")
    os.kill(pids(cluster)[1][(stage + 1) % len(workers)], signal.SIGKILL)


def stop_again(cluster, stage):
    """The next stage is stopped while this one is replaced."""
    workers = await_workers(cluster)
    following = workers[(stage + 1) % len(workers)]
    os.kill(workers[stage], signal.SIGKILL)
    os.kill(following, signal.SIGSTOP)
    wait_until(lambda: not is_running(following), "the end of the stopped process")


FAULTS = dict(kill=kill, stop=stop, wedge=wedge, two=two, again=again, stop_again=stop_again)


# On a GPU, in workers with --disturb.
def device_error(cluster, stage):
    os.kill(await_workers(cluster)[stage], signal.SIGRTMIN + 1)


def endless_kernel(cluster, stage):
    os.kill(await_workers(cluster)[stage], signal.SIGRTMIN + 2)


GPU_FAULTS = dict(device_error=device_error, endless_kernel=endless_kernel)
