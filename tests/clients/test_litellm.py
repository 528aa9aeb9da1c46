"""litellm, as a proxy or an agent framework uses it for a server with OpenAI's API."""
import gc
import json
import os

import jsonschema
import pytest
import structured
from wire import busy
from workload import GOLDEN

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # downloads nothing
import litellm

MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell on Sunday?"}]
SCHEMA = {"type": "object", "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23},
                                           "place": {"type": "string", "maxLength": 12}},
          "required": ["hour", "place"], "additionalProperties": False}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "departure", "strict": True, "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "departure", "description": "When the coach leaves", "parameters": SCHEMA}}]


@pytest.fixture(autouse=True)
def no_garbage_collection():
    """litellm leaves streams open. If the garbage collector closes one while httpcore holds its pool's lock, httpcore
    deadlocks."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def options_for(cluster, model="demo-model", **more):
    return {"model": f"hosted_vllm/{model}", "api_base": f"http://{cluster.http}/v1", "api_key": "none", "num_retries": 0,
            "temperature": 0, "messages": MESSAGES, **more}


@pytest.fixture
def options(cluster):
    return options_for(cluster)


@pytest.fixture
def tool_options(tool_cluster):
    bias = {str(token): value for token, value in structured.closing_bias(GOLDEN / "qwen2").items()}
    return options_for(tool_cluster, "qwen2", tools=TOOLS, logit_bias=bias, max_tokens=200)


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_chat_and_stream(options):
    whole = litellm.completion(**options, top_k=5, max_tokens=30)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0
    chunks = list(litellm.completion(**options, top_k=5, max_tokens=30, stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == text
    rebuilt = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert rebuilt.usage.completion_tokens == whole.usage.completion_tokens


def test_structured_output(options):
    whole = litellm.completion(**options, response_format=RESPONSE_FORMAT, max_tokens=100)
    assert whole.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(whole.choices[0].message.content), SCHEMA)
    chunks = list(litellm.completion(**options, response_format=RESPONSE_FORMAT, max_tokens=100, stream=True))
    assert text_of(chunks) == whole.choices[0].message.content


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "departure"}}])
def test_tools(tool_options, choice):
    whole = litellm.completion(**tool_options, tool_choice=choice, parallel_tool_calls=False).choices[0]
    (call,) = whole.message.tool_calls
    assert whole.finish_reason == "tool_calls" and call.function.name == "departure"
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    chunks = list(litellm.completion(**tool_options, tool_choice=choice, parallel_tool_calls=False, stream=True))
    assert sum(bool(chunk.choices[0].delta.tool_calls) for chunk in chunks) > 1
    rebuilt = litellm.stream_chunk_builder(chunks).choices[0]
    assert rebuilt.message.tool_calls[0].function.arguments == call.function.arguments
    assert rebuilt.finish_reason == "tool_calls"


def test_the_demo_model_calls_by_itself(options):
    text = {"type": "string"}
    parameters = {"type": "object", "properties": {"from": text, "to": text, "day": text}, "required": ["from", "to", "day"]}
    tools = [{"type": "function", "function": {"name": "departures", "parameters": parameters}}]
    asked = {**options, "messages": [{"role": "user", "content": "When do coaches leave Juniper for Inkwell on Sunday?"}]}
    whole = litellm.completion(**asked, tools=tools).choices[0]
    (call,) = whole.message.tool_calls
    assert json.loads(call.function.arguments) == {"from": "Juniper", "to": "Inkwell", "day": "sunday"}
    asked["messages"] += [whole.message.model_dump(exclude_none=True),
                          {"role": "tool", "tool_call_id": call.id, "content": '{"departures": ["06:42"]}'}]
    answer = litellm.completion(**asked, tools=tools).choices[0].message.content
    assert answer == "On Sundays coaches leave Juniper for Inkwell at 06:42."


def test_logprobs(options):
    content = litellm.completion(**options, logprobs=True, top_logprobs=2, max_tokens=5).choices[0].logprobs["content"]
    assert len(content) == 5 and all(len(token["top_logprobs"]) == 2 for token in content)


def test_comments_are_skipped(chatty_cluster):
    options = options_for(chatty_cluster)
    whole = litellm.completion(**options).choices[0].message.content
    with busy(chatty_cluster.http):
        assert text_of(litellm.completion(**options, stream=True)) == whole


def test_errors_have_the_right_classes(options):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**{**options, "messages": [{"role": "user", "content": "word " * 5000}]})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**options, "model": "hosted_vllm/gpt-4"})
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**options, top_p=7)
