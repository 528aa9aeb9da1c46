"""Tests the scripts for GPU machines: all parts on CPUs with tiny models, an interrupted run, servers that fail."""
import json
import os
import signal
import socket
import subprocess
import sys

import processes
import pytest
from smoke import BIN_DIR, ROOT, command, read, run, states

sys.path.append(str(ROOT / "tests" / "cluster"))

from polling import seconds_until

PARTS = {"hop", "tokens", "waves", "kv_blocks", "speed", "constrained", "prefix_cache", "recurrent_tiers", "cliff", "experts", "families",
         "fp8_kv", "packed", "preemption", "gemma2_27b", "kill", "stop", "start", "kernels"}
OLDER_KERNELS_LEFT_OUT = {f"kernels/compute_{architecture}/{what}": "left out"
                          for architecture in (80, 89) for what in ("operations", "golden")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    work = tmp_path_factory.mktemp("gpu")
    return work, run(work, "--out", work / "out.jsonl"), read(work / "out.jsonl")


def test_every_part_runs(whole):
    _, done, lines = whole
    assert done.returncode == 0, done.stdout + done.stderr
    ended = states(lines)
    left_out = {"hop/2_gpus", "hop/2_gpus_overlapping", "kernels/operations", "kernels/golden", "kernels/memcheck",
                *OLDER_KERNELS_LEFT_OUT}
    assert {check for check, state in ended.items() if state != "ok"} == left_out, ended
    assert {check.split("/")[0] for check in ended} == PARTS
    found = {line["name"]: line for line in lines if "name" in line}
    assert found["smoke/nccl/same_tokens/golden_and_demo"]["value"] == 2
    assert found["smoke/fp8_kv/same_tokens/2_stages/gemma2"]["value"] == 1
    assert found["smoke/fp8_kv/mistral_7b_v0.3/kv_tokens/ratio"]["value"] > 1.5
    assert found["smoke/nccl/opt_6.7b/waves_with_other_tokens"]["value"] == 0
    assert found["smoke/nccl/opt_6.7b/waves_with_other_tokens/disturbed"]["value"] == 0
    assert found["smoke/nccl/opt_13b/2_stages/kv_blocks"]["growth"] == 2
    assert found["smoke/nccl/opt_6.7b/2_stages/preemption/lost_requests"]["value"] == 0
    for model in ("mistral_7b_v0.3", "nccl/mistral_7b_v0.3/2_stages"):
        assert found[f"smoke/{model}/prefix_cache/same_tokens"]["cached_tokens"] > 0
        assert found[f"smoke/{model}/cliff/different_tokens"]["value"] == 0
    assert found["smoke/nccl/stalled/2_stages/stage_1/thread_compute"]["stages_named"] == [1]
    itl = found["smoke/nccl/mistral_7b_v0.3/2_stages/itl_ms/batch_1"]
    assert len(itl["stages"]) == 2 and itl["transport"] == "host"
    assert found["smoke/nccl/opt_6.7b/waves_with_other_tokens"]["starts_ended"] == 2
    for line in found.values():
        assert {"value", "unit", "reference", "ratio", "machine", "date", "commit", "command"} <= line.keys(), line


def test_an_interrupted_run_continues(whole, tmp_path):
    """A run that was interrupted within a line continues; its references are in the file."""
    _, _, lines = whole
    at = next(i for i, line in enumerate(lines) if line.get("check") == "waves/2_stages/fraction_0.5/plain/start_1")
    kept = "".join(json.dumps(line) + "\n" for line in lines[:at])
    out = tmp_path / "out.jsonl"
    out.write_text(kept + json.dumps(lines[at])[:20])
    done = run(tmp_path, "--resume", out, "--only", "waves")
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert text.startswith(kept)
    again = [json.loads(line) for line in text[len(kept):].splitlines()[1:]]
    assert list(states(again)) == [*(f"waves/{stages}_stages/fraction_0.5/{how}/start_1"
                                     for stages, how in ((2, "plain"), (1, "disturbed"), (2, "disturbed"))),
                                   "waves/2_stages/launch_blocking"]
    assert all(line["reference"] == "one stage's tokens where launches block" for line in again if "sequences_that_differ" in line)


def test_the_last_wave_start_of_several_stages_has_one_microbatch(tmp_path):
    out = tmp_path / "out.jsonl"
    done = run(tmp_path, "--out", out, "--only", *(f"waves/{stages}_stages/*/plain/start_{start}"
                                                   for stages, start in ((1, 4), (2, 3), (2, 4))), "--starts", 4)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line["name"].removeprefix("smoke/"): line for line in read(out) if "start_" in line.get("name", "")}
    several = "nccl/opt_6.7b/2_stages/fraction_0.5/plain/start_4/waves_with_other_tokens"
    assert [name for name, line in found.items() if "--microbatches 1" in line["command"]] == [several]
    assert found[several]["one_microbatch"] and "in one microbatch" in found[several]["unit"]
    # At least one step for the prompts, which gives the first token of each.
    assert all(line["steps_a_wave"] >= 6 for line in found.values())


