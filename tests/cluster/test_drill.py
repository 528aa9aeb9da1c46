"""`stagecoach drill`: it says what becomes of streams when stages are lost, and fails unless all are as without a fault."""
import json
import subprocess

import pytest
from harness import DEMO_MODEL, STAGECOACH, START_TIMEOUT_S


def drill(*flags):
    command = [STAGECOACH, "drill", str(DEMO_MODEL), "--streams", "14", *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * START_TIMEOUT_S)


@pytest.mark.long
def test_all_streams_are_identical_after_each_fault():
    ended = drill("--stages", 3, "--stall-limit", 2, "--json")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["all_identical"]
    assert [(row["fault"], row["stage"]) for row in said["faults"]] == [(name, stage) for name in ("kill", "stop") for stage in range(3)]
    for row in said["faults"]:
        assert (row["identical"], row["streams"], row["running_share"]) == (14, 14, 1)
        assert row["noticed_s"]["n"] == row["recovered_s"]["n"] == 1


def test_the_table_has_a_line_for_each_stage():
    ended = drill("--faults", "kill", "--rounds", 2)
    assert ended.returncode == 0, ended.stderr
    groups, names, *rows, end = ended.stdout.splitlines()
    assert names.split()[:4] == ["fault", "stage", "streams", "identical"]
    assert [row.split()[:4] for row in rows] == [["kill", str(stage), "28", "28"] for stage in range(2)]
    assert end == "all 56 streams ended as without a fault"


def test_without_recovery_the_drill_fails():
    ended = drill("--faults", "kill", "--recovery-limit", 0)
    assert ended.returncode == 1
    assert "14 of 14 streams did not end as without a fault; the first error: stage 0 (" in ended.stdout
    assert "worker 0 was killed by signal 9" in ended.stderr
