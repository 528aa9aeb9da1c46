#!/usr/bin/env python3
"""Makes vocabularies that do not come as a tokenizer.json, and what their own libraries say of them.

    pip install transformers==5.23.0 tokenizers==0.23.3 sentencepiece==0.2.3 gguf==0.19.0
    python3 make_vocabularies.py

Each folder has files of a checkpoint and reference.json: a list of variants, each with the
tokenizer_config.json it is for and ids of texts and texts of random ids.

sentencepiece_bpe/: byte fallback, control and user-defined pieces; transformers' LlamaTokenizer.
sentencepiece_unigram/: normalization by compiled rules, collapsed spaces; SentencePiece itself.
vocab_merges/: GPT-2's files; transformers' GPT2Tokenizer (as GPT-2 and OPT use it), Qwen2Tokenizer.
tekken/: transformers' converter.
gguf/: the vocabularies of sentencepiece_bpe/ and vocab_merges/ as .gguf metadata.
"""

import base64
import json
import random
import shutil
import tempfile
from pathlib import Path

import gguf
import sentencepiece
from make import CORPUS, TEXTS
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AddedToken, GPT2Tokenizer, LlamaTokenizer, Qwen2Tokenizer
from transformers.integrations.mistral.tokenizer import MistralConverter

HERE = Path(__file__).parent
MORE_TEXTS = [
    "x [INST] y[/INST] z", "[INST]", "a[INST]", "<tool>call</tool>", "   lead", "trail   ",
    "a  b   c", "\u00bd \ufb01n \u2460", "\u3000wide\u3000", "don't WE'LL", "1234567", "'s's", "\t\ttabs  ",
    "[PAD] x", "<unk>", "<0x0A>\n", "a\u0301b", "<|endoftext|>x<|endoftext|>", "HTTPServer fooBar",
]


def save(folder, reference):
    (folder / "reference.json").write_text(json.dumps(reference, ensure_ascii=False) + "\n")


def variant(config, encode, decode, n_ids, is_special):
    """encode(text, add_special_tokens, split_special_tokens) -> ids; decode(ids) -> text."""
    rng = random.Random(11)
    cases = [{
        "text": text,
        "ids": encode(text, False, False),
        "ids_special": encode(text, True, False),
        "ids_plain": encode(text, False, True),
    } for text in TEXTS + MORE_TEXTS]
    decoded = []
    for _ in range(40):
        ids = [rng.randrange(n_ids) for _ in range(rng.randrange(1, 12))]
        decoded.append({"ids": ids, "text": decode(ids),
                        "skipped": decode([id for id in ids if not is_special(id)])})
    return {"config": config, "encode": cases, "decode": decoded}


def of_transformers(config, tokenizer):
    backend = tokenizer.backend_tokenizer
    special = {id for id, t in backend.get_added_tokens_decoder().items() if t.special}

    def encode(text, add_special_tokens, split_special_tokens):
        backend.encode_special_tokens = split_special_tokens
        return backend.encode(text, add_special_tokens=add_special_tokens).ids

    return variant(config, encode, lambda ids: backend.decode(ids, skip_special_tokens=False),
                   len(tokenizer), special.__contains__)


def train_sentencepiece(folder, **options):
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.txt"
        corpus.write_text("\n".join(CORPUS))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=f"{scratch}/tokenizer", minloglevel=2,
            hard_vocab_limit=False, **options)
        shutil.copy(f"{scratch}/tokenizer.model", folder / "tokenizer.model")
    return sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))


def sentencepiece_bpe():
    folder = HERE / "sentencepiece_bpe"
    folder.mkdir(exist_ok=True)
    train_sentencepiece(
        folder, model_type="bpe", vocab_size=480, byte_fallback=True, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, control_symbols=["[INST]", "[/INST]"],
        user_defined_symbols=["<tool>", "\n\n"])
    roles = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
             "unk_token": "<unk>"}
    reference = []
    for more in [
        {"legacy": False, "add_bos_token": True, "add_eos_token": False},
        {"legacy": True, "add_bos_token": True, "add_eos_token": True},
        {"legacy": False, "add_prefix_space": False, "add_bos_token": False},
        {"legacy": False, "add_bos_token": True, "pad_token": "[PAD]"},
    ]:
        config = roles | more
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        reference.append(of_transformers(config, LlamaTokenizer.from_pretrained(folder)))
    (folder / "tokenizer_config.json").unlink()
    save(folder, reference)
    return folder / "tokenizer.model"


def sentencepiece_unigram():
    folder = HERE / "sentencepiece_unigram"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # A few of nmt_nfkc's rules; all of them take 200 KB.
        for before, after in [("\u00bd", "1\u20442"), ("\ufb01", "fi"), ("\u3000", " "), ("\t", " "),
                              ("\n", " "), ("\u2460", "1"), ("e\u0301", "\u00e9"), ("\u200b", "")]:
            spell = [" ".join(f"{ord(c):X}" for c in text) for text in (before, after)]
            rules.write("\t".join(spell) + "\n")
        rules.flush()
        processor = train_sentencepiece(folder, model_type="unigram", vocab_size=400,
                                        normalization_rule_tsv=rules.name)

    def encode(text, add_special_tokens, split_special_tokens):
        # The control pieces of this file are <s> and </s>; SentencePiece itself knows no spelling
        # of special tokens, so every text is what a person wrote.
        del split_special_tokens
        ids = processor.encode(text)
        return [processor.bos_id(), *ids] if add_special_tokens else ids

    config = {"tokenizer_class": "T5Tokenizer", "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>"}
    reference = variant(config, encode, lambda ids: "", processor.vocab_size(), lambda id: False)
    reference["decode"] = []
    # SentencePiece takes the mark itself for a space to remove; the library does not.
    special = ["<s>", "</s>", "<unk>", "<pad>", "\u2581"]
    reference["encode"] = [c for c in reference["encode"]
                           if not any(token in c["text"] for token in special)]
    save(folder, [reference])


