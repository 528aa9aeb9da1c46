"""The flight recorder of a real cluster: files on SIGUSR1 and on a crash, and their drawing."""
import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree

import grpc
import pytest
from harness import STAGECOACH, Cluster, children_of, wait_until
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN

MODEL = GOLDEN / "mistral"
REQUEST = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 40), sampling=pb.SamplingParams(max_tokens=12, ignore_eos=True))
LONG = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=480, ignore_eos=True, n=64))
TIMEOUT_S = 60


def cluster_with_recorder(folder, stages, *flags):
    return Cluster(MODEL, stages=stages, flags=["--dtype", "float32", "--flight-recorder", folder, *flags])


def files_in(folder, n):
    """Waits for n complete files. A file is complete when `timeline` can read it."""
    def complete():
        files = sorted(folder.glob("*.flight"))
        return len(files) >= n and timeline("--format", "chrome", *files).returncode == 0 and files

    return wait_until(complete, f"{n} files of the flight recorder are complete")


def timeline(*arguments):
    return subprocess.run([STAGECOACH, "timeline", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_sigusr1_writes_the_steps_of_router_and_stages(tmp_path):
    with cluster_with_recorder(tmp_path, 2) as cluster:
        assert sum(len(m.token_ids) for m in cluster.stub.Generate(REQUEST)) == 12
        cluster.process.send_signal(signal.SIGUSR1)  # the launcher forwards it to its children
        files = files_in(tmp_path, 3)
        # The cluster still serves.
        assert sum(len(m.token_ids) for m in cluster.stub.Generate(REQUEST)) == 12
    events = json.loads(timeline("--format", "chrome", "--steps", 1000, *files).stdout)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [re.sub(r" \(\d+\)$", "", names[i]) for i in sorted(names)] == ["router", "stage 0", "stage 1"]
    computed = {stage: [e for e in events if e["pid"] == stage and e.get("cat") == "compute"] for stage in (1, 2)}
    for stage in (1, 2):
        assert computed[stage] and all(e["args"]["ended"] for e in computed[stage])
        assert sum(e["args"]["prefill_tokens"] for e in computed[stage]) == 40
    # All files use the same clock: the second stage computes its part of a step after the first stage's part.
    first = {e["args"]["step"]: e for e in computed[1]}
    for event in computed[2]:
        assert event["ts"] >= first[event["args"]["step"]]["ts"] + first[event["args"]["step"]]["dur"]


def test_the_drawing_is_svg(tmp_path):
    with cluster_with_recorder(tmp_path, 2) as cluster:
        list(cluster.stub.Generate(REQUEST))
        cluster.process.send_signal(signal.SIGUSR1)
        files = files_in(tmp_path, 3)
    drawing = tmp_path / "timeline.svg"
    assert timeline(*files, "-o", drawing).returncode == 0
    root = ElementTree.parse(drawing).getroot()
    assert root.tag.endswith("svg")
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("compute" in title for title in titles) and any("in flight" in title for title in titles)


@pytest.mark.parametrize("fault", [signal.SIGABRT, signal.SIGSEGV])
def test_a_crashing_worker_writes_its_last_steps(tmp_path, fault):
    cluster = cluster_with_recorder(tmp_path, 2, "--recovery-limit", "0")
    cluster.start()
    stream = cluster.stub.Generate(LONG)
    next(stream)
    workers = [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-work"]
    os.kill(workers[1], fault)
    with pytest.raises(grpc.RpcError):
        list(stream)
    assert cluster.process.wait(timeout=TIMEOUT_S) != 0
    assert f"signal {int(fault)}" in cluster.log() and "flight recorder: the last steps are in" in cluster.log()
    file, = files_in(tmp_path, 1)
    assert file.name == f"stagecoach-worker-{workers[1]}-1.flight"
    events = json.loads(timeline("--format", "chrome", file).stdout)["traceEvents"]
    assert any(e.get("cat") == "compute" for e in events)


def test_the_error_names_an_invalid_file(tmp_path):
    (tmp_path / "x.flight").write_text("hello")
    run = timeline(tmp_path / "x.flight")
    assert run.returncode == 1 and "x.flight: not a flight recorder file" in run.stderr
    run = timeline(tmp_path / "none.flight")
    assert run.returncode == 1 and "none.flight" in run.stderr


def test_a_missing_folder_is_refused_at_the_start(tmp_path):
    run = subprocess.run([STAGECOACH, "serve", str(MODEL), "--flight-recorder", str(tmp_path / "none"),
                          "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "--flight-recorder" in run.stderr
