"""The HTTP protocol: how clients use connections, bodies and headers, byte by byte."""
import json
import signal
import socket

import grpc
import pytest
from harness import DEMO_MODEL, Cluster
from stagecoach.v1 import inference_pb2 as pb
from wire import Reader, ask, connection, metric, request_bytes, wait_for

CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 8}
LONG = {"prompt": [5] * 8, "ignore_eos": True, "temperature": 0, "max_tokens": 1800}


def aborts(address):
    return metric(address, "vllm:request_success_total", finished_reason="abort")


def test_keep_alive_and_pipelining(cluster):
    with connection(cluster.http) as sock:
        reader = Reader(sock)
        for _ in range(3):
            sock.sendall(request_bytes("GET", "/version"))
            response = reader.response()
            assert response.status == 200 and response.headers["connection"] == "keep-alive"
        stream = dict(CHAT, stream=True)
        sock.sendall(request_bytes("POST", "/v1/chat/completions", CHAT) + request_bytes("GET", "/nowhere") +
                     request_bytes("POST", "/v1/chat/completions", stream) + request_bytes("GET", "/health"))
        answer = reader.response().json["choices"][0]["message"]["content"]
        assert reader.response().status == 404
        streamed = reader.response()
        deltas = [event["choices"][0]["delta"].get("content", "") for event in streamed.events[:-1]]
        assert "".join(deltas) == answer
        assert streamed.events[-1] == "[DONE]"
        assert reader.response().status == 200


def test_connection_close(cluster):
    with connection(cluster.http) as sock:
        sock.sendall(request_bytes("GET", "/health", headers={"Connection": "close"}))
        reader = Reader(sock)
        assert reader.response().headers["connection"] == "close"
        assert reader.at_end()


def test_http_1_0(cluster):
    with connection(cluster.http) as sock:
        sock.sendall(request_bytes("POST", "/v1/chat/completions", dict(CHAT, stream=True), version="1.0"))
        reader = Reader(sock)
        response = reader.response()  # until the connection closes
        assert "transfer-encoding" not in response.headers
        assert response.events[-1] == "[DONE]"
    with connection(cluster.http) as sock:
        reader = Reader(sock)
        for _ in range(2):
            sock.sendall(request_bytes("GET", "/health", version="1.0", headers={"Connection": "keep-alive"}))
            assert reader.response().headers["connection"] == "keep-alive"


def test_expect_100_continue(cluster):
    body = json.dumps(CHAT).encode()
    with connection(cluster.http) as sock:
        whole = request_bytes("POST", "/v1/chat/completions", body, {"Expect": "100-continue"})
        sock.sendall(whole[:-len(body)])
        reader = Reader(sock)
        assert reader.head() == (100, {})
        sock.sendall(body)
        assert reader.response().status == 200
        # If the body does not wait for it, no 100 Continue is needed.
        sock.sendall(whole)
        assert reader.response().status == 200
        sock.sendall(request_bytes("POST", "/v1/chat/completions", body, {"Expect": "a miracle"}))
        assert reader.response().status == 417


def test_a_too_large_body_is_refused_before_it_is_sent(cluster):
    with connection(cluster.http) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        reader = Reader(sock)
        assert reader.head()[0] == 413


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_chunked_bodies(cluster, piece):
    body = json.dumps(CHAT).encode()
    pieces = [body[i:i + piece] for i in range(0, len(body), piece)]
    with connection(cluster.http) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                     b"Content-Type: application/json; charset=utf-8\r\n\r\n")
        for one in pieces:
            sock.sendall(b"%x\r\n%s\r\n" % (len(one), one))
        sock.sendall(b"0\r\n\r\n")
        reader = Reader(sock)
        assert reader.response().json["choices"][0]["message"]["content"]
        sock.sendall(request_bytes("GET", "/health"))
        assert reader.response().status == 200


def test_bytes_one_by_one(cluster):
    with connection(cluster.http) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request_bytes("POST", "/tokenize", {"prompt": "Hello"}):
            sock.sendall(bytes([byte]))
        assert Reader(sock).response().json["count"] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_connection_gets_its_answers(cluster, stream):
    request = request_bytes("POST", "/v1/chat/completions", dict(CHAT, stream=stream))
    with connection(cluster.http) as sock:
        sock.sendall(request + request_bytes("GET", "/version"))
        sock.shutdown(socket.SHUT_WR)
        reader = Reader(sock)
        response = reader.response()
        assert response.status == 200
        assert response.events[-1] == "[DONE]" if stream else response.json["choices"]
        assert reader.response().status == 200
        assert reader.at_end()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_sequences(cluster, stream):
    before = aborts(cluster.http)
    with connection(cluster.http) as sock:
        sock.sendall(request_bytes("POST", "/v1/completions", dict(LONG, stream=stream, n=2)))
        if stream:
            Reader(sock).until(b"\n\n")
        else:
            wait_for(lambda: ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 2)
    wait_for(lambda: aborts(cluster.http) == before + 1)
    assert ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 0


