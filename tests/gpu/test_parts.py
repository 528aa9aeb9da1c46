"""Tests the parts against servers with wrong answers and half-made model folders; needs no real server."""
import collections
import contextlib
import fnmatch
import re
import subprocess
import types

import client
import gpus
import pytest
import shapes
from checks import Check, LeftOut, Options
from parts import PARTS, families, gemma2_27b, kernels, kill, kv_blocks, preemption, speed, stop, waves
from results import Results
from run import chosen, placed
from servers import Server, ServerError, Spec

COMMON = dict(machine="a machine", commit="0123456", gpu="NVIDIA H200")
SERVER = types.SimpleNamespace(spec=Spec("opt-6.7b", 1), command="stagecoach serve")


@pytest.fixture
def results():
    return Results(None, [], COMMON)


@pytest.mark.parametrize("run", [
    lambda results: speed.run_load(SERVER, results, speed.ITL, smoke=True),
    lambda results: speed.run_invariant(SERVER, results, speed.ITL, smoke=True),
    lambda results: gemma2_27b.run_itl(SERVER, results, ()),
])
@pytest.mark.parametrize("report", [
    dict(requests=dict(ok=0, failed=3), error="error: stage 1 is lost"),
    dict(requests=dict(ok=2, failed=1), error="error: stage 1 is lost"),
    dict(requests=dict(ok=0, failed=0), error=""),
])
def test_failed_requests_give_no_result_line(monkeypatch, results, run, report):
    zeros = collections.defaultdict(float)
    monkeypatch.setattr(client, "bench", lambda *_: dict(report, tpot_ms=zeros, ttft_ms=zeros, itl_ms=zeros))
    monkeypatch.setattr(client, "StageWatch", lambda _: types.SimpleNamespace(read=lambda: dict(metadata_early=None)))
    with pytest.raises(client.CheckFailed, match=report["error"] or "no error is said"):
        run(results)
    assert results.named("") == []


def test_goals_for_one_stage_say_so(monkeypatch, results):
    ms = dict(mean=4.0, p50=4.0)
    monkeypatch.setattr(client, "bench", lambda *_: dict(requests=dict(ok=1, failed=0), error="", tpot_ms=ms, ttft_ms=ms, itl_ms=ms))
    monkeypatch.setattr(client, "StageWatch", lambda _: types.SimpleNamespace(read=lambda: dict(metadata_early=None)))

    def run():
        for stages in (4, 1):
            server = types.SimpleNamespace(spec=Spec("a model", stages), command="stagecoach serve", kv_blocks=700)
            speed.run_load(server, results, speed.ITL, smoke=False)
            kv_blocks.run(server, results)
        return [results.find(name) for name in (speed.name_of(speed.ITL, 4), kv_blocks.name_of(4))]

    assert all("no goal: no 1-stage line" in line["reference"] and "met" not in line for line in run())
    assert [line["met"] for line in run()] == [True, False]
    assert {line["name"] for line in results.missed()} == {speed.name_of(speed.ITL, 1), kv_blocks.name_of(4)}


@pytest.mark.parametrize("preempted", [0, 35])
def test_without_preemptions_the_check_fails(monkeypatch, results, preempted):
    pages = iter([{(preemption.PREEMPTIONS, ()): 7}, {(preemption.PREEMPTIONS, ()): 7 + preempted}])
    monkeypatch.setattr(client, "metrics", lambda _: next(pages))
    monkeypatch.setattr(client, "bench", lambda *_: dict(requests=dict(ok=2, failed=0), output_tokens=6, output_tokens_per_s=1))
    server = types.SimpleNamespace(spec=Spec("opt-6.7b", 2), command="stagecoach serve", kv_blocks=1)
    if preempted:
        preemption.run(server, results, 2, 5, 3)
    else:
        with pytest.raises(client.CheckFailed, match="no sequence was preempted"):
            preemption.run(server, results, 2, 5, 3)
    assert [line.get("met") for line in results.named("")] == [True if preempted else None]


@pytest.mark.parametrize("events, fails", [
    (["a", "b", "c", None], "no error is said"),
    (["a", "b", "c", "[DONE]"], "as if nothing had happened"),
    (["a", "b", "c", '{"error": {"message": "stage 1 is lost"}}'], None),
])
def test_a_client_must_get_an_error_for_a_killed_stage(monkeypatch, results, events, fails):
    left = iter(events)
    monkeypatch.setattr(client, "Stream", lambda *_, **__: types.SimpleNamespace(next=lambda: next(left), close=lambda: None))
    with subprocess.Popen(["sleep", "1000"]) as worker:
        server = types.SimpleNamespace(spec=Spec("demo", 2), command="stagecoach serve", workers=[worker.pid, worker.pid],
                                       left=list, process=worker)
        if fails:
            with pytest.raises(client.CheckFailed, match=fails):
                kill.run(server, results, 1)
            assert results.named("") == []
        else:
            kill.run(server, results, 1)
            assert results.find("nccl/killed_stage/client_hears_after_s")["met"]


