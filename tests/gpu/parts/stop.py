"""Stops each stage's process, and holds its threads one after the other, while three streams run. A stall is noticed
within a second and harms nothing if it ends. Otherwise the pipeline ends with an error that names the stage."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import client
import shapes
from checks import Check, LeftOut
from load import Load
from results import at_most
from servers import Spec

sys.path.append(str(shapes.ROOT / "tests" / "cluster"))

from polling import seconds_until
from stopped_thread import stopped_thread, thread_names

STALL_LIMIT_S = 2
LONG_LIMIT_S = 30  # the stall limit where stalls end earlier
NOTICE_S = 1
NOTICE_LIMIT_S = 10  # later than this is never
HOLD_S = 2  # for threads that nobody needs
END_LIMIT_S = 30
EVERYWHERE = {"compute", "metadata", "progress"}  # threads of every stage
NEEDED = EVERYWHERE | {"hidden", "tokens", "finish"}  # by every step; nobody notices others that have nothing to do
NOTICED = at_most(NOTICE_S)
HEARD = at_most(NOTICE_S + STALL_LIMIT_S + 1, "a second until the notice, --stall-limit, a second")


@contextlib.contextmanager
def stopped_process(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def held_thread(worker, name):
    try:
        with stopped_thread(worker, name):
            yield
    except PermissionError as why:
        raise LeftOut(f"threads cannot be stopped here: {why}") from None


def of_stage(stages, stage):
    return f"nccl/stalled/{stages}_stages/stage_{stage}"


def class_of(thread):
    """A thread's name without numbers, as part of a result's name."""
    return re.sub(r"[^a-z]+", "_", thread.lower()).strip("_")


def stalled(server):
    """The stages that the metrics name."""
    page = client.metrics(server)
    return [stage for stage, value in client.by_stage(page, "stagecoach_stage_stalled").items() if value]


def noticed_after_s(server, load):
    """None: the streams go on without what is stopped."""
    began = time.monotonic()
    while client.is_ready(server):
        seconds = time.monotonic() - began
        if seconds > HOLD_S and load.silence_s() < NOTICE_S:
            return None
        if seconds > NOTICE_LIMIT_S:
            raise client.CheckFailed(f"a stream waits for {load.silence_s():.1f} s, and nobody notices it")
        time.sleep(0.01)
    return time.monotonic() - began


def await_ready(server, load):
    """Seconds until the server is ready. All streams go on then."""
    seconds = seconds_until(lambda: client.is_ready(server), NOTICE_LIMIT_S)
    if seconds is None:
        raise client.CheckFailed(f"the server is not ready within {NOTICE_LIMIT_S} s, and nothing is stopped")
    load.await_each(10)
    return seconds


def blamed(stage, thread):
    """The stages that the metrics name if a thread of `stage` is stopped. A stage whose thread for metadata is stopped never
    starts its step. From outside this looks as if the previous stage had not passed the metadata on."""
    return [stage - 1, stage] if thread == "metadata" and stage > 0 else [stage]


def run_pause(server, results, load, stages_blamed, name, what, hold, is_needed):
    """Stops something of the last stage blamed until it is noticed, and lets it go on."""
    stage = stages_blamed[-1]
    await_ready(server, load)
    load.forget_gaps()
    with hold:
        seconds = noticed_after_s(server, load)
        gap_s = load.longest_gap_s()
        if seconds is not None:
            seconds_until(lambda: stalled(server) == stages_blamed, NOTICE_S)
        named = stalled(server)
    again_s = await_ready(server, load)
    if is_needed and named != stages_blamed:
        raise client.CheckFailed(f"{what} is stopped for {HOLD_S if seconds is None else seconds:.1f} s, and the "
                                 f"metrics name {named or 'no stage'}")
    unit = (f"s from the stop of {what} to the notice" if is_needed else
            f"s, longest gap of a stream until the stop of {what} was noticed" if seconds is not None else
            f"s, longest gap of a stream while {what} was stopped: nobody needed it")
    results.add(f"{of_stage(server.spec.stages, stage)}/{name}", seconds if is_needed else gap_s, unit,
                f"{server.command}; {len(load.threads)} streams over HTTP", goal=NOTICED, noticed=seconds is not None,
                stages_named=named, ready_again_after_s=round(again_s, 3))


def run_process(server, results, stage):
    with Load(server) as load:
        run_pause(server, results, load, [stage], "process", f"stage {stage} of {server.spec.stages}",
                  stopped_process(server.workers[stage]), is_needed=True)


def run_threads(server, results, stage, only):
    """`only`: names of threads; empty: all. A held thread of gRPC may have the next stage wait and be named."""
    worker = server.workers[stage]
    threads = {class_of(name): name for name in thread_names(worker)}
    if missing := EVERYWHERE - set(threads.values()):
        raise client.CheckFailed(f"stage {stage} has no thread {', '.join(sorted(missing))}")
    failures = []
    with Load(server) as load:
        for kind, name in sorted(threads.items()):
            if only and name not in only or load.errors:
                continue
            try:
                run_pause(server, results, load, blamed(stage, name), f"thread_{kind}", f"thread {name} of stage {stage}",
                          held_thread(worker, name), name in NEEDED)
            except client.CheckFailed as failure:
                failures.append(str(failure))
            except ProcessLookupError:
                print(f"thread {name} of stage {stage} has ended by itself", flush=True)
    if failures:
        raise client.CheckFailed("; ".join(failures))


def exit_code(server):
    try:
        code = server.process.wait(timeout=END_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise client.CheckFailed(f"the server still runs {END_LIMIT_S} s after its clients heard of the end") from None
    if left := server.left():
        raise client.CheckFailed(f"processes {left} are left")
    return code


def run_end(server, results, stage, thread=None):
    """Stops a process, or one thread of it, until the pipeline ends."""
    with contextlib.ExitStack() as held, Load(server) as load:
        worker = server.workers[stage]
        began = time.monotonic()
        held.enter_context(held_thread(worker, thread) if thread else stopped_process(worker))
        load.await_end()
        if thread:
            held.close()  # the kernel ends the process only when its tracer lets it
        code = exit_code(server)
        ended_s = time.monotonic() - began
    for _, words in load.errors:
        if f"stage {stage} (" not in words:
            raise client.CheckFailed(f"a client's error does not name stage {stage}: {words[:300]}")
    if code != 1:
        raise client.CheckFailed(f"the server ends with exit code {code}")
    what = f"thread {thread} of stage {stage}" if thread else f"stage {stage} of {server.spec.stages}"
    name = f"thread_{thread}" if thread else "process"
    results.add(f"{of_stage(server.spec.stages, stage)}/{name}/clients_hear_after_s",
                max(at for at, _ in load.errors) - began,
                f"s from the stop of {what} to the last client's error; the server ends after {ended_s:.2f} s",
                f"{server.command}; {len(load.threads)} streams over HTTP", goal=HEARD,
                heard=load.errors[0][1][:300], exit_code=code)


def checks(options):
    def check(stages, stage, what, run, limit_s, spec, **more):
        return Check(f"stop/{stages}_stages/stage_{stage}/{what}", spec,
                     lambda server, results: run(server, results, stage), limit_s, **more)

    only = options.small((), NEEDED)
    found = []
    for stages in options.stages:
        lasting = Spec("demo", stages, options.flags("--stall-limit", LONG_LIMIT_S, "--recovery-limit", 0))
        flags = options.flags("--stall-limit", STALL_LIMIT_S, "--recovery-limit", 0)
        ended = [Spec("demo", stages, flags, start=i) for i in range(stages + 1)]
        for stage in range(stages):
            found += [check(stages, stage, "process", run_process, 120, lasting),
                      check(stages, stage, "threads", lambda *args: run_threads(*args, only), 600, lasting),
                      check(stages, stage, "process_to_the_end", run_end, 180, ended[stage], ends_server=True)]
        found.append(check(stages, stages - 1, "compute_to_the_end", lambda *args: run_end(*args, "compute"), 180,
                           ended[stages], ends_server=True))
    return found


def summarize(options, results):
    pass
