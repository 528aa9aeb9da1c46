"""Tests the chart with a real API server, on nodes that kwok simulates: 8 GPUs each, by dynamic resource allocation."""
import contextlib
import json
import lzma
import os
import pathlib
import re

import pytest
import yaml
from chart import CHART, VARIANTS, render, value_flags, variant_name
from cluster import Cluster, ready, run, wait_for
from schemas import CRDS, module_dir

GATEWAY_API = "sigs.k8s.io/gateway-api@v1.4.0"
EXTRA_CRDS = os.environ.get("STAGECOACH_CRDS")  # a folder with the CRDs that no module has: InferencePool, LeaderWorkerSet
ROUTER = "chat-stagecoach"
WORKERS = "chat-stagecoach-workers"


def definitions():
    """The CRDs as text."""
    files = [path for module, globs in CRDS.items() for glob in globs for path in sorted(module_dir(module).glob(glob))]
    files += sorted(module_dir(GATEWAY_API).glob("config/crd/standard/gateway.networking.k8s.io_*.yaml"))
    files += sorted(pathlib.Path(EXTRA_CRDS).glob("*.yaml*")) if EXTRA_CRDS else []
    return [(lzma.open if path.suffix == ".xz" else open)(path, "rt").read() for path in files]


def gpus_of(node):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                     "devices": [{"name": f"gpu-{i}"} for i in range(8)]}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("control-plane"), node_grace_s=10) as one:
        for text in definitions():
            one.kubectl("apply", "--server-side", "-f", "-", input=text)
        one.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        one.apply({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"},
                   "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}},
                  {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "serving"}, "value": 1000},
                  {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"})
        nodes = ["node-0", "node-1", "node-2"]
        one.apply(*map(gpus_of, nodes))
        one.add_simulated_nodes("a", nodes, {"stagecoach": "true"})
        yield one


@pytest.fixture
def namespace(cluster, request):
    name = request.node.name.lower().replace("_", "-").replace("[", "-").replace("]", "")[:60].strip("-")
    cluster.kubectl("create", "namespace", name)
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "model", "namespace": name},
                   "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": f"model-{name}",
                            "resources": {"requests": {"storage": "1Gi"}}}},
                  {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"model-{name}"},
                   "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/srv/models"},
                            "storageClassName": "", "claimRef": {"namespace": name, "name": "model"}}})
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    cluster.kubectl("delete", "pv", f"model-{name}", "--wait=false")


def pods(cluster, namespace, component):
    return [pod for pod in cluster.get("pods", "-n", namespace, "-l", f"app.kubernetes.io/component={component}")
            if "deletionTimestamp" not in pod["metadata"]]


def install(cluster, namespace, variant=None, verb="install", **values):
    return cluster.helm(verb, "chat", CHART, "--namespace", namespace, "--wait", "--timeout", "120s", *value_flags(variant, values))


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_the_server_accepts_every_object(cluster, namespace, variant):
    served = {line.split()[-1] for line in cluster.kubectl("api-resources", "--no-headers").stdout.splitlines()}
    objects = [one for one in yaml.safe_load_all(render(variant)) if one]
    if missing := {one["kind"] for one in objects} - served:
        assert not EXTRA_CRDS, f"{EXTRA_CRDS} does not define {missing}"
        pytest.skip(f"no definition of {missing}: STAGECOACH_CRDS names a folder with it")
    for one in objects:
        # A pod is admitted only if its service account exists, so the account is really created.
        dry = [] if one["kind"] == "ServiceAccount" else ["--dry-run=server"]
        cluster.apply(one, flags=(*dry, "-n", namespace))


