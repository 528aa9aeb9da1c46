"""Measures the demo model's held-out accuracy by task, and writes the samples file for tests.

    python evaluate.py --model ../demo-model [--samples ../demo-model/samples.jsonl]

It decodes greedily with transformers in float32 from the stored bfloat16 weights. An answer counts
if it equals the expected one; JSON answers and the JSON of tool calls are compared after parsing.
Tools and schemas have rows of their own, outside the total: `tool_call` (the call that a question
needs), `tool_result` (the answer from a call's result), `tool_none` (questions that need no call)
and `schema` (all values of a JSON answer whose field names a grammar gives).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
from pathlib import Path

import torch
from conversation import draw_conversation
from encoding import encode_schema_question
from schema import draw_schema_question
from tool_conversation import draw_tool_conversation
from tools import CALL_BEGIN, CALL_END, call_text
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 20
MAX_NEW_TOKENS = 800
TOOL_TASKS = ("tool_call", "tool_result", "tool_none")
SAMPLE_COUNT = 40
RAW_PROMPTS = ("On Sundays the Red Line leaves Alderwick for Elmstead at",
               "The Larkspur Valley Stage Line was founded in 1856",
               "A single ticket from Juniper to Inkwell costs")
SAMPLE_MARGIN = 2.0  # least logit gap between best and second-best token, so that rounding changes nothing


def held_out_conversations(n: int, seed: int = SEED) -> list[dict]:
    """Conversations whose last question is held out: {messages, answer, task}."""
    rng = random.Random(f"evaluation/{seed}")
    cases = []
    for _ in range(n):
        messages, task = draw_conversation(rng, held_out=True)
        cases.append({"messages": messages[:-1], "answer": messages[-1]["content"], "task": task})
    return cases


def held_out_tool_conversations(n: int, seed: int = SEED) -> list[dict]:
    """n conversations for each task of TOOL_TASKS: {messages, tools, answer, task}."""
    rng = random.Random(f"tools/{seed}")
    cases = {task: [] for task in TOOL_TASKS}
    while any(len(found) < n for found in cases.values()):
        drawn = draw_tool_conversation(rng, held_out=True)
        *messages, reply = drawn.messages
        answers = {"tool_none": (messages, reply["content"])}
        if drawn.called:
            call = messages[-2]["tool_calls"][0]["function"]
            answers = {"tool_call": (messages[:-2], call_text(**call)),
                       "tool_result": (messages, reply["content"])}
        for task, (before, answer) in answers.items():
            if len(cases[task]) < n:
                cases[task].append({"messages": before, "tools": drawn.tools, "answer": answer,
                                    "task": task})
    return [case for found in cases.values() for case in found]


def load(folder: Path):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    return model, tokenizer


def prompts_of(tokenizer, cases: list[dict]) -> list[str]:
    return [tokenizer.apply_chat_template(case["messages"], tools=case.get("tools"),
                                          tokenize=False, add_generation_prompt=True)
            for case in cases]


@torch.no_grad()
def complete(model, tokenizer, prompts: list[str], batch: int) -> list[str]:
    answers = []
    for i in range(0, len(prompts), batch):
        inputs = tokenizer(prompts[i:i + batch], return_tensors="pt", padding=True,
                           add_special_tokens=False, return_token_type_ids=False).to(model.device)
        out = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        answers += tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1]:],
                                          skip_special_tokens=True)
    return answers


def is_right(expected: str, got: str) -> bool:
    if expected.startswith(CALL_BEGIN) and got.startswith(CALL_BEGIN) and got.endswith(CALL_END):
        expected, got = (text[len(CALL_BEGIN):-len(CALL_END)] for text in (expected, got))
    if expected.startswith("{"):
        try:
            return json.loads(got) == json.loads(expected)
        except ValueError:
            return False
    return got == expected


def value_end(token: str) -> str:
    """The token up to the punctuation after a value. Whether another field follows is the grammar's choice, not the
    model's: `","` and `"}` both end a text."""
    return token.replace("}", ",").split(",")[0]


@torch.no_grad()
def right_schemas(model, tokenizer, n: int, seed: int = SEED) -> int:
    """Of n held-out questions, how many get every value right.

    The field names are given, as a grammar would. A value is right if each of its tokens, and the end of the value, is
    the best one.
    """
    rng = random.Random(f"schema/{seed}")
    right = 0
    for _ in range(n):
        question = dataclasses.replace(draw_schema_question(rng, held_out=True), asks_json=True)
        ids, values = encode_schema_question(tokenizer.backend_tokenizer, question)
        best = model(torch.tensor([ids], device=model.device)).logits[0, :-1].argmax(-1).tolist()
        right += all(token == wanted or value_end(tokenizer.decode([token])) == value_end(tokenizer.decode([wanted]))
                     for token, wanted, is_value in zip(best, ids[1:-1], values[1:-1]) if is_value)
    return right


