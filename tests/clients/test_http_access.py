"""Access over HTTP: keys and rates, TLS, pages of other origins."""
import contextlib
import re
import ssl
import subprocess
import threading
import urllib.request

import pytest
from harness import BIN_DIR, DEMO_MODEL, Cluster
from wire import Reader, ask, connection, metric, request_bytes

BODY = {"prompt": "The train", "max_tokens": 2}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    keys = folder / "keys"
    keys.write_text("# of the tests\nsk-web tenant=web\nsk-slow tenant=slow requests_per_minute=2\n"
                    "sk-choices requests_per_minute=6 max_priority=5\nsk-batch tenant=batch\n")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    flags = ["--api-keys", keys, "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"]
    with Cluster(DEMO_MODEL, flags=flags) as cluster:
        cluster.ca = str(folder / "cert.pem")
        yield cluster


def secure(guarded, **options):
    context = ssl.create_default_context(cafile=guarded.ca)
    for name, value in options.items():
        setattr(context, name, value)
    return context


def ask_securely(guarded, method, path, body=None, key=None, context=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with connection(guarded.http) as raw, (context or secure(guarded)).wrap_socket(raw, server_hostname="localhost") as sock:
        sock.sendall(request_bytes(method, path, body, headers))
        return Reader(sock).response(method)


def test_a_key_gives_access(guarded):
    assert ask_securely(guarded, "POST", "/v1/completions", BODY, "sk-web").json["usage"]["completion_tokens"] == 2
    assert ask_securely(guarded, "GET", "/v1/models", key="sk-web").status == 200
    metrics = ask_securely(guarded, "GET", "/metrics", key="sk-web").body.decode()
    assert 'stagecoach_tenant_requests_total{tenant="web"}' in metrics
    assert not re.search(r"\bsk-", metrics + guarded.log())


def test_tenants_do_not_share_prefix_matches(guarded):
    body = {"prompt": "The train " * 40, "max_tokens": 1}

    def cached(key, **more):
        answer = ask_securely(guarded, "POST", "/v1/completions", body | more, key).json
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("sk-web") == 0
    assert cached("sk-web") > 0
    assert cached("sk-batch") == 0
    assert cached("sk-web", cache_salt="of one user") == 0


@pytest.mark.parametrize("key", [None, "", "sk-we", "sk-web2", "SK-WEB"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/x", "/status", "/metrics"])
def test_only_a_valid_key_gives_access(guarded, key, path):
    refused = ask_securely(guarded, "GET", path, key=key)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.error["code"] == "invalid_api_key"
    assert ask_securely(guarded, "POST", "/v1/chat/completions", BODY, key).status == 401


def test_paths_without_a_key(guarded):
    for path in ("/health", "/ready", "/version", "/openapi.json", "/"):
        assert ask_securely(guarded, "GET", path).status == 200


def test_rate_limit_per_key(guarded):
    statuses = [ask_securely(guarded, "POST", "/tokenize", {"prompt": "x"}, "sk-slow") for _ in range(3)]
    assert [one.status for one in statuses] == [200, 200, 429]
    assert 0 < int(statuses[2].headers["retry-after"]) <= 30
    assert [one.headers["x-ratelimit-limit-requests"] for one in statuses] == ["2", "2", "2"]
    assert [one.headers["x-ratelimit-remaining-requests"] for one in statuses] == ["1", "0", "0"]
    assert all(re.fullmatch(r"(1m)?\d+s", one.headers["x-ratelimit-reset-requests"]) for one in statuses)
    assert statuses[2].error["code"] == "rate_limit_exceeded"
    assert ask_securely(guarded, "GET", "/v1/models", key="sk-slow").status == 200  # listing models does not count
    unlimited = ask_securely(guarded, "POST", "/tokenize", {"prompt": "x"}, "sk-web")
    assert unlimited.status == 200 and not any("ratelimit" in name for name in unlimited.headers)


def test_every_choice_counts_against_the_rate(guarded):
    def status(**more):
        return ask_securely(guarded, "POST", "/v1/completions", dict(BODY, priority=5, **more), "sk-choices").status
    assert status(n=7) == 400  # more choices than the key can ever have per minute
    assert status(n=2, prompt=["The train", "The bus"]) == 200
    assert status(n=6) == 429


def test_the_key_limits_the_priority(guarded):
    for key, best in (("sk-web", -100), ("sk-batch", -100)):  # independent of the file's other keys
        assert ask_securely(guarded, "POST", "/v1/completions", dict(BODY, priority=best), key).status == 200
        refused = ask_securely(guarded, "POST", "/v1/completions", dict(BODY, priority=best - 1), key)
        assert refused.status == 400 and refused.error["param"] == "priority", refused.error
        assert ask_securely(guarded, "POST", "/v1/completions", dict(BODY, priority=-2147483648), key).status == 400


def test_tls(guarded):
    with connection(guarded.http) as raw:
        context = secure(guarded)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(raw, server_hostname="localhost") as sock:
            assert sock.selected_alpn_protocol() == "http/1.1"
            assert sock.version() in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLError):
        ask_securely(guarded, "GET", "/health", context=secure(guarded, maximum_version=ssl.TLSVersion.TLSv1_1))
    with connection(guarded.http) as sock:  # plain HTTP to an HTTPS port
        sock.sendall(request_bytes("GET", "/health"))
        assert Reader(sock).rest()[:4] != b"HTTP"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=secure(guarded)))
    port = guarded.http.rpartition(":")[2]
    assert opener.open(f"https://localhost:{port}/health", timeout=30).status == 200


