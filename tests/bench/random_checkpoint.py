#!/usr/bin/env python3
"""Writes a sharded checkpoint of a large shape with random weights, to measure loading and memory use.

usage: random_checkpoint.py LIKE OUT [--shape NAME] [--set KEY=VALUE]... [--shards 12] [--jobs 8] [--config-only]
LIKE is a small safetensors model of the same architecture. Its tokenizer and tensor names are kept; its config with the
changes of --set gives the shapes. --shape names a predefined list of such changes. --config-only writes no weights,
which is enough for `serve --load-format dummy`.
"""
import argparse
import array
import functools
import json
import math
import multiprocessing
import pathlib
import random
import shutil
import struct
import zlib

SHAPES = {
    "gemma2-27b": dict(hidden_size=4608, num_hidden_layers=46, num_attention_heads=32, num_key_value_heads=16, head_dim=128,
                       intermediate_size=36864, vocab_size=256000, query_pre_attn_scalar=144, sliding_window=4096,
                       attn_logit_softcapping=50.0, final_logit_softcapping=30.0, max_position_embeddings=8192),
    "mistral-7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
                       intermediate_size=14336, vocab_size=32768, sliding_window=None, max_position_embeddings=32768,
                       rope_theta=1000000.0),
    "mixtral-8x7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
                         intermediate_size=14336, num_local_experts=8, num_experts_per_tok=2, vocab_size=32000,
                         max_position_embeddings=32768),
    "qwen3-30b-a3b": dict(hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
                          intermediate_size=6144, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
                          norm_topk_prob=True, mlp_only_layers=[], vocab_size=151936, max_position_embeddings=40960,
                          rope_theta=1000000.0, tie_word_embeddings=False),
    # The layers of Qwen3.5 with few of them, for CPUs.
    "qwen3.5-8-layers": dict(hidden_size=1024, num_hidden_layers=8, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 2,
                             num_attention_heads=8, num_key_value_heads=2, head_dim=256, intermediate_size=3584,
                             linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
                             linear_value_head_dim=128, vocab_size=32768, max_position_embeddings=32768),
    "opt-125m": dict(hidden_size=768, word_embed_proj_dim=768, num_hidden_layers=12, num_attention_heads=12, ffn_dim=3072,
                     vocab_size=50272, max_position_embeddings=2048),
    "opt-6.7b": dict(hidden_size=4096, word_embed_proj_dim=4096, num_hidden_layers=32, num_attention_heads=32, ffn_dim=16384,
                     vocab_size=50272, max_position_embeddings=2048),
    "opt-13b": dict(hidden_size=5120, word_embed_proj_dim=5120, num_hidden_layers=40, num_attention_heads=40, ffn_dim=20480,
                    vocab_size=50272, max_position_embeddings=2048),
}


def shape_of(name, config):
    """A tensor's shape, rows first; found by the end of its name."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or hidden // heads
    kind = name.rsplit(".", 2)[-2]
    matrices = dict(embed_tokens=(config["vocab_size"], hidden), lm_head=(config["vocab_size"], hidden),
                    q_proj=(heads * head, hidden), k_proj=(kv_heads * head, hidden), v_proj=(kv_heads * head, hidden),
                    o_proj=(hidden, heads * head), gate_proj=(inner, hidden), up_proj=(inner, hidden), down_proj=(hidden, inner),
                    q_norm=(head,), k_norm=(head,))
    if kind in matrices:
        return matrices[kind]
    if kind.endswith("norm"):
        return (hidden,)
    raise SystemExit(f"{name}: no shape is known for it")


def tensor_names(folder, config):
    """Names of all tensors for config's number of layers, in layer order."""
    names = set()
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            names |= set(json.loads(file.read(size)))
    names.discard("__metadata__")
    prefix = "model.layers.0."
    of_layer = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    layers = [f"model.layers.{i}.{name}" for i in range(config["num_hidden_layers"]) for name in of_layer]
    return ["model.embed_tokens.weight", *layers, *sorted(n for n in names if ".layers." not in n and "embed_tokens" not in n)]


@functools.cache
def noise(spread=0.02):
    """About 4 MiB of bfloat16 values with this standard deviation, without numpy, which bare machines lack. The number
    of values is a prime, so that the rows of a matrix do not repeat."""
    generator = random.Random(1)
    values = array.array("f", (generator.gauss(0, spread) for _ in range((1 << 21) - 9))).tobytes()
    block = bytearray(len(values) // 2)
    block[0::2], block[1::2] = values[2::4], values[3::4]
    return bytes(block)


def noise_of(name, size, block):
    """`size` bytes of noise in pieces. The name decides where in the block they begin."""
    start = zlib.crc32(name.encode()) % (len(block) // 2) * 2
    while size > 0:
        piece = block[start : start + size]
        yield piece
        size -= len(piece)
        start = 0


def write_shard(work):
    path, tensors, is_gemma = work
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            size = 2 * math.prod(shape)
            if len(shape) == 1:  # a norm weight that changes nothing
                file.write((b"\0\0" if is_gemma else b"\x80\x3f") * shape[0])
                continue
            file.writelines(noise_of(name, size, noise()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("like", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--config", type=pathlib.Path, metavar="FILE", help="in place of LIKE's config.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="VALUE is JSON")
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--config-only", action="store_true", help="no weights")
    args = parser.parse_args()

    config = json.loads((args.config or args.like / "config.json").read_text())
    config.get("text_config", config).update(SHAPES.get(args.shape, {}))
    config |= {key: json.loads(value) for key, value in (item.split("=", 1) for item in args.set)}
    config["torch_dtype"] = "bfloat16"
    config.pop("dtype", None)  # a newer name of torch_dtype
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.like.iterdir():
        if path.suffix != ".safetensors" and path.name not in ("config.json", "golden.json", "model.safetensors.index.json"):
            shutil.copy(path, args.out)
    (args.out / "config.json").write_text(json.dumps(config, indent=1))

    if args.config_only:
        return
    tensors = [(name, shape_of(name, config)) for name in tensor_names(args.like, config)]
    if config.get("tie_word_embeddings"):
        tensors = [tensor for tensor in tensors if tensor[0] != "lm_head.weight"]
    total = sum(2 * math.prod(shape) for _, shape in tensors)
    shards, filled = [[] for _ in range(args.shards)], 0
    for tensor in tensors:
        shards[min(filled * args.shards // total, args.shards - 1)].append(tensor)
        filled += 2 * math.prod(tensor[1])
    names = [f"model-{i + 1:05}-of-{args.shards:05}.safetensors" for i in range(args.shards)]
    is_gemma = config["model_type"].startswith("gemma")
    noise()  # computed once here; the pool's processes inherit it
    with multiprocessing.get_context("fork").Pool(min(args.jobs, args.shards)) as pool:
        pool.map(write_shard, [(args.out / name, shard, is_gemma) for name, shard in zip(names, shards)], chunksize=1)
    index = {name: file for file, shard in zip(names, shards) for name, _ in shard}
    (args.out / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=total), weight_map=index)))
    print(f"{args.out}: {len(tensors)} tensors, {total / 1e9:.1f} GB in {args.shards} files")


if __name__ == "__main__":
    main()
