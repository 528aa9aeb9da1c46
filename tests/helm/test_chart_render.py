"""Properties of every render for any values, and effects of some values."""
import base64

import pytest
from chart import CHART, VARIANTS, Manifests, containers, needs_helm, render, selects, variant_name

pytestmark = needs_helm
ROUTER = "chat-stagecoach"
WORKERS = "chat-stagecoach-workers"
GROUPS = "chat-stagecoach-groups"


@pytest.fixture(scope="module", params=VARIANTS, ids=variant_name)
def any_variant(request):
    return Manifests(render(request.param))


def test_pods_run_with_restricted_privileges(any_variant):
    for name, spec, _ in any_variant.pods():
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(spec):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


def test_mounts_have_their_volumes_and_probes_their_ports(any_variant):
    for name, spec, _ in any_variant.pods():
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        mounted = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
        assert mounted == volumes, name
        ports = [port["containerPort"] for container in containers(spec) for port in container.get("ports", [])]
        assert len(set(ports)) == len(ports), name
        for container in containers(spec):
            own = {port["containerPort"] for port in container.get("ports", [])}
            for probe in (container.get(kind + "Probe") for kind in ("startup", "readiness", "liveness")):
                assert probe is None or "httpGet" in probe or probe.get("grpc", probe.get("tcpSocket"))["port"] in own, name