def test_a_resumed_run_without_checks_left_makes_the_sums(whole, tmp_path):
    """The earlier run was killed before its sums, or its lines come from several files."""
    _, _, lines = whole
    own = [line for line in lines if "state" in line or "n_stages" in line]
    out = tmp_path / "out.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in own))
    done = run(tmp_path, "--resume", out, "--only", "waves", "tokens", "start")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 checks, 0 failures" in done.stdout

    def values(lines):
        return {line["name"]: line["value"] for line in lines if "name" in line and "n_stages" not in line}

    assert values(read(out)) == values(lines)
    waves = {f"smoke/{model}/waves_with_other_tokens{how}" for model in ("opt_6.7b", "nccl/opt_6.7b/2_stages", "nccl/opt_6.7b")
             for how in ("", "/disturbed")}
    assert waves <= values(lines).keys()


@pytest.mark.parametrize("what, value", [("commit", "0123456"), ("gpu", "NVIDIA H100"), ("gpus_of_stages", [0, 0]),
                                         ("wanted_transport", "host")])
def test_results_of_another_commit_gpu_or_placement_are_ignored(whole, tmp_path, what, value):
    _, _, lines = whole
    changed = [line | {what: value} if what in line else line for line in lines]
    out = tmp_path / "out.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in changed))
    done = run(tmp_path, "--resume", out, "--only", "kv_blocks/2_stages")
    assert done.returncode == 0, done.stdout + done.stderr
    n_changed = sum(what in line for line in lines)
    assert n_changed > len(lines) / 5 and f"{n_changed} lines of {out} do not count" in done.stdout
    again = read(out)[len(lines):]
    assert states(again) == {"kv_blocks/2_stages": "ok"}
    # One stage has no transport, so its value still counts.
    assert any("growth" in line for line in again) == (what == "wanted_transport")


def test_checks_with_another_number_of_waves_run_again(whole, tmp_path):
    _, _, lines = whole
    out = tmp_path / "out.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for n_waves, again in ((5, {}), (3, {"waves/1_stages/fraction_0.5/plain/start_1": "ok"}), (3, {})):
        n_before = len(read(out))
        done = run(tmp_path, "--resume", out, "--only", "waves/1_stages/*/plain/*", "--waves", n_waves)
        assert (done.returncode, states(read(out)[n_before:])) == (0, again), done.stdout + done.stderr


