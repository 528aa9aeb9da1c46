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
    one = ("<tool_call>\n<function=departures>\n<parameter=stop>\n9 \"Mill\"\nLane\n</parameter>\n<parameter=hour>\n9\n"
           "</parameter>\n<parameter=days>\n[\"Monday\"]\n</parameter>\n</function>\n</tool_call>")
    reasoning, text, n_calls = "", "One moment.", 2
    call = "One moment.\n\n" + one + "\n" + one
    answer = ("<think>\nSo nine.\n</think>\n\nAt nine.", "So nine.")


class Glm:
    spelling = "<tool_call> <arg_key> </think>"
    one = ("<tool_call>departures\n<arg_key>stop</arg_key>\n<arg_value>9 \"Mill\"\nLane</arg_value>\n<arg_key>hour</arg_key>\n"
           "<arg_value>9</arg_value>\n<arg_key>days</arg_key>\n<arg_value>[\"Monday\"]</arg_value>\n</tool_call>")
    reasoning, text, n_calls = "A timetable.", "One moment.", 2
    call = "<think>A timetable.</think>\nOne moment.\n" + one + "\n" + one
    answer = ("<think>So nine.</think>\nAt nine.", "So nine.")


class MiniMax:
    spelling = "<minimax:tool_call> </think>"
    inner = ("<invoke name=\"departures\">\n<parameter name=\"stop\">9 \"Mill\"\nLane</parameter>\n<parameter name=\"hour\">9"
             "</parameter>\n<parameter name=\"days\">[\"Monday\"]</parameter>\n</invoke>\n")
    one = "<minimax:tool_call>\n" + inner + "</minimax:tool_call>"
    reasoning, text, n_calls = "A timetable.", "One moment.", 2
    call = "<think>\nA timetable.\n</think>\n\nOne moment.\n<minimax:tool_call>\n" + inner + inner + "</minimax:tool_call>"
    answer = ("<think>\nSo nine.\n</think>\n\nAt nine.", "So nine.")


class Seed:
    spelling = "<seed:tool_call> </seed:think>"
    one = ("<seed:tool_call>\n<function=departures>\n<parameter=stop>9 \"Mill\"\nLane</parameter>\n<parameter=hour>9</parameter>\n"
           "<parameter=days>[\"Monday\"]</parameter>\n</function>\n</seed:tool_call>")
    reasoning, text, n_calls = "", "One moment.", 2
    call = "One moment.\n" + one + "\n" + one
    answer = ("<seed:think>So nine.</seed:think>At nine.", "So nine.")


class DeepSeek:
    spelling = "<｜tool▁calls▁begin｜> </think>"
    inner = f"<｜tool▁call▁begin｜>departures<｜tool▁sep｜>{json.dumps(ARGUMENTS)}<｜tool▁call▁end｜>"
    one = "<｜tool▁calls▁begin｜>" + inner + "<｜tool▁calls▁end｜>"
    reasoning, text, n_calls = "A timetable.", "One moment.", 2
    call = "<think>A timetable.</think>One moment.<｜tool▁calls▁begin｜>" + inner + inner + "<｜tool▁calls▁end｜>"
    answer = ("<think>So nine.</think>At nine.", "So nine.")


class Kimi:
    spelling = "<|tool_calls_section_begin|> </think>"

    def section(*numbers):
        calls = "".join(f"<|tool_call_begin|>functions.departures:{i}<|tool_call_argument_begin|>{json.dumps(ARGUMENTS)}"
                        "<|tool_call_end|>" for i in numbers)
        return f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"

    one = section(0)
    reasoning, text, n_calls = "A timetable.", "One moment.", 2
    call = "<think>A timetable.</think>One moment." + section(0, 1)
    answer = ("<think>So nine.</think>At nine.", "So nine.")
    ids = ["functions.departures:0", "functions.departures:1"]


class Nemotron:
    spelling = "<TOOLCALL> </think>"
    inner = json.dumps({"name": "departures", "arguments": ARGUMENTS})
    one = f"<TOOLCALL>[{inner}]</TOOLCALL>"
    reasoning, text, n_calls = "", "One moment.", 2
    call = f"One moment.\n<TOOLCALL>[{inner}, {inner}]</TOOLCALL>"
    answer = ("<think>\nSo nine.\n</think>\n\nAt nine.", "So nine.")


