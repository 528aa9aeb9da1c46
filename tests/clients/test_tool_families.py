"""Model families with spellings of their own for calls and reasoning, through the openai package: chat completions and
responses, streamed and not."""
import json

import httpx
import openai
import pytest
import scripted_model
from harness import Cluster

PARAMETERS = {"type": "object", "required": ["stop"], "additionalProperties": False, "properties": {
    "stop": {"type": "string"}, "hour": {"type": "integer"}, "days": {"type": "array", "items": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": {"name": "departures", "description": "Looks up", "parameters": PARAMETERS}}]
FLAT_TOOLS = [{"type": "function", "strict": False, **TOOLS[0]["function"]}]
ARGUMENTS = {"stop": "9 \"Mill\"\nLane", "hour": 9, "days": ["Monday"]}
QUESTION = {"role": "user", "content": "When?"}


class Harmony:
    spelling = "<|channel|> <|message|>"
    reasoning, text, n_calls = "A timetable. I look.", "One moment.", 1
    call = ("<|channel|>analysis<|message|>A timetable. I look.<|end|><|start|>assistant<|channel|>commentary<|message|>"
            "One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.departures <|constrain|>json<|message|>"
            + json.dumps(ARGUMENTS) + "<|call|>")
    answer = ("<|channel|>analysis<|message|>So nine.<|end|><|start|>assistant<|channel|>final<|message|>At nine.<|return|>",
              "So nine.")


class QwenXml:
    spelling = "<tool_call> <function= <parameter= </think>"
    reasoning, text, n_calls = "", "One moment.", 2
    one = ("<tool_call>\n<function=departures>\n<parameter=stop>\n9 \"Mill\"\nLane\n</parameter>\n<parameter=hour>\n9\n"
           "</parameter>\n<parameter=days>\n[\"Monday\"]\n</parameter>\n</function>\n</tool_call>")
    call = "One moment.\n\n" + one + "\n" + one
    answer = ("<think>\nSo nine.\n</think>\n\nAt nine.", "So nine.")


@pytest.fixture(scope="module", params=[Harmony, QwenXml])
def served(request, tmp_path_factory):
    """A family, and a client of a server whose model calls `departures` and answers then."""
    family = request.param
    replies = [("messages[-1].role == 'tool'", family.answer[0]), ("messages[0].content == 'Now'", QwenXml.one),
               ("true", family.call)]
    if family is Harmony:
        del replies[1]
    folder = scripted_model.write(tmp_path_factory.mktemp("models") / "my-model", replies, context=4096,
                                  spelling=family.spelling)
    with Cluster(folder) as cluster, openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", max_retries=0,
                                                   http_client=httpx.Client(trust_env=False)) as client:
        yield family, client


def check(family, message):
    assert message.content == family.text and (message.model_extra or {}).get("reasoning_content", "") == family.reasoning
    assert [call.function.name for call in message.tool_calls] == ["departures"] * family.n_calls
    for call in message.tool_calls:
        assert json.loads(call.function.arguments) == ARGUMENTS


def test_chat_completions(served):
    family, client = served
    fields = {"model": "my-model", "temperature": 0, "tools": TOOLS}
    choice = client.chat.completions.create(messages=[QUESTION], **fields).choices[0]
    assert choice.finish_reason == "tool_calls"
    check(family, choice.message)
    chunks = list(client.chat.completions.create(messages=[QUESTION], stream=True, **fields))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    pieces = [call for delta in deltas for call in delta.tool_calls or []]
    arguments = ["".join(piece.function.arguments for piece in pieces if piece.index == i) for i in range(family.n_calls)]
    assert arguments == [call.function.arguments for call in choice.message.tool_calls]
    assert len(pieces) > 2 * family.n_calls, "the arguments come in pieces"
    assert "".join(delta.content or "" for delta in deltas) == family.text
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == family.reasoning
    assert next(chunk.choices[0].finish_reason for chunk in reversed(chunks) if chunk.choices) == "tool_calls"

    history = [QUESTION, choice.message.model_dump(exclude_none=True),
               *[{"role": "tool", "tool_call_id": call.id, "content": "9"} for call in choice.message.tool_calls]]
    choice = client.chat.completions.create(messages=history, **fields).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("stop", "At nine.")
    assert choice.message.model_extra["reasoning_content"] == family.answer[1]
    if family is Harmony:
        return  # the script has no special tokens, which a grammar asks for

    demanded = client.chat.completions.create(messages=[{"role": "user", "content": "Now"}], tool_choice="required",
                                              parallel_tool_calls=False, **fields).choices[0]
    assert demanded.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in demanded.message.tool_calls] == [ARGUMENTS]


def test_responses(served):
    family, client = served
    fields = {"model": "my-model", "temperature": 0, "tools": FLAT_TOOLS, "input": [QUESTION]}
    kinds = ["reasoning"] * bool(family.reasoning) + ["message"] + ["function_call"] * family.n_calls
    whole = client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        final = stream.get_final_response()
    for response in (whole, final):
        assert [item.type for item in response.output] == kinds and response.output_text == family.text
        assert all(json.loads(item.arguments) == ARGUMENTS for item in response.output if item.type == "function_call")
    results = [{"type": "function_call_output", "call_id": item.call_id, "output": "9"} for item in whole.output
               if item.type == "function_call"]
    answer = client.responses.create(**fields | {"input": results, "previous_response_id": whole.id})
    assert answer.output_text == "At nine." and [item.type for item in answer.output] == ["reasoning", "message"]
