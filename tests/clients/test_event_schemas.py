"""Streams of the three APIs, event by event, against the types of the clients' own packages, and read by these clients one
byte at a time."""
import json
import typing

import anthropic
import httpx
import httpx2
import openai
import pydantic
import pytest
import scripted_model
from anthropic.types import RawMessageStreamEvent
from harness import Cluster
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from wire import ask

PARAMETERS = {"type": "object", "properties": {"stop": {"type": "string"}, "day": {"type": "string"}}, "required": ["stop"],
              "additionalProperties": False}
SCHEMA = {"type": "object", "properties": {"stop": {"type": "string"}, "hour": {"type": "integer"}}, "required": ["stop", "hour"],
          "additionalProperties": False}
JSON_TEXT = '{"stop":"Greywell 🐎","hour":9}'  # grammars allow no blanks here
REPLIES = {
    "text": "The first coach 🐎 leaves Greywell at nine o'clock.",
    "thinking": "<think>Sunday has another timetable 🐎, I believe.</think>At nine, from the west side.",
    "tools": "Two lookups. " + scripted_model.call("departures", {"stop": "Greywell", "day": "Monday \"🐎\""}) +
             "<tool_call>\n{\"name\": \"stops\", \"arguments\": {}}\n</tool_call>",
    "structured": JSON_TEXT,
}
CASES = list(REPLIES)
# Fields that OpenAI's package does not know: of chunks, those of other servers; of responses, one that OpenAI's API has.
CHAT_FIELDS = [".choices[].stop_reason", ".choices[].delta.reasoning", ".choices[].delta.reasoning_content"]
RESPONSE_FIELDS = [".store", ".response.store"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rules = [(f"messages[-1].content == '{case}'", reply) for case, reply in REPLIES.items()]
    folder = scripted_model.write(tmp_path_factory.mktemp("models") / "my-model", rules, context=4096)
    with Cluster(folder, stages=2) as cluster:
        yield cluster


def body_of(api, case, **more):
    """The request of a case: path and body."""
    turn = {"model": "my-model", "temperature": 0, "stream": True, **more}
    messages = [{"role": "user", "content": case}]
    tools = case == "tools"
    function = {"description": "Looks up", "parameters": PARAMETERS}
    other = {"description": "Lists", "parameters": {"type": "object"}}
    if api == "responses":
        if tools:
            turn["tools"] = [{"type": "function", "strict": False, "name": "departures", **function},
                             {"type": "function", "strict": False, "name": "stops", **other}]
        if case == "structured":
            turn["text"] = {"format": {"type": "json_schema", "name": "departure", "strict": True, "schema": SCHEMA}}
        return "/v1/responses", {**turn, "input": messages}
    if api == "messages":
        if tools:
            turn["tools"] = [{"name": "departures", "description": "Looks up", "input_schema": PARAMETERS},
                             {"name": "stops", "input_schema": {"type": "object"}}]
        if case == "structured":
            turn["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return "/v1/messages", {**turn, "messages": messages, "max_tokens": 200}
    if tools:
        turn["tools"] = [{"type": "function", "function": {"name": "departures", **function}},
                         {"type": "function", "function": {"name": "stops", **other}}]
    if case == "structured":
        turn["response_format"] = {"type": "json_schema", "json_schema": {"name": "departure", "strict": True, "schema": SCHEMA}}
    return "/v1/chat/completions", {**turn, "messages": messages, "stream_options": {"include_usage": True}}


def stream_of(server, api, case):
    """The bytes of a stream, and the parsed data of its events."""
    response = ask(server.http, "POST", *body_of(api, case))
    assert response.status == 200, response.body
    lines = [line for line in response.body.decode().splitlines() if line.startswith("data: {")]
    return response.body, [json.loads(line.removeprefix("data: ")) for line in lines]


def by_type(union):
    """{value of "type": class} of a union of events."""
    members = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(member.model_fields["type"].annotation)[0]: member for member in members}


def unknown_fields(value, path=""):
    """The places of fields that the package's types do not know."""
    if isinstance(value, pydantic.BaseModel):
        extra = [f"{path}.{name}" for name in value.model_extra or {}]
        return extra + [place for name in value.model_fields_set - set(value.model_extra or {})
                        for place in unknown_fields(getattr(value, name), f"{path}.{name}")]
    if isinstance(value, list):
        return [place for one in value for place in unknown_fields(one, path + "[]")]
    return []


def check(kind, event, allowed=()):
    """Checks one event against its class: types are strict, no field is missing, and all are known but those allowed."""
    parsed = kind.model_validate_json(json.dumps(event), strict=True)
    assert set(unknown_fields(parsed)) <= set(allowed), event


def client_reading(client, http, body, **options):
    """A client of this class, which uses the HTTP package `http`, that gets `body` byte by byte, whatever it asks."""
    def answer(_):
        pieces = (body[i : i + 1] for i in range(len(body)))
        return http.Response(200, headers={"content-type": "text/event-stream"}, content=pieces)

    return client(api_key="none", http_client=http.Client(transport=http.MockTransport(answer)), max_retries=0, **options)


def plain(events):
    return [event.model_dump(mode="json", exclude_unset=True, by_alias=True) for event in events]


@pytest.mark.parametrize("case", CASES)
def test_responses(server, case):
    body, events = stream_of(server, "responses", case)
    kinds = by_type(ResponseStreamEvent)
    for event in events:
        check(kinds[event["type"]], event, RESPONSE_FIELDS)
    client = client_reading(openai.OpenAI, httpx, body, base_url="http://server/v1")
    path, request = body_of("responses", case)
    assert plain(client.responses.create(**request)) == events
    with client.responses.stream(**{name: value for name, value in request.items() if name != "stream"}) as stream:
        final = stream.get_final_response()
    whole = ask(server.http, "POST", path, {**request, "stream": False}).json
    check(Response, whole, RESPONSE_FIELDS)
    assert [item.type for item in final.output] == [item["type"] for item in whole["output"]] == {
        "thinking": ["reasoning", "message"], "tools": ["message", "function_call", "function_call"]}.get(case, ["message"])
    assert final.output_text == Response.model_validate(whole).output_text
    if case == "tools":
        calls = [item for item in final.output if item.type == "function_call"]
        assert [call.name for call in calls] == ["departures", "stops"]
        assert json.loads(calls[0].arguments)["day"] == "Monday \"🐎\""


@pytest.mark.parametrize("case", CASES)
def test_messages(server, case):
    body, events = stream_of(server, "messages", case)
    events = [event for event in events if event != {"type": "ping"}]  # the client skips these
    kinds = by_type(RawMessageStreamEvent)
    for event in events:
        check(kinds[event["type"]], event)
    client = client_reading(anthropic.Anthropic, httpx2, body, base_url="http://server")
    path, request = body_of("messages", case)
    whole = ask(server.http, "POST", path, {**request, "stream": False}).json
    check(anthropic.types.Message, whole)
    fields = {name: value for name, value in request.items() if name not in ("stream", "temperature")}
    assert plain(client.messages.create(stream=True, **fields)) == events
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == {
        "thinking": ["thinking", "text"], "tools": ["text", "tool_use", "tool_use"]}.get(case, ["text"])
    assert final.stop_reason == whole["stop_reason"] == ("tool_use" if case == "tools" else "end_turn")

    def said(block):
        return {name: value for name, value in block.items() if name not in ("id", "parsed_output")}

    assert [said(block.model_dump(exclude_unset=True)) for block in final.content] == [said(block) for block in whole["content"]]


@pytest.mark.parametrize("case", CASES)
def test_chat_completions(server, case):
    body, events = stream_of(server, "chat", case)
    for event in events:
        check(ChatCompletionChunk, event, allowed=CHAT_FIELDS)
    client = client_reading(openai.OpenAI, httpx, body, base_url="http://server/v1")
    path, request = body_of("chat", case)
    assert plain(client.chat.completions.create(**request)) == events
    fields = {name: value for name, value in request.items() if name != "stream"}
    with client.chat.completions.stream(**fields) as stream:
        final = stream.get_final_completion().choices[0]
    whole = ask(server.http, "POST", path, {**fields, "stream_options": None}).json
    message = whole["choices"][0]["message"]
    assert final.finish_reason == whole["choices"][0]["finish_reason"] and final.message.content == message["content"]
    assert ("reasoning_content" in message) == (case == "thinking")
    assert [call.function.arguments for call in final.message.tool_calls or []] == [
        call["function"]["arguments"] for call in message.get("tool_calls") or []]
