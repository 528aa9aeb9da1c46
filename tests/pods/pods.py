"""Network namespaces that simulate pods: each has its own address on one bridge, and a Service in front of them works
as with kube-proxy. Everything lives in namespaces and ends with them."""
import atexit
import functools
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import tempfile
import time

from harness import BIN_DIR, DEMO_MODEL

TIMEOUT_S = 120
SERVICE = "10.77.255.1"  # no namespace has this address; only the client's rules know it
HTTP_PORT, GRPC_PORT, METRICS_PORT, STAGE_PORT = 8000, 9000, 9001, 9100


def ip(*arguments, check=True):
    return subprocess.run(["ip", *map(str, arguments)], check=check, capture_output=True, text=True)


def why_not():
    """Why this machine cannot run such pods; empty if it can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if missing := [tool for tool in ("ip", "iptables") if not shutil.which(tool)]:
        return f"no {', '.join(missing)} here"
    name = f"stagecoach-{os.getpid()}-probe"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "bridge", "type", "bridge")
        subprocess.run(["ip", "netns", "exec", name, "iptables", "-t", "nat", "-S"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr or error}"
    finally:
        ip("netns", "del", name, check=False)
    return ""


class Network:
    def __init__(self):
        self._prefix = f"stagecoach-{os.getpid()}"
        self._namespaces = []
        self._processes = []
        self._switch = self._add("switch")
        ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._switch, "link", "set", "bridge", "up")
        self.client = self.pod("client")
        self._service = None
        # Connections that no rule translates are refused; kube-proxy does the same for a Service without pods.
        self.client.run("iptables", "-A", "OUTPUT", "-p", "tcp", "-d", SERVICE, "-j", "REJECT", "--reject-with", "tcp-reset")

    def _add(self, name):
        namespace = f"{self._prefix}-{name}"
        ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def pod(self, name):
        """Adds a namespace on the bridge."""
        namespace = self._add(name)
        n = len(self._namespaces)
        ip("-n", self._switch, "link", "add", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", self._switch, "link", "set", f"port{n}", "master", "bridge", "up")
        ip("-n", namespace, "addr", "add", f"10.77.0.{n}/16", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return Pod(self, namespace, f"10.77.0.{n}")

    def point_service_to(self, pod):
        """New connections go to `pod`; open ones stay where they are. None: new connections are refused."""
        rule = ["OUTPUT", "-p", "tcp", "-d", SERVICE, "-j", "DNAT", "--to-destination"]
        # The new rule is added before the old one is removed, so that there always is one.
        if pod:
            self.client.run("iptables", "-t", "nat", "-I", *rule, pod.address)
        if self._service:
            self.client.run("iptables", "-t", "nat", "-D", *rule, self._service.address)
        self._service = pod

    def track(self, process):
        self._processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for namespace in reversed(self._namespaces):
            ip("netns", "del", namespace, check=False)


class Pod:
    def __init__(self, network, namespace, address):
        self._network = network
        self._namespace = namespace
        self.address = address

    def run(self, *command):
        return subprocess.run(["ip", "netns", "exec", self._namespace, *map(str, command)], check=True, capture_output=True, text=True)

    def start(self, *command, **options):
        process = subprocess.Popen(["ip", "netns", "exec", self._namespace, *map(str, command)], **options)
        self._network.track(process)
        return process


class Program:
    """A process in a pod; `ip netns exec` has replaced itself with the program."""

    def __init__(self, pod, name, *flags):
        self.pod = pod
        self._log = tempfile.TemporaryFile(mode="w+")
        self.process = pod.start(BIN_DIR / name, *flags, stdout=self._log, stderr=self._log)

    def log(self):
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def end(self):
        """Sends SIGTERM and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=TIMEOUT_S)


@functools.cache
def secret_file():
    """The secret file of all pipelines."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    file = pathlib.Path(folder) / "secret"
    file.write_text(secrets.token_hex(32))
    return file


def stage(pod, i=0):
    return Program(pod, "stagecoach-worker", f"--listen={pod.address}:{STAGE_PORT + i}", "--threads=1", f"--secret-file={secret_file()}")


def router(pod, stage_addresses, *flags):
    return Program(pod, "stagecoach-router", f"--model={DEMO_MODEL}", f"--stages={','.join(stage_addresses)}", "--kv-memory=64MiB",
                   f"--secret-file={secret_file()}",
                   f"--http={pod.address}:{HTTP_PORT}", f"--grpc={pod.address}:{GRPC_PORT}",
                   f"--metrics={pod.address}:{METRICS_PORT}", *flags)


class Pipeline:
    """The chart's form for nodes: 1, the router and its stages in one pod."""

    def __init__(self, network, name):
        self.pod = network.pod(name)
        self.stages = [stage(self.pod, i) for i in range(2)]
        self.router = router(self.pod, [f"{self.pod.address}:{STAGE_PORT + i}" for i in range(2)])

    def end(self):
        return [program.end() for program in (self.router, *self.stages)]


def wait_until_ready(network, program):
    """Polls like a readiness probe, from another pod."""
    deadline = time.monotonic() + TIMEOUT_S
    url = f"http://{program.pod.address}:{HTTP_PORT}/ready"
    ask = ("import sys, urllib.request as r; "
           "sys.exit(r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5).status != 200)")
    while True:
        try:
            network.client.run("python3", "-c", ask, url)
            return
        except subprocess.CalledProcessError:
            assert program.process.poll() is None, program.log()
            assert time.monotonic() < deadline, program.log()
