#!/usr/bin/env python3
"""Writes a .gguf file with random weights: in the form of Qwen3-30B-A3B with fewer layers and tokens in bfloat16, to measure
experts (llama-quantize makes other formats of it), or with --dense a model of 26 billion parameters in Q4_K.

usage: random_gguf.py OUT.gguf [--dense] [--layers N] [--vocab N]
"""
import argparse
import math
import pathlib
import random
import struct
import sys

from random_checkpoint import SHAPES, noise, noise_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoints"))

from gguf_file import gguf_header, padding

# Gemma-2-27B's sizes, with the layers of a Llama.
DENSE = SHAPES["gemma2-27b"] | dict(rope_theta=500000.0)
EXPERTS = SHAPES["qwen3-30b-a3b"]
Q4_K_BLOCK, Q4_K_BYTES = 256, 144
NORMAL, CONTROL, UNUSED = 1, 3, 5  # kinds of tokens


def byte_tokens():
    """GPT-2's spelling of the 256 bytes: printable ones stay, the others come from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def metadata(shape, layers, n_vocab):
    tokens = ["<|endoftext|>", *byte_tokens(), "th"]
    kinds = [CONTROL] + [NORMAL] * (len(tokens) - 1) + [UNUSED] * (n_vocab - len(tokens))
    tokens += [f"[PAD{i}]" for i in range(len(tokens), n_vocab)]
    arch = "qwen3moe" if "num_experts" in shape else "llama"
    sizes = {
        "block_count": layers, "context_length": shape["max_position_embeddings"], "embedding_length": shape["hidden_size"],
        "feed_forward_length": shape["intermediate_size"], "attention.head_count": shape["num_attention_heads"],
        "attention.head_count_kv": shape["num_key_value_heads"], "attention.key_length": shape["head_dim"],
        "attention.value_length": shape["head_dim"],
    }  # fmt: skip
    if arch == "qwen3moe":
        sizes |= {"expert_count": shape["num_experts"], "expert_used_count": shape["num_experts_per_tok"],
                  "expert_feed_forward_length": shape["moe_intermediate_size"]}
    return {
        "general.architecture": arch,
        **{f"{arch}.{key}": ("u32", value) for key, value in sizes.items()},
        f"{arch}.attention.layer_norm_rms_epsilon": ("f32", 1e-6),
        f"{arch}.rope.freq_base": ("f32", shape["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": ("i32", kinds),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": ("u32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", False),
    }


def tensor_shapes(shape, layers, n_vocab):
    hidden, head = shape["hidden_size"], shape["head_dim"]
    q, kv = shape["num_attention_heads"] * head, shape["num_key_value_heads"] * head
    of_layer = {"attn_norm": (hidden,), "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden),
                "attn_output": (hidden, q), "ffn_norm": (hidden,)}
    if "num_experts" in shape:
        n, width = shape["num_experts"], shape["moe_intermediate_size"]
        of_layer |= {"attn_q_norm": (head,), "attn_k_norm": (head,), "ffn_gate_inp": (n, hidden),
                     "ffn_gate_exps": (n, width, hidden), "ffn_up_exps": (n, width, hidden), "ffn_down_exps": (n, hidden, width)}
    else:
        width = shape["intermediate_size"]
        of_layer |= {"ffn_gate": (width, hidden), "ffn_up": (width, hidden), "ffn_down": (hidden, width)}
    ends = {"token_embd": (n_vocab, hidden), "output_norm": (hidden,), "output": (n_vocab, hidden)}
    return {f"{name}.weight": size for name, size in ends.items()} | {
        f"blk.{i}.{name}.weight": size for i in range(layers) for name, size in of_layer.items()}


def q4_k(size):
    """Blocks of random codes and scales, the same 4,096 ones again and again."""
    blocks = bytearray(random.Random(1).randbytes(4096 * Q4_K_BYTES))
    for at in range(0, len(blocks), Q4_K_BYTES):
        blocks[at:at + 4] = struct.pack("<ee", 1e-4, 1e-3)  # of the scales and of the minima
    while size > 0:
        yield bytes(blocks[:size])
        size -= len(blocks)


def data(name, kind, size):
    if "norm" in name:
        yield b"\0\0\x80\x3f" * (size // 4)  # ones, which change nothing
    elif kind == "Q4_K":
        yield from q4_k(size)
    elif "ffn_gate_inp" in name:  # float32, as in published files
        halves, words = b"".join(noise_of(name, size // 2, noise())), bytearray(size)
        words[2::4], words[3::4] = halves[0::2], halves[1::2]
        yield bytes(words)
    else:
        # Large embeddings, so that the experts of a row depend on its token.
        yield from noise_of(name, size, noise(1.0) if name == "token_embd.weight" else noise())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--layers", type=int, help="default: 4, with --dense 46")
    parser.add_argument("--vocab", type=int, default=16384)
    args = parser.parse_args()
    shape = DENSE if args.dense else EXPERTS
    layers = args.layers or (shape["num_hidden_layers"] if args.dense else 4)
    tensors = {}
    for name, size in tensor_shapes(shape, layers, args.vocab).items():
        n = math.prod(size)
        if len(size) == 1 or "ffn_gate_inp" in name:
            tensors[name] = ("F32", size, 4 * n)
        elif args.dense:
            tensors[name] = ("Q4_K", size, n // Q4_K_BLOCK * Q4_K_BYTES)
        else:
            tensors[name] = ("BF16", size, 2 * n)
    with open(args.out, "wb") as file:
        file.write(gguf_header(metadata(shape, layers, args.vocab), tensors))
        for name, (kind, _, size) in tensors.items():
            file.writelines(data(name, kind, size))
            file.write(padding(size))


if __name__ == "__main__":
    main()