def test_list_leaves_nothing_behind(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text('{"cut of')
    for flags in ((), ("--resume", out)):
        done = subprocess.run([sys.executable, ROOT / "tests" / "gpu" / "run.py", "--list", "--device", "cpu", "--stages", "1,2",
                               "--work", tmp_path / "work", *flags], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "waves/2_stages/fraction_0.9/disturbed/start_5" in done.stdout
    assert [path.name for path in tmp_path.rglob("*")] == ["out.jsonl"] and out.read_text() == '{"cut of'


def test_a_left_out_check_runs_once_it_is_possible(tmp_path):
    out = tmp_path / "out.jsonl"
    done = run(tmp_path, "--out", out, "--only", "preemption", "--stages", "1")
    assert (done.returncode, states(read(out))) == (0, {"preemption/2_stages": "left out"})
    for stages, state in ("1", "left out"), ("1,2", "ok"):
        done = run(tmp_path, "--resume", out, "--only", "preemption", "--stages", stages)
        assert (done.returncode, states(read(out))) == (0, {"preemption/2_stages": state})
    assert sum("state" in line for line in read(out)) == 2


def test_a_failure_remains_until_a_retry_succeeds(whole, tmp_path):
    _, _, lines = whole
    out = tmp_path / "out.jsonl"
    failed = [dict(line, state="failed", error="out of luck") if line.get("check") == "kv_blocks/1_stages" else line
              for line in lines]
    out.write_text("".join(json.dumps(line) + "\n" for line in failed))
    done = run(tmp_path, "--resume", out)
    assert done.returncode == 1
    assert "failed in a run before: kv_blocks/1_stages: out of luck" in done.stdout
    done = run(tmp_path, "--resume", out, "--retry-failed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of runs before" not in done.stdout


def test_parallel_runs_have_separate_logs(tmp_path):
    for _ in range(2):
        assert run(tmp_path, "--only", "kv_blocks/1_stages").returncode == 0
    assert len(list(tmp_path.glob("logs/*.log"))) == 2


def all_below(pid):
    children = [child for child, _ in processes.children_of(pid)]
    return children + [deeper for child in children for deeper in all_below(child)]


def test_servers_die_with_the_run(tmp_path):
    """Also if the run is killed with SIGKILL."""
    with subprocess.Popen(command(tmp_path, "--only", "waves/2_stages/fraction_0.5/plain/*", "--waves", 100_000),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            # Waits until the pipeline is up; it then runs for a long time.
            def is_up():
                assert process.poll() is None
                return sum(log.read_text().count("messages travel by") for log in tmp_path.glob("logs/*.log")) >= 2

            assert seconds_until(is_up, 300) is not None
            below = all_below(process.pid)
        finally:
            process.send_signal(signal.SIGKILL)
    assert len(below) >= 3  # the server and two workers
    try:
        assert seconds_until(lambda: not any(map(processes.is_running, below)), 60) is not None
    finally:
        for pid in filter(processes.is_running, below):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def on_gpus(tmp_path):
    """Runs with --device cuda, a fake nvidia-smi that reports two GPUs (at first also a process that uses them), and
    programs that really use CPUs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "stagecoach").write_text(f"""#!/bin/bash
exec '{BIN_DIR}/stagecoach' "${{@/#cuda/cpu}}"
""")
    (programs / "nvidia-smi").write_text(f"""#!/bin/sh
case "$*" in
  *name,memory.total*) echo "NVIDIA H200, 143771"; echo "NVIDIA H200, 143771" ;;
  *index,memory.used*) echo "0, 4"; echo "1, 4" ;;
  *compute-apps*) [ -e '{tmp_path}/asked' ] || echo "4711, python3, 512"; touch '{tmp_path}/asked' ;;
esac
""")
    for program in programs.iterdir():
        program.chmod(0o755)
    (programs / "stagecoach-worker").symlink_to(BIN_DIR / "stagecoach-worker")

    def run_with(*flags):
        out = tmp_path / "out.jsonl"
        out.unlink(missing_ok=True)
        done = run(tmp_path, "--out", out, *flags, bin_dir=programs, device="cuda",
                   env=dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}"))
        assert (tmp_path / "asked").exists()
        return done, read(out)

    return run_with


def test_nccl_checks_give_no_results_over_another_transport(on_gpus):
    done, lines = on_gpus("--only", "speed/2_stages/start")
    assert done.returncode == 1
    assert not any("name" in line for line in lines)
    assert [line["error"] for line in lines] == ["messages travel by host instead of NCCL; if that is meant: --transport host"]
    done, lines = on_gpus("--only", "speed/2_stages/start", "--transport", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line["gpu"] for line in lines} == {"NVIDIA H200"}
    assert {line["transport"] for line in lines if "name" in line} == {"host"}


def test_two_gpus_run_the_hop_checks(on_gpus):
    done, lines = on_gpus("--only", "hop", "speed/1_stages/start")
    assert done.returncode == 1
    assert {line["check"]: line["error"] for line in lines if "error" in line} == dict.fromkeys(
        ("hop/2_gpus", "hop/2_gpus_overlapping"), "transport_nccl_bench is not among the programs")


def test_failing_and_hanging_servers_do_not_stop_other_checks(tmp_path):
    """One server dies, one never becomes ready, one never answers; the others serve normally."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        deaf = f"127.0.0.1:{listener.getsockname()[1]}"
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "stagecoach").write_text(f"""#!/bin/sh
case "$*" in
  *gemma2*--stages\\ 1*) echo "error: out of luck" >&2; exit 1 ;;
  *gemma2*--stages\\ 2*) exec sleep 1000 ;;
  *demo*--stages\\ 1*) echo ready grpc={deaf} http={deaf} metrics={deaf} kv_blocks=1; exec sleep 1000 ;;
esac
exec '{BIN_DIR}/stagecoach' "$@"
""")
        (programs / "transport_nccl_bench").write_text("""#!/bin/sh
head -c 200000 /dev/zero | tr '\\0' x >&2
echo >&2
echo '{"rows": 1, "us_hidden_and_tokens": 53.76, "links": "NCCL"}'
echo "error: two GPUs are needed" >&2
exit 1
""")
        for program in programs.iterdir():
            program.chmod(0o755)
        (programs / "stagecoach-worker").symlink_to(BIN_DIR / "stagecoach-worker")
        out = tmp_path / "out.jsonl"
        done = run(tmp_path, "--out", out, "--only", "hop", "tokens/gemma2/*", "tokens/demo/1_stages", "--start-limit", 5,
                   "--check-limit", 5, bin_dir=programs)
    assert done.returncode == 1, done.stdout + done.stderr
    # Good servers have no such limits, because machines may be busy.
    others = run(tmp_path, "--resume", out, "--only", "tokens", "kv_blocks/2_stages", bin_dir=programs)
    assert others.returncode == 1, others.stdout + others.stderr
    lines = read(out)
    errors = [(line["check"], line.get("error")) for line in lines if "state" in line]
    assert errors == [
        ("hop/2_gpus", "error: two GPUs are needed"),
        ("hop/2_gpus_overlapping", "error: two GPUs are needed"),
        ("tokens/gemma2/1_stages", "did not start, exit code 1: error: out of luck"),
        ("tokens/gemma2/2_stages", "not ready after 5.0 s"),
        ("tokens/demo/1_stages", "not done after 5 s"),
        ("tokens/demo/2_stages", "there is no run with one stage to compare with"),
        ("kv_blocks/2_stages", None),
    ]
    assert "out of luck" in done.stdout
    assert [line["value"] for line in lines if "nccl_hop" in line.get("name", "")] == [53.76] * 2
    retried = run(tmp_path, "--resume", out, "--only", "tokens/demo/*", "--retry-failed")
    assert retried.returncode == 1, "others failed before"
    assert [line["state"] for line in read(out)[-4:] if "state" in line] == ["ok", "ok"], retried.stdout + retried.stderr