def evaluate(folder: Path, n: int, n_tools: int) -> dict:
    model, tokenizer = load(folder)
    cases = held_out_conversations(n) + held_out_tool_conversations(n_tools)
    cases.sort(key=lambda c: len(c["answer"]))  # answers of similar length end at the same time
    got = complete(model, tokenizer, prompts_of(tokenizer, cases),
                   512 if model.device.type == "cuda" else 64)
    asked, right = collections.Counter(), collections.Counter()
    wrong = []
    for case, text in zip(cases, got):
        asked[case["task"]] += 1
        if is_right(case["answer"], text):
            right[case["task"]] += 1
        else:
            wrong.append({"task": case["task"], "messages": case["messages"],
                          "expected": case["answer"], "got": text})
    right["schema"], asked["schema"] = right_schemas(model, tokenizer, n_tools), n_tools
    apart = [task for task in (*TOOL_TASKS, "schema") if asked[task]]
    table = {t: [right[t], asked[t]] for t in sorted(asked) if t not in apart}
    return {"asked": sum(a for _, a in table.values()), "right": sum(r for r, _ in table.values()),
            "by_task": table, "apart": {t: [right[t], asked[t]] for t in apart},
            "wrong": wrong[:60]}


def print_report(report: dict) -> None:
    for case in report["wrong"][:25]:
        turns = [m["content"] for m in case["messages"] if m["role"] != "assistant"][-3:]
        print(f"wrong [{case['task']}] {' / '.join(turns)}\n"
              f"  expected: {case['expected'][:200]!r}\n  got:      {case['got'][:200]!r}")
    rows = [*report["by_task"].items(), ("all", [report["right"], report["asked"]]),
            *report["apart"].items()]
    for task, (right, asked) in rows:
        if asked:
            print(f"{task:22s} {right:5d} / {asked:5d}  {100 * right / asked:6.2f} %", flush=True)


@torch.no_grad()
def margin(model, tokenizer, prompt: str, answer: str) -> float:
    """Smallest lead of the best token over the second along the answer; negative if it is wrong."""
    head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    tail = tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = torch.tensor([head + tail], device=model.device)
    logits = model(ids).logits[0, len(head) - 1:-1]
    best = logits.topk(2).values
    if not torch.equal(logits.argmax(-1), ids[0, len(head):]):
        return -1.0
    return float((best[:, 0] - best[:, 1]).min())


def write_samples(folder: Path, path: Path) -> None:
    """Writes held-out questions, alternating between tasks, that the model answers exactly and with
    a large margin."""
    model, tokenizer = load(folder)
    by_task = collections.defaultdict(list)
    for case in held_out_conversations(1500, seed=SEED + 1):
        by_task[case["task"]].append(case)
    samples = []
    while len(samples) < SAMPLE_COUNT:
        for task in sorted(by_task):
            while by_task[task] and len(samples) < SAMPLE_COUNT:
                case = by_task[task].pop(0)
                (prompt,) = prompts_of(tokenizer, [case])
                if margin(model, tokenizer, prompt, case["answer"]) >= SAMPLE_MARGIN:
                    samples.append({"messages": case["messages"], "answer": case["answer"]})
                    break
    with path.open("w") as file:
        for sample in samples:
            file.write(json.dumps(sample) + "\n")


def write_raw_samples(folder: Path, path: Path) -> None:
    """Writes the model's greedy completions of plain prompts without chat markup."""
    model, tokenizer = load(folder)
    with path.open("w") as file:
        for prompt in RAW_PROMPTS:
            (text,) = complete(model, tokenizer, [prompt], 1)
            lead = margin(model, tokenizer, prompt, text)
            if lead < SAMPLE_MARGIN:
                raise SystemExit(f"not sure enough of {prompt!r}: {lead:.2f}")
            file.write(json.dumps({"prompt": prompt, "text": text}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=3000)
    parser.add_argument("--tools", type=int, default=300, help="cases of each row of tools and "
                        "schemas")
    parser.add_argument("--samples", type=Path, help="also write the samples file")
    parser.add_argument("--raw-samples", type=Path, help="also write answers to plain prompts")
    args = parser.parse_args()
    if args.raw_samples:
        write_raw_samples(args.model, args.raw_samples)
    if args.samples:
        write_samples(args.model, args.samples)
    if args.conversations or args.tools:
        print_report(evaluate(args.model, args.conversations, args.tools))


if __name__ == "__main__":
    main()
