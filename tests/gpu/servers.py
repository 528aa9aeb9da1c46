"""Runs `stagecoach serve` on free ports, with only Python's standard library, because GPU machines may have no more."""
import dataclasses
import functools
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time

from gpus import held_by_others
from processes import children_of, ends_with_us, is_running

STOP_LIMIT_S = 60
GONE_LIMIT_S = 20
MEMORY_FRACTION = 0.9  # share of a GPU's memory for all stages on it
TRANSPORT_LIMIT_S = 5  # for the log line about the transport, which may come after `ready`


@dataclasses.dataclass(frozen=True)
class Spec:
    """The parameters of a server. Checks with equal specs share a start; `start` separates those that must not."""
    model: str  # a name for shapes.Models
    stages: int
    flags: tuple = ()
    env: tuple = ()  # (NAME, VALUE) pairs
    start: int = 0
    prefix_cache: str = "off"  # off: repeated prompts are computed again

    def __str__(self):
        return " ".join([*(f"{name}={value}" for name, value in self.env), "stagecoach serve", self.model, "--stages",
                         str(self.stages), "--prefix-cache", self.prefix_cache, *self.flags])


class ServerError(Exception):
    """The server did not start, or did not stop properly."""


def _library_folders():
    """Folders outside the system's search path that may have the libraries of CUDA and NCCL."""
    for base in (*map(pathlib.Path, sys.path), *pathlib.Path("/usr/local/lib").glob("python3*/dist-packages")):
        yield from base.glob("nvidia/*/lib")
        yield base / "torch" / "lib"
    yield from pathlib.Path("/usr/local").glob("cuda*/lib64")
    yield from pathlib.Path("/usr/local").glob("cuda*/targets/*/lib")


@functools.cache
def library_path(bin_dir, wants_nccl):
    """LD_LIBRARY_PATH with which the programs find their libraries."""
    folders = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    bundled = bin_dir.parent / "lib"
    if bundled.is_dir():
        folders.append(str(bundled))
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(folders))
    said = subprocess.run(["ldd", bin_dir / "stagecoach-worker"], env=env, capture_output=True, text=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", said, re.M)
    if wants_nccl and "libnccl.so.2" not in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout:
        missing.append("libnccl.so.2")
    for name in missing:
        folder = next((f for f in _library_folders() if (f / name).exists()), None)
        if folder is None:
            print(f"{name} is nowhere to be found: LD_LIBRARY_PATH can name its folder", file=sys.stderr)
        elif str(folder) not in folders:
            folders.append(str(folder))
    return ":".join(folders)


def environment(bin_dir, wants_nccl):
    """Environment of the programs."""
    return dict(os.environ, LD_LIBRARY_PATH=library_path(bin_dir, wants_nccl))


def placement(gpus_of_stages, flags):
    """Flags that put each stage on its GPU, in addition to `flags`. Stages on one GPU share its memory."""
    more = ["--devices", ",".join(map(str, gpus_of_stages))]
    sharing = max(map(gpus_of_stages.count, gpus_of_stages))
    if sharing > 1 and "--memory-fraction" not in flags:
        more += ["--memory-fraction", f"{MEMORY_FRACTION / sharing:.2f}"]
    return more


class Server:
    """`grpc`, `http`, `metrics`: addresses; `kv_blocks`; `ready_after_s`; `workers`: pids by stage."""

    def __init__(self, spec, model_dir, bin_dir, device, log_path, more=(), gpus=(), wants_nccl=False):
        """`more`: flags in addition to the spec's. `gpus`: the GPUs it uses. `wants_nccl`: any other transport is an
        error."""
        self.spec = spec
        self.model_dir = model_dir
        self.bin_dir = bin_dir
        self.log_path = log_path
        self.env = environment(bin_dir, device == "cuda") | dict(spec.env)
        self._command = [str(bin_dir / "stagecoach"), "serve", str(model_dir), "--device", device, "--stages", str(spec.stages),
                         "--prefix-cache", spec.prefix_cache, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                         "--flight-recorder", "off", *self._default_flags(), *more, *spec.flags]
        # The command for result lines; it has no paths of this machine.
        self.command = " ".join([str(spec), "--device", device, *more])
        self._gpus = gpus
        self._wants_nccl = wants_nccl
        self.process = None
        self.children = []

    def _default_flags(self):
        """Without a folder that the spec names, a start must not depend on the ones before."""
        return () if "--tuning-cache" in self.spec.flags else ("--tuning-cache", "off")

    def start(self, limit_s):
        self._log = open(self.log_path, "w")
        if held := self._gpus and held_by_others(self._gpus):
            self._log.close()
            raise ServerError(f"others hold memory of its GPUs: {'; '.join(held)}")
        began = time.monotonic()
        # A separate process session: ctrl-C reaches only run.py. If run.py dies, the server dies too.
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=self.env,
                                        start_new_session=True, preexec_fn=ends_with_us())
        try:
            line = self._read_line(limit_s)
            self.ready_after_s = time.monotonic() - began
            self._await_transport()
        except BaseException:
            self.kill()
            raise
        ready = dict(field.split("=", 1) for field in line.split()[1:])
        self.grpc, self.http, self.metrics = ready["grpc"], ready["http"], ready["metrics"]
        self.kv_blocks = int(ready["kv_blocks"])
        children = children_of(self.process.pid)
        self.children = [pid for pid, _ in children]
        self.workers = [pid for pid, name in children if name.startswith("stagecoach-work")]

    def _read_line(self, limit_s):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise ServerError(f"not ready after {limit_s} s")
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise ServerError(f"did not start, exit code {self.process.wait(timeout=STOP_LIMIT_S)}: {self.last_error()}")
        return line

    def _transports(self):
        return re.findall(r"messages travel by (.*)\n", self.log())

    def transport(self):
        """The transport between the stages, from the server's log."""
        return ", ".join(dict.fromkeys(self._transports())) or None

    def _await_transport(self):
        """Raises if NCCL is required and a stage uses another transport: the results would get the wrong names."""
        if self.spec.stages == 1:
            return
        deadline = time.monotonic() + TRANSPORT_LIMIT_S
        while len(said := self._transports()) < self.spec.stages and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._wants_nccl and (len(said) < self.spec.stages or not all(how.startswith("NCCL") for how in said)):
            raise ServerError(f"messages travel by {self.transport() or 'nobody knows what'} instead of NCCL; if that is meant: "
                              "--transport host")

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Stops the server in order. Raises if it did not stop properly."""
        if self.process is None:
            return
        try:
            if self.is_alive():
                self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ServerError(f"does not end within {STOP_LIMIT_S} s of SIGTERM") from None
        finally:
            self.kill()
        if code != 0:
            raise ServerError(f"ended with exit code {code}: {self.last_error()}")

    def left(self):
        """Pids of its child processes that still run."""
        return [pid for pid in self.children if is_running(pid)]

    def kill(self):
        """Kills the server in any state."""
        if self.process is None:
            return
        for pid in {*self.children, *(pid for pid, _ in children_of(self.process.pid))}:
            if is_running(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.kill()
        # A GPU's memory is freed when its process is gone; the next server relies on it.
        deadline = time.monotonic() + GONE_LIMIT_S
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            self.process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"process {self.process.pid} does not end even when killed", file=sys.stderr)
        self.process.stdout.close()
        self._log.close()
        self.process = None

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def tail(self, n=30):
        return "\n".join(f"    | {line}" for line in self.log().splitlines()[-n:])

    def last_error(self):
        errors = [line for line in self.log().splitlines() if line.startswith("error")]
        return errors[-1] if errors else "it says nothing"
