"""Tests that the file for GPU machines is complete: its programs and scripts run without the repository."""
import os
import subprocess
import sys

from smoke import BIN_DIR, ROOT, read, states


def test_the_bundle_is_complete(tmp_path):
    """The bundle needs nothing else except the system's own libraries."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("stagecoach", "stagecoach-router", "stagecoach-worker"):
        (programs / name).symlink_to(BIN_DIR / name)
    (programs / "transport_nccl_bench").symlink_to("/bin/true")
    packed = subprocess.run([ROOT / "tests" / "gpu" / "bundle.sh", "--bin", programs, "--out", tmp_path / "gpu.tar.gz"],
                            capture_output=True, text=True)
    assert packed.returncode == 0, packed.stderr
    subprocess.run(["tar", "-C", tmp_path, "-xzf", tmp_path / "gpu.tar.gz"], check=True)
    assert (tmp_path / "stagecoach-gpu" / "bin" / "transport_nccl_bench").exists()
    scripts = tmp_path / "stagecoach-gpu" / "tests"
    done = subprocess.run([scripts / "gpu" / "run.py", "--device", "cpu", "--smoke", "--only", "kill",
                           "stop/1_stages/*/process", "gemma2_27b/2_stages/*", "constrained/1_stages",
                           "--out", tmp_path / "out.jsonl"],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(states(read(tmp_path / "out.jsonl")).values()) == {"ok"}
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run([sys.executable, scripts / "bench" / "bombs.py", "--bombs", "tokenize_15_mb",
                           "--seconds", "1", "--stages", "2", "--listener-cpus", core,
                           "--out", tmp_path / "bombs.jsonl"],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout + done.stderr
    peak, _, gaps = read(tmp_path / "bombs.jsonl")
    assert (peak["outcomes"], peak["cores"]) == ({"400": 1}, {"server": "all", "bomber": "all", "listener": core})
    assert gaps["name"] == "bombs/cpu/2_stages/tokenize_15_mb/gap_p99" and gaps["n_before"] > 0
