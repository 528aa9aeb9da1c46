"""Tools through real routers and workers: tool calls that the model is forced to make, in each family's format."""
import json

import jsonschema
import pytest
import structured
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN

MODEL = "qwen2"
BIAS = structured.closing_bias(GOLDEN / MODEL)
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Åre", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "How it will be", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "now"}}]
SPELLINGS = {"mistral": "[TOOL_CALLS] [", "mistral-args": "[TOOL_CALLS]f[ARGS]", "hermes": "<tool_call>", "json": ""}
TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}
{% for c in m.tool_calls or [] %}SPELLING {{ c.function.name }} {{ c.function.arguments | tojson }} {{ c.id }}
{% endfor %}{% if m.tool_call_id %}{{ m.tool_call_id }}{% endif %}{% endfor %}assistant: OPENING"""


def start(tmp_path, spelling, opening=""):
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE.replace("SPELLING", SPELLINGS[spelling]).replace("OPENING", opening))
    return Cluster(GOLDEN / MODEL, stages=2, flags=["--dtype", "float32", "--chat-template", template])


def request(seed=1, mode=pb.ToolChoice.REQUIRED, name="", **fields):
    return pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="Hi")], tools=json.dumps(TOOLS),
                          tool_choice=pb.ToolChoice(mode=mode, name=name),
                          sampling=structured.sampling(seed=seed, max_tokens=200, logit_bias=BIAS), **fields)


def read(stub, chat):
    """Returns ([(id, name, arguments)], text, reasoning, finish reason)."""
    calls, text, reasoning, finish = [], "", "", 0
    for message in stub.Chat(chat):
        for delta in message.tool_calls:
            if delta.index == len(calls):
                assert delta.id and delta.name
                calls.append([delta.id, delta.name, ""])
            assert delta.index == len(calls) - 1
            calls[-1][2] += delta.arguments
        text += message.text
        reasoning += message.reasoning
        finish = message.finish_reason or finish
    return calls, text, reasoning, finish


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_required_and_named(tmp_path, spelling):
    with start(tmp_path, spelling) as cluster:
        counts = set()
        for seed in range(12):
            calls, text, _, finish = read(cluster.stub, request(seed))
            if finish == pb.FINISH_REASON_LENGTH:
                continue
            assert finish == pb.FINISH_REASON_TOOL_CALLS and text == "" and calls
            counts.add(len(calls))
            assert len({call[0] for call in calls}) == len(calls)
            for call_id, name, arguments in calls:
                assert len(call_id) == 9 if spelling.startswith("mistral") else call_id.startswith("call_")
                if name == "weather":
                    jsonschema.validate(json.loads(arguments), PARAMETERS)
                else:
                    assert (name, json.loads(arguments)) == ("now", {})
        # The bias that ends documents also ends Mistral's list of calls.
        assert len(counts) > 1 or spelling == "mistral", "some answers have one call, some more"
        calls, *_, finish = read(cluster.stub, request(mode=pb.ToolChoice.NAMED, name="now"))
        assert [(name, arguments) for _, name, arguments in calls] == [("now", "{}")]
        assert finish == pb.FINISH_REASON_TOOL_CALLS
        for seed in range(4):
            assert len(read(cluster.stub, request(seed, parallel_tool_calls=False))[0]) == 1

        # The calls are sent back in the conversation; their ids may come from any client.
        chat = request(mode=pb.ToolChoice.NONE)
        chat.messages.add(role="assistant", tool_calls=[pb.ToolCall(id="call_x", name="weather", arguments='{"city": "Rome"}')])
        chat.messages.add(role="tool", tool_call_id="call_x", content="sunny")
        calls, text, _, _ = read(cluster.stub, chat)
        assert not calls and text


def test_with_auto_the_model_decides(tmp_path):
    """A model that writes a tool call without a forced tool choice. Here a Lark grammar makes it write one."""
    with start(tmp_path, "hermes") as cluster:
        chat = request(mode=pb.ToolChoice.AUTO)
        chat.sampling.grammar.lark = (r'start: "One moment.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": " '
                                      r'/[0-9]{1,3}/ "}}\n</tool_call>"')
        for seed in range(20):  # an answer has either this form or only calls: tries seeds until one has the form
            chat.sampling.seed = seed
            calls, text, _, finish = read(cluster.stub, chat)
            if text:
                break
        assert text == "One moment." and finish == pb.FINISH_REASON_TOOL_CALLS
        assert calls[0][1] == "now" and 0 <= json.loads(calls[0][2])["a"] <= 999


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_with_a_grammar_an_answer_is_tool_calls_or_follows_the_grammar(tmp_path, spelling):
    with start(tmp_path, spelling) as cluster:
        for seed in range(12):
            chat = request(seed, pb.ToolChoice.AUTO)
            chat.sampling.grammar.choice.texts.extend(["yes", "no"])
            calls, text, _, finish = read(cluster.stub, chat)
            if finish == pb.FINISH_REASON_STOP:
                assert text in ("yes", "no") and not calls
            elif finish == pb.FINISH_REASON_TOOL_CALLS:
                assert calls and not text
                for _, name, arguments in calls:
                    jsonschema.validate(json.loads(arguments), PARAMETERS if name == "weather" else {"maxProperties": 0})
        chat.tool_choice.mode = pb.ToolChoice.REQUIRED
        calls, text, _, _ = read(cluster.stub, chat)
        assert calls and not text
        # A truncated answer is sent back unchanged.
        chat = request(mode=pb.ToolChoice.NONE)
        chat.sampling.max_tokens = 2
        chat.messages.add(role="assistant", tool_calls=[pb.ToolCall(id="call_x", name="weather", arguments='{"city": "R')])
        chat.messages.add(role="tool", tool_call_id="call_x", content="no city")
        chat.messages.add(role="assistant", reasoning="hm")
        read(cluster.stub, chat)


def test_reasoning_is_separated(tmp_path):
    form = "[a-z]{3,9}\n</think>\n\n[A-Z]{2,4}"
    with start(tmp_path, "hermes", opening="<think></think>") as cluster:
        chat = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="Hi")],
                              sampling=structured.sampling(grammar=pb.Grammar(regex=f"<think>\n{form}")))
        calls, text, reasoning, finish = read(cluster.stub, chat)
        assert not calls and finish == pb.FINISH_REASON_STOP
        assert reasoning.islower() and text.isupper()
        chat.separate_reasoning = False
        _, whole, none, _ = read(cluster.stub, chat)
        assert none == "" and whole == f"<think>\n{reasoning}\n</think>\n\n{text}"


def test_a_grammar_starts_after_the_reasoning(tmp_path):
    """The prompt ends inside the reasoning. This model never ends it, so that everything up to max_tokens is
    reasoning."""
    with start(tmp_path, "hermes", opening="</think><think>\n") as cluster:
        chat = request(mode=pb.ToolChoice.REQUIRED)
        chat.sampling.max_tokens = 60
        calls, text, reasoning, finish = read(cluster.stub, chat)
        assert (calls, text, finish) == ([], "", pb.FINISH_REASON_LENGTH) and reasoning
