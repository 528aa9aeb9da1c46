"""Interrupted streams that a client resumes: from every position, with every kind of client."""
import concurrent.futures
import json

import openai
import pytest
from harness import DEMO_MODEL, Cluster
from openai.types.chat import ChatCompletionChunk
from stagecoach.v1 import inference_pb2 as pb
from test_openai_structured import ASK, connect
from wire import Reader, ask, connection, is_comment, metric, parse_event, request_bytes, wait_for

MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 30},
                                           "stops": {"type": "array", "items": {"enum": ["Åsa", "Quay"]}, "maxItems": 3}},
          "required": ["answer", "stops"], "additionalProperties": False}
CHAT = "/v1/chat/completions"
LONG = {"prompt": [5] * 8, "ignore_eos": True, "temperature": 0, "max_tokens": 1800}
TOOLS = dict(ASK, seed=3, max_tokens=60, tool_choice="required")

KINDS = {
    "chat": (CHAT, {"messages": MESSAGES, "temperature": 0, "max_tokens": 16, "stream_options": {"include_usage": True}}),
    "choices": (CHAT, {"messages": MESSAGES, "seed": 1, "max_tokens": 6, "n": 3, "logprobs": True, "top_logprobs": 2}),
    "prompts": ("/v1/completions", {"prompt": ["The coach", "A ticket"], "temperature": 0, "max_tokens": 6, "echo": True,
                                    "logprobs": 1, "return_token_ids": True}),
    "json_events": (CHAT, {"messages": MESSAGES, "seed": 5, "max_tokens": 80, "guided_json": SCHEMA,
                           "stream_options": {"json_events": ["/answer", "/stops/*"], "continuous_usage_stats": True}}),
    "tools": (CHAT, TOOLS),
}


def resumable(body, name):
    options = dict(body.get("stream_options", {}), resumable=True)
    return dict(body, stream=True, stream_options=options, request_id=name)


def plain(data):
    """An event without the fields that differ from stream to stream."""
    if data == "[DONE]":
        return data
    text = json.dumps({key: value for key, value in data.items() if key not in ("id", "created")})
    for call in (call for choice in data["choices"] for call in choice.get("delta", {}).get("tool_calls", ())):
        if call.get("id"):
            text = text.replace(call["id"], "ID")
    return text


class Listener:
    """All events of a stream that a client received, over several connections."""

    def __init__(self, address):
        self.address = address
        self.events = []
        self.since_id = []  # may be sent again after a resume
        self.position = 0

    def take(self, number, data):
        self.since_id.append(plain(data))
        if number is not None:
            self.position = number
            self.events += self.since_id
            self.since_id = []

    def hear(self, request, n_events=None, n_bytes=None):
        """Reads to the end, or up to `n_events` events or `n_bytes` bytes of the response's body, then closes the
        connection."""
        self.since_id = []
        with connection(self.address) as sock:
            sock.sendall(request)
            reader = Reader(sock)
            assert reader.head()[0] == 200
            if n_bytes is not None:
                body = reader.rest() if n_bytes < 0 else reader.exactly(n_bytes)
                lines = [line for i, line in enumerate(body.split(b"\r\n")) if i % 2]  # skips the chunk sizes
                complete = b"".join(lines).split(b"\n\n")[:-1]
                for block in complete:
                    self.take(*parse_event(block.decode()))
                return
            for i, (number, data) in enumerate(reader.sse()):
                self.take(number, data)
                if i + 1 == n_events:
                    return
        self.events += self.since_id

    def resume(self, name, by_header, **cut):
        if by_header:
            request = request_bytes("GET", f"/v1/streams/{name}", headers={"Last-Event-ID": self.position})
        else:
            request = request_bytes("GET", f"/v1/streams/{name}?from={self.position}")
        self.hear(request, **cut)


def begin(path, body, name):
    return request_bytes("POST", path, resumable(body, name))


@pytest.fixture(params=KINDS)
def kind(request, cluster):
    path, body = KINDS[request.param]
    return (request.getfixturevalue("tool_cluster") if request.param == "tools" else cluster), request.param, path, body


def test_a_stream_cut_after_any_event_resumes(kind):
    cluster, name, path, body = kind
    whole = Listener(cluster.http)
    whole.hear(begin(path, body, f"{name}-whole"))
    assert whole.events[-1] == '[DONE]' and len(whole.events) > 5
    n_events = len(whole.events)
    unkept = ask(cluster.http, "POST", path, dict(resumable(body, None), stream_options=body.get("stream_options", {})))
    if name != "choices" and name != "prompts":  # the order of events of different choices varies
        assert [plain(data) for data in unkept.events] == whole.events
    prefix = "chatcmpl-" if path == CHAT else "cmpl-"
    for n in range(1, n_events + 1):
        listener = Listener(cluster.http)
        listener.hear(begin(path, body, f"{name}-{n}"), n_events=n)
        if n % 3 == 0 and n < n_events - 4:  # interrupted a second time
            listener.resume(f"{name}-{n}", by_header=True, n_events=2)
        listener.resume(f"{prefix}{name}-{n}", by_header=n % 2 == 0)
        if name in ("choices", "prompts"):
            assert sorted(listener.events) == sorted(whole.events)
        else:
            assert listener.events == whole.events
        again = Listener(cluster.http)
        again.resume(f"{name}-{n}", by_header=False)
        assert again.events == listener.events


