"""Kills each stage in turn with kill -9 while a stream runs: the client gets an error within a second, and no process
remains."""
import os
import signal
import subprocess
import time

import client
from checks import Check
from results import at_most
from servers import Spec

END_LIMIT_S = 60


def run(server, results, stage):
    stages = server.spec.stages
    stream = client.Stream(server, [10, 11, 12, 13], max_tokens=1900)
    for _ in range(3):
        if stream.next() is None:
            raise client.CheckFailed("the stream ends before anything is killed")
    killed = time.perf_counter()
    os.kill(server.workers[stage], signal.SIGKILL)
    heard = None
    while (event := stream.next()) is not None:
        if '"error"' in event:
            heard = event
            break
        if event == "[DONE]":
            raise client.CheckFailed("the stream ended as if nothing had happened")
    heard_after_s = time.perf_counter() - killed
    stream.close()
    if heard is None:
        raise client.CheckFailed(f"the connection ends after {heard_after_s:.2f} s, and no error is said before")
    try:
        code = server.process.wait(timeout=END_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise client.CheckFailed(f"the server still runs {END_LIMIT_S} s after the kill") from None
    ended_after_s = time.perf_counter() - killed
    if left := server.left():
        raise client.CheckFailed(f"processes {left} are left")
    if code == 0:
        raise client.CheckFailed("the server ends with exit code 0")
    name = f"nccl/killed_stage/{stages}_stages/stage_{stage}/client_hears_after_s"
    if (stages, stage) == (2, 1):
        name = "nccl/killed_stage/client_hears_after_s"
    results.add(name, heard_after_s, f"s from SIGKILL of stage {stage} of {stages} to the client's error; the server ends after "
                f"{ended_after_s:.2f} s", f"{server.command}; a stream over HTTP; kill -9 of a worker", goal=at_most(1),
                heard=heard[:300], exit_code=code)


def checks(options):
    return [Check(f"kill/{stages}_stages/stage_{stage}", Spec("demo", stages, options.flags("--recovery-limit", 0), start=stage),
                  lambda server, results, stage=stage: run(server, results, stage), limit_s=90, ends_server=True)
            for stages in options.several for stage in range(stages)]


def summarize(options, results):
    pass
