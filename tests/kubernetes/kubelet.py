"""A real kubelet with containerd: the only node of a cluster (cluster.py). It runs in the namespaces that run.sh
creates, so that its writes to /run and /var/lib stay there."""
import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import socketserver
import struct
import subprocess
import tarfile
import threading

from cluster import TOOLS, ready, wait_for

NODE = "real"
NODE_ADDRESS = "10.89.0.1"  # address of an unused bridge: a node's address must not be loopback
POD_GATEWAY = "10.88.0.1"
NEXT = "next"  # tag of the same images, for an upgrade
PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"  # exists if busybox-static is installed
CGROUPS = pathlib.Path("/sys/fs/cgroup")
CNI_PLUGINS = pathlib.Path("/usr/lib/cni")
# Kernel settings that a kubelet changes for the whole machine; it reads here that they are already set.
TUNABLES = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
            "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}


def why_not():
    """Why this machine cannot run a kubelet; empty if it can."""
    if missing := [tool for tool in ("containerd", "ctr", "runc", "gcc", "ip", "mount") if not shutil.which(tool)]:
        return f"no {', '.join(missing)} here"
    if not (CNI_PLUGINS / "bridge").exists():
        return f"no {CNI_PLUGINS}/bridge here: apt-get install containernetworking-plugins"
    return "" if os.environ.get("STAGECOACH_IMAGES") else "run.sh makes the images and the namespaces"


def _sh(*command):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def pause_program(folder):
    """Builds a program that only waits; it keeps a pod's namespaces alive."""
    source, program = folder / "pause.c", folder / "pause"
    source.write_text("#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { (void)s; _exit(0); }\n"
                      "int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }\n")
    _sh("gcc", "-static", "-Os", "-s", "-o", program, source)
    return program


