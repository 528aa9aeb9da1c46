#!/usr/bin/env python3
"""Writes a .gguf file in the form of Qwen3-30B-A3B, with fewer layers and tokens and with random weights in bfloat16, to
measure experts. llama-quantize makes other formats of it.

usage: random_gguf.py OUT.gguf [--layers 4] [--vocab 16384]
"""
import argparse
import math
import pathlib
import sys

from random_checkpoint import SHAPES, noise, noise_of

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoints"))

from gguf_file import gguf_header, padding

SHAPE = SHAPES["qwen3-30b-a3b"]
NORMAL, CONTROL, UNUSED = 1, 3, 5  # kinds of tokens


def byte_tokens():
    """GPT-2's spelling of the 256 bytes: printable ones stay, the others come from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def metadata(layers, n_vocab):
    tokens = ["<|endoftext|>", *byte_tokens(), "th"]
    kinds = [CONTROL] + [NORMAL] * (len(tokens) - 1) + [UNUSED] * (n_vocab - len(tokens))
    tokens += [f"[PAD{i}]" for i in range(len(tokens), n_vocab)]
    sizes = {
        "block_count": layers, "context_length": SHAPE["max_position_embeddings"], "embedding_length": SHAPE["hidden_size"],
        "feed_forward_length": SHAPE["intermediate_size"], "attention.head_count": SHAPE["num_attention_heads"],
        "attention.head_count_kv": SHAPE["num_key_value_heads"], "attention.key_length": SHAPE["head_dim"],
        "attention.value_length": SHAPE["head_dim"], "expert_count": SHAPE["num_experts"],
        "expert_used_count": SHAPE["num_experts_per_tok"], "expert_feed_forward_length": SHAPE["moe_intermediate_size"],
    }  # fmt: skip
    return {
        "general.architecture": "qwen3moe",
        **{f"qwen3moe.{key}": ("u32", value) for key, value in sizes.items()},
        "qwen3moe.attention.layer_norm_rms_epsilon": ("f32", 1e-6),
        "qwen3moe.rope.freq_base": ("f32", SHAPE["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": ("i32", kinds),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": ("u32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", False),
    }


def shapes(layers, n_vocab):
    hidden, head = SHAPE["hidden_size"], SHAPE["head_dim"]
    q, kv = SHAPE["num_attention_heads"] * head, SHAPE["num_key_value_heads"] * head
    n, width = SHAPE["num_experts"], SHAPE["moe_intermediate_size"]
    of_layer = {
        "attn_norm": (hidden,), "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden), "attn_q_norm": (head,),
        "attn_k_norm": (head,), "attn_output": (hidden, q), "ffn_norm": (hidden,), "ffn_gate_inp": (n, hidden),
        "ffn_gate_exps": (n, width, hidden), "ffn_up_exps": (n, width, hidden), "ffn_down_exps": (n, hidden, width),
    }  # fmt: skip
    ends = {"token_embd": (n_vocab, hidden), "output_norm": (hidden,), "output": (n_vocab, hidden)}
    return {f"{name}.weight": shape for name, shape in ends.items()} | {
        f"blk.{i}.{name}.weight": shape for i in range(layers) for name, shape in of_layer.items()}


def data(name, size):
    if "norm" in name:
        yield b"\0\0\x80\x3f" * (size // 4)  # ones, which change nothing
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
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=16384)
    args = parser.parse_args()
    tensors = {}
    for name, shape in shapes(args.layers, args.vocab).items():
        is_float = len(shape) == 1 or "ffn_gate_inp" in name
        tensors[name] = ("F32" if is_float else "BF16", shape, math.prod(shape) * (4 if is_float else 2))
    with open(args.out, "wb") as file:
        file.write(gguf_header(metadata(args.layers, args.vocab), tensors))
        for name, (_, _, size) in tensors.items():
            file.writelines(data(name, size))
            file.write(padding(size))


if __name__ == "__main__":
    main()