def test_the_server_finds_a_misspelled_field(cluster, namespace):
    deployment = next(one for one in yaml.safe_load_all(render()) if one and one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    refused = cluster.apply(deployment, flags=("--dry-run=server", "-n", namespace), check=False)
    assert refused.returncode != 0 and "terminationGraceSeconds" in refused.stderr


def test_install_upgrade_rollback(cluster, namespace):
    install(cluster, namespace)
    before, = pods(cluster, namespace, "router")
    assert ready(before) and len(before["spec"]["initContainers"]) == 2
    install(cluster, namespace, verb="upgrade", **{"router.maxSequences": 64})
    after, = pods(cluster, namespace, "router")
    assert "--max-sequences=64" in after["spec"]["containers"][0]["args"]
    assert after["metadata"]["name"] != before["metadata"]["name"]
    cluster.helm("rollback", "chat", "1", "--namespace", namespace, "--wait", "--timeout", "120s")
    back, = pods(cluster, namespace, "router")
    assert back["spec"]["containers"][0]["args"] == before["spec"]["containers"][0]["args"]
    history = json.loads(cluster.helm("history", "chat", "--namespace", namespace, "-o", "json").stdout)
    assert [one["status"] for one in history] == ["superseded", "superseded", "deployed"]
    cluster.helm("uninstall", "chat", "--namespace", namespace, "--wait")
    assert cluster.get("all", "-n", namespace, "-l", "app.kubernetes.io/instance=chat") == []


def test_two_nodes_upgrade_and_roll_back(cluster, namespace):
    variant = CHART / "ci" / "two-nodes.yaml"
    install(cluster, namespace, variant, **{"podMonitor.enabled": False})
    assert len({pod["spec"]["nodeName"] for pod in pods(cluster, namespace, "worker")}) == 2
    install(cluster, namespace, variant, verb="upgrade", **{"podMonitor.enabled": False, "worker.logLevel": "debug"})
    wait_for("workers with the new flag", lambda: all(
        "--log-level=debug" in c["args"] for pod in pods(cluster, namespace, "worker") for c in pod["spec"]["containers"]))
    cluster.helm("rollback", "chat", "--namespace", namespace, "--wait", "--timeout", "120s")
    wait_for("workers with the old flag", lambda: all(
        "--log-level=info" in c["args"] for pod in pods(cluster, namespace, "worker") for c in pod["spec"]["containers"]))


def test_gpus_are_allocated_to_pods_up_to_the_number_that_exists(cluster, namespace):
    """A pipeline of 8 GPUs fills a node, so with four pipelines and three nodes one pod waits."""
    install(cluster, namespace, CHART / "ci" / "gpu.yaml", replicas=3)
    assert len({pod["spec"]["nodeName"] for pod in pods(cluster, namespace, "router")}) == 3
    for claim in cluster.get("resourceclaims", "-n", namespace):
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 8
    cluster.kubectl("scale", "deployment", ROUTER, "-n", namespace, "--replicas=4")

    def waiting():
        return [pod for pod in pods(cluster, namespace, "router") if pod["status"]["phase"] == "Pending" and any(
            "cannot allocate all claims" in c.get("message", "") for c in pod["status"].get("conditions", []))]
    wait_for("one pod waits for GPUs", lambda: len(waiting()) == 1)


def test_a_drain_waits_for_the_disruption_budget(cluster, namespace):
    """With two pipelines of which one may be unavailable, the second node is drained only when the first pod is
    back."""
    install(cluster, namespace, replicas=2)
    first, second = pods(cluster, namespace, "router")

    def evict(pod):
        return cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/eviction", "-f", "-",
                               check=False, input=json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {
                                   "name": pod["metadata"]["name"], "namespace": namespace}}))
    names = {pod["spec"]["nodeName"] for pod in (first, second)}
    try:
        # The evicted pod has no node to return to, so the budget stays used up.
        cluster.kubectl("cordon", "node-0", "node-1", "node-2")
        assert evict(first).returncode == 0
        wait_for("the budget is used up", lambda: cluster.get(
            "pdb", ROUTER, "-n", namespace)["status"]["disruptionsAllowed"] == 0)
        refused = evict(second)
        assert refused.returncode != 0 and "disruption budget" in refused.stderr
        cluster.kubectl("uncordon", *({"node-0", "node-1", "node-2"} - {second["spec"]["nodeName"]}))
        cluster.kubectl("drain", second["spec"]["nodeName"], "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s",
                        "--pod-selector=app.kubernetes.io/instance=chat")
        wait_for("both are back", lambda: len([p for p in pods(cluster, namespace, "router") if ready(p)]) == 2)
        assert second["spec"]["nodeName"] not in {p["spec"]["nodeName"] for p in pods(cluster, namespace, "router")}, names
    finally:
        cluster.kubectl("uncordon", "node-0", "node-1", "node-2")