class Gemma:
    spelling = "<|tool_call> <channel|>"
    one = "<|tool_call>call:departures{days:[<|\"|>Monday<|\"|>],hour:9,stop:<|\"|>9 \"Mill\"\nLane<|\"|>}<tool_call|>"
    reasoning, text, n_calls = "A timetable.", "One moment.", 2
    call = "<|channel>thought\nA timetable.<channel|>One moment." + one + one
    answer = ("<|channel>thought\nSo nine.<channel|>At nine.", "So nine.")


class MistralArgs:
    spelling = "[TOOL_CALLS] [ARGS]"
    one = "[TOOL_CALLS]departures[ARGS]" + json.dumps(ARGUMENTS)
    reasoning, text, n_calls = "", "One moment.", 2
    call = "One moment." + one + one
    answer = ("At nine.", "")


class Llama4:
    spelling = "[func_name1(params_name1=params_value1)]"
    inner = "departures(stop='9 \"Mill\"\\nLane', hour=9, days=['Monday'])"
    one = "[departures(stop=" + json.dumps(ARGUMENTS["stop"]) + ", hour=9, days=[\"Monday\"])]"  # enforced strings are JSON's
    reasoning, text, n_calls = "", "", 2
    call = f"[{inner}, {inner}]"
    answer = ("At nine.", "")


FAMILIES = [Harmony, QwenXml, Glm, MiniMax, Seed, DeepSeek, Kimi, Nemotron, Gemma, MistralArgs, Llama4]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.__name__)
def served(request, tmp_path_factory):
    """A family, and a client of a server whose model calls `departures` and answers then."""
    family = request.param
    replies = [("messages[-1].role == 'tool'", family.answer[0]), ("true", family.call)]
    if family is not Harmony:
        replies.insert(1, ("messages[0].content == 'Now'", family.one))
    folder = scripted_model.write(tmp_path_factory.mktemp("models") / "my-model", replies, context=4096,
                                  spelling=family.spelling)
    with Cluster(folder) as cluster, openai.OpenAI(base_url=f"http://{cluster.http}/v1", api_key="none", max_retries=0,
                                                   http_client=httpx.Client(trust_env=False)) as client:
        yield family, client


def check(family, message):
    assert (message.content or "") == family.text and (message.model_extra or {}).get("reasoning_content", "") == family.reasoning
    assert [call.function.name for call in message.tool_calls] == ["departures"] * family.n_calls
    for call in message.tool_calls:
        assert json.loads(call.function.arguments) == ARGUMENTS
    if hasattr(family, "ids"):
        assert [call.id for call in message.tool_calls] == family.ids


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
    assert (choice.message.model_extra or {}).get("reasoning_content", "") == family.answer[1]
    if family is Harmony:
        return  # the script has no special tokens, which a grammar asks for

    demanded = client.chat.completions.create(messages=[{"role": "user", "content": "Now"}], tool_choice="required",
                                              parallel_tool_calls=False, **fields).choices[0]
    assert demanded.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in demanded.message.tool_calls] == [ARGUMENTS]


def test_responses(served):
    family, client = served
    fields = {"model": "my-model", "temperature": 0, "tools": FLAT_TOOLS, "input": [QUESTION]}
    kinds = ["reasoning"] * bool(family.reasoning) + ["message"] * bool(family.text) + ["function_call"] * family.n_calls
    whole = client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        final = stream.get_final_response()
    for response in (whole, final):
        assert [item.type for item in response.output] == kinds and response.output_text == family.text
        assert all(json.loads(item.arguments) == ARGUMENTS for item in response.output if item.type == "function_call")
    results = [{"type": "function_call_output", "call_id": item.call_id, "output": "9"} for item in whole.output
               if item.type == "function_call"]
    answer = client.responses.create(**fields | {"input": results, "previous_response_id": whole.id})
    assert answer.output_text == "At nine."
    assert [item.type for item in answer.output] == ["reasoning"] * bool(family.answer[1]) + ["message"]
