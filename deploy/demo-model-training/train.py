"""Trains the demo model: one command, from nothing to a Hugging Face folder with its evaluation.

    python train.py --out ../demo-model

Conversations are drawn during training, so that no example is seen twice. The model card describes
the run that made the shipped weights.
"""

from __future__ import annotations

import argparse
import contextlib
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
from schema import draw_schema_question
from tokenizers import Tokenizer
from tool_conversation import draw_tool_conversation
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

PLAIN_TEXT_SHARE = 0.03
TOOLS_SHARE = 0.25
SCHEMA_SHARE = 0.08
MAX_TRAIN_TOKENS = 1536

Example = tuple[np.ndarray, np.ndarray]  # token ids; 1 for each token of the desk


def draw_example(tokenizer: Tokenizer, rng: random.Random,
                 shares: tuple[float, float]) -> tuple[list[int], list[int]]:
    """An example of the shares of tools and schemas, of plain text, or an ordinary conversation."""
    tools, schemas = shares
    roll = rng.random()
    if roll < PLAIN_TEXT_SHARE:
        return encoding.encode_plain(tokenizer, rng)
    if roll < PLAIN_TEXT_SHARE + tools:
        drawn = draw_tool_conversation(rng)
        return encoding.encode_conversation(tokenizer, drawn.messages, drawn.tools)
    if roll < PLAIN_TEXT_SHARE + tools + schemas:
        return encoding.encode_schema_question(tokenizer, draw_schema_question(rng))
    return encoding.encode_conversation(tokenizer, draw_conversation(rng)[0])


def make_shard(args: tuple[str, int, int, int, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Draws and encodes one shard, which depends only on the seed and the shard's number.

    Returns all examples concatenated (ids, said) and the length of each, because three objects
    cross the process boundary faster than thousands.
"""
    tokenizer_path, seed, shard, n_conversations, shares = args
    tokenizer = Tokenizer.from_file(tokenizer_path)
    rng = random.Random(f"shard/{seed}/{shard}")
    all_ids, all_said, lengths = [], [], []
    for _ in range(n_conversations):
        ids, said = draw_example(tokenizer, rng, shares)
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
    if args.init:
        return LlamaForCausalLM.from_pretrained(args.init, dtype=torch.float32)
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
    shares = (args.tools_share, args.schema_share)
    jobs = ((str(tokenizer_path), args.seed, n, args.shard_conversations, shares)
            for n in range(args.shards))
    rng = random.Random(f"order/{args.seed}")
    step, tokens, started, pending = 0, 0, time.time(), []
    with contextlib.ExitStack() as stack:
        if args.processes:
            pool = get_context("spawn").Pool(args.processes, os.nice, (10,))
            shards = stack.enter_context(pool).imap(make_shard, jobs)
        else:
            shards = map(make_shard, jobs)
        for shard in shards:
            for batch in batches_of(split_shard(shard), args.batch_tokens, rng):
                pending.append(batch)
                if len(pending) < args.accumulate:
                    continue
                said_total = sum(int(said[:, 1:].sum()) for _, said in pending)
                step_loss = torch.zeros((), device=device)
                for ids, said in pending:
                    tokens += ids.numel()
                    ids, said = ids.to(device), said.to(device)
                    with torch.autocast(device.type, torch.bfloat16, enabled=args.bfloat16):
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
                    return model
    raise SystemExit(f"the data ended at step {step}: raise --shards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--init", type=Path, help="fine-tune this model, with its tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
    parser.add_argument("--intermediate", type=int, default=704)
    parser.add_argument("--steps", type=int, default=3800)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--batch-tokens", type=int, default=65536, help="in one forward pass")
    parser.add_argument("--accumulate", type=int, default=2, help="forward passes to a step")
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction,
                        default=torch.cuda.is_available(), help="autocast; on by default on a GPU")
    parser.add_argument("--tools-share", type=float, default=TOOLS_SHARE, help="of the examples")
    parser.add_argument("--schema-share", type=float, default=SCHEMA_SHARE, help="of the examples")
    parser.add_argument("--shards", type=int, default=700)
    parser.add_argument("--shard-conversations", type=int, default=8000)
    parser.add_argument("--processes", type=int, default=5,
                        help="that draw the data; 0: this one does, for a small CPU")
    parser.add_argument("--save-every", type=int, default=1000, help="steps")
    parser.add_argument("--log-every", type=int, default=100, help="steps")
    parser.add_argument("--evaluate", type=int, default=3000, help="held-out conversations")
    parser.add_argument("--evaluate-tools", type=int, default=300,
                        help="held-out cases of each row of tools and schemas")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.init:
        tokenizer = Tokenizer.from_file(str(args.init / "tokenizer.json"))
    else:
        tokenizer = encoding.train_tokenizer(args.seed, 20_000)
    encoding.save_tokenizer(tokenizer, args.out)
    train(args, args.out / "tokenizer.json")
    import evaluate
    report = evaluate.evaluate(args.out, args.evaluate, args.evaluate_tools)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
    evaluate.print_report(report)


if __name__ == "__main__":
    main()
