"""Runs the programs on the demo model with the flags, probes, users and shutdown order of the chart."""
import base64
import contextlib
import pathlib
import tempfile
import threading

import grpc
import pytest
from chart import CHART, Manifests, needs_helm, render
from containers import Container
from harness import DEMO_MODEL, free_ports, wait_until
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc

pytestmark = needs_helm
ROUTER = "chat-stagecoach"
WORKERS = "chat-stagecoach-workers"
LONG = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=400, ignore_eos=True))


def free_values(stages_per_node):
    """Values that do not conflict with anything on this machine."""
    first = free_ports(5 + stages_per_node)
    return {"model.mountPath": str(DEMO_MODEL), "worker.kvMemory": "64MiB", "worker.port": first + 5,
            "router.httpPort": first, "router.grpcPort": first + 1, "router.metricsPort": first + 2,
            "kvEvents.port": first + 3, "kvEvents.replayPort": first + 4}


class Release:
    """The containers of a render, started in a kubelet's order: stages, then the router."""

    def __init__(self, manifests):
        self.manifests = manifests
        deployment = manifests.one("Deployment", ROUTER)["spec"]["template"]["spec"]
        hosts = {}
        self._folder = tempfile.TemporaryDirectory()
        files = self._mount(manifests.one("Secret", f"{ROUTER}-internal")["data"])
        self.stages = [Container(spec, deployment, files=files) for spec in deployment.get("initContainers", [])]
        for workers in manifests.kind("StatefulSet"):
            spec = workers["spec"]["template"]["spec"]
            for node in range(workers["spec"]["replicas"]):
                address = f"127.0.0.{node + 1}"
                hosts[f"{WORKERS}-{node}.{WORKERS}.serving.svc"] = address
                self.stages += [Container(one, spec, address, files=files) for one in spec["containers"]]
        self.router = Container(deployment["containers"][0], deployment, hosts=hosts, files=files)
        self.hosts = hosts

    def _mount(self, data):
        """{path in a container: path here}; readable by any user of the containers."""
        folder = pathlib.Path(self._folder.name)
        folder.chmod(0o755)
        for key, value in data.items():
            (folder / key).write_bytes(base64.b64decode(value))
            (folder / key).chmod(0o644)
        return {f"/etc/stagecoach/internal/{key}": str(folder / key) for key in data}

    def __enter__(self):
        try:
            for stage in self.stages:
                stage.start().wait_for_probe("startup")
            self.router.start().wait_for_probe("startup")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for container in [self.router, *self.stages]:
            container.kill()
        self._folder.cleanup()

    @contextlib.contextmanager
    def stub(self):
        (port,) = [port["containerPort"] for port in self.router.spec["ports"] if port["name"] == "grpc"]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            yield pb_grpc.InferenceStub(channel)

    def all_probes(self):
        return {(c.spec["name"], kind): c.probe(kind) for c in [self.router, *self.stages] for kind in ("readiness", "liveness")}


@pytest.mark.parametrize("variant", [None, CHART / "ci" / "two-nodes.yaml", CHART / "ci" / "kv-events.yaml"],
                         ids=["default", "two-nodes", "kv-events"])
def test_the_rendered_programs_serve(variant):
    values = free_values(2) | ({"model.path": ""} if variant else {})
    manifests = Manifests(render(variant, **values))
    with Release(manifests) as release:
        assert all(release.all_probes().values())
        pod = manifests.one("Pod", f"{ROUTER}-test")["spec"]
        test = Container(pod["containers"][0], pod, hosts={ROUTER: "127.0.0.1"}).start()
        assert test.process.wait(timeout=60) == 0, test.log()


def test_a_pod_ends_without_losing_a_stream():
    with Release(Manifests(render(**free_values(2)))) as release, release.stub() as stub:
        stream = stub.Generate(LONG)
        n_tokens = len(next(stream).token_ids)
        release.router.terminate()
        n_tokens += sum(len(message.token_ids) for message in stream)
        assert n_tokens == 400
        assert release.router.process.wait(timeout=60) == 0
        assert [stage.end() for stage in release.stages] == [0, 0]


def test_only_a_lost_stage_is_restarted():
    with Release(Manifests(render(**free_values(3), stagesPerNode=3))) as release:
        before = [stage.process.pid for stage in release.stages]
        with release.stub() as stub:
            stream = stub.Generate(LONG)
            n_tokens = len(next(stream).token_ids)
            release.stages[1].kill()
            wait_until(lambda: not release.router.probe("readiness"), "the end of the router's readiness")
            release.stages[1].start()  # restarts the ended container, as the kubelet does
            assert n_tokens + sum(len(message.token_ids) for message in stream) == 400
        assert release.router.process.poll() is None
        wait_until(lambda: all(release.all_probes().values()), "all probes")
        with release.stub() as stub:
            assert sum(len(message.token_ids) for message in stub.Generate(LONG)) == 400
        after = [stage.process.pid for stage in release.stages]
        assert [a == b for a, b in zip(before, after)] == [True, False, True]


def test_workers_are_replaced_one_after_the_other_under_their_router():
    """Follows the order of a StatefulSet's rolling update: the last pod first, the next one when it is ready."""
    manifests = Manifests(render(CHART / "ci" / "two-nodes.yaml", **free_values(1), stagesPerNode=1, **{"model.path": ""}))
    with Release(manifests) as release, release.stub() as stub:
        stream = stub.Generate(LONG)
        n_tokens = len(next(stream).token_ids)
        for stage in reversed(release.stages):
            assert stage.end() == 0
            stage.start().wait_for_probe("readiness")
        n_tokens += sum(len(message.token_ids) for message in stream)
        assert n_tokens == 400
        assert release.router.process.poll() is None
        wait_until(lambda: all(release.all_probes().values()), "all probes")


class Clients:
    """Threads that send streams to the Service's current target, one after the other; no error may reach them."""

    def __init__(self, stub, n_clients=4):
        self._stub = stub
        self._picking = threading.Lock()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(n_clients)]
        self.n_answers = 0
        self.errors = []

    def point_to(self, stub):
        """Sends no new request to the old target; in the chart, preStop's sleep ensures this."""
        with self._picking:
            self._stub = stub

    def _run(self):
        request = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=100, ignore_eos=True))
        while not self._stop.is_set() and not self.errors:
            try:
                with self._picking:
                    stream = self._stub.Generate(request)
                    n_tokens = len(next(stream).token_ids)
                n_tokens += sum(len(message.token_ids) for message in stream)
                assert n_tokens == 100
            except Exception as error:
                self.errors.append(error)
            with self._changed:
                self.n_answers += 1
                self._changed.notify_all()

    def wait_for_answers(self, n):
        """Waits for n more answers, or an error."""
        with self._changed:
            wanted = self.n_answers + n
            assert self._changed.wait_for(lambda: self.errors or self.n_answers >= wanted, timeout=120)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_an_upgrade_under_load_loses_no_request():
    """Follows the order of maxSurge 1, maxUnavailable 0, preStop and sidecars: new pod ready, Service switched,
    SIGTERM, drain, stages."""
    with Release(Manifests(render(**free_values(2)))) as old, old.stub() as old_stub, Clients(old_stub) as clients:
        with Release(Manifests(render(**free_values(2)))) as new, new.stub() as new_stub:
            clients.wait_for_answers(4)
            assert new.router.probe("readiness")
            clients.point_to(new_stub)
            old.router.terminate()
            assert old.router.process.wait(timeout=60) == 0
            assert [stage.end() for stage in old.stages] == [0, 0]
            clients.wait_for_answers(8)
            clients.__exit__()
        assert clients.errors == []