def test_a_stream_cut_at_any_byte_resumes(cluster):
    path, body = KINDS["json_events"]
    whole = Listener(cluster.http)
    whole.hear(begin(path, body, "bytes-whole"))
    for n_bytes in range(0, 2500, 61):
        listener = Listener(cluster.http)
        listener.hear(begin(path, body, f"bytes-{n_bytes}"), n_bytes=n_bytes)
        listener.resume(f"bytes-{n_bytes}", by_header=True)
        assert listener.events == whole.events, n_bytes


def test_a_stream_runs_on_without_a_reader(cluster):
    body = dict(LONG, max_tokens=300)
    listener = Listener(cluster.http)
    listener.hear(begin("/v1/completions", body, "alone"), n_events=1)
    assert listener.position == 1
    wait_for(lambda: ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 0)
    listener.resume("alone", by_header=False)
    assert listener.position == 300
    whole = ask(cluster.http, "POST", "/v1/completions", body).json["choices"][0]["text"]
    assert "".join(json.loads(event)["choices"][0]["text"] for event in listener.events[:-1]) == whole
    assert metric(cluster.http, "stagecoach_resumable_streams") >= 1
    assert metric(cluster.http, "stagecoach_streams_resumed_total") >= 1


def test_two_readers_get_everything(cluster):
    with connection(cluster.http) as one, connection(cluster.http) as other:
        one.sendall(begin("/v1/completions", dict(LONG, max_tokens=300), "two"))
        first = Reader(one)
        first.head()
        events = first.sse()
        heard = [next(events)]
        other.sendall(request_bytes("GET", "/v1/streams/two"))
        second = Reader(other)
        assert second.head()[0] == 200
        heard_too = list(second.sse())
        heard += events
        assert heard == heard_too and heard[-1] == (None, "[DONE]")


def test_cancel(cluster):
    aborts = metric(cluster.http, "vllm:request_success_total", finished_reason="abort")
    with connection(cluster.http) as sock:
        sock.sendall(begin("/v1/completions", LONG, "cancelled"))
        reader = Reader(sock)
        reader.head()
        events = reader.sse()
        next(events)
        gone = ask(cluster.http, "DELETE", "/v1/streams/cmpl-cancelled")
        assert gone.json == {"id": "cancelled", "object": "stream", "deleted": True}
        *_, error, done = [data for _, data in events]
        assert error["error"]["code"] == "cancelled" and done == "[DONE]"
    wait_for(lambda: metric(cluster.http, "vllm:request_success_total", finished_reason="abort") == aborts + 1)
    assert ask(cluster.http, "DELETE", "/v1/streams/cancelled").status == 404
    assert ask(cluster.http, "GET", "/v1/streams/cancelled").error["code"] == "stream_not_found"


def test_errors(cluster):
    Listener(cluster.http).hear(begin("/v1/completions", dict(LONG, max_tokens=5), "errors"))

    def refused(target, status, param=None, method="GET", body=None):
        answer = ask(cluster.http, method, target, body)
        assert (answer.status, answer.error["param"]) == (status, param), answer.body
        return answer

    refused("/v1/streams/errors?from=x", 400, "from")
    refused("/v1/streams/errors?from=-1", 400, "from")
    refused("/v1/streams/errors?from=99999999999999999999999", 400, "from")
    assert "5 tokens" in refused("/v1/streams/errors?other=1&from=6", 400, "from").error["message"]
    assert refused("/v1/streams/unknown", 404).error["code"] == "stream_not_found"
    refused("/v1/streams/", 404)
    again = refused("/v1/completions", 409, "request_id", "POST", resumable(dict(LONG, max_tokens=5), "errors"))
    assert again.error["code"] == "stream_exists"
    refused("/v1/completions", 400, "stream_options", "POST", {"prompt": "x", "stream_options": {"resumable": True}})
    refused("/v1/completions", 400, "stream_options.resumable", "POST",
            {"prompt": "x", "stream": True, "stream_options": {"resumable": "yes"}})
    assert refused("/v1/streams/errors", 405, method="POST", body={}).headers["allow"] == "GET, DELETE"
    assert refused("/v1/completions", 400, "top_p", "POST", resumable(dict(LONG, top_p=7), "free")).error
    assert ask(cluster.http, "POST", "/v1/completions", resumable(dict(LONG, max_tokens=2), "free")).status == 200


