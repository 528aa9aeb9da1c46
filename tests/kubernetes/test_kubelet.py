"""Tests the chart's CPU variant on a real kubelet: scheduled, started by containerd from the images, probed, used,
damaged, upgraded."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import threading
import urllib.request

import pytest
from chart import CHART, value_flags
from cluster import Cluster, ready, wait_for
from harness import BIN_DIR, DEMO_MODEL
from kubelet import BUSYBOX, NEXT, Kubelet, Names, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
RUNBOOK = CHART.parent / "deploy" / "prometheus" / "RUNBOOK.md"
# Resources for the demo model on a small machine; all other values are the chart's defaults.
SMALL = {"requests": {"cpu": "50m", "memory": "256Mi", "ephemeral-storage": "16Mi"},
         "limits": {"memory": "1Gi", "ephemeral-storage": "256Mi"}}
VALUES = {"model.volume": {"hostPath": {"path": str(DEMO_MODEL), "type": "Directory"}}, "model.sizeGiB": 1, "model.name": "demo",
          "worker.kvMemory": "64MiB", "worker.resources": SMALL, "router.resources": SMALL}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    images = [pathlib.Path(os.environ["STAGECOACH_IMAGES"]) / f"{name}.tar" for name in ("router", "worker-cpu")]
    with Cluster(tmp_path_factory.mktemp("cluster")) as one, Kubelet(one, tmp_path_factory.mktemp("node"), images), Names(one) as names:
        one.names = names
        helm(one, "install")
        yield one


def helm(cluster, verb, **values):
    ran = cluster.helm(verb, "chat", CHART, "--wait", "--timeout", "170s", *value_flags(None, VALUES | values), check=False)
    assert ran.returncode == 0, ran.stderr + cluster.kubectl("describe", "pods").stdout[-6000:] + cluster.log("kubelet")


def router_pods(cluster):
    return [pod for pod in cluster.get("pods", "-l", "app.kubernetes.io/component=router") if "deletionTimestamp" not in pod["metadata"]]


def restarts(pod):
    status = pod["status"]
    return {one["name"]: one["restartCount"] for one in status["containerStatuses"] + status["initContainerStatuses"]}


def chat(pod, content, **fields):
    body = {"model": "demo", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 12, **fields}
    request = urllib.request.Request(f"http://{pod['status']['podIP']}:8000/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return _open(request, timeout=120)


def processes(name):
    """{--listen flag: pid} of the containers' programs, which are visible in this process namespace."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        program, *arguments = (entry.read_bytes().decode(errors="replace").split("\0") or [""])
        if program == name:
            found[next((a for a in arguments if a.startswith("--listen=")), "")] = int(entry.parent.name)
    return found


def test_the_server_answers_a_chat(cluster):
    pod, = router_pods(cluster)
    assert ready(pod) and pod["spec"]["nodeName"] == "real"
    with chat(pod, "Who are you?") as answer:
        said = json.load(answer)
    assert said["choices"][0]["message"]["content"].strip(), said
    assert said["usage"]["completion_tokens"] > 0
    assert set(restarts(pod).values()) == {0}
    assert "ready" in cluster.kubectl("logs", pod["metadata"]["name"], "--container", "router").stdout