def test_tls_streams_and_large_bodies(guarded):
    stream = ask_securely(guarded, "POST", "/v1/completions", dict(BODY, stream=True, max_tokens=40, ignore_eos=True), "sk-web")
    assert stream.events[-1] == "[DONE]"
    text = "a b " * 500_000
    refused = ask_securely(guarded, "POST", "/v1/completions", {"prompt": text}, "sk-web")
    assert refused.error["code"] == "context_length_exceeded"


BAD_FILES = [
    (["--api-keys", "/dev/null"], "no key"),
    (["--tls-cert", str(DEMO_MODEL / "config.json"), "--tls-key", str(DEMO_MODEL / "config.json")], "--tls-cert"),
]


@pytest.mark.parametrize("flags, word", BAD_FILES)
def test_the_error_names_an_unusable_file(flags, word):
    """The error comes before any process is started."""
    cluster = Cluster(DEMO_MODEL, flags=flags)
    with pytest.raises(AssertionError, match=word):
        cluster.start()
    assert "worker" not in cluster.log()


@pytest.mark.parametrize("flags, word", [*BAD_FILES, (["--grpc", "off"], "--grpc off")])
def test_files_are_read_before_the_model_loads(flags, word):
    """The router does not even connect to its worker, which does not exist."""
    router = subprocess.run([BIN_DIR / "stagecoach-router", "--model", DEMO_MODEL, "--stages", "127.0.0.1:1", *flags],
                            stderr=subprocess.PIPE, text=True, timeout=60)
    assert router.returncode == 1
    assert word in router.stderr and "127.0.0.1:1" not in router.stderr


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A server without TLS, for tests that write raw bytes."""
    keys = tmp_path_factory.mktemp("keyed") / "keys"
    keys.write_text("sk-web\nsk-other\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys, "--resume-time", "600"]) as cluster:
        yield cluster


WEB = {"Authorization": "Bearer sk-web"}
OTHER = {"Authorization": "Bearer sk-other"}


@pytest.mark.parametrize("fields", ["Content-Length: 16000000", "Transfer-Encoding: chunked",
                                    "Content-Length: 100\r\nExpect: 100-continue"])
def test_unauthorized_requests_are_refused_before_the_body_arrives(keyed, fields):
    with connection(keyed.http) as sock:
        sock.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n".encode())
        reader = Reader(sock)
        status, headers = reader.head()
        assert status == 401 and headers["connection"] == "close" and headers["x-request-id"]
        assert b"invalid_api_key" in reader.rest()


def test_a_refusal_keeps_the_connection_if_the_body_is_small(keyed):
    with connection(keyed.http) as sock:
        reader = Reader(sock)
        refused = request_bytes("POST", "/v1/completions", BODY)
        for body_first in (False, True):
            sock.sendall(refused if body_first else refused[:-10])
            assert reader.response().status == 401
            sock.sendall((b"" if body_first else refused[-10:]) + request_bytes("POST", "/v1/completions", BODY, WEB))
            assert reader.response().json["usage"]["completion_tokens"] == 2


def test_bodies_without_a_key_do_not_block_authorized_requests(keyed):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connection(keyed.http)) for _ in range(40)]
        senders = [threading.Thread(target=send_quietly, args=(sock, head + b"x" * 15_900_000)) for sock in socks]
        for sender in senders:
            sender.start()
        for sender in senders:  # everything was sent or refused
            sender.join()
        answer = ask(keyed.http, "POST", "/tokenize", {"prompt": "x " * 50_000}, WEB)
        assert answer.status == 200, answer.body


def send_quietly(sock, data):
    with contextlib.suppress(OSError):
        sock.sendall(data)


def test_keys_in_a_trailer_are_ignored(keyed):
    body = b'{"prompt": "x"}'
    request = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"%x\r\n%s\r\n0\r\nAuthorization: Bearer sk-web\r\n\r\n" % (len(body), body))
    with connection(keyed.http) as sock:
        sock.sendall(request)
        assert Reader(sock).response().status == 401


def test_each_key_without_a_tenant_is_its_own_tenant(keyed):
    body = dict(BODY, stream=True, request_id="mine", stream_options={"resumable": True})
    assert ask(keyed.http, "POST", "/v1/completions", body, WEB).status == 200
    assert ask(keyed.http, "GET", "/v1/streams/mine", headers=OTHER).status == 404
    assert ask(keyed.http, "DELETE", "/v1/streams/mine", headers=OTHER).status == 404
    assert ask(keyed.http, "GET", "/v1/streams/mine", headers=WEB).status == 200
    prompt = {"prompt": "The train " * 40, "max_tokens": 1}
    cached = [ask(keyed.http, "POST", "/v1/completions", prompt, key).json["usage"]["prompt_tokens_details"]["cached_tokens"]
              for key in (WEB, WEB, OTHER)]
    assert cached[0] == 0 and cached[1] > 0 and cached[2] == 0


def test_pages_of_other_origins():
    page = {"Origin": "https://chat.example.org"}
    other = {"Origin": "https://elsewhere.example.org"}
    with Cluster(DEMO_MODEL, flags=["--cors", "https://chat.example.org", "--cors", "http://localhost:3000"]) as cluster:
        asked = ask(cluster.http, "OPTIONS", "/v1/chat/completions",
                    headers=dict(page, **{"Access-Control-Request-Method": "POST"}))
        assert asked.status == 204
        assert asked.headers["access-control-allow-origin"] == page["Origin"]
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        for headers, allowed in ((page, True), ({"Origin": "http://localhost:3000"}, True), (other, False), ({}, False)):
            for path, body in (("/v1/models", None), ("/v1/completions", dict(BODY, stream=True)), ("/v1/completions", {})):
                answer = ask(cluster.http, "POST" if body is not None else "GET", path, body, headers)
                assert ("access-control-allow-origin" in answer.headers) == allowed
        with connection(cluster.http) as sock:  # a browser sends this without a preflight request
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://elsewhere.example.org\r\n"
                         b"Content-Length: 2\r\n\r\n{}")
            assert Reader(sock).response().status == 403


def test_without_cors_no_page_has_access(cluster):
    for method, body in (("GET", None), ("POST", BODY)):
        answer = ask(cluster.http, method, "/v1/completions", body, {"Origin": "https://chat.example.org"})
        assert answer.status == 403 and "access-control-allow-origin" not in answer.headers


def asked_as(address, host, origin=None, path="/v1/models"):
    fields = f"Origin: {origin}\r\n" if origin else ""
    with connection(address) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n".encode())
        return Reader(sock).response().status


def test_dns_rebinding_is_refused(cluster):
    """DNS rebinding: the browser treats requests of such a page as requests to the page's own server."""
    port = cluster.http.rpartition(":")[2]
    for path in ("/v1/models", "/", "/metrics"):
        assert asked_as(cluster.http, f"evil.example:{port}", path=path) == 403
    assert asked_as(cluster.http, f"evil.example:{port}", f"http://evil.example:{port}") == 403
    assert asked_as(cluster.http, f"localhost:{port}", "null") == 403
    for host in (f"localhost:{port}", cluster.http, f"[::1]:{port}"):
        assert asked_as(cluster.http, host) == 200
    assert asked_as(cluster.http, f"localhost:{port}", f"http://localhost:{port}") == 200
    assert asked_as(cluster.metrics, "evil.example", path="/metrics") == 403
    assert asked_as(cluster.metrics, f"localhost:{port}", path="/metrics") == 200


def test_listed_host_names_are_accepted():
    with Cluster(DEMO_MODEL, flags=["--cors", "https://chat.example.org"]) as cluster:
        assert asked_as(cluster.http, "chat.example.org", "https://chat.example.org") == 200
        assert asked_as(cluster.http, "evil.example") == 403


def test_a_key_gives_access_under_any_host_name(keyed):
    with connection(keyed.http) as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: llm.example.org\r\nAuthorization: Bearer sk-web\r\n\r\n")
        assert Reader(sock).response().status == 200


def test_connections_are_counted(cluster):
    assert metric(cluster.http, "stagecoach_http_connections") >= 1
