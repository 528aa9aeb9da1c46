"""Clients that are slow, greedy or broken: memory stays bounded, and other clients get normal answers."""
import contextlib
import json
import pathlib
import re
import socket
import struct
import threading

import pytest
from harness import DEMO_MODEL, Cluster, children_of
from wire import Reader, ask, connection, metric, request_bytes, split, wait_for

MIB = 1 << 20
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 16}
# Each answer has a few MB: every token with its 20 most likely alternatives.
LARGE = {"prompt": [5] * 8, "ignore_eos": True, "temperature": 0, "max_tokens": 1000, "logprobs": 20, "stream": True}


@pytest.fixture(scope="module")
def patient():
    """A cluster whose client timeouts are longer than a test."""
    with Cluster(DEMO_MODEL, stages=2, flags=["--http-timeout", "600", "--max-sequences", "64"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def strict():
    flags = ["--http-timeout", "1", "--http-max-connections", "40", "--http-max-body", "1MiB", "--http-max-header", "4KiB",
             "--http-idle-timeout", "3"]
    with Cluster(DEMO_MODEL, stages=2, flags=flags) as cluster:
        yield cluster


def router_memory(cluster):
    """Resident bytes of the router's process."""
    pid = [pid for pid, name in children_of(cluster.process.pid) if name.startswith("stagecoach-rout")][0]
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


@pytest.fixture
def undisturbed(patient):
    """A normal request gets its usual answer during and after the abuse, and the router's memory does not grow."""
    usual = ask(patient.http, "POST", "/v1/chat/completions", BODY).json["choices"]
    before = router_memory(patient)

    allowed = 64 * MIB

    def check(growth=0):
        nonlocal allowed
        allowed = max(allowed, growth)
        answer = ask(patient.http, "POST", "/v1/chat/completions", BODY)
        assert answer.status == 200 and answer.json["choices"] == usual
        assert router_memory(patient) - before < allowed

    yield check
    check()


def reset(sock):
    """Ends a connection with a TCP RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_clients_that_never_read(patient, undisturbed):
    socks = []
    for _ in range(32):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(split(patient.http))
        sock.sendall(request_bytes("POST", "/v1/completions", LARGE))
        socks.append(sock)
    wait_for(lambda: ask(patient.http, "GET", "/status").json["scheduler"]["running"] >= 16)
    undisturbed(256 * MIB)
    wait_for(lambda: ask(patient.http, "GET", "/status").json["scheduler"]["running"] == 0)
    # All tokens are generated and wait for their readers; max_tokens bounds what a stream holds.
    undisturbed(512 * MIB)
    for sock in socks:
        reset(sock)
    wait_for(lambda: metric(patient.http, "stagecoach_http_connections") == 1)


def test_a_slow_reader_gets_everything(patient, undisturbed):
    with connection(patient.http, receive_buffer=4096) as sock:
        sock.sendall(request_bytes("POST", "/v1/completions", LARGE))
        wait_for(lambda: ask(patient.http, "GET", "/status").json["scheduler"]["running"] == 1)
        wait_for(lambda: ask(patient.http, "GET", "/status").json["scheduler"]["running"] == 0)
        events = Reader(sock).response().events
    assert events[-1] == "[DONE]"
    assert sum(len(event["choices"][0]["logprobs"]["tokens"]) for event in events[:-1]) == 1000


def test_announced_bodies_that_never_arrive(patient, undisturbed):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
    socks = [socket.create_connection(split(patient.http)) for _ in range(200)]
    for sock in socks:
        sock.sendall(head + b'{"prompt": "')
    undisturbed()
    for sock in socks:
        reset(sock)


def test_large_bodies_share_a_memory_limit(patient, undisturbed):
    """Some of them are refused and may retry later; small requests are not refused."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
    part = b"x" * 15_000_000
    socks = []
    for _ in range(24):
        sock = socket.create_connection(split(patient.http))
        sock.settimeout(60)
        sock.sendall(head)
        sender = threading.Thread(target=lambda s=sock: _send_quietly(s, part))
        sender.start()
        socks.append((sock, sender))
    wait_for(lambda: metric(patient.http, "stagecoach_http_responses_total", status="503") >= 1)
    undisturbed(400 * MIB)
    for sock, sender in socks:
        reset(sock)
        sender.join(timeout=60)


def _send_quietly(sock, data):
    try:
        sock.sendall(data)
    except OSError:
        pass  # the server refused it in the meantime


def test_one_byte_chunks(patient, undisturbed):
    """A one-byte chunk takes six bytes on the wire, but must take no more memory than the byte itself."""
    body = json.dumps({"prompt": "x" * 20_000}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connection(patient.http) as sock:
        reader = Reader(sock)
        for _ in range(5):
            sock.sendall(head + chunks)
            assert reader.response().status == 200


def test_pipelining_without_reading(patient, undisturbed):
    """If a client does not read its answers, its requests wait in the network and not in the router."""
    with connection(patient.http, receive_buffer=4096) as sock:
        sock.setblocking(False)
        data = request_bytes("GET", "/openapi.json") * 100
        sent = 0
        with pytest.raises(BlockingIOError):
            while sent < 256 * MIB:
                sent += sock.send(data)
        undisturbed()
        reset(sock)


def test_many_short_connections(patient, undisturbed):
    for i in range(300):
        sock = socket.create_connection(split(patient.http))
        request = request_bytes("POST", "/v1/chat/completions", dict(BODY, stream=i % 2 == 0))
        sock.sendall(request[:1 + i % len(request)])
        if i % 3 == 0:
            reset(sock)
        else:
            sock.close()
    wait_for(lambda: metric(patient.http, "stagecoach_http_connections") == 1)
    wait_for(lambda: ask(patient.http, "GET", "/status").json["scheduler"]["running"] == 0)


def test_json_bombs(patient, undisturbed):
    for body in (b"[" * 15_000_000, b'{"prompt": [' + b"[]," * 4_000_000 + b"[]]}", b'{"prompt": [' + b"1," * 7_000_000 + b"1]}",
                 b'{"logit_bias": {' + b",".join(b'"%d":1' % i for i in range(1_000_000)) + b'}, "prompt": "x"}'):
        assert ask(patient.http, "POST", "/v1/completions", body).status == 400
    undisturbed(400 * MIB)


def test_slow_headers_and_bodies_time_out(strict):
    with connection(strict.http) as idle, connection(strict.http) as slow_header, connection(strict.http) as slow_body:
        idle.sendall(request_bytes("GET", "/health"))
        idle_reader = Reader(idle)
        assert idle_reader.response().status == 200
        slow_header.sendall(b"GET /health HTTP/1.1\r\nHost:")
        slow_body.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        for sock in (slow_header, slow_body):
            reader = Reader(sock)
            assert reader.response().status == 408
            assert reader.at_end()
        assert idle_reader.at_end()  # the idle timeout is longer, but it ends too


def test_silent_connections_time_out(strict):
    with connection(strict.http) as silent:
        assert Reader(silent).at_end()


def test_connections_are_limited_per_client():
    with Cluster(DEMO_MODEL, flags=["--http-max-client-connections", "5"]) as cluster, contextlib.ExitStack() as stack:
        held = []
        for _ in range(5):
            held.append(stack.enter_context(connection(cluster.http)))
            held[-1].sendall(request_bytes("GET", "/health"))
            assert Reader(held[-1]).response().status == 200
        refused = stack.enter_context(connection(cluster.http))
        assert Reader(refused).rest().startswith(b"HTTP/1.1 503 ")
        wait_for(lambda: "--http-max-client-connections" in cluster.log())  # the log has threads of its own
        host, port = split(cluster.http)
        neighbour = stack.enter_context(socket.create_connection((host, port), source_address=("127.0.0.2", 0)))
        neighbour.sendall(request_bytes("GET", "/health"))
        assert Reader(neighbour).response().status == 200
        held.pop().close()
        wait_for(lambda: _health(cluster) == 200)


def test_idle_connections_do_not_block_the_metrics(patient):
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connection(patient.metrics))
        answer = ask(patient.metrics, "GET", "/metrics")
        assert answer.status == 200 and b"stagecoach_stage_up" in answer.body


def test_a_client_that_never_reads_times_out(strict):
    before = metric(strict.http, "stagecoach_http_connections")
    with connection(strict.http, receive_buffer=4096) as sock:
        sock.sendall(request_bytes("POST", "/v1/completions", dict(LARGE, n=8)))
        wait_for(lambda: metric(strict.http, "stagecoach_http_connections") == before + 1)
        wait_for(lambda: metric(strict.http, "stagecoach_http_connections") == before)
        wait_for(lambda: ask(strict.http, "GET", "/status").json["scheduler"]["running"] == 0)


def test_flags_set_the_limits(strict):
    assert ask(strict.http, "GET", "/health", headers={"X": "a" * 5000}).status == 431
    body = {"prompt": "x", "padding": "y" * MIB}
    with connection(strict.http) as sock:
        sock.sendall(request_bytes("POST", "/tokenize", body))
        reader = Reader(sock)
        refused = reader.response()
        assert refused.status == 413 and "1048576" in refused.error["message"]
        assert reader.at_end()


def test_too_many_connections(strict):
    socks = [socket.create_connection(split(strict.http)) for _ in range(60)]
    try:
        wait_for(lambda: any(_says_full(sock) for sock in socks))
    finally:
        for sock in socks:
            sock.close()
    wait_for(lambda: _health(strict) == 200)


def _says_full(sock):
    sock.settimeout(0.01)
    try:
        return sock.recv(100, socket.MSG_PEEK).startswith(b"HTTP/1.1 503 ")
    except TimeoutError:
        return False


def _health(cluster):
    try:
        return ask(cluster.http, "GET", "/health").status
    except (EOFError, ConnectionResetError):
        return 0
