"""hey, a common load generator; tests/run.sh builds it if Go is installed."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from harness import DEMO_MODEL, Cluster, protos
from wire import ask, metric

HEY = shutil.which("hey") or shutil.which(str(pathlib.Path(protos.ROOT, "build", "tools", "hey")))
CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 8, "stream": True}

pytestmark = pytest.mark.skipif(HEY is None, reason="no hey here")


def statuses(cluster, *options, n=192):
    """{status: number of responses} for `n` requests."""
    command = [HEY, "-n", str(n), "-m", "POST", "-T", "application/json", "-d", json.dumps(CHAT), *options,
               f"http://{cluster.http}/v1/chat/completions"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={})
    assert run.returncode == 0 and "Error distribution" not in run.stdout, run.stdout + run.stderr
    return {int(status): int(count) for status, count in re.findall(r"\[(\d+)\]\s+(\d+) responses", run.stdout)}


@pytest.mark.parametrize("options", [["-c", "64"], ["-c", "32", "-disable-keepalive"]], ids=["kept", "new"])
def test_all_requests_are_answered(cluster, options):
    assert statuses(cluster, *options) == {200: 192}
    assert ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 0


def test_excess_requests_are_refused_and_the_others_answered():
    with Cluster(DEMO_MODEL, flags=["--max-sequences", "2", "--max-waiting", "4"]) as cluster:
        by_status = statuses(cluster, "-c", "64")
        assert by_status.keys() <= {200, 429} and sum(by_status.values()) == 192 and by_status[200] > 0
        assert metric(cluster.http, "stagecoach_http_responses_total", status="200") >= by_status[200]
        assert statuses(cluster, "-c", "4", n=40) == {200: 40}
