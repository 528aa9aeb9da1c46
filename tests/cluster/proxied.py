"""A pipeline whose programs reach one another through toxiproxy, which cuts and delays their connections.

All programs know a stage by the same address, as the router tells workers where their neighbours are. So the address is
a name, and the router and the workers have hosts files of their own: for the router the name is one proxy of the stage,
for the other workers another one.
"""
import contextlib
import functools
import os
import secrets
import subprocess
import tempfile

from harness import BIN_DIR, STOP_TIMEOUT_S, free_ports, parse_ready
from toxiproxy import PROGRAM, Toxiproxy

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
    if not PROGRAM.exists():
        return f"{PROGRAM} is missing: tests/run.sh cluster builds it"
    return None if _own_mounts() else "neither root nor a user namespace: no hosts file for each program"


class ProxiedPipeline:
    """`grpc` is the router's address; `proxies` are {(side, stage): Toxiproxy}, where the side, "router" or "workers", tells
    whose connections to the stage."""

    def __init__(self, model, stages, flags=()):
        self._model, self._n_stages, self._flags = str(model), stages, [str(flag) for flag in flags]
        self.proxies = {}

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

    def _program(self, stack, side, name, *arguments):
        with_hosts = [*_own_mounts(), "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', f"{self._folder}/{side}.hosts"]
        # The system's resolver asks no server for a name of the hosts file; gRPC's own one does, for IPv6.
        environment = {**os.environ, "GRPC_DNS_RESOLVER": "native"}
        process = subprocess.Popen([*with_hosts, str(BIN_DIR / name), *arguments, "--secret-file", self._secret],
                                   stdout=subprocess.PIPE, stderr=self._log_file, text=True, env=environment)
        stack.callback(process.wait, timeout=STOP_TIMEOUT_S)
        stack.callback(process.kill)
        return process

    def _start(self, stack):
        first = free_ports(3 * self._n_stages)
        ports, apis = range(first, first + self._n_stages), iter(range(first + self._n_stages, first + 3 * self._n_stages))
        for side, host in SIDES.items():
            with open(f"{self._folder}/{side}.hosts", "w") as hosts:
                hosts.write("127.0.0.1 localhost\n" + "".join(f"{host} stage{i}.test\n" for i in range(self._n_stages)))
        for stage, port in enumerate(ports):
            worker = self._program(stack, "workers", "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1")
            listens = parse_ready(worker.stdout.readline(), "listening")["grpc"]
            for side, host in SIDES.items():
                self.proxies[side, stage] = Toxiproxy(stack, next(apis), f"{host}:{port}", listens)
        router = self._program(stack, "router", "stagecoach-router", "--model", self._model, "--stages",
                               ",".join(f"stage{stage}.test:{port}" for stage, port in enumerate(ports)),
                               "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *self._flags)
        self.grpc = parse_ready(router.stdout.readline())["grpc"]

    def log(self):
        """The programs' standard error so far."""
        log = self._log_file.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
