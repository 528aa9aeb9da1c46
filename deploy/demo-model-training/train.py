"""Trains the demo model: one command, from nothing to a Hugging Face folder with its evaluation.

    python train.py --out ../demo-model

Conversations are drawn during training, so that no example is seen twice. The model card describes
the run that made the shipped weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import encoding
import numpy as np
import torch
import torch.nn.functional as F
from conversation import draw_conversation
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

PLAIN_TEXT_SHARE = 0.03
MAX_TRAIN_TOKENS = 1536

Example = tuple[np.ndarray, np.ndarray]  # token ids; 1 for each token of the desk


def make_shard(args: tuple[str, int, int, int]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Draws and encodes one shard, which depends only on the seed and the shard's number.

    Returns all examples concatenated (ids, said) and the length of each, because three objects
    cross the process boundary faster than thousands.
"""
    tokenizer_path, seed, shard, n_conversations = args
    tokenizer = Tokenizer.from_file(tokenizer_path)
    rng = random.Random(f"shard/{seed}/{shard}")
    all_ids, all_said, lengths = [], [], []
    for _ in range(n_conversations):
        if rng.random() < PLAIN_TEXT_SHARE:
            ids, said = encoding.encode_plain(tokenizer, rng)
        else:
            ids, said = encoding.encode_conversation(tokenizer, draw_conversation(rng)[0])
        if len(ids) <= MAX_TRAIN_TOKENS:
            all_ids += ids
            all_said += said
            lengths.append(len(ids))
    return np.array(all_ids, np.int16), np.array(all_said, np.int8), lengths


def split_shard(shard: tuple[np.ndarray, np.ndarray, list[int]]) -> list[Example]:
    ids, said, lengths = shard
    ends = np.cumsum(lengths)[:-1]
    return list(zip(np.split(ids, ends), np.split(said, ends)))


def batches_of(examples: list[Example], tokens: int, rng: random.Random):
    """Batches of conversations of similar length, at most `tokens` with padding, in random
    order."""
    examples.sort(key=lambda e: len(e[0]))
    groups, group = [], []
    for example in examples:
        if group and len(example[0]) * (len(group) + 1) > tokens:
            groups.append(group)
            group = []
        group.append(example)
    if group:
        groups.append(group)
    rng.shuffle(groups)
    for group in groups:
        width = -(-len(group[-1][0]) // 8) * 8
        ids = np.full((len(group), width), encoding.PAD, np.int64)
        said = np.zeros((len(group), width), bool)
        for row, (i, s) in enumerate(group):
            ids[row, :len(i)], said[row, :len(s)] = i, s
        yield torch.from_numpy(ids), torch.from_numpy(said)


def build_model(args: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=encoding.VOCAB_SIZE, hidden_size=args.hidden,
        intermediate_size=args.intermediate,
        num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64,
        num_key_value_heads=max(1, args.hidden // 128), head_dim=64,
        max_position_embeddings=encoding.MAX_POSITIONS, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=encoding.BEGIN, eos_token_id=encoding.END, pad_token_id=encoding.PAD)
    torch.manual_seed(args.seed)
    return LlamaForCausalLM(config)


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Writes the model in bfloat16; the training weights stay in float32."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        bos_token_id=encoding.BEGIN, eos_token_id=encoding.END, pad_token_id=encoding.PAD,
        do_sample=False, max_new_tokens=800)
    copy.to(torch.bfloat16).save_pretrained(out)
    encoding.save_tokenizer(tokenizer, out)


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """Sum of the cross-entropy over the desk's tokens. Right padding needs no mask."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    target = said[:, 1:]
    logits = model.lm_head(hidden[target])
    return F.cross_entropy(logits.float(), ids[:, 1:][target], reduction="sum")


def train(args: argparse.Namespace, tokenizer_path: Path) -> LlamaForCausalLM:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    model = build_model(args).to(device).train()
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{n_parameters:,} parameters on {device}", flush=True)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda")

    def rate(step: int) -> float:
        warm = min(1.0, (step + 1) / args.warmup)
        return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    jobs = ((str(tokenizer_path), args.seed, n, args.shard_conversations)
            for n in range(args.shards))
    rng = random.Random(f"order/{args.seed}")
    step, tokens, started, pending = 0, 0, time.time(), []
    with get_context("spawn").Pool(args.processes, os.nice, (10,)) as pool:
        for shard in pool.imap(make_shard, jobs):
            for batch in batches_of(split_shard(shard), args.batch_tokens, rng):
                pending.append(batch)
                if len(pending) < args.accumulate:
                    continue
                said_total = sum(int(said[:, 1:].sum()) for _, said in pending)
                step_loss = torch.zeros((), device=device)
                for ids, said in pending:
                    tokens += ids.numel()
                    ids, said = ids.to(device), said.to(device)
                    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                        loss = loss_of(model, ids, said) / said_total
                    loss.backward()
                    step_loss += loss.detach()
                pending = []
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                if step % args.log_every == 0:
                    seconds = time.time() - started
                    print(f"step {step} loss {step_loss.item():.4f} tokens {tokens / 1e6:.0f}M "
                          f"{seconds:.0f}s {tokens / seconds / 1e6:.2f}M/s", flush=True)
                if step % args.save_every == 0 or step == args.steps:
                    save(model, tokenizer, args.out)
                if step == args.steps:
                    pool.terminate()
                    return model
    raise SystemExit(f"the data ended at step {step}: raise --shards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
    parser.add_argument("--intermediate", type=int, default=704)
    parser.add_argument("--steps", type=int, default=3800)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--batch-tokens", type=int, default=65536, help="in one forward pass")
    parser.add_argument("--accumulate", type=int, default=2, help="forward passes to a step")
    parser.add_argument("--shards", type=int, default=700)
    parser.add_argument("--shard-conversations", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=1000, help="steps")
    parser.add_argument("--log-every", type=int, default=100, help="steps")
    parser.add_argument("--evaluate", type=int, default=3000, help="held-out conversations")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = encoding.train_tokenizer(args.seed, 20_000)
    encoding.save_tokenizer(tokenizer, args.out)
    train(args, args.out / "tokenizer.json")
    import evaluate
    report = evaluate.evaluate(args.out, args.evaluate)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
    evaluate.print_report(report)


if __name__ == "__main__":
    main()
