"""Who is let in: keys and rates, TLS, pages of other origins."""
import ssl
import subprocess
import urllib.request

import pytest
from harness import DEMO_MODEL, Cluster
from wire import Reader, ask, connection, metric, request_bytes

BODY = {"prompt": "The train", "max_tokens": 2}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    keys = folder / "keys"
    keys.write_text("# of the tests\nsk-web tenant=web\nsk-slow tenant=slow requests_per_minute=2\nsk-batch tenant=batch\n")
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


def test_a_key_lets_in(guarded):
    assert ask_securely(guarded, "POST", "/v1/completions", BODY, "sk-web").json["usage"]["completion_tokens"] == 2
    assert ask_securely(guarded, "GET", "/v1/models", key="sk-web").status == 200
    metrics = ask_securely(guarded, "GET", "/metrics", key="sk-web").body.decode()
    assert 'stagecoach_tenant_requests_total{tenant="web"}' in metrics
    assert "sk-" not in metrics and "sk-" not in guarded.log()


def test_tenants_share_no_prefixes(guarded):
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
def test_nothing_lets_in_but_a_key(guarded, key, path):
    refused = ask_securely(guarded, "GET", path, key=key)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.error["code"] == "invalid_api_key"
    assert ask_securely(guarded, "POST", "/v1/chat/completions", BODY, key).status == 401


def test_what_needs_no_key(guarded):
    for path in ("/health", "/ready", "/version", "/openapi.json", "/"):
        assert ask_securely(guarded, "GET", path).status == 200


def test_a_rate_by_key(guarded):
    statuses = [ask_securely(guarded, "POST", "/tokenize", {"prompt": "x"}, "sk-slow") for _ in range(3)]
    assert [one.status for one in statuses] == [200, 200, 429]
    assert 0 < int(statuses[2].headers["retry-after"]) <= 30
    assert statuses[2].error["code"] == "rate_limit_exceeded"
    assert ask_securely(guarded, "GET", "/v1/models", key="sk-slow").status == 200  # looking is free
    assert ask_securely(guarded, "POST", "/tokenize", {"prompt": "x"}, "sk-web").status == 200


def test_tls(guarded):
    with connection(guarded.http) as raw:
        context = secure(guarded)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(raw, server_hostname="localhost") as sock:
            assert sock.selected_alpn_protocol() == "http/1.1"
            assert sock.version() in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLError):
        ask_securely(guarded, "GET", "/health", context=secure(guarded, maximum_version=ssl.TLSVersion.TLSv1_1))
    with connection(guarded.http) as sock:  # HTTP where HTTPS is spoken
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


@pytest.mark.parametrize("flags, word", [
    (["--api-keys", "/dev/null"], "no key"),
    (["--tls-cert", str(DEMO_MODEL / "config.json"), "--tls-key", str(DEMO_MODEL / "config.json")], "--tls-cert"),
])
def test_files_that_cannot_be_used_are_named(flags, word):
    with pytest.raises(AssertionError, match=word):
        Cluster(DEMO_MODEL, flags=flags).start()


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
        with connection(cluster.http) as sock:  # sent by a browser without asking
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://elsewhere.example.org\r\n"
                         b"Content-Length: 2\r\n\r\n{}")
            assert Reader(sock).response().status == 403


def test_without_cors_no_page_is_let_in(cluster):
    answer = ask(cluster.http, "GET", "/v1/models", headers={"Origin": "https://chat.example.org"})
    assert "access-control-allow-origin" not in answer.headers
    assert metric(cluster.http, "stagecoach_http_connections") >= 1
