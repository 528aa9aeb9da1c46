"""Tests tool conversations and schema questions, and that the data are encoded as the chat template
renders them. Needs jinja2; compares with transformers where it is installed."""

import json
import random
import re
from pathlib import Path

import jinja2.sandbox
import pytest
import tools as tl
from conversation import draw_conversation
from schema import draw_schema_question
from tool_conversation import draw_tool_conversation

MODEL = Path(__file__).parents[1] / "demo-model"
CLOCK = re.compile(r"\d\d:\d\d")


def render(messages, tools=None, add_generation_prompt=False):
    """Renders with the settings and the filter of transformers."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    template = environment.from_string((MODEL / "chat_template.jinja").read_text())
    return template.render(messages=messages, tools=tools, bos_token="<|begin|>",
                           eos_token="<|end|>", add_generation_prompt=add_generation_prompt)


def test_without_tools_a_conversation_is_rendered_turn_by_turn():
    for seed in range(50):
        messages, _ = draw_conversation(random.Random(seed))
        turns = "".join(f"<|{m['role']}|>{m['content']}<|end|>" for m in messages)
        assert render(messages) == "<|begin|>" + turns
        assert render(messages[:-1], add_generation_prompt=True) == \
            "<|begin|>" + turns[:turns.rindex("<|assistant|>") + len("<|assistant|>")]


def test_tools_calls_and_results_are_rendered():
    tool = {"type": "function", "function": {"name": "departures", "parameters": {}}}
    call = {"type": "function", "function": {"name": "departures", "arguments": {"from": "Å"}}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "content": "[]"}, {"role": "tool", "content": "{}"},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call]}]
    written = '<tool_call>\n{"name": "departures", "arguments": {"from": "Å"}}\n</tool_call>'
    assert render(messages, [tool, tool], True) == (
        '<|begin|><|system|>Tools:\n{"name": "departures", "parameters": {}}\n'
        '{"name": "departures", "parameters": {}}<|end|><|user|>Hi<|end|>'
        f"<|assistant|>{written}\n{written}<|end|>"
        "<|user|><tool_response>\n[]\n</tool_response><|end|>"
        "<|user|><tool_response>\n{}\n</tool_response><|end|>"
        f"<|assistant|>Wait.\n{written}<|end|><|assistant|>")
    call["function"]["arguments"] = '{"from": "Å"}'
    assert written in render(messages)
    with pytest.raises(jinja2.TemplateError, match="exception|undefined"):
        render([{"role": "clerk", "content": "Hi"}])


def test_the_training_data_are_what_the_template_renders():
    encoding = pytest.importorskip("encoding")
    tokenizer = encoding.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    assert (MODEL / "chat_template.jinja").read_text() == encoding.CHAT_TEMPLATE
    for seed in range(60):
        drawn = draw_tool_conversation(random.Random(seed))
        ids, said = encoding.encode_conversation(tokenizer, drawn.messages, drawn.tools)
        text = render(drawn.messages, drawn.tools)
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids
        learned = tokenizer.decode([i for i, by_desk in zip(ids, said) if by_desk],
                                   skip_special_tokens=False)
        assert learned == "".join(
            turn + "<|end|>" for turn in re.findall(r"<\|assistant\|>(.*?)<\|end\|>", text, re.S))


def test_transformers_renders_the_same():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    for seed in range(20):
        drawn = draw_tool_conversation(random.Random(seed))
        for tools in (drawn.tools, None):
            assert tokenizer.apply_chat_template(drawn.messages, tools=tools, tokenize=False) == \
                render(drawn.messages, tools)


def test_calls_have_the_arguments_of_the_offered_tool():
    kinds = set()
    for seed in range(400):
        drawn = draw_tool_conversation(random.Random(seed))
        offered = {tool["function"]["name"]: tool["function"] for tool in drawn.tools}
        for message in drawn.messages:
            for call in message.get("tool_calls", ()):
                function = call["function"]
                properties = offered[function["name"]]["parameters"]["properties"]
                assert list(function["arguments"]) == list(properties)
                for key, value in function["arguments"].items():
                    assert value in properties[key].get("enum", [value])
                kinds.add(function["name"])
    assert kinds >= {"departures", "get_departures", "fare", "get_fare"}


def test_answers_take_their_times_from_the_result():
    answers = 0
    for seed in range(600):
        messages = draw_tool_conversation(random.Random(seed)).messages
        for question, result, answer in zip(messages, messages[2:], messages[3:]):
            if result["role"] != "tool" or question["role"] != "user":
                continue
            times = CLOCK.findall(result["content"])
            own = set(CLOCK.findall(answer["content"])) - set(times)
            assert len(own) <= 1, (result, answer)  # the time of the question
            if not times and "adult" not in result["content"]:
                assert "there is no coach" in answer["content"]
            answers += 1
    assert answers > 100


def test_questions_that_need_no_tool_are_answered_at_once():
    called = [draw_tool_conversation(random.Random(seed), held_out=True).called
              for seed in range(300)]
    assert 60 < sum(called) < 240
    assert tl.tool_for(tl.Query("thanks"), [tl.departures_tool(random.Random(1))]) is None


def test_schema_questions_have_values_and_their_places():
    keys = set()
    for seed in range(400):
        question = draw_schema_question(random.Random(seed))
        text = question.answer()
        assert json.loads(text) == question.fields and len(question.fields) >= 2
        for (begin, end), value in zip(question.value_spans(), question.fields.values()):
            opening = '["' if isinstance(value, list) else '"'
            whole = json.dumps(value, separators=(",", ":"))
            assert text[begin:end - 1] == whole.removeprefix(opening)
            assert text[end - 1] in ",}"
        keys |= set(question.fields)
    assert keys >= {"from", "to", "origin", "day", "departure", "arrival", "departures", "total",
                    "adults", "runs", "minutes", "count"}