def vocab_merges():
    folder = HERE / "vocab_merges"
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=400, show_progress=False, special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"] | {"<|endoftext|>": len(model["vocab"])}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    merges = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n")
    reference = []
    opt = {"content": "</s>", "lstrip": False, "rstrip": False, "single_word": False,
           "normalized": True, "__type": "AddedToken"}
    n = len(vocab)
    added = {str(n): {"content": "<|im_start|>", "special": True, "normalized": False},
             str(n + 1): {"content": "<think>", "special": False, "normalized": False}}
    for cls, config in [
        (GPT2Tokenizer, {}),
        (GPT2Tokenizer, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
        (GPT2Tokenizer, {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True,
                         "add_prefix_space": False, "bos_token": opt, "eos_token": opt,
                         "unk_token": opt, "pad_token": "<pad>"}),
        (Qwen2Tokenizer, {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>",
                          "added_tokens_decoder": added}),
    ]:
        kwargs = {key: AddedToken(value["content"], normalized=True) if value is opt else value
                  for key, value in config.items()
                  if key not in ("tokenizer_class", "added_tokens_decoder")}
        if "added_tokens_decoder" in config:
            kwargs["added_tokens_decoder"] = {
                int(id): AddedToken(t["content"], special=t["special"], normalized=t["normalized"])
                for id, t in added.items()}
        tokenizer = cls(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"),
                        **kwargs)
        reference.append(of_transformers(config, tokenizer))
    save(folder, reference)
    return vocab, model["merges"]


def tekken(vocab, merges):
    """Ranks in tiktoken's sense: single bytes, then every product of a merge."""
    folder = HERE / "tekken"
    folder.mkdir(exist_ok=True)
    alphabet = {char: byte for byte, char in _bytes_to_unicode().items()}
    spelled = [bytes([byte]) for byte in range(256)]
    spelled += [bytes(alphabet[c] for c in left + right) for left, right in merges]
    n_special = 6
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
               r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokens = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()}
              for rank, token in enumerate(dict.fromkeys(spelled))]
    file = {
        # The last ten tokens are in the file and not in the model.
        "config": {"pattern": pattern, "default_num_special_tokens": n_special,
                   "default_vocab_size": n_special + len(tokens) - 10, "version": "v7"},
        "vocab": tokens,
        "special_tokens": [{"rank": rank, "token_str": name, "is_control": True}
                           for rank, name in enumerate(special)],
    }
    path = folder / "tekken.json"
    path.write_text(json.dumps(file))
    converted = MistralConverter(str(path)).converted()

    def encode(text, add_special_tokens, split_special_tokens):
        converted.encode_special_tokens = split_special_tokens
        ids = converted.encode(text, add_special_tokens=False).ids
        return [1, *ids] if add_special_tokens else ids

    save(folder, [variant({"add_bos_token": True}, encode,
                          lambda ids: converted.decode(ids, skip_special_tokens=False),
                          converted.get_vocab_size(), lambda id: id < n_special)])


def _bytes_to_unicode():
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    return bytes_to_unicode()


def write_gguf(name, model, pre, tokens, types, scores=None, merges=None, more=lambda w: None):
    writer = gguf.GGUFWriter(HERE / "gguf" / name, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges([" ".join(pair) for pair in merges])
    more(writer)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}"
                             "{% endfor %}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_files(model_file, vocab, merges):
    (HERE / "gguf").mkdir(exist_ok=True)
    processor = sentencepiece.SentencePieceProcessor(str(model_file))
    n = processor.vocab_size()
    kinds = [2 if processor.is_unknown(i) else 3 if processor.is_control(i) else
             6 if processor.is_byte(i) else 4 if processor.id_to_piece(i) in ("<tool>", "\n\n") else 1
             for i in range(n)]

    def llama(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)

    write_gguf("llama.gguf", "llama", "default", [processor.id_to_piece(i) for i in range(n)],
               kinds, [processor.get_score(i) for i in range(n)], more=llama)

    tokens = sorted(vocab, key=vocab.get) + ["<|im_start|>", "<think>"]
    types = [1] * len(vocab) + [3, 4]
    types[vocab["<|endoftext|>"]] = 3

    def qwen(writer):
        writer.add_eos_token_id(vocab["<|endoftext|>"])
        writer.add_pad_token_id(vocab["<|endoftext|>"])
        writer.add_add_bos_token(False)

    write_gguf("qwen2.gguf", "gpt2", "qwen2", tokens + ["[PAD1]", "[PAD2]"], types + [5, 5],
               merges=merges, more=qwen)


def main():
    model_file = sentencepiece_bpe()
    sentencepiece_unigram()
    vocab, merges = vocab_merges()
    tekken(vocab, merges)
    gguf_files(model_file, vocab, merges)


if __name__ == "__main__":
    main()