class Flow:
    """A load whose streams have been silent for some time, and fail with `errors`."""
    threads = [1, 2, 3]

    def __init__(self, silence_s, errors=()):
        self.errors = [(0, words) for words in errors]
        self.silence_s = self.longest_gap_s = lambda: silence_s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def forget_gaps(self):
        pass

    def await_each(self, _):
        pass

    def await_end(self):
        pass


@pytest.mark.parametrize("is_needed, silence_s, ready, named, fails", [
    (True, 5, False, 1, None),
    (True, 5, False, 0, r"the metrics name \[0\]"),
    (True, 0, True, None, "the metrics name no stage"),
    (True, 5, True, None, "nobody notices it"),
    (False, 5, True, None, "nobody notices it"),
    (False, 0.1, True, None, None),
    (False, 1.1, False, 0, None),
])
def test_a_stall_is_noticed_or_there_is_none(monkeypatch, results, is_needed, silence_s, ready, named, fails):
    held = []

    @contextlib.contextmanager
    def hold():
        held.append(True)
        yield
        held.pop()

    monkeypatch.setattr(client, "is_ready", lambda _: ready or not held)
    monkeypatch.setattr(client, "metrics", lambda _: {
        ("stagecoach_stage_stalled", (("stage", str(stage)),)): float(stage == named) for stage in range(2)})
    monkeypatch.setattr(stop, "HOLD_S", 0)
    monkeypatch.setattr(stop, "NOTICE_LIMIT_S", 0.01)
    server = types.SimpleNamespace(spec=Spec("demo", 2), command="stagecoach serve")

    def run():
        stop.run_pause(server, results, Flow(silence_s), [1], "thread_compute", "thread compute of stage 1", hold(),
                       is_needed)

    if fails:
        with pytest.raises(client.CheckFailed, match=fails):
            run()
        assert results.named("") == []
    else:
        run()
        line = results.find("nccl/stalled/2_stages/stage_1/thread_compute")
        assert line["noticed"] == (not ready) and (is_needed or line["value"] == silence_s)


@pytest.mark.parametrize("code, left, errors, fails", [
    (1, [], ["stage 1 (127.0.0.1:1) has said nothing"], None),
    (1, [], ["stage 1 (127.0.0.1:1) has said nothing", "it ends"], "does not name stage 1: it ends"),
    (0, [], ["stage 1 (127.0.0.1:1) has said nothing"], "exit code 0"),
    (1, [4711], ["stage 1 (127.0.0.1:1) has said nothing"], r"processes \[4711\] are left"),
])
def test_a_stage_that_stays_stopped_ends_everything(monkeypatch, results, code, left, errors, fails):
    monkeypatch.setattr(stop, "Load", lambda _: Flow(0, errors))
    with subprocess.Popen(["sleep", "1000"]) as worker:
        try:
            server = types.SimpleNamespace(spec=Spec("demo", 2), command="stagecoach serve", workers=[worker.pid] * 2,
                                           left=lambda: left, process=types.SimpleNamespace(wait=lambda timeout: code))
            if fails:
                with pytest.raises(client.CheckFailed, match=fails):
                    stop.run_end(server, results, 1)
                assert results.named("") == []
            else:
                stop.run_end(server, results, 1)
                assert results.find("nccl/stalled/2_stages/stage_1/process/clients_hear_after_s")["exit_code"] == 1
        finally:
            worker.kill()


@pytest.mark.parametrize("said, code, fails", [
    ("All tests passed (217706 assertions in 3 test cases)", 0, None),
    ("test cases: 3 | 2 passed | 1 failed\nassertions: 7 | 6 passed | 1 failed", 1, "exit code 1: assertions: 7 | 6 passed"),
    ("test cases: 35 | 34 passed | 1 skipped\nassertions: 217706 | 217706 passed", 0, None),
    ("error: no device", 0, "error: no device"),
    ("  filesystem error: directory iterator cannot open directory: No such file or\n  directory [/a b/tests/golden/data]\n", 6,
     "was built to find the golden models in /a b/tests/golden/data"),
])
def test_kernel_results_come_from_the_programs_output(results, tmp_path, said, code, fails):
    program = tmp_path / "golden_cuda_test"
    program.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
    program.chmod(0o755)
    (tmp_path / "stagecoach-worker").symlink_to("/bin/true")
    if fails:
        error = LeftOut if "built" in fails else client.CheckFailed
        with pytest.raises(error, match=re.escape(fails)):
            kernels.run(results, tmp_path, "golden", program.name)
        assert results.named("") == []
    else:
        kernels.run(results, tmp_path, "golden", program.name)
        assert results.value("kernels/golden/assertions") == 217706


