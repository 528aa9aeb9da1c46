#!/usr/bin/env python3
"""Renders conversations with chat templates as transformers does, for router/frontend/http/chat_golden_test.cpp.

usage: make_chat.py [--templates DIR] [OUT.json]

Without --templates, it takes the templates in tests/golden/chat: short ones of our own, in the form of some families. With
it, the families' own ones from DIR, under the names that llama.cpp gives them (vendor/llama.cpp/models/templates in
the sources of llama-cpp-python). Then `STAGECOACH_CHAT_GOLDEN=OUT.json build/cpu/bin/http_test "*as in
transformers*"` compares. Needs transformers and jinja2. tests/golden/real_chat.sh does all of this.

OUT.json: {"now_unix_s", "tools", "families": [{"name", "template", "cases": [{"name", "request", "text", "answer"?}]}]}.
"template" is a file. "request" is the body of a chat completion, and an empty "tools" in it stands for all; "text" is its
prompt. "answer" is what a model would write that gives the conversation's last message, as the template writes it:
{"text", "reasoning", "content", "calls": [[name, arguments]]}.
"""
import argparse
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent / "chat"
ROLES = {"bos_token": "<bos>", "eos_token": "<eos>"}
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of some days", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "A place"},
            "days": {"type": "integer", "description": "How many"},
            "detailed": {"type": "boolean", "description": "Hour by hour"},
            "units": {"type": "object", "description": "By quantity",
                      "properties": {"wind": {"type": "string", "description": "A unit"}}},
            "parts": {"type": "array", "description": "Of the day", "items": {"type": "string"}}}}}}
TIME = {"type": "function", "function": {"name": "time-now", "description": "The time", "parameters": {
    "type": "object", "properties": {"zone": {"type": "string", "description": "Its name"}}}}}
TOOLS = [WEATHER, TIME]
# In the schema's order, which grammars demand.
ARGUMENTS = {"city": "Åre \"upper\"\n<b>5</b>", "days": 3, "units": {"wind": "m/s"}, "parts": ["am", "5"]}


def user(text):
    return {"role": "user", "content": text}


