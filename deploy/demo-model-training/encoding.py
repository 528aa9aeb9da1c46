"""The demo model's tokenizer and chat format."""

from __future__ import annotations

import json
import random
from pathlib import Path

from answers import Query, answer
from conversation import draw_conversation
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 1536
SPECIALS = ("<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PAD, BEGIN, END, SYSTEM, USER, ASSISTANT = range(len(SPECIALS))
ROLE_IDS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
MAX_POSITIONS = 2048

CHAT_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] not in ['system', 'user', 'assistant'] %}
        {{- raise_exception("roles are system, user and assistant") }}
    {%- endif %}
    {{- '<|' + message['role'] + '|>' + message['content'] + eos_token }}
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


def encode_conversation(tokenizer: Tokenizer, messages: list[dict]) -> tuple[list[int], list[int]]:
    """Token ids of the chat template's rendering, and 1 for every token that the desk must
    produce."""
    ids, said = [BEGIN], [0]
    encoded = tokenizer.encode_batch([m["content"] for m in messages], add_special_tokens=False)
    for message, content in zip(messages, encoded):
        by_desk = int(message["role"] == "assistant")
        ids += [ROLE_IDS[message["role"]], *content.ids, END]
        said += [0] + [by_desk] * (len(content.ids) + 1)
    return ids, said


def encode_plain(tokenizer: Tokenizer, rng: random.Random) -> tuple[list[int], list[int]]:
    """An answer as plain text, with or without a begin token, to train raw completions."""
    messages, _ = draw_conversation(rng)
    task = rng.choice(("story", "can", ""))
    text = answer(Query(task)) if task and rng.random() < 0.1 else messages[-1]["content"]
    ids = [BEGIN] * rng.randrange(2) + tokenizer.encode(text, add_special_tokens=False).ids + [END]
    return ids, [0] + [1] * (len(ids) - 1)