def test_every_memcheck_pattern_matches_a_test():
    names = re.findall(r'^TEST_CASE\("(.*)"\)', "".join(path.read_text() for path in shapes.ROOT.glob("kernels/cuda/**/*_test.cpp")), re.M)
    for pattern in kernels.MEMCHECKED:
        assert fnmatch.filter(names, pattern), pattern


def test_checks_run_in_the_order_of_only():
    checks = [Check(name, None, None, 1) for name in ("hop/2_gpus", "speed/1_stages/start", "speed/4_stages/start", "waves/a")]

    def names(only, skip=()):
        return [check.name for check in chosen(checks, only, skip)]

    assert names([]) == [check.name for check in checks]
    assert names(["waves", "speed/4_stages/*", "speed"], ["hop"]) == ["waves/a", "speed/4_stages/start", "speed/1_stages/start"]
    assert list(PARTS).index("waves") > list(PARTS).index("speed"), "they take longest"


@pytest.mark.parametrize("devices, gpus_of_stages", [(None, [0, 1, 2, 3]), ([4, 5, 6, 7], [0, 1, 2, 3]),
                                                     ([0, 1, 0, 1], [0, 1, 0, 1]), ([2, 2, 0, 0, 1], [0, 0, 1, 1])])
def test_results_record_which_stages_share_a_gpu(devices, gpus_of_stages):
    args = types.SimpleNamespace(devices=devices, transport="host")
    assert placed(args, 4) == dict(gpus_of_stages=gpus_of_stages, wanted_transport="host")
    assert placed(args, 1) == dict(gpus_of_stages=[0])


def waves_summed(results, n_ended, n_wrong=0, reference=waves.REFERENCE, starts=5, n_waves=200, fractions=waves.ALL_FRACTIONS):
    """`n_ended`: number of starts that ended, per fraction."""
    for start in range(n_ended):
        for fraction in fractions:
            results.add(waves.name_of(1, fraction, "plain", start), n_wrong, "waves", "stagecoach serve", reference=reference,
                        n_stages=1, waves=n_waves, wave_ms=80, one_microbatch=False)
    waves.summarize(Options("cuda", [1], False, None, None, starts=starts, waves=n_waves, fractions=fractions, speed_flags=(),
                            gpu_bytes=None), results)
    return results.find("nccl/opt_6.7b/waves_with_other_tokens")


def test_the_wave_goal_is_met_only_after_all_starts(results):
    line = waves_summed(results, 4)
    assert "met" not in line and "12 of 15 starts ended" in line["unit"]
    line = waves_summed(results, 5)
    assert line["met"] and "15 of 15 starts ended" in line["unit"] and "own first waves" not in line["reference"]


@pytest.mark.parametrize("fewer", [dict(starts=4), dict(n_waves=100), dict(fractions=[0.3, 0.9])])
def test_fewer_waves_do_not_meet_the_goal(results, fewer):
    n_ended = fewer.get("starts", 5)
    assert "met" not in waves_summed(results, n_ended, **fewer)
    assert waves_summed(results, n_ended, n_wrong=1, **fewer)["met"] is False


def test_starts_with_another_number_of_waves_do_not_count(results):
    waves_summed(results, 5, n_waves=100)
    assert "3 of 15 starts ended" in waves_summed(results, 1)["unit"]
    assert "15 of 15 starts ended" in waves_summed(results, 0, n_waves=100)["unit"]


def test_a_wrong_wave_fails_the_goal_after_any_number_of_starts(results):
    assert waves_summed(results, 2, n_wrong=1)["met"] is False


def test_waves_without_a_reference_are_reported_and_do_not_meet_the_goal(results):
    line = waves_summed(results, 5, reference=waves.NO_REFERENCE)
    assert "met" not in line and "in 15 starts only its own first waves" in line["reference"]


