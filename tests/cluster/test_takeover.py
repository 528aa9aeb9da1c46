"""Two routers with the same workers: the router that starts last gets them, and no token is computed by layers of
both."""
import contextlib
import secrets
import subprocess

import grpc
import pytest
from harness import START_TIMEOUT_S, STOP_TIMEOUT_S, free_ports, parse_ready, start
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from workload import GOLDEN

MODEL = GOLDEN / "mistral"


class Workers:
    def __init__(self, stack, folder, n=2, flags=()):
        self._stack = stack
        self.secret = folder / "secret"
        self.secret.write_text(secrets.token_hex(32) + "\n")
        self._flags = ["--secret-file", str(self.secret), *flags]
        workers = [start(stack, "stagecoach-worker", "--listen", "127.0.0.1:0", "--threads", "1", *self._flags, stderr=subprocess.DEVNULL)
                   for _ in range(n)]
        self.addresses = [parse_ready(worker.stdout.readline(), "listening")["grpc"] for worker in workers]

    def router(self, *flags):
        return start(self._stack, "stagecoach-router", "--model", str(MODEL), "--stages", ",".join(self.addresses), "--dtype", "float32",
                     "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *(flags or self._flags))


def ask(stack, router, n_tokens):
    address = parse_ready(router.stdout.readline())["grpc"]
    channel = stack.enter_context(grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]))
    return pb_grpc.InferenceStub(channel).Generate(pb.GenerateRequest(
        tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(max_tokens=n_tokens, ignore_eos=True, temperature=0)))


def tokens_of(stream):
    return [token for message in stream for token in message.token_ids]


def test_the_router_that_starts_last_gets_the_workers_at_once(tmp_path):
    with contextlib.ExitStack() as stack:
        workers = Workers(stack, tmp_path)
        first = workers.router()
        alone = tokens_of(ask(stack, first, 40))
        second = workers.router()
        assert tokens_of(ask(stack, second, 40)) == alone
        said = first.stderr.read()
        assert first.wait(timeout=STOP_TIMEOUT_S) == 1
        assert "has taken over this worker" in said and "router " in said, said
        assert second.poll() is None


def test_streams_of_the_older_router_end_with_the_reason(tmp_path):
    with contextlib.ExitStack() as stack:
        workers = Workers(stack, tmp_path)
        stream = ask(stack, workers.router(), 400)
        next(stream)
        workers.router()
        with pytest.raises(grpc.RpcError) as error:
            while True:
                next(stream)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "has taken over this worker" in error.value.details()


def test_a_router_with_another_secret_changes_nothing(tmp_path):
    with contextlib.ExitStack() as stack:
        workers = Workers(stack, tmp_path)
        other = tmp_path / "other"
        other.write_text(secrets.token_hex(32))
        serving = workers.router()
        assert len(tokens_of(ask(stack, serving, 10))) == 10
        for flags in (["--secret-file", str(other)], ["--log-level", "info"]):
            stranger = workers.router(*flags)
            assert not stranger.stdout.readline()
            assert stranger.wait(timeout=STOP_TIMEOUT_S) == 1
            assert "--secret-file" in stranger.stderr.read()
        assert serving.poll() is None


def test_a_worker_that_other_machines_reach_needs_a_secret(tmp_path):
    address = f"0.0.0.0:{free_ports(1)}"
    with contextlib.ExitStack() as stack:
        refused = start(stack, "stagecoach-worker", "--listen", address)
        assert refused.wait(timeout=START_TIMEOUT_S) == 2
        said = refused.stderr.read()
        assert "--secret-file" in said and "--insecure-no-secret" in said
        opted_out = start(stack, "stagecoach-worker", "--listen", address, "--insecure-no-secret")
        assert opted_out.stdout.readline().startswith("listening")


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificates(folder):
    """A certificate authority, and one certificate for all programs."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(folder, "req", *key, "-subj", "/CN=stagecoach", "-keyout", "peer.key", "-out", "peer.csr")
    (folder / "peer.ext").write_text("subjectAltName=DNS:stagecoach.internal\n")
    openssl(folder, "x509", "-req", "-days", "2", "-in", "peer.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "peer.ext", "-out", "peer.pem")
    return ["--internal-tls-cert", str(folder / "peer.pem"), "--internal-tls-key", str(folder / "peer.key"),
            "--internal-tls-ca", str(folder / "ca.pem"), "--internal-tls-name", "stagecoach.internal"]


def test_stages_and_router_use_mutual_tls(tmp_path):
    with contextlib.ExitStack() as stack:
        plain = tokens_of(ask(stack, Workers(stack, tmp_path).router(), 20))
        workers = Workers(stack, tmp_path, flags=certificates(tmp_path))
        assert tokens_of(ask(stack, workers.router(), 20)) == plain
        # Without a client certificate even the health service does not answer.
        with grpc.insecure_channel(workers.addresses[0], options=[("grpc.enable_http_proxy", 0)]) as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
