"""The official anthropic package for Python, as agents use it, against /v1/messages."""
import datetime
import json

import anthropic
import jsonschema
import pytest
from harness import DEMO_MODEL, Cluster
from weather_tool import BIAS, CHAT_TOOLS, PARAMETERS, chat
from wire import ask

QUESTION = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]
DEMO = {"model": "demo-model", "messages": QUESTION, "max_tokens": 300}
# The package no longer has the sampling parameters, but the API has.
GREEDY = {**DEMO, "extra_body": {"temperature": 0}}
TOOLS = [{"name": "weather", "description": "How it will be", "input_schema": PARAMETERS}]
CALL = {"model": "qwen2", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "tool_choice": {"type": "any"},
        "max_tokens": 200, "extra_body": {"logit_bias": BIAS, "temperature": 2}}


def connect(cluster, key="none"):
    return anthropic.Anthropic(base_url=f"http://{cluster.http}", api_key=key, max_retries=0,
                               http_client=anthropic.DefaultHttpxClient(trust_env=False))


@pytest.fixture(scope="module")
def client(cluster):
    with connect(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def tool_client(tool_cluster):
    with connect(tool_cluster) as client:
        yield client


def n_prompt(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_the_same_answer_as_a_chat_completion(client, cluster):
    message = client.messages.create(system="Be brief.", **GREEDY)
    same = chat(cluster, messages=[{"role": "system", "content": "Be brief."}, *QUESTION], temperature=0, max_tokens=300)
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == same["choices"][0]["message"]["content"]
    assert message.role == "assistant" and message.type == "message" and message.stop_reason == "end_turn"
    assert n_prompt(message.usage) == same["usage"]["prompt_tokens"]
    assert message.usage.output_tokens == same["usage"]["completion_tokens"]
    assert message.id.startswith("msg_") and message._request_id == message.id.removeprefix("msg_")
    count = client.messages.count_tokens(model="demo-model", system="Be brief.", messages=QUESTION)
    assert count.input_tokens == same["usage"]["prompt_tokens"]


def test_stream(client):
    whole = client.messages.create(**GREEDY)
    with client.messages.stream(**GREEDY) as stream:
        events = list(stream)
        final = stream.get_final_message()
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert {"content_block_start", "content_block_delta", "text", "content_block_stop", "message_delta"} <= set(kinds)
    assert final.content[0].text == whole.content[0].text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert n_prompt(final.usage) == n_prompt(whole.usage)
    raw = [event.type for event in client.messages.create(stream=True, **GREEDY)]
    assert raw[-2:] == ["message_delta", "message_stop"]


def test_how_a_message_ends(client, cluster):
    short = client.messages.create(**{**GREEDY, "max_tokens": 3})
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 3
    text = client.messages.create(**GREEDY).content[0].text
    word = text.split()[1]
    stopped = client.messages.create(stop_sequences=[word], **GREEDY)
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word
    assert word not in stopped.content[0].text
    assert client.messages.create(**{**GREEDY, "max_tokens": 20_000}).content[0].text == text
    begun = [*QUESTION, {"role": "assistant", "content": "It leaves"}]
    same = chat(cluster, messages=begun, temperature=0, max_tokens=300, continue_final_message=True)
    rest = client.messages.create(**{**GREEDY, "messages": begun}).content[0].text
    assert rest == same["choices"][0]["message"]["content"]


def test_thinking(tool_client):
    form = {"guided_regex": "<think>[a-z]{4}</think>[A-Z]{3}"}
    fields = {**DEMO, "model": "qwen2", "extra_body": {"seed": 1, **form}}
    message = tool_client.messages.create(thinking={"type": "enabled", "budget_tokens": 1024}, **fields)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert len(message.content[0].thinking) == 4 and len(message.content[1].text) == 3
    with tool_client.messages.stream(thinking={"type": "disabled"}, **fields) as stream:
        kinds = {event.type for event in stream}
        again = stream.get_final_message()
    assert {"thinking", "signature", "text"} <= kinds
    assert again.content[0] == message.content[0] and again.content[1].text == message.content[1].text
    fields["messages"] = [*QUESTION, {"role": "assistant", "content": message.content}, *QUESTION]
    assert tool_client.messages.create(**fields).content


def test_structured_output(client):
    schema = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}, "hour": {"type": "integer"}},
              "required": ["answer", "hour"], "additionalProperties": False}
    message = client.messages.create(output_config={"format": {"type": "json_schema", "schema": schema}},
                                     **{**GREEDY, "max_tokens": 200})
    jsonschema.validate(json.loads(message.content[0].text), schema)