SOON = {"tolerations": [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
                        for key in ("not-ready", "unreachable")]}


@contextlib.contextmanager
def a_node_that_gets_lost(cluster, others):
    """A node that accepts pods while `others` do not; for lose_node."""
    cluster.add_simulated_nodes("b", ["lost-node"])
    cluster.kubectl("cordon", *others)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", *others)
        cluster.kubectl("delete", "pods", "--all-namespaces", "--field-selector=spec.nodeName=lost-node", "--force", "--grace-period=0")
        cluster.kubectl("delete", "node", "lost-node")


def lose_node(cluster, others):
    cluster.kubectl("uncordon", *others)
    cluster.stop("kwok-b")
    wait_for("the node is NotReady", lambda: not ready(cluster.get("node", "lost-node")))


def test_the_pipeline_of_a_lost_node_starts_on_another_node(cluster, namespace):
    others = ["node-0", "node-1", "node-2"]
    with a_node_that_gets_lost(cluster, others):
        install(cluster, namespace, **SOON)
        pod, = pods(cluster, namespace, "router")
        assert pod["spec"]["nodeName"] == "lost-node"
        lose_node(cluster, others)
        wait_for("the pod is elsewhere", lambda: [p for p in pods(cluster, namespace, "router") if ready(p)
                                                  and p["spec"]["nodeName"] != "lost-node"])


def test_a_lost_worker_moves_once_its_node_is_marked_as_off(cluster, namespace):
    others = ["node-0", "node-1"]  # one pod per node: the other worker takes node-2
    with a_node_that_gets_lost(cluster, others):
        install(cluster, namespace, CHART / "ci" / "two-nodes.yaml", **SOON, **{"podMonitor.enabled": False})
        lost, = [pod["metadata"]["name"] for pod in pods(cluster, namespace, "worker") if pod["spec"]["nodeName"] == "lost-node"]
        lose_node(cluster, others)
        wait_for("the worker is given up", lambda: "deletionTimestamp" in cluster.get("pod", lost, "-n", namespace)["metadata"])
        cluster.kubectl("taint", "node", "lost-node", "node.kubernetes.io/out-of-service=lost:NoExecute")
        wait_for("the worker is elsewhere", lambda: [pod for pod in pods(cluster, namespace, "worker") if ready(pod)
                                                     and pod["metadata"]["name"] == lost and pod["spec"]["nodeName"] != "lost-node"])


def test_kube_score_finds_only_what_the_chart_s_readme_explains():
    argued = set(re.findall(r"^\| `([^`]+)` \|", (CHART / "README.md").read_text().partition("kube-score")[2].partition("\n## ")[0], re.M))
    found = {}
    for variant in VARIANTS:
        scored = run("kube-score", "score", "--kubernetes-version", "v1.34", "-o", "ci", "-", input=render(variant), check=False)
        for line in scored.stdout.splitlines():
            if match := re.match(r"\[(?:CRITICAL|WARNING)\] [^:]*: (?:\(.*?\) )?(.*)", line):
                found.setdefault(match[1], []).append(variant_name(variant))
        assert "[OK]" in scored.stdout, scored.stderr
    assert set(found) == argued, found
