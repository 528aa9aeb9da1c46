"""A real Prometheus for tests: it has its own folder and port, reads its targets from a watched file, and is stopped at
the end of the block."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from harness import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "stagecoach.rules.yml"
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
SCRAPE_MS = 200
WINDOW = "3s"  # replaces the minutes of the rules and the dashboard
TIMEOUT_S = 120

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def quick(expression, hour_s=60):
    """The same expression with a window short enough for a test. An hour, in which events happen twice, becomes
    hour_s."""
    return re.sub(r"\[(\d+[smh]|\$__rate_interval)\]",
                  lambda window: f"[{hour_s:.0f}s]" if window[1] == "1h" else f"[{WINDOW}]", expression)


def quick_rules(hour_s=60):
    """The rules with short windows and without a waiting time before an alert fires."""
    return re.sub(r"(?m)^(\s+)for: .*$", r"\1for: 0s", quick(RULES.read_text(), hour_s))


class Prometheus:
    def __init__(self, rules, scrape_ms=SCRAPE_MS):
        self._scrape_ms = scrape_ms
        scrape = f"{scrape_ms}ms"
        self._folder = tempfile.TemporaryDirectory()
        self._path = pathlib.Path(self._folder.name)
        (self._path / "rules.yml").write_text(rules)
        self.set_target(None)
        (self._path / "prometheus.yml").write_text(json.dumps({  # JSON is valid YAML
            "global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": scrape},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{
                "job_name": "stagecoach",
                "file_sd_configs": [{"files": [str(self._path / "targets.json")], "refresh_interval": "1s"}]}]}))

    def set_target(self, address):
        """Sets what the job scrapes: one router under the name "router", or nothing."""
        targets = [] if address is None else [{"targets": [address], "labels": {"instance": "router"}}]
        new = self._path / "targets.new"
        new.write_text(json.dumps(targets))
        os.replace(new, self._path / "targets.json")

    def __enter__(self):
        self.address = f"127.0.0.1:{free_ports(1)}"
        self._log = open(self._path / "log", "w+")
        self.process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={self._path}/prometheus.yml", f"--storage.tsdb.path={self._path}/data",
             f"--web.listen-address={self.address}", "--log.level=warn", f"--query.lookback-delta={max(2000, 3 * self._scrape_ms)}ms"],
            stdout=self._log, stderr=self._log)
        self.wait_for("Prometheus", lambda: self._get("/-/ready") is not None)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        self._log.close()
        self._folder.cleanup()

    def _get(self, path):
        try:
            with _open(f"http://{self.address}{path}", timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 503:  # Prometheus is still starting
                return None
            raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error
        except urllib.error.URLError:
            return None

    def query(self, expression):
        """The samples of an instant query: [({label: value}, number)]."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        assert answer is not None, f"no answer to {expression}"
        data = json.loads(answer)["data"]
        assert data["resultType"] == "vector", expression
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def firing(self):
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def wait_for(self, what, condition):
        """Polls `condition`, because Prometheus does not report its scrapes."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {TIMEOUT_S} s; Prometheus says:\n"
                                     + (self._path / "log").read_text())
            time.sleep(0.05)
