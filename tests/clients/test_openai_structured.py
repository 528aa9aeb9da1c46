"""Structured output, JSON events and tools through the official openai package."""
import json
import re

import httpx
import jsonschema
import openai
import pydantic
import pytest
import structured
from wire import ask
from workload import GOLDEN

MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]
DEMO = {"model": "demo-model", "messages": MESSAGES}
SCHEMA = {"type": "object", "properties": {
    "answer": {"type": "string", "minLength": 3, "maxLength": 24},
    "stops": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
        "type": "object", "properties": {"name": {"enum": ["Åsa \"Nord\"", "Quay"]}, "minute": {"type": "integer", "minimum": 0,
                                                                                             "maximum": 59}},
        "required": ["name", "minute"], "additionalProperties": False}}},
    "required": ["answer", "stops"], "additionalProperties": False}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


def connect(cluster):
    return openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", max_retries=0,
                         http_client=httpx.Client(trust_env=False))


@pytest.fixture(scope="module")
def client(cluster):
    with connect(cluster) as client:
        yield client


class Departure(pydantic.BaseModel):
    hour: int = pydantic.Field(ge=0, le=23)
    place: str = pydantic.Field(max_length=12)
    late: bool


def test_parse(client):
    answer = client.chat.completions.parse(response_format=Departure, max_tokens=200, seed=3, **DEMO)
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, Departure)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(response_format=Departure, max_tokens=3, **DEMO)
    with client.chat.completions.stream(response_format=Departure, max_tokens=200, seed=3, **DEMO) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == answer.choices[0].message.parsed