def image(folder, name, program, links=()):
    """Builds an image archive with one static program, which also has the names `links` in /bin."""
    layer, archive = folder / "layer.tar", folder / f"{program.name}.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(program, arcname=program.name)
        for link in links:
            info = tarfile.TarInfo(f"bin/{link}")
            info.type, info.linkname = tarfile.SYMTYPE, f"/{program.name}"
            tar.addfile(info)
    config = {"architecture": "amd64", "os": "linux",
              "config": {"Entrypoint": [f"/{program.name}"], "Env": ["PATH=/bin"], "User": "65535:65535"},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"]}}
    with tarfile.open(archive, "w") as tar:
        for entry, text in (("config.json", json.dumps(config)),
                            ("manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]))):
            info = tarfile.TarInfo(entry)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        tar.add(layer, arcname="layer.tar")
    return archive


def cgroup_hierarchies():
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [one for one in CGROUPS.iterdir() if one.is_dir() and not one.is_symlink()]


class Names(socketserver.ThreadingUDPServer):
    """Replaces the cluster's DNS and kube-proxy: a Service's name resolves to the address of a ready pod behind it."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, cluster):
        self.cluster = cluster
        super().__init__((POD_GATEWAY, 53), _Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def addresses(self, name):
        service, namespace, *rest = name.split(".")
        if rest != ["svc", "cluster", "local"]:
            return []
        slices = self.cluster.get("endpointslices", "-n", namespace, "-l", f"kubernetes.io/service-name={service}")
        return [address for one in slices for endpoint in one.get("endpoints") or [] if endpoint["conditions"].get("ready")
                for address in endpoint["addresses"]]


class _Answer(socketserver.BaseRequestHandler):
    def handle(self):
        query, sock = self.request
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12:at + 5]
        found = self.server.addresses(".".join(labels).lower()) if len(labels) == 5 else []
        if not found:  # NXDOMAIN, so that the resolver tries its next search domain
            sock.sendto(query[:2] + struct.pack(">5H", 0x8583, 1, 0, 0, 0) + question, self.client_address)
            return
        kind = struct.unpack(">H", question[-4:-2])[0]
        records = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(one) for one in found] if kind == 1 else []
        sock.sendto(query[:2] + struct.pack(">5H", 0x8580, 1, len(records), 0, 0) + question + b"".join(records), self.client_address)


class Kubelet:
    def __init__(self, cluster, folder, images):
        self._cluster = cluster
        self._folder = folder
        self._images = images
        self._socket = "/run/stagecoach-containerd.sock"
        self._cgroup = os.environ["STAGECOACH_CGROUP"]  # run.sh removes it after its last process has ended

    def __enter__(self):
        try:
            self._own_what_is_written()
            self._network()
            self._start_containerd()
            self._load(image(self._folder, PAUSE, pause_program(self._folder)))
            if busybox := shutil.which("busybox"):
                self._load(image(self._folder, BUSYBOX, pathlib.Path(busybox), ["sh", "sleep", "kill", "tar", "ls"]))
            for archive in self._images:
                self._load(archive)
            self._start_kubelet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(KeyError):
            self._cluster.stop("kubelet")
        with contextlib.suppress(KeyError):
            self._end_containers()
            self._cluster.stop("containerd")

    def _own_what_is_written(self):
        _sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        own = self._folder / "own"
        own.mkdir()
        _sh("mount", "-t", "tmpfs", "tmpfs", own)
        for path in ("/var/lib", "/var/log"):
            upper, work = own / path.replace("/", "-") / "upper", own / path.replace("/", "-") / "work"
            upper.mkdir(parents=True)
            work.mkdir()
            _sh("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", path)
        for name, value in TUNABLES.items():
            if pathlib.Path(f"/proc/sys/{name}").exists():
                file = own / name.replace("/", "-")
                file.write_text(f"{value}\n")
                _sh("mount", "--bind", file, f"/proc/sys/{name}")

    def _network(self):
        for name, address in (("node0", NODE_ADDRESS), ("cni0", POD_GATEWAY)):
            _sh("ip", "link", "add", name, "type", "bridge")
            _sh("ip", "addr", "add", f"{address}/16", "dev", name)
            _sh("ip", "link", "set", name, "up")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._cni = self._folder / "cni"
        self._cni.mkdir()
        (self._cni / "10-bridge.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": {
                "type": "host-local", "dataDir": str(self._folder / "addresses"), "ranges": [[{"subnet": "10.88.0.0/16"}]],
                "routes": [{"dst": "0.0.0.0/0"}]}}]}))

    def _start_containerd(self):
        config = self._folder / "containerd.toml"
        config.write_text(f"""version = 2
root = "{self._folder}/containerd"
state = "/run/stagecoach-containerd"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{self._cni}"
[plugins."io.containerd.internal.v1.opt"]
path = "{self._folder}/opt"
""")
        self._cluster.start("containerd", shutil.which("containerd"), "--config", config)
        wait_for(lambda: self._cluster.log("containerd"),
                 lambda: subprocess.run(["ctr", "--address", self._socket, "version"], capture_output=True).returncode == 0)

    def _ctr(self, *arguments):
        return _sh("ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments)

    def _load(self, archive):
        """Imports an image under its full name, as pods use it; our images also under the tag of the next version."""
        name = self._ctr("images", "import", archive).split()[1]
        if not name.startswith("localhost/"):
            full = f"docker.io/{name.removeprefix('docker.io/')}"
            for other in {full, f"{full.rpartition(':')[0]}:{NEXT}"} - {name}:
                self._ctr("images", "tag", name, other)

    def _end_containers(self):
        for task in self._ctr("tasks", "list", "--quiet").split():
            subprocess.run(["ctr", "--address", self._socket, "--namespace", "k8s.io", "tasks", "delete", "--force", task],
                           capture_output=True)

    def _start_kubelet(self):
        for hierarchy in cgroup_hierarchies():
            (hierarchy / self._cgroup).mkdir()
        config = self._folder / "kubelet.json"
        config.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "address": NODE_ADDRESS, "healthzPort": 0,
            "containerRuntimeEndpoint": f"unix://{self._socket}", "podLogsDir": str(self._folder / "pod-logs"),
            "volumePluginDir": str(self._folder / "volume-plugins"), "resolvConf": "",
            "clusterDNS": [POD_GATEWAY], "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self._cgroup}", "failCgroupV1": False, "oomScoreAdj": 0,
            "failSwapOn": False, "makeIPTablesUtilChains": False,
            # A nearly full disk must not fail the test.
            "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%",
                                                                 "imagefs.available": "1%"}}))
        self._cluster.start("kubelet", TOOLS / "kubelet", "--config", config, "--kubeconfig", self._cluster.kubeconfig,
                            "--root-dir", self._folder / "kubelet", "--cert-dir", self._folder / "kubelet-certificates",
                            "--hostname-override", NODE, "--node-ip", NODE_ADDRESS)
        wait_for(lambda: self._cluster.log("kubelet"), lambda: any(map(ready, self._cluster.get("nodes"))))