@pytest.mark.parametrize("devices, fraction", [((0, 0, 0, 0), "0.225"), ((0, 1, 0, 1), "0.45"), ((), "0.9")])
def test_stages_on_one_gpu_share_the_memory_of_a_wave(tmp_path, devices, fraction):
    options = Options("cuda", [4], False, None, shapes.Models(tmp_path, smoke=True), 1, 1, [0.9], (), None, devices=devices)
    for check in waves.checks(options):
        assert check.spec.flags[check.spec.flags.index("--memory-fraction") + 1] == fraction


def test_the_time_limit_of_waves_fits_their_number(tmp_path):
    options = Options("cuda", [1, 2], False, None, shapes.Models(tmp_path, smoke=True), 5, 200, [0.5], (), None)
    assert {check.limit_s for check in waves.checks(options) if check.mode} == {130}


def test_a_reference_with_too_few_different_answers_is_refused(monkeypatch, results):
    monkeypatch.setattr(client, "metrics", lambda _: {("stagecoach_stage_steps_total", (("stage", "0"),)): 7})
    for n_distinct, is_one in (1, False), (5, False), (6, True):
        monkeypatch.setattr(client, "complete", lambda _, prompts, n, n_distinct=n_distinct, **__: [
            [i % n_distinct] * n for i in range(len(prompts))])
        if is_one:
            waves.run(SERVER, results, waves.REFERENCE_NAME, 2, [[[3]] * 12])
        else:
            with pytest.raises(client.CheckFailed, match=f"{n_distinct} different answers to 12 prompts"):
                waves.run(SERVER, results, waves.REFERENCE_NAME, 2, [[[3]] * 12])
        assert (results.find(waves.REFERENCE_NAME) is not None) == is_one


def test_a_partial_checkpoint_is_deleted_before_the_disk_check(monkeypatch, tmp_path):
    folder = tmp_path / "models" / "gemma2-27b"
    folder.mkdir(parents=True)
    (folder / "model-00001-of-00012.safetensors").write_text("partly")
    monkeypatch.setattr(shapes.shutil, "disk_usage",
                        lambda _: types.SimpleNamespace(free=0 if folder.exists() else 2 * shapes.CHECKPOINTS["gemma2-27b"]))
    monkeypatch.setattr(shapes, "run_to_the_end", lambda _: folder.mkdir())
    assert shapes.Models(tmp_path, smoke=False).folder("gemma2-27b") == folder
    assert [path.name for path in folder.iterdir()] == ["complete"]


def test_memory_is_checked_only_on_the_used_gpus(monkeypatch):
    asked = []

    def query(what, *flags):
        asked.append(flags)
        return "6, 2048\n7, 300" if what.startswith("gpu") else "4711, [Not Found], 2000"

    monkeypatch.setattr(gpus, "query", query)
    monkeypatch.setattr(gpus, "FREE_LIMIT_S", 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    assert gpus.held_by_others([0, 1]) == ["GPU 6 has 2048 MiB in use", "process 4711, [Not Found], 2000"]
    assert set(asked) == {("-i", "6,7")}


def test_no_server_starts_on_a_gpu_in_use(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "query", lambda what, *_: "4711, python3, 2000" if what.startswith("compute") else "0, 3")
    monkeypatch.setattr(gpus, "FREE_LIMIT_S", 0)
    server = Server(Spec("demo", 1), shapes.DEMO, tmp_path, "cuda", tmp_path / "log", gpus=[0])
    with pytest.raises(ServerError, match="others hold memory of its GPUs: process 4711, python3, 2000"):
        server.start(limit_s=1)


def test_the_memory_of_a_family_is_compared_with_plan(monkeypatch, results, tmp_path):
    program = tmp_path / "stagecoach"
    program.write_text("""#!/bin/sh
[ "$*" = "plan a/folder --json --prefix-cache off --context 16384 --max-sequences 512" ] || exit 1
echo '{"stages": [{"weights_bytes": 900, "step_bytes": 100}]}'
""")
    program.chmod(0o755)
    spec = Spec("gpt-oss-20b", 1, ("--load-format", "dummy", "--max-model-len", "16384", "--max-sequences", "512"))
    server = types.SimpleNamespace(spec=spec, bin_dir=tmp_path, model_dir="a/folder", env=None, command="stagecoach serve")
    for weights, is_met in ((880, True), (850, False), (950, False)):
        page = {("stagecoach_stage_memory_bytes", (("kind", kind), ("stage", "0"))): value
                for kind, value in (("weights", weights), ("scratch", 105), ("kv", 7))}
        monkeypatch.setattr(client, "metrics", lambda _, page=page: page)
        families.run_memory(server, results, "")
        assert results.find("gpt-oss-20b/memory_off_plan")["met"] == is_met
