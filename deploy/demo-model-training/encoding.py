"""The demo model's tokenizer and chat format."""

from __future__ import annotations

import json
import random
from pathlib import Path

from answers import Query, answer
from conversation import draw_conversation
from schema import SchemaQuestion
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tools import RESULT_BEGIN, RESULT_END, call_text

VOCAB_SIZE = 1536
SPECIALS = ("<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PAD, BEGIN, END, SYSTEM, USER, ASSISTANT = range(len(SPECIALS))
ROLE_IDS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
MAX_POSITIONS = 2048

# Tools come as a system message of their own, and a tool's result as a visitor's message: the
# vocabulary has no special tokens for them.
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
    {{- '<|system|>Tools:' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool['function'] | tojson) }}
    {%- endfor %}
    {{- eos_token }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}
        {{- raise_exception("roles are system, user, assistant and tool") }}
    {%- endif %}
    {%- set content = message['content'] or '' %}
    {%- if message['role'] == 'tool' %}
        {{- '<|user|><tool_response>\\n' + content + '\\n</tool_response>' + eos_token }}
    {%- else %}
        {{- '<|' + message['role'] + '|>' + content }}
        {%- for call in message['tool_calls'] or [] %}
            {%- if content or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {%- set arguments = call['function']['arguments'] %}
            {{- '<tool_call>\\n{"name": ' + (call['function']['name'] | tojson) + ', "arguments": ' }}
            {{- arguments if arguments is string else arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""


def train_tokenizer(seed: int, n_conversations: int) -> Tokenizer:
    """A byte-level BPE that keeps digits apart, so that times and sums are read digit by digit."""
    rng = random.Random(f"tokenizer/{seed}")

    def texts():
        for _ in range(n_conversations):
            for message in draw_conversation(rng)[0]:
                yield message["content"]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=list(SPECIALS), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>",
        "eos_token": "<|end|>", "pad_token": "<|pad|>", "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False}, indent=2) + "\n")


def _turns(messages: list[dict], tools: list[dict]) -> list[tuple[int, str, int]]:
    """Role id, text, and 1 if the desk must produce it, for each turn of the chat template."""
    turns = []
    if tools:
        lines = ["Tools:", *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)]
        turns.append((SYSTEM, "\n".join(lines), 0))
    for message in messages:
        if message["role"] == "tool":
            turns.append((USER, RESULT_BEGIN + message["content"] + RESULT_END, 0))
            continue
        calls = [call_text(**call["function"]) for call in message.get("tool_calls", ())]
        parts = [message["content"]] if message["content"] else []
        turns.append((ROLE_IDS[message["role"]], "\n".join(parts + calls),
                      int(message["role"] == "assistant")))
    return turns


def encode_conversation(tokenizer: Tokenizer, messages: list[dict],
                        tools: list[dict] = ()) -> tuple[list[int], list[int]]:
    """Token ids of the chat template's rendering, and 1 for every token that the desk must
    produce."""
    ids, said = [BEGIN], [0]
    turns = _turns(messages, tools)
    encoded = tokenizer.encode_batch([text for _, text, _ in turns], add_special_tokens=False)
    for (role, _, by_desk), content in zip(turns, encoded):
        ids += [role, *content.ids, END]
        said += [0] + [by_desk] * (len(content.ids) + 1)
    return ids, said


def encode_schema_question(tokenizer: Tokenizer,
                           question: SchemaQuestion) -> tuple[list[int], list[int]]:
    """Token ids of the question and its answer, and 1 for every token to learn.

    The answer begins with a bracket because of the grammar, not of the question, so the bracket is
    not learned. If the question asks for JSON, neither are field names: without a grammar, the desk
    has its own.
    """
    ids, said = encode_conversation(tokenizer, [{"role": "user", "content": question.user}])
    answer = tokenizer.encode(question.answer(), add_special_tokens=False)
    if question.asks_json:
        spans = question.value_spans()
        learned = [int(any(begin < stop and end > start for start, stop in spans))
                   for begin, end in answer.offsets]
    else:
        learned = [0] + [1] * (len(answer.ids) - 1)
    return ids + [ASSISTANT, *answer.ids, END], said + [0] + learned + [1]


def encode_plain(tokenizer: Tokenizer, rng: random.Random) -> tuple[list[int], list[int]]:
    """An answer as plain text, with or without a begin token, to train raw completions."""
    messages, _ = draw_conversation(rng)
    task = rng.choice(("story", "can", ""))
    text = answer(Query(task)) if task and rng.random() < 0.1 else messages[-1]["content"]
    ids = [BEGIN] * rng.randrange(2) + tokenizer.encode(text, add_special_tokens=False).ids + [END]
    return ids, [0] + [1] * (len(ids) - 1)