def calls(*pairs, content="", reasoning=None, first_id=1):
    message = {"role": "assistant", "content": content, "tool_calls": [
        {"id": f"call{first_id + i:05}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(pairs)]}
    return message | ({"reasoning_content": reasoning} if reasoning else {})


def result(text, number=1, name="weather"):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": name, "content": text}


def said(text, reasoning=None):
    return {"role": "assistant", "content": text} | ({"reasoning_content": reasoning} if reasoning else {})


SYSTEM = {"role": "system", "content": "Be brief."}
# (name, messages, has tools)
CONVERSATIONS = [
    ("two turns", [SYSTEM, user("Hi"), said("Hello."), user("How are you?"), said("Well & <fine>.", "They ask.")], False),
    ("one call", [user("Weather?"), calls(("weather", ARGUMENTS), reasoning="I must\nlook.")], True),
    ("a call without arguments", [SYSTEM, user("Time?"), calls(("time-now", {}))], True),
    ("a call behind text", [user("Time?"), calls(("time-now", {"zone": "CET"}), content="One moment.")], True),
    ("two calls", [user("Both?"), calls(("weather", {"city": "Rome", "days": 1}), ("time-now", {"zone": "5"}))], True),
    ("a result", [user("Weather?"), calls(("weather", {"city": "Rome"}), reasoning="Look."), result("{\"sky\": \"blue\"}"),
                  said("Blue.", "It is blue.")], True),
    ("two results", [SYSTEM, user("Both?"), calls(("weather", {"city": "Rome"}), ("time-now", {})), result("blue"),
                     result("noon", 2, "time-now"), said("Blue, and it is noon."), user("Thanks"), said("Gladly.")], True),
]


class Family:
    def __init__(self, name, file, real, ends, *, none=False, kwargs=({},), skip=(), reasoning="reasoning_content",
                 numbered=False, more=()):
        """`file`: in tests/golden/chat; `real`: among the real ones, or None. `none`: the content of a message that only
        calls is None, and not "". `reasoning`: what the template calls it. `numbered`: ids are functions.NAME:NUMBER.
        `more`: conversations of this family alone."""
        self.name, self.file, self.real, self.ends, self.none = name, file, real, ends, none
        self.kwargs, self.skip, self.reasoning, self.numbered, self.more = kwargs, skip, reasoning, numbered, more

    def id_for(self, call_id, name):
        return f"functions.{name}:{int(call_id.removeprefix('call')) - 1}" if self.numbered else call_id

    def reference(self, message):
        """The message as a user of transformers writes it for this template."""
        message = dict(message)
        if self.none and message.get("tool_calls") and not message["content"]:
            message["content"] = None
        if message["role"] == "tool":
            message["tool_call_id"] = self.id_for(message["tool_call_id"], message["name"])
        if "tool_calls" in message:
            message["tool_calls"] = [call | {"id": self.id_for(call["id"], call["function"]["name"])}
                                     for call in message["tool_calls"]]
        reasoning = message.pop("reasoning_content", None)
        if reasoning and self.reasoning == "part":
            text = [{"type": "text", "text": message["content"]}] if message["content"] else []
            message["content"] = [{"type": "thinking", "thinking": reasoning}, *text]
        elif reasoning:
            message[self.reasoning] = reasoning
        return message

    def render(self, template, messages, tools, prompt, kwargs):
        return chat_template_utils.render_jinja_template(
            conversations=[[self.reference(message) for message in messages]], tools=tools, chat_template=template,
            add_generation_prompt=prompt, **ROLES, **kwargs)[0][0]


# Switches that some templates look for in messages.
SWITCHES = [
    ("no reasoning", [{"role": "system", "content": "Be brief. /no_think"}, user("Time?"), calls(("time-now", {}))], True),
    ("reasoning again", [{"role": "system", "content": "/no_think"}, user("Hi /think"), said("Hello.", "They greet.")], False),
]
EFFORT = ({}, {"reasoning_effort": "high"})
THINKING = ({}, {"enable_thinking": False}, {"enable_thinking": True})
FAMILIES = [
    Family("harmony", None, "openai-gpt-oss-120b", ["<|call|>", "<|return|>"], kwargs=EFFORT,
           reasoning="thinking", skip=("two calls", "two results", "a call behind text")),  # it writes the text as reasoning
    Family("qwen3-coder", None, "Qwen3-Coder", ["<|im_end|>"]),
    Family("qwen3.5", None, "Qwen3.5-4B", ["<|im_end|>"], kwargs=THINKING),
    Family("deepseek-v3.1", None, "deepseek-ai-DeepSeek-V3.1", ["<｜end▁of▁sentence｜>"],
           kwargs=({}, {"thinking": True})),
    Family("deepseek-r1", "deepseek-r1-form", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ["<｜end▁of▁sentence｜>"],
           none=True),
    Family("glm-4.6", None, "GLM-4.6", ["<|observation|>", "<|user|>"], kwargs=THINKING),
    Family("kimi-k2", "kimi-form", "moonshotai-Kimi-K2", ["<|im_end|>"], numbered=True),
    Family("nemotron-nano-2", "nemotron-form", "NVIDIA-Nemotron-Nano-v2", ["\n<SPECIAL_12>", "<SPECIAL_12>"], more=SWITCHES),
    Family("minimax-m2", "minimax-form", "MiniMax-M2", ["[e~["]),
    Family("gemma-4", "gemma-form", "google-gemma-4-31B-it", ["<turn|>", "<|tool_response>"], kwargs=THINKING),
    Family("ministral-3", None, "mistralai-Ministral-3-14B-Reasoning-2512", ["<eos>"],
           reasoning="part"),
    Family("pythonic", "pythonic-form", None, ["<|eot|>"], skip=("a call behind text",)),  # calls are all of the answer
    Family("hermes", None, "Qwen-Qwen3-0.6B", ["<|im_end|>"], kwargs=THINKING),
    Family("llama-3", None, "meta-llama-Llama-3.1-8B-Instruct", ["<|eot_id|>"], skip=("two calls", "two results")),
    Family("mistral-nemo", None, "mistralai-Mistral-Nemo-Instruct-2407", ["<eos>"]),
    Family("mistral-small-3.1", None, "mistral-common-v7", ["<eos>"]),
    Family("mistral-small-3.2", "mistral-id-form", "Mistral-Small-3.2-24B-Instruct-2506", ["<eos>"]),
    Family("mistral-v11", None, "mistral-common-v11", ["<eos>"]),
    Family("magistral-v11", None, "mistral-common-v11-think", ["<eos>"]),
    Family("magistral-v13", None, "mistral-common-v13", ["<eos>"]),
    Family("mistral-small-4", "mistral-form", "mistral-common-v15", ["<eos>"], kwargs=EFFORT),
    # The template writes lists as Python does; grammars demand JSON.
    Family("seed-oss", None, "ByteDance-Seed-OSS", ["<seed:eos>"], skip=("one call",)),
    Family("glm-4.7", None, "GLM-4.7-Flash", ["<|observation|>", "<|user|>"], kwargs=THINKING),
    Family("nemotron-3", None, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ["<|im_end|>"], kwargs=THINKING),
    # The template leaves out tools and calls.
    Family("smollm3", None, "HuggingFaceTB-SmolLM3-3B", ["<|im_end|>"], kwargs=THINKING, more=SWITCHES[1:],
           skip=("one call", "a call without arguments", "a call behind text", "two calls")),
]


def request(messages, tools, kwargs):
    body = {"messages": []}
    for message in messages:
        message = dict(message)
        if "tool_calls" in message:
            message["tool_calls"] = [call | {"function": {
                "name": call["function"]["name"], "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False)}}
                for call in message["tool_calls"]]
            message["content"] = message["content"] or None
        body["messages"].append(message)
    if tools:
        body["tools"] = []  # those of the file
    body["chat_template_kwargs"] = ROLES | kwargs
    return body


def answer_of(family, message, prompt, whole):
    """What a model writes behind the prompt to give the message; None if the template writes it in another way. Some
    templates leave out reasoning, or the text beside calls."""
    if not whole.startswith(prompt):
        return None
    text = whole[len(prompt):]
    if prompt.rstrip().endswith("<think>") and "</think>" not in text:
        return None
    for end in family.ends:
        text = text.split(end)[0]
    reasoning, content = message.get("reasoning_content", ""), message["content"]
    return {"text": text, "reasoning": reasoning if reasoning in text else "", "content": content if content in text else "",
            "calls": [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]}


def cases(family, template):
    for name, messages, has_tools in (*CONVERSATIONS, *family.more):
        if name in family.skip:
            continue
        for kwargs in family.kwargs:
            tools = TOOLS if has_tools and "tools" in template.replace("tool_calls", "") else None
            before, last = messages[:-1], messages[-1]
            prompt = family.render(template, before, tools, True, kwargs)
            whole = family.render(template, messages, tools, False, kwargs)
            case = {"name": f"{name} {json.dumps(kwargs)}", "request": request(before, tools, kwargs), "text": prompt}
            answer = answer_of(family, last, prompt, whole)
            yield case | ({"answer": answer} if answer else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default=HERE / "golden.json")
    parser.add_argument("--templates", type=pathlib.Path)
    args = parser.parse_args()

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return NOW

    chat_template_utils.datetime = Clock
    golden = []
    for family in FAMILIES:
        file = family.real if args.templates else family.file
        if file is None:
            continue
        path = args.templates.resolve() / f"{file}.jinja" if args.templates else pathlib.Path(f"{file}.jinja")
        template = (HERE / path).read_text()
        golden.append({"name": family.name, "template": str(path), "cases": list(cases(family, template))})
        n_answers = sum("answer" in case for case in golden[-1]["cases"])
        print(f"{family.name}: {len(golden[-1]['cases'])} prompts, {n_answers} answers")
    text = json.dumps({"now_unix_s": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), "tools": TOOLS,
                        "families": golden}, ensure_ascii=False, indent=0 if args.templates is None else None)
    pathlib.Path(args.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
