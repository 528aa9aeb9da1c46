"""Runs a rendered container without a container runtime: its command and flags, its probes, and with no more rights
than its security context allows."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import BIN_DIR

TIMEOUT_S = 120
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

# Drops root and makes everything read-only, as in the pod. Tests that do not run as root skip this.
CONFINE = ["unshare", "--mount", "sh", "-c", """
mount -o remount,bind,ro / 2>/dev/null || exit 90
exec setpriv --reuid "$0" --regid "$0" --clear-groups --no-new-privs --bounding-set=-all -- "$@"
"""]


def can_confine():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    probe = subprocess.run([*CONFINE, "65532", BIN_DIR / "stagecoach-worker", "--version"], capture_output=True)
    return probe.returncode == 0


class Container:
    """A process instead of a container. `hosts` replaces host names, because nothing resolves them here; `files`
    replaces paths, because nothing is mounted here."""

    def __init__(self, spec, pod, host="127.0.0.1", hosts=None, files=None):
        self.spec = spec
        self.host = host
        self._pod = pod
        self._hosts = hosts or {}
        self._files = files or {}
        self.process = None

    def command(self):
        program, *rest = self.spec["command"] + self.spec.get("args", [])
        arguments = []
        for argument in rest:
            argument = argument.replace("$(THREADS)", "1").replace("0.0.0.0", self.host)
            for name, address in self._hosts.items():
                argument = re.sub(rf"\b{re.escape(name)}\b", address, argument)
            for path, here in self._files.items():
                argument = argument.replace(path, here)
            arguments.append(argument)
        return [str(BIN_DIR / program), *arguments]

    def start(self):
        user = str(self._pod["securityContext"]["runAsUser"])
        self._log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([*(CONFINE + [user] if can_confine() else []), *self.command()],
                                        stdout=self._log, stderr=self._log)
        return self

    def log(self):
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def probe(self, kind):
        """The result that the kubelet would get from the probe now."""
        probe = self.spec[kind + "Probe"]
        if "httpGet" in probe:
            ports = {port["name"]: port["containerPort"] for port in self.spec["ports"]}
            try:
                with _open(f"http://{self.host}:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}",
                           timeout=probe["timeoutSeconds"]) as answer:
                    return 200 <= answer.status < 400
            except OSError:
                return False
        with grpc.insecure_channel(f"{self.host}:{probe['grpc']['port']}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", "")), timeout=probe["timeoutSeconds"])
                return answer.status == health_pb2.HealthCheckResponse.SERVING
            except grpc.RpcError:
                return False

    def wait_for_probe(self, kind):
        deadline = time.monotonic() + TIMEOUT_S
        while not self.probe(kind):
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.command()}\n{self.log()}"
            assert time.monotonic() < deadline, f"{kind} probe: {self.command()}\n{self.log()}"
            time.sleep(0.05)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def end(self):
        """Sends SIGTERM and returns the exit code."""
        self.terminate()
        return self.process.wait(timeout=TIMEOUT_S)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait(timeout=TIMEOUT_S)
