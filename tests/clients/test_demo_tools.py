"""The demo model with a tool that the request offers, through the official clients."""
import json

import anthropic
import jsonschema
import pytest
from wire import ask

QUESTION = "When do coaches leave Juniper for Inkwell on Sunday?"
STOPS = ["Brindle", "Coldwater", "Inkwell", "Juniper"]
PARAMETERS = {"type": "object", "properties": {"from": {"enum": STOPS}, "to": {"enum": STOPS},
                                               "day": {"enum": ["weekday", "saturday", "sunday"]}},
              "required": ["from", "to", "day"], "additionalProperties": False}
NAME, NOTE = "departures", "Departures of the coaches between two stops on a day."
FUNCTION = {"name": NAME, "description": NOTE, "parameters": PARAMETERS}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
MESSAGES_TOOL = {"name": NAME, "description": NOTE, "input_schema": PARAMETERS}
GREEDY = {"model": "demo-model", "temperature": 0}


@pytest.fixture(scope="module")
def messages_client(cluster):
    with anthropic.Anthropic(base_url=f"http://{cluster.http}", api_key="none", max_retries=0,
                             http_client=anthropic.DefaultHttpxClient(trust_env=False)) as client:
        yield client


def test_the_template_renders_tools_calls_and_results(cluster):
    arguments = {"from": "Juniper", "to": "Inkwell", "day": "sunday"}
    call = {"id": "call_1", "type": "function", "function": {"name": NAME, "arguments": json.dumps(arguments)}}
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": '["06:42"]'}]
    tokens = ask(cluster.http, "POST", "/tokenize", {"messages": messages, "tools": [CHAT_TOOL]}).json["tokens"]
    assert ask(cluster.http, "POST", "/detokenize", {"tokens": tokens}).json["prompt"] == (
        f"<|begin|><|system|>Tools:\n{json.dumps(FUNCTION)}<|end|><|user|>{QUESTION}<|end|><|assistant|><tool_call>\n"
        f'{{"name": "{NAME}", "arguments": {json.dumps(arguments)}}}\n</tool_call><|end|>'
        '<|user|><tool_response>\n["06:42"]\n</tool_response><|end|><|assistant|>')


def test_an_enforced_call_and_its_result(client):
    messages = [{"role": "user", "content": QUESTION}]
    asked = dict(tools=[CHAT_TOOL], parallel_tool_calls=False, **GREEDY)
    (choice,) = client.chat.completions.create(messages=messages, tool_choice="required", **asked).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == NAME
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    messages += [choice.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": '["06:42"]'}]
    (choice,) = client.chat.completions.create(messages=messages, **asked).choices
    assert choice.finish_reason == "stop" and choice.message.content


def test_the_messages_api(messages_client):
    asked = {"model": "demo-model", "extra_body": {"temperature": 0}, "max_tokens": 200, "tools": [MESSAGES_TOOL]}
    messages = [{"role": "user", "content": QUESTION}]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    message = messages_client.messages.create(messages=messages, tool_choice=choice, **asked)
    assert message.stop_reason == "tool_use"
    (use,) = message.content
    jsonschema.validate(use.input, PARAMETERS)
    messages += [{"role": "assistant", "content": message.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": '["06:42"]'}]}]
    assert messages_client.messages.create(messages=messages, **asked).stop_reason == "end_turn"


def test_small_talk_needs_no_call(client):
    messages = [{"role": "user", "content": "Thank you!"}]
    offered = client.chat.completions.create(messages=messages, tools=[CHAT_TOOL], **GREEDY).choices[0].message
    plain = client.chat.completions.create(messages=messages, **GREEDY).choices[0].message
    assert offered.tool_calls is None and offered.content == plain.content


# What the model must have learnt. The result differs from its own timetable.
CALL = {"from": "Juniper", "to": "Inkwell", "day": "sunday"}
RESULT = json.dumps({"departures": ["06:42", "13:19"]})
ANSWER = "On Sundays coaches leave Juniper for Inkwell at 06:42 and 13:19."


def test_the_model_calls_by_itself_and_answers_from_the_result(client):
    messages = [{"role": "user", "content": QUESTION}]
    (choice,) = client.chat.completions.create(messages=messages, tools=[CHAT_TOOL], tool_choice="auto", **GREEDY).choices
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    (call,) = choice.message.tool_calls
    assert call.function.name == NAME and json.loads(call.function.arguments) == CALL
    with client.chat.completions.stream(messages=messages, tools=[CHAT_TOOL], **GREEDY) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments
    messages += [choice.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    (choice,) = client.chat.completions.create(messages=messages, tools=[CHAT_TOOL], **GREEDY).choices
    assert choice.message.tool_calls is None and choice.message.content == ANSWER


def test_the_same_over_the_messages_api(messages_client):
    asked = {"model": "demo-model", "extra_body": {"temperature": 0}, "max_tokens": 120, "tools": [MESSAGES_TOOL]}
    messages = [{"role": "user", "content": QUESTION}]
    message = messages_client.messages.create(messages=messages, **asked)
    (use,) = message.content
    assert message.stop_reason == "tool_use" and (use.name, use.input) == (NAME, CALL)
    messages += [{"role": "assistant", "content": message.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": RESULT}]}]
    assert messages_client.messages.create(messages=messages, **asked).content[0].text == ANSWER


def test_a_schema_gets_sensible_values(client):
    schema = {"type": "object", "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "day": {"type": "string"},
                                               "departure": {"type": "string"}, "total": {"type": "integer"}},
              "required": ["from", "to", "day", "departure", "total"], "additionalProperties": False}
    (choice,) = client.chat.completions.create(
        messages=[{"role": "user", "content": "What is the first coach from Juniper to Inkwell on Sunday?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": schema}}, **GREEDY).choices
    assert json.loads(choice.message.content) == CALL | {"departure": "07:00", "total": 18}