def test_every_pod_has_a_network_policy_a_disruption_budget_and_a_service(any_variant):
    manifests = any_variant
    labels = [labels for name, _, labels in manifests.pods() if not name.startswith("Pod ")]
    for service in manifests.kind("Service"):
        assert sum(selects(service["spec"]["selector"], one) for one in labels) == 1
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        # Either all or, if the feature is off, none.
        selectors = [one["spec"].get("podSelector", one["spec"].get("selector"))["matchLabels"] for one in manifests.kind(kind)]
        counts = {sum(selects(selector, one) for selector in selectors) for one in labels}
        assert counts == ({1} if selectors else {0}), kind
    for monitor in manifests.kind("PodMonitor"):
        assert any(selects(monitor["spec"]["selector"]["matchLabels"], one) for one in labels)
    for monitor in manifests.kind("ServiceMonitor"):
        services = [s for s in manifests.kind("Service") if selects(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
        assert len(services) == 1 and "metrics" in [port["name"] for port in services[0]["spec"]["ports"]]


def test_a_client_stays_with_one_replica_unless_turned_off():
    spec = Manifests(render()).one("Service", ROUTER)["spec"]
    assert spec["sessionAffinity"] == "ClientIP" and spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] == 10800
    spec = Manifests(render(**{"service.sessionAffinity": "None"})).one("Service", ROUTER)["spec"]
    assert spec["sessionAffinity"] == "None" and "sessionAffinityConfig" not in spec


def test_the_router_gets_all_stages_in_order(any_variant):
    manifests = any_variant
    router = next(c for _, spec, _ in manifests.pods() for c in containers(spec) if c["name"] == "router")
    stages = next(arg for arg in router["args"] if arg.startswith("--stages=")).removeprefix("--stages=").split(",")
    listening = []
    for owner, spec, _ in manifests.pods():
        own = [c["ports"][0]["containerPort"] for c in containers(spec) if c["name"].startswith("stage-")]
        if owner.startswith("StatefulSet"):
            workers = manifests.one("StatefulSet", WORKERS)["spec"]
            headless = manifests.one("Service", workers["serviceName"])["spec"]
            assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"]
            listening += [f"{WORKERS}-{n}.{workers['serviceName']}.serving.svc:{port}"
                          for n in range(workers["replicas"]) for port in own]
        elif owner.startswith("LeaderWorkerSet"):
            # The group's controller names the pods after the leader and creates a headless Service with the leader's
            # name.
            groups = manifests.one("LeaderWorkerSet", GROUPS)["spec"]
            assert groups["networkConfig"] == {"subdomainPolicy": "Shared"}
            numbers = [""] if owner.endswith("leaderTemplate") else [f"-{n}" for n in range(1, groups["leaderWorkerTemplate"]["size"])]
            listening += [f"$(POD_NAME){number}.{GROUPS}.serving.svc:{port}" for number in numbers for port in own]
        else:
            listening += [f"127.0.0.1:{port}" for port in own]
    assert stages == listening


def test_router_and_stages_share_a_secret_and_require_it(any_variant):
    sources = set()
    for name, spec, _ in any_variant.pods():
        for container in containers(spec):
            if not container.get("args") or name.startswith("Pod "):
                continue
            assert "--secret-file=/etc/stagecoach/internal/secret" in container["args"], (name, container["name"])
            mount = next(m for m in container["volumeMounts"] if m["mountPath"] == "/etc/stagecoach/internal")
            source = next(v for v in spec["volumes"] if v["name"] == mount["name"])["secret"]
            assert source["defaultMode"] == 0o440
            sources.add(source["secretName"])
    assert len(sources) == 1
    own = [one["metadata"]["name"] for one in any_variant.kind("Secret")]
    assert own == [f"{ROUTER}-internal"] if sources == {f"{ROUTER}-internal"} else own == []


def test_each_release_gets_its_own_long_secret():
    secrets = [base64.b64decode(Manifests(render()).one("Secret", f"{ROUTER}-internal")["data"]["secret"]) for _ in range(2)]
    assert secrets[0] != secrets[1]
    assert all(len(secret) >= 32 for secret in secrets)


def test_internal_tls_is_mutual():
    values = {"internal.tls.existingSecret": "certs", "internal.tls.name": "stagecoach.internal"}
    for _, spec, _ in Manifests(render(nodes=2, **values)).pods():
        for container in containers(spec):
            if "volumeMounts" not in container:
                continue
            assert {f"--internal-tls-{what}=/etc/stagecoach/internal-tls/{file}" for what, file in
                    (("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt"))} <= set(container["args"])
            assert "--internal-tls-name=stagecoach.internal" in container["args"]
            # A kubelet has no client certificate.
            is_stage = container["name"].startswith("stage-")
            assert all(("tcpSocket" in container[f"{kind}Probe"]) == is_stage for kind in ("startup", "readiness"))


def test_the_grace_period_is_longer_than_the_longest_stream():
    for seconds in (1, 3600, 86400):
        deployment = Manifests(render(**{"router.longestStreamSeconds": seconds})).one("Deployment", ROUTER)
        spec = deployment["spec"]["template"]["spec"]
        router = spec["containers"][0]
        assert spec["terminationGracePeriodSeconds"] > seconds + router["lifecycle"]["preStop"]["sleep"]["seconds"]
        workers = Manifests(render(nodes=2, **{"router.longestStreamSeconds": seconds})).one("StatefulSet", WORKERS)
        assert workers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > seconds


def test_a_worker_s_pod_ends_after_the_router_s_when_both_are_deleted():
    """Otherwise the router would hand the stage over to a pod that never comes."""
    manifests = Manifests(render(nodes=2))
    sleep = manifests.one("Deployment", ROUTER)["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]
    for stage in manifests.one("StatefulSet", WORKERS)["spec"]["template"]["spec"]["containers"]:
        assert stage["lifecycle"]["preStop"]["sleep"]["seconds"] > sleep["seconds"]
    # A kubelet ends sidecars after the router.
    pod = Manifests(render()).one("Deployment", ROUTER)["spec"]["template"]["spec"]
    assert all("lifecycle" not in stage for stage in pod["initContainers"])


def test_the_startup_probe_allows_for_the_load_time():
    def startup_s(**values):
        spec = Manifests(render(**values)).one("Deployment", ROUTER)["spec"]
        probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
        assert spec["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]
        return probe["periodSeconds"] * probe["failureThreshold"]

    assert startup_s(**{"model.sizeGiB": 1, "model.readMiBPerSecond": 1024}) in range(121, 140)
    assert startup_s(**{"model.sizeGiB": 100, "model.readMiBPerSecond": 100}) in range(1144, 1160)


def test_one_node_has_one_pod_whose_stages_outlive_the_router():
    manifests = Manifests(render())
    assert not manifests.kind("StatefulSet")
    spec = manifests.one("Deployment", ROUTER)["spec"]["template"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["router"]
    assert [(c["name"], c["restartPolicy"]) for c in spec["initContainers"]] == [("stage-0", "Always"), ("stage-1", "Always")]
    assert manifests.one("NetworkPolicy", ROUTER)["spec"]["egress"] == []


def test_only_traces_may_leave_the_pods():
    values = {"tracing.endpoint": "otel.monitoring.svc:4317", "tracing.sampleRatio": 0.25}
    manifests = Manifests(render(**values))
    spec = manifests.one("Deployment", ROUTER)["spec"]["template"]["spec"]
    assert {"--otlp-endpoint=otel.monitoring.svc:4317", "--trace-sample-ratio=0.25"} <= set(spec["containers"][0]["args"])
    assert all("--otlp-endpoint=otel.monitoring.svc:4317" in stage["args"] for stage in spec["initContainers"])
    egress = manifests.one("NetworkPolicy", ROUTER)["spec"]["egress"]
    assert [rule.get("to") for rule in egress] == [[{"namespaceSelector": {}}], None]
    assert [[port["port"] for port in rule["ports"]] for rule in egress] == [[4317], [53, 53]]
    manifests = Manifests(render(nodes=2, **values))
    for name in (ROUTER, WORKERS):
        assert [port["port"] for rule in manifests.one("NetworkPolicy", name)["spec"]["egress"] for port in rule["ports"]] == [
            "stage-0", "stage-1", 4317, 53, 53]


def test_two_nodes_have_two_worker_pods_on_different_nodes():
    manifests = Manifests(render(nodes=2, stagesPerNode=3))
    workers = manifests.one("StatefulSet", WORKERS)["spec"]
    assert workers["replicas"] == 2 and workers["podManagementPolicy"] == "Parallel"
    spec = workers["template"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["stage-0", "stage-1", "stage-2"]
    term, = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert manifests.one("Deployment", ROUTER)["spec"]["strategy"] == {"type": "Recreate"}


def test_a_group_is_a_pipeline_over_nodes_and_is_not_recreated_as_a_whole():
    manifests = Manifests(render(nodes=3, replicas=2, **{"leaderWorkerSet.enabled": True, "hpa.enabled": True}))
    assert not manifests.kind("StatefulSet") and not manifests.kind("Deployment")
    groups = manifests.one("LeaderWorkerSet", GROUPS)["spec"]
    template = groups["leaderWorkerTemplate"]
    assert template["size"] == 3 and template["restartPolicy"] == "None"
    leader, worker = template["leaderTemplate"]["spec"], template["workerTemplate"]["spec"]
    assert [c["name"] for c in containers(leader)] == ["stage-0", "stage-1", "router"]
    assert [c["name"] for c in containers(worker)] == ["stage-0", "stage-1"]
    for part in ("leaderTemplate", "workerTemplate"):
        term, = template[part]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        apart, = term["labelSelector"]["matchExpressions"]
        assert template[part]["metadata"]["labels"][apart["key"]] in apart["values"]
    # The controller creates a headless Service with the group's name, so no Service of the chart may have that name.
    assert GROUPS not in [service["metadata"]["name"] for service in manifests.kind("Service")]
    scaler, = manifests.kind("HorizontalPodAutoscaler")
    assert (scaler["spec"]["scaleTargetRef"]["kind"], scaler["spec"]["scaleTargetRef"]["name"]) == ("LeaderWorkerSet", GROUPS)
    assert "replicas" not in groups


def test_network_policies_connect_a_group_s_pods():
    for device in ("cpu", "cuda"):
        manifests = Manifests(render(nodes=2, device=device, **{"leaderWorkerSet.enabled": True}))
        for name in (ROUTER, WORKERS):
            policy = manifests.one("NetworkPolicy", name)["spec"]
            for peers in ([rule["from"] for rule in policy["ingress"]], [rule.get("to", []) for rule in policy["egress"]]):
                found = {peer["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component")
                         for rule in peers for peer in rule if "podSelector" in peer}
                assert {"router", "worker"} <= found, (device, name)


def test_all_gpus_of_a_pod_are_visible_to_each_stage():
    manifests = Manifests(render(device="cuda", stagesPerNode=4))
    claim = manifests.one("ResourceClaimTemplate", f"{ROUTER}-gpus")["spec"]["spec"]["devices"]["requests"]
    assert [request["exactly"]["count"] for request in claim] == [4]
    spec = manifests.one("Deployment", ROUTER)["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": f"{ROUTER}-gpus"}]
    for i, stage in enumerate(spec["initContainers"]):
        assert stage["resources"]["claims"] == [{"name": "gpus"}]
        assert f"--device=cuda:{i}" in stage["args"]
        assert "/dev/shm" in [mount["mountPath"] for mount in stage["volumeMounts"]]


def router_of(manifests):
    return next(c for _, spec, _ in manifests.pods() for c in containers(spec) if c["name"] == "router")


def test_the_journal_s_url_is_no_flag_and_each_pipeline_has_a_name():
    manifests = Manifests(render(**{"router.journal.existingSecret": "journal", "router.journal.port": 6380, "surge": False}))
    env = {one["name"]: one for one in router_of(manifests)["env"]}
    assert env["JOURNAL_URL"]["valueFrom"] == {"secretKeyRef": {"name": "journal", "key": "url"}}
    assert env["STAGECOACH_JOURNAL"]["value"] == f"$(JOURNAL_URL)?name=serving.{ROUTER}"
    egress = manifests.one("NetworkPolicy", ROUTER)["spec"]["egress"]
    assert {6380, 53} == {port["port"] for rule in egress for port in rule["ports"]}

    groups = Manifests(render(CHART / "ci" / "groups.yaml", **{"router.journal.existingSecret": "journal"}))
    env = {one["name"]: one for one in router_of(groups)["env"]}
    assert env["STAGECOACH_JOURNAL"]["value"] == "$(JOURNAL_URL)?name=serving.$(POD_NAME)"


@pytest.mark.parametrize("nodes, policy", [(1, ROUTER), (2, WORKERS)])
def test_the_store_s_url_is_no_flag_and_the_stages_reach_it(nodes, policy):
    manifests = Manifests(render(**{"kvTiers.store.existingSecret": "kv", "kvTiers.store.port": 6381, "kvTiers.hostMemory": "4GiB",
                                    "nodes": nodes}))
    router = router_of(manifests)
    env = {one["name"]: one for one in router["env"]}
    assert env["STAGECOACH_KV_STORE"]["valueFrom"] == {"secretKeyRef": {"name": "kv", "key": "url"}}
    assert "--host-kv=4GiB" in router["args"]
    egress = manifests.one("NetworkPolicy", policy)["spec"]["egress"]
    assert 6381 in {port["port"] for rule in egress for port in rule.get("ports", [])}


@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_the_kv_cache_has_a_type_of_its_own(kv_dtype):
    assert f"--kv-dtype={kv_dtype}" in router_of(Manifests(render(**{"model.kvDtype": kv_dtype})))["args"]


@pytest.mark.parametrize("hidden_dtype", ["float32", "bfloat16"])
def test_hidden_states_have_a_type_of_their_own(hidden_dtype):
    args = router_of(Manifests(render(**{"model.hiddenDtype": hidden_dtype})))["args"]
    assert f"--hidden-dtype={hidden_dtype}" in args


def test_the_journal_can_be_on_a_volume():
    router = router_of(Manifests(render(**{"router.journal.volume.emptyDir.sizeLimit": "1Gi"})))
    (folder,) = [one["value"] for one in router["env"] if one["name"] == "STAGECOACH_JOURNAL"]
    (mount,) = [one for one in router["volumeMounts"] if one["name"] == "journal"]
    assert folder.startswith(mount["mountPath"] + "/") and not mount.get("readOnly")


def test_kv_events_name_the_pod_and_its_model():
    values = {"kvEvents.enabled": True, "model.path": "models/chat", "router.httpPort": 8080}
    manifests = Manifests(render(**values))
    router = router_of(manifests)
    flags = dict(arg.split("=", 1) for arg in router["args"] if arg.startswith("--kv-events"))
    assert flags == {"--kv-events": "tcp://*:5556", "--kv-events-replay": "tcp://*:5559",
                     "--kv-events-topic": "kv@$(POD_IP):8080@chat"}
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in router["env"]
    ports = {port["name"]: port["containerPort"] for port in router["ports"]}
    assert (ports["kv-events"], ports["kv-replay"]) == (5556, 5559)
    ingress = manifests.one("NetworkPolicy", ROUTER)["spec"]["ingress"]
    assert {"kv-events", "kv-replay"} <= {port["port"] for rule in ingress for port in rule["ports"]}

    values = {"kvEvents.enabled": True, "kvEvents.replayPort": 0, "kvEvents.topic": "t", "model.name": "m"}
    router = router_of(Manifests(render(**values)))
    assert [arg for arg in router["args"] if "kv-events" in arg] == ["--kv-events=tcp://*:5556", "--kv-events-topic=t"]
    assert "kv-replay" not in {port["name"] for port in router["ports"]}
    assert not any("kv-events" in arg for arg in router_of(Manifests(render()))["args"])


def test_images_can_be_given_by_digest():
    digest = "sha256:" + "a" * 64
    spec = Manifests(render(**{"image.router.digest": digest, "image.worker.tag": "1.2"})).one("Deployment", ROUTER)["spec"]
    images = {c["name"]: c["image"] for c in containers(spec["template"]["spec"])}
    assert images == {"router": f"stagecoach/router@{digest}", "stage-0": "stagecoach/worker-cpu:1.2",
                      "stage-1": "stagecoach/worker-cpu:1.2"}


def test_an_autoscaler_sets_the_number_of_replicas():
    assert Manifests(render()).one("Deployment", ROUTER)["spec"]["replicas"] == 1
    for values in ({"hpa.enabled": True}, {"keda.enabled": True, "keda.serverAddress": "http://prometheus:9090"}):
        manifests = Manifests(render(**values))
        assert "replicas" not in manifests.one("Deployment", ROUTER)["spec"]
        scaler, = manifests.kind("HorizontalPodAutoscaler") + manifests.kind("ScaledObject")
        assert scaler["spec"]["scaleTargetRef"]["name"] == ROUTER


def test_an_inference_pool_contains_the_routers():
    manifests = Manifests(render(**{"inferencePool.enabled": True, "inferencePool.endpointPicker": "picker"}))
    pool = manifests.one("InferencePool", ROUTER)["spec"]
    template = manifests.one("Deployment", ROUTER)["spec"]["template"]
    assert selects(pool["selector"]["matchLabels"], template["metadata"]["labels"])
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert pool["targetPorts"] == [{"number": ports["http"]}]
