"""Makes the tiny embedding model and the tiny reranker of tests/golden/pooled, and transformers' results for them.

usage: python make_pooled.py OUT_DIR     (needs torch, transformers, tokenizers; made with transformers 5.24)

OUT_DIR/qwen3-embedding has the form of Qwen3-Embedding: a model saved without its head, the files of
sentence-transformers, and a tokenizer that ends every text with an end token. Its pooled.json has, for every text, the
token ids and the vectors of last-token and of mean pooling, both of length 1. OUT_DIR/qwen3-reranker has the form of
Qwen3-Reranker; its pooled.json has, for every query, the scores of the documents and the ids of their prompts.
The reference computes in float32 on the CPU with eager attention and without a cache.
"""
import json
import sys
from pathlib import Path

import make
import tokenizers
import torch
import transformers

END, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEXTS = [
    "The coach leaves at nine.",
    "h",
    "駅馬車は九時に出発します。",
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:When does it leave?",
    "fresh horses wait there, and the driver and the passengers, and the road in the rain. " * 6,
    "",
]
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
QUERIES = [
    (None, "When does the coach leave?", ["The coach leaves at nine.", "the road in the rain " * 20, "", "駅馬車は九時に"]),
    ("Judge the weather", "rain", ["the road in the rain", "fresh horses wait there"]),
]
PREFIX = (
    f"{IM_START}system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    f'Note that the answer can only be "yes" or "no".{IM_END}\n{IM_START}user\n'
)
SUFFIX = f"{IM_END}\n{IM_START}assistant\n<think>\n\n</think>\n\n"


def make_tokenizer(ends_texts):
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.train_from_iterator(
        make.CORPUS + ["yes", "no"] * 50,
        tokenizers.trainers.BpeTrainer(
            vocab_size=make.N_VOCAB - 2,
            special_tokens=[END, IM_START, IM_END],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in ("<think>", "</think>")])
    if ends_texts:
        ids = [(END, bpe.token_to_id(END))]
        bpe.post_processor = tokenizers.processors.TemplateProcessing(single=f"$A {END}", special_tokens=ids)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=IM_END, pad_token=END)


def config(**more):
    sizes = {**make.sizes(2, 1), "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.Qwen3Config(**sizes, rope_theta=1e6, **more)


def save(folder, model, tokenizer, golden):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "pooled.json").write_text(json.dumps(golden, ensure_ascii=False))


def unit(vector):
    return [round(x, 7) for x in torch.nn.functional.normalize(vector, dim=0).tolist()]


@torch.no_grad()
def embedding(folder):
    model = transformers.AutoModel.from_config(config(), dtype=torch.float32, attn_implementation="eager").eval()
    make.randomise(model, torch.bfloat16, seed=200)
    tokenizer = make_tokenizer(ends_texts=True)
    cases = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        hidden = model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        cases.append(dict(text=text, ids=ids, last=unit(hidden[-1]), mean=unit(hidden.mean(0))))
    save(folder, model, tokenizer, dict(cases=cases))
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    kinds = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    pooling = {f"pooling_mode_{kind}": kind == "lasttoken" for kind in kinds}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    files = {
        "modules.json": [
            dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
            for i, (kind, path) in enumerate(modules)
        ],
        "1_Pooling/config.json": dict(word_embedding_dimension=32, **pooling, include_prompt=True),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


@torch.no_grad()
def reranker(folder):
    model = transformers.AutoModelForCausalLM.from_config(
        config(tie_word_embeddings=True), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    make.randomise(model, torch.bfloat16, seed=201)
    model.model.norm.weight.mul_(8)  # so that the scores differ
    tokenizer = make_tokenizer(ends_texts=False)
    yes, no = tokenizer.convert_tokens_to_ids("yes"), tokenizer.convert_tokens_to_ids("no")
    prefix, suffix = (tokenizer(text)["input_ids"] for text in (PREFIX, SUFFIX))
    cases = []
    for instruction, query, documents in QUERIES:
        case = dict(instruction=instruction, query=query, documents=documents, ids=[], scores=[])
        for document in documents:
            pair = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
            ids = prefix + tokenizer(pair)["input_ids"] + suffix
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            case["ids"].append(ids)
            case["scores"].append(round(torch.softmax(logits[[no, yes]], 0)[1].item(), 7))
        cases.append(case)
    print([case["scores"] for case in cases])
    save(folder, model, tokenizer, dict(yes=yes, no=no, cases=cases))


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    embedding(out / "qwen3-embedding")
    reranker(out / "qwen3-reranker")


if __name__ == "__main__":
    main()
