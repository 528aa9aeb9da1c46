"""OpenAI's Responses API through the official openai package, as agents use it."""
import json

import httpx
import jsonschema
import openai
import pydantic
import pytest
from harness import DEMO_MODEL, Cluster
from weather_tool import BIAS, CHAT_TOOLS, PARAMETERS, chat

QUESTION = "When does the first coach leave Greywell on Sunday?"
GREEDY = {"model": "demo-model", "temperature": 0}
TOOLS = [{"type": "function", "name": "weather", "description": "How it will be", "parameters": PARAMETERS}]
CALL = {"model": "qwen2", "input": "Hi", "tools": TOOLS, "tool_choice": "required", "max_output_tokens": 200,
        "temperature": 2, "extra_body": {"logit_bias": BIAS, "seed": 5}}


def connect(cluster, key="none"):
    return openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key=key, max_retries=0,
                         http_client=httpx.Client(trust_env=False))


@pytest.fixture(scope="module")
def client(cluster):
    with connect(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def tool_client(tool_cluster):
    with connect(tool_cluster) as client:
        yield client


def test_the_same_answer_as_a_chat_completion(client, cluster):
    response = client.responses.create(input=QUESTION, instructions="Be brief.", metadata={"a": "b"}, **GREEDY)
    same = chat(cluster, temperature=0, messages=[{"role": "system", "content": "Be brief."},
                                                  {"role": "user", "content": QUESTION}])
    assert response.output_text == same["choices"][0]["message"]["content"]
    assert response.status == "completed" and response.error is None and response.incomplete_details is None
    assert response.metadata == {"a": "b"} and response.instructions == "Be brief."
    assert response.usage.input_tokens == same["usage"]["prompt_tokens"]
    assert response.usage.output_tokens == same["usage"]["completion_tokens"]
    again = client.responses.create(input=QUESTION, instructions="Be brief.", **GREEDY)
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_stream(client):
    whole = client.responses.create(input=QUESTION, **GREEDY)
    events = list(client.responses.create(input=QUESTION, stream=True, **GREEDY))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.completed"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(input=QUESTION, **GREEDY) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == whole.output_text
    cut = list(client.responses.create(input=QUESTION, stream=True, max_output_tokens=3, **GREEDY))[-1]
    assert cut.type == "response.incomplete" and cut.response.incomplete_details.reason == "max_output_tokens"


def test_reasoning(tool_client):
    fields = {"model": "qwen2", "extra_body": {"seed": 1, "guided_regex": "<think>[a-z]{4}</think>[A-Z]{3}"}}
    response = tool_client.responses.create(input=QUESTION, reasoning={"effort": "low"}, **fields)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert len(response.output[0].content[0].text) == 4 and len(response.output_text) == 3
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    kinds = {event.type for event in tool_client.responses.create(input=QUESTION, stream=True, **fields)}
    assert {"response.reasoning_text.delta", "response.reasoning_text.done"} <= kinds
    history = [{"role": "user", "content": QUESTION}, *response.output, {"role": "user", "content": "So?"}]
    assert tool_client.responses.create(input=history, **fields).output_text


class Departure(pydantic.BaseModel):
    hour: int = pydantic.Field(ge=0, le=23)
    place: str = pydantic.Field(max_length=12)


def test_structured_output(client):
    response = client.responses.parse(input=QUESTION, text_format=Departure, max_output_tokens=200, **GREEDY)
    assert isinstance(response.output_parsed, Departure)


def test_a_tool_and_its_result(tool_client, tool_cluster):
    response = tool_client.responses.create(**CALL)
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls and response.status == "completed"
    for call in calls:
        assert call.name == "weather" and call.call_id.startswith("call_")
        jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    events = list(tool_client.responses.create(stream=True, **CALL))
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == [call.arguments for call in calls]
    assert "response.function_call_arguments.delta" in {event.type for event in events}

    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."} for call in calls]
    history = [{"role": "user", "content": "Hi"}, *response.output, *results, {"role": "user", "content": "So?"}]
    answer = tool_client.responses.create(model="qwen2", input=history, tools=TOOLS, max_output_tokens=16, temperature=0)
    same = chat(tool_cluster, tools=CHAT_TOOLS, max_tokens=16, temperature=0, messages=[
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls]},
        *({"role": "tool", "tool_call_id": call.call_id, "content": "Sunny."} for call in calls),
        {"role": "user", "content": "So?"}])
    assert answer.usage.input_tokens == same["usage"]["prompt_tokens"]
    kept = tool_client.responses.create(model="qwen2", input=[*results, {"role": "user", "content": "So?"}], tools=TOOLS,
                                        previous_response_id=response.id, max_output_tokens=16, temperature=0)
    assert kept.usage.input_tokens == answer.usage.input_tokens
    assert kept.output_text == answer.output_text


def test_previous_response(client):
    first = client.responses.create(input=QUESTION, instructions="Be brief.", **GREEDY)
    second = client.responses.create(input="And the last?", previous_response_id=first.id, **GREEDY)
    history = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": first.output_text},
               {"role": "user", "content": "And the last?"}]
    same = client.responses.create(input=history, store=False, **GREEDY)
    assert second.output_text == same.output_text and second.usage.input_tokens == same.usage.input_tokens
    assert second.previous_response_id == first.id
    streamed = list(client.responses.create(input="And the last?", previous_response_id=first.id, stream=True, **GREEDY))[-1]
    assert streamed.response.output_text == second.output_text
    assert client.responses.retrieve(streamed.response.id) == streamed.response
    items = [item.content[0].text for item in client.responses.input_items.list(streamed.response.id, order="asc")]
    assert items == [message["content"] for message in history]
    assert client.responses.create(input="Why?", previous_response_id=streamed.response.id, **GREEDY).output_text
    for unknown in (same.id, "resp_unknown"):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(input="And?", previous_response_id=unknown, **GREEDY)
        assert error.value.code == "previous_response_not_found" and error.value.param == "previous_response_id"


def test_a_response_belongs_to_its_tenant(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a tenant=a\nsk-b tenant=b\n")
    with Cluster(DEMO_MODEL, flags=["--api-keys", keys, "--response-memory", "1MiB"]) as cluster:
        with connect(cluster, "sk-a") as a, connect(cluster, "sk-b") as b:
            first = a.responses.create(input=QUESTION, **GREEDY)
            assert a.responses.create(input="And?", previous_response_id=first.id, max_output_tokens=2, **GREEDY)
            with pytest.raises(openai.BadRequestError):
                b.responses.create(input="And?", previous_response_id=first.id, **GREEDY)
            for look in (b.responses.retrieve, b.responses.input_items.list, b.responses.delete):
                with pytest.raises(openai.NotFoundError):
                    look(first.id)
            assert a.responses.retrieve(first.id) == first
            a.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                a.responses.retrieve(first.id)


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(input=QUESTION, model="demo-model", top_p=7)
    assert error.value.param == "top_p"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input=QUESTION, model="gpt-4")
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(input="word " * 5000, **GREEDY)
    assert error.value.code == "context_length_exceeded" and error.value.param == "input"
    with pytest.raises(openai.BadRequestError, match="only text"):
        client.responses.create(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], **GREEDY)
    with pytest.raises(openai.BadRequestError, match="web_search"):
        client.responses.create(input=QUESTION, tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}, **GREEDY)
    dropped = client.responses.create(input=QUESTION, tools=[{"type": "web_search"}],
                                      include=["reasoning.encrypted_content"], **GREEDY)
    assert dropped.output_text
