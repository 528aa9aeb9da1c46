"""Access over gRPC: which clients are accepted, and which are disconnected."""
import concurrent.futures
import socket
import subprocess

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import DEMO_MODEL, Cluster
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from test_http_abuse import MIB, router_memory
from wire import Reader, ask, split

GREEDY = pb.SamplingParams(temperature=0, max_tokens=4)
METHODS = {
    "Generate": pb.GenerateRequest(text="The train", sampling=GREEDY),
    "Chat": pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="Hello!")], sampling=GREEDY),
    "Resume": pb.ResumeRequest(request_id="x"),
    "Cancel": pb.CancelRequest(request_id="x"),
    "Tokenize": pb.TokenizeRequest(text="x"),
    "Detokenize": pb.DetokenizeRequest(token_ids=[5]),
    "ListModels": pb.ListModelsRequest(),
    "GetModel": pb.GetModelRequest(),
}
STREAMS = ("Generate", "Chat", "Resume")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpc_access")
    keys = folder / "keys"
    keys.write_text("sk-one\nsk-two\nsk-slow requests_per_minute=2\n")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    flags = ["--api-keys", keys, "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"]
    with Cluster(DEMO_MODEL, flags=flags) as cluster:
        credentials = grpc.ssl_channel_credentials((folder / "cert.pem").read_bytes())
        with grpc.secure_channel(cluster.grpc, credentials, options=[("grpc.enable_http_proxy", 0)]) as channel:
            cluster.secure = channel
            yield cluster


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keyed") / "keys"
    keys.write_text("sk-one\nsk-two\nsk-slow requests_per_minute=2\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        yield cluster


def call(channel, method, request=None, key=None):
    """Returns the messages of the answer, or the status code if the call fails."""
    metadata = [("authorization", f"Bearer {key}")] if key is not None else []
    request = METHODS[method] if request is None else request
    try:
        answer = getattr(pb_grpc.InferenceStub(channel), method)(request, metadata=metadata)
        return list(answer) if method in STREAMS else [answer]
    except grpc.RpcError as error:
        return error.code()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("key", [None, "", "sk-on", "sk-one2"])
def test_only_a_valid_key_gives_access(guarded, method, key):
    assert call(guarded.secure, method, key=key) == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", METHODS)
def test_a_key_gives_access(guarded, method):
    answer = call(guarded.secure, method, key="sk-one")
    assert answer == grpc.StatusCode.NOT_FOUND if method in ("Resume", "Cancel") else len(answer) > 0
    assert "sk-one" not in guarded.log()


def test_health_and_reflection_need_no_key(guarded):
    health = health_pb2_grpc.HealthStub(guarded.secure)
    assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    reflect = guarded.secure.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    (services,) = reflect(iter([b"\x3a\x00"]))  # list_services: ""
    assert b"stagecoach.v1.Inference" in services


def test_a_tls_port_refuses_plain_text(guarded):
    assert call(guarded.channel, "ListModels", key="sk-one") == grpc.StatusCode.UNAVAILABLE


def test_a_rate_limit_spans_all_protocols(keyed):
    slow = {"Authorization": "Bearer sk-slow"}
    assert ask(keyed.http, "POST", "/tokenize", {"prompt": "x"}, slow).status == 200
    assert len(call(keyed.channel, "Tokenize", key="sk-slow")) == 1
    assert call(keyed.channel, "Tokenize", key="sk-slow") == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ask(keyed.http, "POST", "/tokenize", {"prompt": "x"}, slow).status == 429
    assert len(call(keyed.channel, "ListModels", key="sk-slow")) == 1  # listing models does not count


def test_a_tenant_spans_all_protocols(keyed):
    prompt = "The train " * 40

    def cached(key):
        request = pb.GenerateRequest(text=prompt, sampling=GREEDY)
        return call(keyed.channel, "Generate", request, key)[-1].usage.cached_tokens

    assert cached("sk-one") == 0
    assert cached("sk-one") > 0
    assert cached("sk-two") == 0
    http = ask(keyed.http, "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, {"Authorization": "Bearer sk-two"})
    assert http.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_only_the_tenant_can_use_its_streams(keyed):
    request = pb.GenerateRequest(text="The train", request_id="kept", resumable=True, sampling=GREEDY)
    whole = call(keyed.channel, "Generate", request, "sk-one")
    kept = pb.ResumeRequest(request_id="kept")
    assert call(keyed.channel, "Resume", kept, "sk-two") == grpc.StatusCode.NOT_FOUND
    assert call(keyed.channel, "Cancel", pb.CancelRequest(request_id="kept"), "sk-two") == grpc.StatusCode.NOT_FOUND
    again = call(keyed.channel, "Resume", kept, "sk-one")
    assert [t for m in again for t in m.token_ids] == [t for m in whole for t in m.token_ids]


def test_messages_without_a_key_are_not_buffered(keyed):
    """Buffering them would take 640 MB. Frames on the way take some memory, more on a busy machine."""
    request = pb.GenerateRequest(text="x" * 15_900_000)
    before = router_memory(keyed)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        codes = list(pool.map(lambda _: call(keyed.channel, "Generate", request), range(40)))
    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
    assert router_memory(keyed) - before < 256 * MIB


def test_http_without_grpc():
    with Cluster(DEMO_MODEL, grpc_address="off") as cluster:
        assert cluster.grpc is None
        assert ask(cluster.http, "GET", "/health").status == 200


def test_invalid_messages(cluster):
    for data in (b"\xff\xff\xff", b"\x0a\x05ab"):
        with pytest.raises(grpc.RpcError) as error:
            list(cluster.channel.unary_stream("/stagecoach.v1.Inference/Generate")(data))
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "stagecoach.v1.GenerateRequest" in error.value.details()


def test_silent_clients_are_disconnected(cluster):
    """The clients do not answer pings, like a client whose host is gone."""
    silent = b""
    connected = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    for said in (silent, connected):
        with socket.create_connection(split(cluster.grpc), timeout=120) as sock:
            sock.sendall(said)
            Reader(sock).rest()
