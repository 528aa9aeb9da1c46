"""A pipeline whose programs reach one another through toxiproxy, which cuts and delays their connections.

All programs know a stage by the same address, as the router tells workers where their neighbours are. So the address is
a name, and the router and the workers have hosts files of their own: for the router the name is one proxy of the stage,
for the other workers another one.
"""
import contextlib
import functools
import json
import os
import secrets
import subprocess
import tempfile
import urllib.request

from harness import BIN_DIR, START_TIMEOUT_S, STOP_TIMEOUT_S, free_ports, parse_ready, wait_until
from protos import ROOT

TOXIPROXY = ROOT / "build" / "tools" / "toxiproxy-server"  # built by `tests/run.sh cluster`
SIDES = dict(router="127.0.0.2", workers="127.0.0.3")


@functools.cache
def _own_mounts():
    """A command that gives a program mounts of its own; None: this is not allowed here."""
    for command in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return None


def why_impossible():
    """Why there can be no such pipeline here; None: there can."""
    if not TOXIPROXY.exists():
        return f"{TOXIPROXY} is missing: tests/run.sh cluster builds it"
    return None if _own_mounts() else "neither root nor a user namespace: no hosts file for each program"


class ProxiedPipeline:
    """`grpc` is the router's address. A `side` of a stage is "router" or "workers": whose connections to the stage."""

    def __init__(self, model, stages, flags=()):
        self._model, self._n_stages, self._flags = str(model), stages, [str(flag) for flag in flags]

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._log_file = stack.enter_context(tempfile.TemporaryFile(mode="w+"))
            self._secret = f"{self._folder}/secret"
            with open(self._secret, "w") as file:
                file.write(secrets.token_hex(32))
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _run(self, stack, command, stdout=subprocess.PIPE, env=None):
        process = subprocess.Popen(command, stdout=stdout, stderr=self._log_file, text=True, env=env)
        stack.callback(process.wait, timeout=STOP_TIMEOUT_S)
        stack.callback(process.kill)
        return process

    def _program(self, stack, side, name, *arguments):
        with_hosts = [*_own_mounts(), "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', f"{self._folder}/{side}.hosts"]
        # The system's resolver asks no server for a name of the hosts file; gRPC's own one does, for IPv6.
        environment = {**os.environ, "GRPC_DNS_RESOLVER": "native"}
        return self._run(stack, [*with_hosts, str(BIN_DIR / name), *arguments, "--secret-file", self._secret], env=environment)

    def _start(self, stack):
        api, *ports = range((first := free_ports(1 + self._n_stages)), first + 1 + self._n_stages)
        self._api = f"http://127.0.0.1:{api}"
        self._run(stack, [str(TOXIPROXY), "-host", "127.0.0.1", "-port", str(api)], stdout=subprocess.DEVNULL)
        wait_until(self._answers, "toxiproxy's API", timeout_s=START_TIMEOUT_S)
        for side, host in SIDES.items():
            with open(f"{self._folder}/{side}.hosts", "w") as hosts:
                hosts.write("127.0.0.1 localhost\n" + "".join(f"{host} stage{i}.test\n" for i in range(self._n_stages)))
        for stage, port in enumerate(ports):
            worker = self._program(stack, "workers", "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1")
            listens = parse_ready(worker.stdout.readline(), "listening")["grpc"]
            for side, host in SIDES.items():
                self._ask("POST", "proxies", name=f"{side}-{stage}", listen=f"{host}:{port}", upstream=listens, enabled=True)
        router = self._program(stack, "router", "stagecoach-router", "--model", self._model, "--stages",
                               ",".join(f"stage{stage}.test:{port}" for stage, port in enumerate(ports)),
                               "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *self._flags)
        self.grpc = parse_ready(router.stdout.readline())["grpc"]

    def _ask(self, method, path, **body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._api}/{path}", json.dumps(body).encode(), headers, method=method)
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).read()

    def _answers(self):
        with contextlib.suppress(OSError):
            return self._ask("GET", "version")

    def log(self):
        """The programs' standard error so far."""
        log = self._log_file.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def cut(self, side, stage):
        """Closes these connections and refuses others until `mend`."""
        self._ask("POST", f"proxies/{side}-{stage}", enabled=False)

    def delay(self, side, stage, ms):
        """Everything on these connections comes this much later, in both directions, until `mend`. A long time: the
        connection is there, and nothing comes."""
        for stream in ("upstream", "downstream"):
            self._ask("POST", f"proxies/{side}-{stage}/toxics", name=stream, type="latency", stream=stream, attributes=dict(latency=ms))

    def mend(self, side, stage):
        """Ends a cut or a delay. What was delayed comes at once."""
        proxy = f"proxies/{side}-{stage}"
        for toxic in json.loads(self._ask("GET", proxy))["toxics"]:
            self._ask("DELETE", f"{proxy}/toxics/{toxic['name']}")
        self._ask("POST", proxy, enabled=True)