def test_helm_test_passes(cluster):
    ran = cluster.helm("test", "chat", "--timeout", "120s", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_programs_run_with_restricted_privileges(cluster):
    pids = [*processes("stagecoach-router").values(), *processes("stagecoach-worker").values()]
    assert len(pids) == 3
    for pid in pids:
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        assert status["Uid"].split() == ["65532"] * 4
        assert status["CapBnd"] == "0000000000000000" and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        mounts = [line.split() for line in pathlib.Path(f"/proc/{pid}/mounts").read_text().splitlines()]
        options = {target: flags.split(",")[0] for _, target, _, flags, *_ in mounts}
        assert options["/"] == "ro" and options["/model"] == "ro" and options["/tmp"] == "rw"


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox here: apt-get install busybox-static")
def test_the_runbook_s_commands_fetch_the_flight_recorder_files(cluster, tmp_path):
    """The commands of deploy/prometheus/RUNBOOK.md, unchanged except for the pod and the image."""
    pod, = router_pods(cluster)
    lines = re.findall(r"^   kubectl (.*)$", RUNBOOK.read_text().partition("## StagecoachStalled")[2].partition("\n## ")[0], re.M)
    assert [line.split()[0] for line in lines] == ["debug", "exec", "exec"]
    commands = [line.replace("POD", pod["metadata"]["name"]).replace("busybox", BUSYBOX, 1) for line in lines]
    cluster.kubectl(*shlex.split(commands[0]))
    wait_for(lambda: cluster.kubectl("describe", "pod", pod["metadata"]["name"]).stdout, lambda: any(
        "running" in one["state"] for one in router_pods(cluster)[0]["status"].get("ephemeralContainerStatuses", [])))
    cluster.kubectl(*shlex.split(commands[1]))
    pack, unpack = commands[2].split(" | ")

    def files():
        packed = cluster.kubectl(*shlex.split(pack), text=False).stdout
        subprocess.run(shlex.split(unpack), cwd=tmp_path, input=packed, check=True)
        return sorted(tmp_path.glob("*.flight"))
    found = wait_for("a flight record", files)
    drawn = subprocess.run([BIN_DIR / "stagecoach", "timeline", *found, "-o", tmp_path / "timeline.svg"], capture_output=True, text=True)
    assert drawn.returncode == 0 and (tmp_path / "timeline.svg").stat().st_size > 0, drawn.stderr


def test_a_lost_stage_restarts_only_itself_and_the_router(cluster):
    before, = router_pods(cluster)
    os.kill(processes("stagecoach-worker")["--listen=0.0.0.0:9101"], signal.SIGKILL)

    def back():
        pod, = router_pods(cluster)
        return pod if restarts(pod)["stage-1"] == 1 and restarts(pod)["router"] == 1 and ready(pod) else None
    pod = wait_for(lambda: str(restarts(router_pods(cluster)[0])) + cluster.log("kubelet", 2000), back)
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert restarts(pod) == {"router": 1, "stage-0": 0, "stage-1": 1}
    with chat(pod, "Who are you?") as answer:
        assert json.load(answer)["usage"]["completion_tokens"] > 0


def stream(pod, n_tokens):
    """Number of received tokens; None: the request was refused."""
    try:
        answer = chat(pod, "Tell me about the trains.", max_tokens=n_tokens, stream=True, ignore_eos=True,
                      stream_options={"include_usage": True})
    except (OSError, http.client.HTTPException):
        return None
    with answer:
        sent = [line.decode().strip().removeprefix("data: ") for line in answer if line.startswith(b"data: ")]
    assert sent[-1] == "[DONE]", sent[-1]
    return next(json.loads(one)["usage"]["completion_tokens"] for one in reversed(sent[:-1]) if json.loads(one).get("usage"))


def test_an_upgrade_loses_no_request(cluster):
    """Four clients of the old pod always have a stream open until they are refused: every stream that began must
    finish. A fifth client resolves the Service's name for each request: none of its requests may be refused."""
    old, = router_pods(cluster)
    n_tokens = 400

    def client():
        finished = []
        while (n := stream(old, n_tokens)) is not None:
            finished.append(n)
        return finished

    def service_client():
        answered = []
        while not ended.is_set():
            address = cluster.names.addresses("chat-stagecoach.default.svc.cluster.local")[0]
            with chat({"status": {"podIP": address}}, "Who are you?") as answer:
                json.load(answer)
            answered.append(address)
        return answered
    ended = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        clients, through_service = [pool.submit(client) for _ in range(4)], pool.submit(service_client)
        try:
            helm(cluster, "upgrade", podAnnotations={"example.org/version": "2"})
            finished = [one.result(timeout=300) for one in clients]
        finally:
            ended.set()
    assert len(set(through_service.result())) == 2, "the name never came to stand for the new pod"
    assert all(finished) and {n for one in finished for n in one} == {n_tokens}, finished
    new, = router_pods(cluster)
    assert new["metadata"]["uid"] != old["metadata"]["uid"] and ready(new)
    wait_for("the old pod is gone", lambda: old["metadata"]["name"] not in {p["metadata"]["name"] for p in cluster.get("pods")})


def cluster_blocks(document):
    return re.findall(r"^```sh cluster\n(.*?)^```$", document.read_text(), re.M | re.S)


# The shell for a document's commands. An install requests fewer resources because this machine is small. A port-forward
# is tried with curl and then stopped.
SHELL = """set -euo pipefail
shopt -s expand_aliases
helm() { if [ "$1" = install ]; then command helm "$@" --values "$SMALL"; else command helm "$@"; fi; }
forwarded() {
  kubectl "$@" >forward.log &
  until curl -sf http://127.0.0.1:8000/v1/models; do kill -0 $!; sleep 0.1; done
  kill $!
}
"""


def test_commands_in_the_documents_work(cluster, tmp_path):
    """Runs the `sh cluster` blocks of the documents, unchanged except for names in capitals, in a separate
    namespace."""
    models = tmp_path / "models"
    shutil.copytree(DEMO_MODEL, models / "chat")
    cluster.kubectl("create", "namespace", "documents")
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": "documents"},
                   "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": "models",
                            "resources": {"requests": {"storage": "1Gi"}}}},
                  {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"},
                   "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": str(models)},
                            "storageClassName": "", "claimRef": {"namespace": "documents", "name": "models"}}})
    config = json.loads(cluster.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "documents"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "small.json").write_text(json.dumps({"worker": {"resources": SMALL, "kvMemory": "64MiB"}, "router": {"resources": SMALL}}))
    blocks = [block for name in ("kubernetes", "upgrades") for block in cluster_blocks(CHART.parent / "docs" / f"{name}.md")]
    assert len(blocks) == 5
    text = "\n".join(blocks).replace("kubectl port-forward", "forwarded port-forward")
    for name, value in {"REGISTRY": "docker.io", "NEW": NEXT, "NODE": "real"}.items():
        text = re.sub(rf"\b{name}\b", value, text)
    (tmp_path / "helm").symlink_to(CHART)
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig"), "SMALL": str(tmp_path / "small.json"), "HOME": str(tmp_path)}
    ran = subprocess.run(["bash", "-xc", SHELL + text], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    # The only node is drained and cordoned, so it runs nothing of the release.
    assert not [pod for pod in cluster.get("pods", "-n", "documents") if pod["spec"].get("nodeName")]
