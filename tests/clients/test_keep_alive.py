"""Waiting streams: what proxies and clients see of them."""
import openai
import pytest
from test_openai_structured import connect
from wire import Reader, ask, busy, connection, is_comment, request_bytes

BODY = {"prompt": "The coach", "max_tokens": 5, "ignore_eos": True, "stream": True}
MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]


def test_a_waiting_stream_sends_keep_alive_comments(chatty_cluster):
    with busy(chatty_cluster.http), connection(chatty_cluster.http) as sock:
        sock.sendall(request_bytes("POST", "/v1/completions", BODY))
        reader = Reader(sock)
        assert reader.head()[0] == 200
        events = [data for _, data in reader.sse()]
    assert events[0] == ": keep-alive"
    assert sum(not is_comment(data) for data in events) == 6 and events[-1] == "[DONE]"


def test_a_refused_stream_gets_an_http_status(chatty_cluster):
    with busy(chatty_cluster.http):
        assert ask(chatty_cluster.http, "POST", "/v1/completions", dict(BODY, top_p=7)).status == 400
        assert ask(chatty_cluster.http, "POST", "/v1/completions", dict(BODY, model="x")).status == 404


def test_openai_for_python_skips_comments(chatty_cluster):
    with connect(chatty_cluster) as client:
        options = dict(model="demo-model", messages=MESSAGES, temperature=0)
        whole = client.chat.completions.create(**options).choices[0].message.content
        for more in ({}, {"stream_options": {"resumable": True, "include_usage": True}}):
            with busy(chatty_cluster.http):
                chunks = list(client.chat.completions.create(stream=True, extra_body=more, **options))
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
        with busy(chatty_cluster.http), pytest.raises(openai.BadRequestError):
            client.chat.completions.create(stream=True, top_p=7, **options)