def test_json_schema(client):
    answer = client.chat.completions.create(response_format=RESPONSE_FORMAT, n=3, temperature=2, seed=1, max_tokens=300, **DEMO)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    assert len({choice.message.content for choice in answer.choices}) == 3
    pieces = ["", "", ""]
    for chunk in client.chat.completions.create(response_format=RESPONSE_FORMAT, n=3, temperature=2, seed=1, max_tokens=300,
                                                stream=True, **DEMO):
        pieces[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert pieces == [choice.message.content for choice in answer.choices]


def test_json_object_and_length(client):
    (choice,) = client.chat.completions.create(response_format={"type": "json_object"}, max_tokens=9, temperature=0, **DEMO).choices
    assert choice.message.content.startswith("{") and choice.finish_reason == "length"


@pytest.mark.parametrize("fields, matches", [
    ({"guided_json": {"enum": [7, "a"]}}, r'7|"a"'),
    ({"guided_json": json.dumps({"const": "x"})}, '"x"'),
    ({"guided_regex": "[a-f]{2,5}"}, "[a-f]{2,5}"),
    ({"guided_choice": ["coach", "ferry"]}, "coach|ferry"),
    ({"guided_grammar": 'start: "<" /[xy]{1,3}/ ">"'}, "<[xy]{1,3}>"),
    ({"structured_outputs": {"choice": ["one"]}}, "one"),
    ({"structured_outputs": {"json": {"type": "array", "items": {"const": 1}, "minItems": 3, "maxItems": 3}}}, r"\[1,1,1\]"),
], ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_other_kinds_of_structured_output(client, fields, matches):
    chat = client.chat.completions.create(extra_body=fields, temperature=2, max_tokens=60, **DEMO)
    plain = client.completions.create(model="demo-model", prompt=["It is", "Now"], temperature=2, max_tokens=60, extra_body=fields)
    for text in (chat.choices[0].message.content, *(choice.text for choice in plain.choices)):
        assert re.fullmatch(matches, text)


def read_events(stream):
    """Returns ({path: text}, content, finish reason)."""
    events, content, finish = {}, "", None
    for chunk in stream:
        choice = chunk.choices[0]
        delta = getattr(choice, "delta", choice)
        content += getattr(delta, "content", None) or getattr(delta, "text", None) or ""
        for event in getattr(delta, "json_events", None) or []:
            events[event["path"]] = events.get(event["path"], "") + event["delta"]
        finish = choice.finish_reason or finish
    return events, content, finish


def test_json_events(client):
    fields = dict(response_format=RESPONSE_FORMAT, seed=4, temperature=1.5, max_tokens=300)
    whole = json.loads(client.chat.completions.create(**fields, **DEMO).choices[0].message.content)
    events, content, finish = read_events(client.chat.completions.create(
        stream=True, stream_options={"json_events": True}, **fields, **DEMO))
    assert content == "" and finish == "stop"
    expected = {"/answer": whole["answer"]}
    for i, stop in enumerate(whole["stops"]):
        expected |= {f"/stops/{i}/name": stop["name"], f"/stops/{i}/minute": str(stop["minute"])}
    assert events == expected
    chosen, _, _ = read_events(client.chat.completions.create(
        stream=True, stream_options={"json_events": ["/answer", "/stops/*/name"]}, **fields, **DEMO))
    assert chosen == {path: text for path, text in expected.items() if not path.endswith("minute")}


def test_json_events_in_a_code_fence_and_in_a_completion(client):
    lark = r'start: "Yes, {so}:\n```json\n{\"answer\": \"" /[a-z]{3,9}/ "\"}\n```"'
    events, content, _ = read_events(client.completions.create(
        model="demo-model", prompt="x", stream=True, stream_options={"json_events": ["/answer"]}, seed=2, max_tokens=80,
        extra_body={"guided_grammar": lark}))
    assert content == "" and re.fullmatch("[a-z]{3,9}", events["/answer"])


@pytest.mark.parametrize("fields, param", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 1}}}},
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"guided_json": {"uniqueItems": True}}, "guided_json"),
    ({"guided_json": {"$ref": "http://127.0.0.1:9/x"}}, "guided_json"),
    ({"guided_json": {"enum": ["x" * 300_000]}}, "guided_json"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_regex": "("}, "guided_regex"),
    ({"guided_regex": "(?=x)"}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_grammar": "start: x"}, "guided_grammar"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"structured_outputs": {"regex": "["}}, "structured_outputs.regex"),
    ({"tools": {"type": "function", "function": {"name": "f"}}}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"stream": True, "stream_options": {"json_events": ["answer"]}}, "stream_options.json_events[0]"),
    ({"stream": True, "stream_options": {"json_events": 1}}, "stream_options.json_events"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_errors_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(extra_body=fields, **DEMO)
    assert error.value.param == param and len(error.value.message) > len(param) + 10


PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Åre", "Rome"]}, "days": {"type": "integer", "minimum": 1,
                                                                                        "maximum": 9}},
              "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "How it will be", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "now"}}]
BIAS = structured.closing_bias(GOLDEN / "qwen2")
ASK = {"model": "qwen2", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "temperature": 2, "max_tokens": 200,
       "logit_bias": {str(token): bias for token, bias in BIAS.items()}}


@pytest.fixture(scope="module")
def tool_client(tool_cluster):
    with connect(tool_cluster) as client:
        yield client


def check_calls(calls):
    assert calls and len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.type == "function" and call.id.startswith("call_")
        if call.function.name == "weather":
            jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
        else:
            assert (call.function.name, call.function.arguments) == ("now", "{}")


def test_tools(tool_client):
    n_calls = set()
    for seed in range(6):
        fields = dict(tool_choice="required", seed=seed, **ASK)
        (choice,) = tool_client.chat.completions.create(**fields).choices
        if choice.finish_reason == "length":
            continue
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        check_calls(choice.message.tool_calls)
        n_calls.add(len(choice.message.tool_calls))
        with tool_client.chat.completions.stream(**fields) as stream:
            kinds = {event.type for event in stream}
            streamed = stream.get_final_completion().choices[0]
        assert "tool_calls.function.arguments.delta" in kinds
        check_calls(streamed.message.tool_calls)
        assert [call.function.arguments for call in streamed.message.tool_calls] == \
            [call.function.arguments for call in choice.message.tool_calls]
        assert streamed.finish_reason == "tool_calls" and not streamed.message.content
    assert len(n_calls) > 1, "some answers have one call, some more"


def test_arguments_arrive_in_pieces(tool_client):
    named = {"type": "function", "function": {"name": "weather"}}
    stream = tool_client.chat.completions.create(tool_choice=named, seed=5, stream=True, **ASK)
    deltas = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
    assert len(deltas) > 3 and {delta.index for delta in deltas} == {0}
    assert [delta.id is not None for delta in deltas] == [True] + [False] * (len(deltas) - 1)
    assert deltas[0].function.name == "weather"
    jsonschema.validate(json.loads("".join(delta.function.arguments or "" for delta in deltas)), PARAMETERS)


def test_one_tool_call_and_no_tool_call(tool_client):
    for seed in range(3):
        one = tool_client.chat.completions.create(tool_choice="required", parallel_tool_calls=False, seed=seed, **ASK)
        assert len(one.choices[0].message.tool_calls) == 1
    none = tool_client.chat.completions.create(tool_choice="none", extra_body={"ignore_eos": True}, **ASK | {"max_tokens": 8})
    assert none.choices[0].message.tool_calls is None and none.choices[0].finish_reason == "length"


def test_tool_calls_can_be_sent_back(tool_client, tool_cluster):
    call = {"id": "call_x", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [*ASK["messages"], {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_x", "content": "sunny"}]
    answer = tool_client.chat.completions.create(**ASK | {"messages": messages, "max_tokens": 4})
    rendered = ask(tool_cluster.http, "POST", "/tokenize", {"messages": messages, "tools": TOOLS}).json
    assert answer.usage.prompt_tokens == rendered["count"]
    text = ask(tool_cluster.http, "POST", "/detokenize", {"tokens": rendered["tokens"]}).json["prompt"]
    assert "<tool_call>weather Rome call_x</tool_call>" in text and "tool: sunny" in text and '"name": "now"' in text
    with pytest.raises(openai.BadRequestError) as error:
        tool_client.chat.completions.create(tool_choice={"type": "function", "function": {"name": "f"}}, **ASK)
    assert error.value.param == "tool_choice"


def is_json(text):
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def test_a_truncated_answer_can_be_sent_back(tool_client):
    named = {"type": "function", "function": {"name": "weather"}}
    n_tokens = tool_client.chat.completions.create(tool_choice=named, seed=5, **ASK).usage.completion_tokens
    arguments = "{}"
    while is_json(arguments):
        n_tokens -= 1
        cut = tool_client.chat.completions.create(tool_choice=named, seed=5, **ASK | {"max_tokens": n_tokens}).choices[0]
        (call,) = cut.message.tool_calls
        arguments = call.function.arguments
    assert cut.finish_reason == "length" and cut.message.content is None
    messages = [*ASK["messages"], cut.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "no city"}]
    assert tool_client.chat.completions.create(**ASK | {"messages": messages, "max_tokens": 4}).usage.completion_tokens
    for arguments in ("", "[1]", "call me", "null", '{"city": "R'):
        messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
        assert tool_client.chat.completions.create(**ASK | {"messages": messages, "max_tokens": 1}).choices


def test_truncated_reasoning_can_be_sent_back(tool_client):
    fields = dict(model="qwen2", messages=ASK["messages"], seed=1, extra_body={"guided_regex": "<think>\n[a-z]{90}\n</think>\n\n[A-Z]{2}"})
    cut = tool_client.chat.completions.create(max_tokens=12, **fields)
    message = cut.choices[0].message
    assert cut.choices[0].finish_reason == "length" and message.content is None and message.reasoning_content.islower()
    assert cut.usage.completion_tokens_details.reasoning_tokens > 0
    for back in (message.to_dict(), {"role": "assistant"}, {"role": "assistant", "reasoning_content": "hm"}):
        answer = tool_client.chat.completions.create(**ASK | {"messages": [*ASK["messages"], back, *ASK["messages"]], "max_tokens": 1})
        assert answer.choices
    *_, last = tool_client.chat.completions.create(stream=True, stream_options={"include_usage": True}, max_tokens=12, **fields)
    assert last.usage.completion_tokens_details.reasoning_tokens == cut.usage.completion_tokens_details.reasoning_tokens


def test_tools_with_a_response_format_give_calls_or_that_format(tool_client):
    kinds = set()
    for seed in range(16):
        fields = dict(seed=seed, response_format=RESPONSE_FORMAT, **ASK)
        (choice,) = tool_client.chat.completions.create(**fields).choices
        if choice.finish_reason == "length":
            continue
        kinds.add(choice.finish_reason)
        if choice.finish_reason == "tool_calls":
            check_calls(choice.message.tool_calls)
        else:
            jsonschema.validate(json.loads(choice.message.content), RESPONSE_FORMAT["json_schema"]["schema"])
    assert kinds <= {"stop", "tool_calls"}
    (choice,) = tool_client.chat.completions.create(tool_choice="required", seed=1, response_format=RESPONSE_FORMAT, **ASK).choices
    assert choice.message.tool_calls


def test_a_tool_with_an_unsupported_schema(tool_client):
    parameters = {"type": "object", "properties": {"city": {"type": "string", "not": {"const": "Rome"}}}}
    function = {"name": "weather", "parameters": parameters}
    fields = ASK | {"tools": [TOOLS[1], {"type": "function", "function": function}], "tool_choice": "required"}
    with pytest.raises(openai.BadRequestError) as error:
        tool_client.chat.completions.create(**fields)
    assert error.value.param == "tools[1].function.parameters"
    assert error.value.body["message"] == \
        'tools[1].function.parameters: at #/properties/city: the keyword "not" is not supported'
    function["strict"] = False
    assert tool_client.chat.completions.create(**fields).choices[0].message.tool_calls


def test_reasoning_is_separated(tool_client):
    fields = dict(model="qwen2", messages=ASK["messages"], max_tokens=80, seed=1,
                  extra_body={"guided_regex": "<think>\n[a-z]{3,9}\n</think>\n\n[A-Z]{2,4}"})
    message = tool_client.chat.completions.create(**fields).choices[0].message
    assert message.reasoning_content.islower() and message.content.isupper()
    chunks = list(tool_client.chat.completions.create(stream=True, **fields))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == message.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == message.content
