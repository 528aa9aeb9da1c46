"""A real API server with etcd, controllers and scheduler on loopback. Nodes are simulated by kwok, or are real kubelets
(kubelet.py)."""
import json
import os
import pathlib
import subprocess
import time

from harness import free_ports

TOOLS = pathlib.Path(os.environ.get("STAGECOACH_KUBERNETES_TOOLS", pathlib.Path.home() / ".cache/stagecoach-tools"))
TIMEOUT_S = 180
TOKEN = "test-token"
ADDRESS = "127.0.0.1"


def run(program, *arguments, check=True, text=True, **options):
    process = subprocess.run([str(TOOLS / program), *map(str, arguments)], capture_output=True, text=text, **options)
    assert not check or process.returncode == 0, f"{program} {arguments}\n{process.stdout}{process.stderr}"
    return process


def wait_for(what, condition, timeout_s=TIMEOUT_S):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what() if callable(what) else what}"
        time.sleep(0.2)
    return value


class Cluster:
    """`folder` holds data and logs. A node that is silent for `node_grace_s` becomes NotReady."""

    def __init__(self, folder, node_grace_s=60):
        self._folder = folder
        self._node_grace_s = node_grace_s
        self._processes = {}
        self._logs = {}
        self.kubeconfig = folder / "kubeconfig"

    def start(self, name, program, *arguments):
        self._logs[name] = open(self._folder / f"{name}.log", "w")
        self._processes[name] = subprocess.Popen([str(program), *map(str, arguments)], stdout=self._logs[name],
                                                 stderr=subprocess.STDOUT)

    def stop(self, name):
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._logs.pop(name).close()

    def log(self, name, n_bytes=6000):
        return (self._folder / f"{name}.log").read_text(errors="replace")[-n_bytes:]

    def __enter__(self):
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(list(self._processes)):
            self.stop(name)

    def _start_all(self):
        first = free_ports(5)
        etcd, peer, secure, kcm, scheduler = range(first, first + 5)
        key = self._folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        (self._folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self.server = f"https://{ADDRESS}:{secure}"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}))
        self.start("etcd", TOOLS / "etcd", "--data-dir", self._folder / "etcd", "--unsafe-no-fsync",
                   "--listen-client-urls", f"http://127.0.0.1:{etcd}", "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
                   "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                   "--initial-cluster", f"default=http://127.0.0.1:{peer}")
        self.start("kube-apiserver", TOOLS / "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{etcd}",
                   "--bind-address", ADDRESS, "--advertise-address", ADDRESS, "--secure-port", secure,
                   "--cert-dir", self._folder / "certificates", "--token-auth-file", self._folder / "tokens.csv",
                   "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
                   "--service-account-issuer", self.server, "--service-account-key-file", key,
                   "--service-account-signing-key-file", key, "--endpoint-reconciler-type", "none",
                   "--kubelet-preferred-address-types", "InternalIP")
        wait_for(lambda: self.kubectl("get", "--raw=/readyz?verbose", check=False).stderr + self.log("kube-apiserver"),
                 lambda: self.kubectl("get", "--raw=/readyz", check=False).stdout == "ok")
        self.start("kube-controller-manager", TOOLS / "kube-controller-manager", "--kubeconfig", self.kubeconfig,
                   "--service-account-private-key-file", key, "--use-service-account-credentials=false", "--leader-elect=false",
                   "--secure-port", kcm, "--bind-address", ADDRESS, "--cert-dir", self._folder / "certificates",
                   "--node-monitor-grace-period", f"{self._node_grace_s}s", "--node-monitor-period", "1s")
        self.start("kube-scheduler", TOOLS / "kube-scheduler", "--kubeconfig", self.kubeconfig, "--leader-elect=false",
                   "--secure-port", scheduler, "--bind-address", ADDRESS, "--cert-dir", self._folder / "certificates")
        wait_for("the default service account",
                 lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0)

    def kubectl(self, *arguments, **options):
        return run("kubectl", f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self._folder}/kubectl", *arguments, **options)

    def helm(self, *arguments, **options):
        environment = os.environ | {f"HELM_{name}_HOME": f"{self._folder}/helm" for name in ("CACHE", "CONFIG", "DATA")}
        return run("helm", f"--kubeconfig={self.kubeconfig}", *arguments, env=environment, **options)

    def get(self, kind, *arguments):
        """The objects of a kind, or the named one."""
        found = json.loads(self.kubectl("get", kind, "-o", "json", *arguments).stdout)
        return found["items"] if found["kind"].endswith("List") else found

    def apply(self, *objects, check=True, flags=()):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", *flags, input=text, check=check)

    def add_simulated_nodes(self, group, names, labels=None):
        """Adds nodes that a separate kwok process keeps alive until stop(f"kwok-{group}")."""
        port = free_ports(1)
        quantities = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
        self.apply(*({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": name, "annotations": {"node.alpha.kubernetes.io/ttl": "0", "kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kwok-group": group, **(labels or {})}},
            "spec": {}, "status": {"allocatable": quantities, "capacity": quantities}} for name in names))
        self.start(f"kwok-{group}", TOOLS / "kwok", "--kubeconfig", self.kubeconfig, "--manage-all-nodes=false",
                   f"--manage-nodes-with-label-selector=kwok-group={group}", "--config", TOOLS / "kwok-stages.yaml",
                   "--node-lease-duration-seconds", "8", "--server-address", f"127.0.0.1:{port}")
        for name in names:
            wait_for(lambda: self.log(f"kwok-{group}"), lambda name=name: ready(self.get("node", name)))


def ready(one):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in one.get("status", {}).get("conditions", []))