def test_kernel_checks_run_if_their_programs_exist(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kernels_cuda_test").write_text("#!/bin/sh\necho 'All tests passed (12 assertions in 3 test cases)'\n")
    (programs / "golden_cuda_test").write_text("""#!/bin/sh
echo 'cannot open directory: No such file or directory [/elsewhere/tests/golden/data]'
exit 1
""")
    (programs / "compute-sanitizer").write_text("""#!/bin/sh
shift 4
exec "$@"
""")
    for program in programs.iterdir():
        program.chmod(0o755)
    (programs / "stagecoach-worker").symlink_to(BIN_DIR / "stagecoach-worker")
    out = tmp_path / "out.jsonl"
    done = run(tmp_path, "--out", out, "--only", "kernels", bin_dir=programs,
               env=dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = read(out)
    assert states(lines) == {"kernels/operations": "ok", "kernels/golden": "left out", "kernels/memcheck": "ok", **OLDER_KERNELS_LEFT_OUT}
    assert "built to find the golden models in /elsewhere/tests/golden/data" in done.stdout
    assert [line["value"] for line in lines if "name" in line] == [96, 12], "eight processes share the operations"
    memcheck = next(line["command"] for line in lines if "memcheck" in line.get("name", ""))
    assert memcheck.startswith("compute-sanitizer --tool memcheck --error-exitcode 9 kernels_cuda_test 'a step is built*,Attention: ")


def test_a_check_that_failed_twice_is_left_out(tmp_path):
    """Checks of another mode still run."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "stagecoach").write_text(f"""#!/bin/sh
case "$*" in *--disturb*) echo "error: out of luck" >&2; exit 1 ;; esac
exec '{BIN_DIR}/stagecoach' "$@"
""")
    (programs / "stagecoach").chmod(0o755)
    (programs / "stagecoach-worker").symlink_to(BIN_DIR / "stagecoach-worker")
    out = tmp_path / "out.jsonl"
    flags = ("--only", "waves/*/start_*", "--starts", 3)
    done = run(tmp_path, "--out", out, *flags, bin_dir=programs)
    assert done.returncode == 1

    def expected(third):
        return {f"waves/{stages}_stages/fraction_0.5/{how}/start_{start}":
                "ok" if how == "plain" else "failed" if start < 3 else third
                for stages in (1, 2) for how in ("plain", "disturbed") for start in (1, 2, 3)}

    assert states(read(out)) == expected("left out")
    assert "2 of waves/1_stages/disturbed have failed alike (ServerError)" in done.stdout
    done = run(tmp_path, "--resume", out, *flags)
    assert states(read(out)) == expected("ok"), done.stdout + done.stderr