def test_head_and_methods(cluster):
    head = ask(cluster.http, "HEAD", "/v1/models")
    assert head.status == 200
    assert int(head.headers["content-length"]) == len(ask(cluster.http, "GET", "/v1/models").body)
    wrong = ask(cluster.http, "GET", "/v1/completions")
    assert wrong.status == 405 and wrong.headers["allow"] == "POST"
    assert wrong.error["code"] == "method_not_allowed"
    assert ask(cluster.http, "DELETE", "/v1/models/x").headers["allow"] == "GET, HEAD"
    assert ask(cluster.http, "GET", "/v1/nothing").error["code"] == "unknown_url"
    assert ask(cluster.http, "GET", "/health?probe=1").status == 200


def test_content_types(cluster):
    def tokenize(content_type):
        body = b'{"prompt": "x"}'
        with connection(cluster.http) as sock:
            header = f"Content-Type: {content_type}\r\n" if content_type else ""
            sock.sendall(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return Reader(sock).response().status

    assert tokenize("application/json") == 200
    assert tokenize("application/json; charset=utf-8") == 200
    assert tokenize(None) == 200
    # Requests that a page of another origin could make a browser send without a preflight.
    assert tokenize("text/plain") == 415
    assert tokenize("application/x-www-form-urlencoded") == 415


def test_request_ids(cluster):
    body = {"prompt": "x", "max_tokens": 1}
    named = ask(cluster.http, "POST", "/v1/completions", body, {"X-Request-Id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    assert named.json["id"] == "cmpl-mine-1"
    first, second = (ask(cluster.http, "GET", "/health").headers["x-request-id"] for _ in range(2))
    assert first and second and first != second
    assert ask(cluster.http, "GET", "/health", headers={"X-Request-Id": "a b"}).headers["x-request-id"] != "a b"
    assert ask(cluster.http, "GET", "/health", headers={"X-Request-Id": "x" * 500}).headers["x-request-id"] != "x" * 500


@pytest.mark.parametrize("request_id", ["two\nlines", "a b", "\u00e9", "x" * 300])
def test_request_ids_that_could_forge_a_log_line_are_refused(cluster, request_id):
    refused = ask(cluster.http, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "request_id": request_id})
    assert refused.status == 400 and refused.error["param"] == "request_id"
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Generate(pb.GenerateRequest(text="x", request_id=request_id, resumable=True)))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "request_id" in error.value.details()


BAD = {
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "length and chunked": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "unknown coding": (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "two codings": (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "coding in 1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "compressed": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "bad chunk": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "giant header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000, 431),
    "giant target": (b"GET /" + b"a" * 70_000, 431),
    "giant length": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_requests_are_refused_and_close_the_connection(cluster, name):
    request, status = BAD[name]
    with connection(cluster.http) as sock:
        sock.sendall(request)
        reader = Reader(sock)
        response = reader.response()
        assert response.status == status
        assert response.headers["connection"] == "close"
        assert response.error["message"]
        assert reader.at_end()
    assert ask(cluster.http, "GET", "/health").status == 200


def test_a_draining_server_refuses_new_requests_and_finishes_running_ones():
    with Cluster(DEMO_MODEL) as cluster, connection(cluster.http) as running, connection(cluster.http) as idle:
        idle_reader, reader = Reader(idle), Reader(running)
        idle.sendall(request_bytes("GET", "/ready"))
        assert idle_reader.response().json == {"status": "ready"}
        running.sendall(request_bytes("POST", "/v1/completions", dict(LONG, stream=True, n=4)))
        assert reader.head()[0] == 200
        cluster.process.send_signal(signal.SIGTERM)
        assert idle_reader.at_end()  # an idle connection is closed
        refused = ask(cluster.http, "POST", "/v1/completions", LONG)
        assert refused.status == 503 and refused.headers["retry-after"]
        assert refused.headers["connection"] == "close"
        ready = ask(cluster.http, "GET", "/ready")
        assert ready.status == 503 and ready.json == {"status": "draining"}
        assert ask(cluster.http, "GET", "/health").status == 200
        assert reader.rest().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert cluster.process.wait(timeout=60) == 0
