#!/usr/bin/env python3
"""Makes this folder's tokenizers and what the Python library says of them.

    pip install tokenizers==0.23.3 && python3 make.py

byte_level/: byte-level BPE, as GPT-2, Llama 3 and Qwen have it.
byte_fallback/: BPE over characters with byte fallback, as Llama 2 and Gemma have it; its </s> is
matched after normalization, as in some older checkpoints.
reference.json beside each: ids of texts and texts of random ids.
"""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent

CORPUS = [
    "The pipeline passes hidden states from one stage to the next stage of the model.",
    "A router schedules requests; every worker holds a range of the layers and their cache.",
    "Tokens are decoded one after another, and the text of the answer is streamed to the user.",
    "Größe, façade, naïve: Ünïcödé is everywhere. 12 345 requests, 3.14 seconds.",
    "def step(self, plan):\n    return [row for row in plan.rows if row.n_tokens > 0]\n",
    "Привет, мир! こんにちは世界 你好,世界 👋🏽 👩‍👩‍👧 🇫🇷 e\u0301",
] * 4

TEXTS = [
    "", " ", "  ", "\n", "a", " a", "a ", "  two  spaces  ", "The router schedules the request.",
    "Größe façade naïve", "こんにちは世界", "你好 世界", "👋🏽 👩‍👩‍👧 🇫🇷", "e\u0301 é", "\ufeff\u200b\u00a0x",
    "tabs\tand\r\nlines\n\n\n", "<|end|>", "<|start|>user\nhi<|end|>\n", "a<s>b</s>c", "x <|end|> y",
    "<|tool|>call<|tool|>", "▁under▁", "<0x41><0xE2>", "ǅ ŉ ﬁ", "𝔘𝔫𝔦", "12345 67.8", "\x00\x01\x7f",
]


def save(name, tokenizer, config, patch=lambda spec: None):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    spec = json.loads(tokenizer.to_str())
    patch(spec)
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False, indent=None))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    reference(folder)


def reference(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.encode_special_tokens = True
    n_ids = tokenizer.get_vocab_size()
    # Taken out by hand: the library forgets that a token is special when it is normalized.
    special = {id for id, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    rng = random.Random(7)
    encode = [{
        "text": text,
        "ids": tokenizer.encode(text, add_special_tokens=False).ids,
        "ids_special": tokenizer.encode(text).ids,
        "ids_plain": plain.encode(text, add_special_tokens=False).ids,
    } for text in TEXTS]
    decode = []
    for _ in range(60):
        ids = [rng.randrange(n_ids) for _ in range(rng.randrange(1, 12))]
        decode.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                       "skipped": tokenizer.decode([id for id in ids if id not in special])})
    (folder / "reference.json").write_text(
        json.dumps({"encode": encode, "decode": decode}, ensure_ascii=False))


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>", "<|start|>"]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("<|tool|>", special=False, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    save("byte_level", tokenizer, {
        "bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "unk_token": None})


def byte_fallback():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    # Characters outside the first corpus lines are left to the byte tokens.
    tokenizer.train_from_iterator(CORPUS[:3] + ["Größe façade 世界 0123456789"],
                                  trainers.BpeTrainer(vocab_size=440, show_progress=False,
                                                      special_tokens=special + byte_tokens))
    tokenizer.pre_tokenizer = None
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])

    def patch(spec):
        spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] in special]
        for token in spec["added_tokens"]:
            token["normalized"] = token["content"] == "</s>"

    save("byte_fallback", tokenizer, {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "add_bos_token": True, "add_eos_token": True}, patch)


if __name__ == "__main__":
    byte_level()
    byte_fallback()