def test_a_stream_belongs_to_a_tenant(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-web tenant=web\nsk-app tenant=web\nsk-other tenant=other\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        def as_key(key, method, path, body=None):
            return ask(cluster.http, method, path, body, {"Authorization": f"Bearer {key}"})

        body = resumable(dict(LONG, max_tokens=5), "mine")
        assert as_key("sk-web", "POST", "/v1/completions", body).status == 200
        assert as_key("sk-app", "GET", "/v1/streams/mine?from=3").events[-1] == "[DONE]"
        assert ask(cluster.http, "GET", "/v1/streams/mine").status == 401
        for method in ("GET", "DELETE"):
            assert as_key("sk-other", method, "/v1/streams/mine").status == 404
        assert as_key("sk-other", "POST", "/v1/completions", body).status == 200
        assert as_key("sk-web", "DELETE", "/v1/streams/mine").status == 200
        assert as_key("sk-other", "GET", "/v1/streams/mine").status == 200


def test_streams_are_kept_for_limited_time_and_memory():
    flags = ["--resume-time", "0.001", "--resume-memory", "64KiB", "--resume-streams", "2"]
    with Cluster(DEMO_MODEL, flags=flags) as cluster:
        Listener(cluster.http).hear(begin("/v1/completions", dict(LONG, max_tokens=300), "left"), n_events=1)
        wait_for(lambda: ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 0)
        gone = wait_for(lambda: (answer := ask(cluster.http, "GET", "/v1/streams/left")).status == 404 and answer)
        assert "0.001 s" in gone.error["message"]
        with connection(cluster.http) as one, connection(cluster.http) as other:
            readers = [Reader(one), Reader(other)]
            for i, reader in enumerate(readers):
                reader.sock.sendall(begin("/v1/completions", LONG, f"stream-{i}"))
                reader.until(b"id: 1\n")
            full = ask(cluster.http, "POST", "/v1/completions", resumable(LONG, "third"))
            assert full.status == 429 and int(full.headers["retry-after"]) > 0
            with concurrent.futures.ThreadPoolExecutor() as threads:  # clients that keep up lose nothing
                for said in threads.map(lambda reader: reader.until(b"[DONE]"), readers):
                    assert b"id: 1799\n" in said and b"id: 1800\n" in said
            assert metric(cluster.http, "stagecoach_resumable_stream_bytes") <= 64 << 10
            assert metric(cluster.http, "stagecoach_streams_dropped_total") > 0


def test_the_dropped_beginning_of_a_stream_is_an_error():
    with Cluster(DEMO_MODEL, flags=["--resume-memory", "64KiB"]) as cluster:
        Listener(cluster.http).hear(begin("/v1/completions", LONG, "long"))
        lost = ask(cluster.http, "GET", "/v1/streams/long")
        assert lost.status == 410 and lost.error["code"] == "stream_no_longer_kept" and lost.error["param"] == "from"
        assert ask(cluster.http, "GET", "/v1/streams/long?from=1799").events[-1] == "[DONE]"
        assert metric(cluster.http, "stagecoach_resumable_stream_bytes") <= 64 << 10


def test_a_server_without_resumable_streams():
    with Cluster(DEMO_MODEL, flags=["--resume-time", "0"]) as cluster:
        refused = ask(cluster.http, "POST", "/v1/completions", resumable(LONG, "x"))
        assert refused.status == 400 and refused.error["param"] == "stream_options.resumable"


def test_openai_for_python(cluster):
    """The client loses its stream and reads the rest as a stream of the same kind."""
    with connect(cluster) as client:
        options = dict(model="demo-model", messages=MESSAGES, temperature=0, stream=True)
        whole = [chunk.choices[0].delta.content for chunk in client.chat.completions.create(**options)]
        stream = client.chat.completions.create(stream_options={"resumable": True, "continuous_usage_stats": True}, **options)
        heard = [next(stream) for _ in range(4)]
        stream.close()
        n_tokens = heard[-1].usage.completion_tokens
        heard += client.get(f"/streams/{heard[0].id}", options={"params": {"from": n_tokens}}, cast_to=ChatCompletionChunk,
                            stream=True, stream_cls=openai.Stream[ChatCompletionChunk])
        assert [chunk.choices[0].delta.content for chunk in heard] == whole


def test_grpc(cluster):
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), resumable=True, request_id="over-grpc",
                                 sampling=pb.SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    call = cluster.stub.Generate(request)
    heard = [next(call) for _ in range(7)]
    call.cancel()
    heard += cluster.stub.Resume(pb.ResumeRequest(request_id="over-grpc", **{"from": heard[-1].position}))
    positions = [message.position for message in heard]
    assert positions == list(range(1, 41)) and heard[-1].usage.completion_tokens == 40
    whole = list(cluster.stub.Resume(pb.ResumeRequest(request_id="over-grpc")))
    assert whole == heard
    assert ask(cluster.http, "GET", "/v1/streams/over-grpc").status == 404
    cluster.stub.Cancel(pb.CancelRequest(request_id="over-grpc"))


def test_comments_have_no_position(chatty_cluster):
    with connection(chatty_cluster.http) as sock:
        sock.sendall(begin("/v1/completions", dict(LONG, max_tokens=200), "chatty"))
        reader = Reader(sock)
        reader.head()
        numbers = [number for number, data in reader.sse() if not is_comment(data)]
    *numbered, last = numbers
    assert numbered == sorted(set(numbered)) and numbered[-1] == 200 and last is None