def test_a_tool_and_its_result(tool_client, tool_cluster):
    call = {**CALL, "extra_body": {"seed": 5, **CALL["extra_body"]}}
    message = tool_client.messages.create(**call)
    assert message.stop_reason == "tool_use"
    uses = [block for block in message.content if block.type == "tool_use"]
    for use in uses:
        assert use.name == "weather" and use.id
        jsonschema.validate(use.input, PARAMETERS)
    with tool_client.messages.stream(**call) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_message()
    assert "input_json" in kinds and streamed.stop_reason == "tool_use"
    assert [block.input for block in streamed.content] == [block.input for block in message.content]

    results = [{"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "Sunny."}]}
               for use in uses]
    follow_up = {**call, "tool_choice": {"type": "auto"}, "max_tokens": 5, "messages": [
        *CALL["messages"], {"role": "assistant", "content": message.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "So?"}]}]}
    answer = tool_client.messages.create(**follow_up)
    same = chat(tool_cluster, tools=CHAT_TOOLS, max_tokens=5, messages=[
        *CALL["messages"],
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": json.dumps(use.input)}}
            for use in uses]},
        *({"role": "tool", "tool_call_id": use.id, "content": "Sunny."} for use in uses),
        {"role": "user", "content": "So?"}])
    assert n_prompt(answer.usage) == same["usage"]["prompt_tokens"]
    counted = tool_client.messages.count_tokens(model="qwen2", tools=TOOLS, messages=follow_up["messages"])
    assert counted.input_tokens == same["usage"]["prompt_tokens"]


def test_what_the_server_does_not_have(tool_client):
    search = {"type": "web_search_20250305", "name": "web_search"}
    hints = {"extra_headers": {"anthropic-beta": "context-management-2025-06-27"},
             "extra_body": {"context_management": {"edits": []}, **CALL["extra_body"]}}
    message = tool_client.messages.create(**{**CALL, "tools": [search, *TOOLS], **hints})
    assert all(block.name == "weather" for block in message.content if block.type == "tool_use")
    with pytest.raises(anthropic.BadRequestError, match="web_search"):
        tool_client.messages.create(**{**CALL, "tools": [search, *TOOLS],
                                       "tool_choice": {"type": "tool", "name": "web_search"}})
    with pytest.raises(anthropic.BadRequestError, match="only text"):
        tool_client.messages.create(model="qwen2", max_tokens=5, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}])


def test_a_billing_line_does_not_break_the_prefix_cache(client):
    def cached(line):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.0; cch={line};"},
                  {"type": "text", "text": "You help people at a coach station. " * 8,
                   "cache_control": {"type": "ephemeral"}}]
        return client.messages.create(system=system, **GREEDY).usage.cache_read_input_tokens

    cached("first")
    assert cached("second") > 32


def test_errors(client, cluster):
    with pytest.raises(anthropic.NotFoundError) as error:
        client.messages.create(**{**DEMO, "model": "claude-opus"})
    assert error.value.body["type"] == "error" and error.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as error:
        client.messages.create(extra_body={"top_p": 7}, **DEMO)
    assert error.value.body["error"]["message"].startswith("top_p: ") and error.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(**{**DEMO, "messages": [{"role": "user", "content": "word " * 5000}]})
    with pytest.raises(anthropic.RequestTooLargeError):
        client.messages.create(**{**DEMO, "messages": [{"role": "user", "content": "x" * (17 << 20)}]})
    assert ask(cluster.http, "PUT", "/v1/messages").json["error"]["type"] == "invalid_request_error"


def test_api_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-good\nsk-slow requests_per_minute=1\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys]) as cluster:
        def say(key):
            with connect(cluster, key) as client:
                return client.messages.create(**{**DEMO, "max_tokens": 1})

        assert say("sk-good").usage.output_tokens == 1
        with pytest.raises(anthropic.AuthenticationError):
            say("sk-bad")
        say("sk-slow")
        with pytest.raises(anthropic.RateLimitError) as error:
            say("sk-slow")
        headers = error.value.response.headers
        assert int(headers["retry-after"]) > 0
        assert headers["anthropic-ratelimit-requests-limit"] == "1"
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert datetime.datetime.fromisoformat(headers["anthropic-ratelimit-requests-reset"]).tzinfo
        bearer = ask(cluster.http, "POST", "/v1/messages", DEMO, headers=[("Authorization", "Bearer sk-good")])
        assert bearer.status == 200


@pytest.mark.parametrize("path, instead", [("/api/chat", "/v1/chat/completions"), ("/api/generate", "/v1/completions"),
                                           ("/completion", "/v1/completions"), ("/v1/nothing", "/openapi.json")])
def test_paths_of_other_servers(cluster, path, instead):
    response = ask(cluster.http, "POST", path, {})
    assert response.status == 404 and instead in response.error["message"]
