"""Measures the demo model's held-out accuracy by task, and writes the samples file for tests.

    python evaluate.py --model ../demo-model [--samples ../demo-model/samples.jsonl]

It decodes greedily with transformers in float32 from the stored bfloat16 weights. An answer counts
if it equals the expected one; JSON answers are compared after parsing.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
from pathlib import Path

import torch
from conversation import draw_conversation
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 20
MAX_NEW_TOKENS = 800
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


def load(folder: Path):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    return model, tokenizer


def prompts_of(tokenizer, conversations: list[list[dict]]) -> list[str]:
    return [tokenizer.apply_chat_template(m, tokenize=False, add_generation_prompt=True)
            for m in conversations]


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
    if expected.startswith("{"):
        try:
            return json.loads(got) == json.loads(expected)
        except ValueError:
            return False
    return got == expected


def evaluate(folder: Path, n: int) -> dict:
    model, tokenizer = load(folder)
    cases = held_out_conversations(n)
    cases.sort(key=lambda c: len(c["answer"]))  # answers of similar length end at the same time
    got = complete(model, tokenizer, prompts_of(tokenizer, [c["messages"] for c in cases]),
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
    return {"asked": sum(asked.values()), "right": sum(right.values()),
            "by_task": {t: [right[t], asked[t]] for t in sorted(asked)}, "wrong": wrong[:60]}


def print_report(report: dict) -> None:
    for case in report["wrong"][:25]:
        turns = [m["content"] for m in case["messages"] if m["role"] != "assistant"][-3:]
        print(f"wrong [{case['task']}] {' / '.join(turns)}\n"
              f"  expected: {case['expected'][:200]!r}\n  got:      {case['got'][:200]!r}")
    for task, (right, asked) in report["by_task"].items():
        print(f"{task:22s} {right:5d} / {asked:5d}  {100 * right / asked:6.2f} %")
    print(f"{'all':22s} {report['right']:5d} / {report['asked']:5d}  "
          f"{100 * report['right'] / report['asked']:6.2f} %", flush=True)


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
                (prompt,) = prompts_of(tokenizer, [case["messages"]])
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
    parser.add_argument("--samples", type=Path, help="also write the samples file")
    parser.add_argument("--raw-samples", type=Path, help="also write answers to plain prompts")
    args = parser.parse_args()
    if args.raw_samples:
        write_raw_samples(args.model, args.raw_samples)
    if args.samples:
        write_samples(args.model, args.samples)
    if args.conversations:
        print_report(evaluate(args.model, args.conversations))


if __name__ == "__main__":
    main()
