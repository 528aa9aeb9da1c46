"""Makes the tiny quantized models of tests/golden/data/quantized, and the results of transformers for them.

usage: python make_quantized.py OUT_DIR [NAME ...]     (needs what make.py needs, and compressed-tensors)

As in make.py, golden.json has the results of transformers in float32 on the CPU. The reference has plain float32
weights, scale * (code - zero), so it never quantizes activations. Models in compressed-tensors' formats are written
by that library. The other libraries need a GPU or a newer torch than their own list of packages allows together;
their layouts are written here, from their documentation.
"""
import json
import sys
import tempfile
from pathlib import Path

import make
import torch
import transformers
from safetensors.torch import load_file, save_file

FP8 = torch.float8_e4m3fn
PROMPTS = [make.PROMPTS[0], make.PROMPTS[2], make.PROMPTS[4]]


def sizes(**more):
    return {**make.sizes(2, 1), "hidden_size": 64, "intermediate_size": 160, **more}


def llama():
    return transformers.LlamaConfig(**sizes(intermediate_size=128), rope_theta=1e4, tie_word_embeddings=True)


def qwen2():
    return transformers.Qwen2Config(**sizes(), rope_theta=1e6, tie_word_embeddings=True)


def qwen3_moe():
    return transformers.Qwen3MoeConfig(
        **sizes(intermediate_size=64), num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        tie_word_embeddings=True,
    )  # fmt: skip


def gpt_oss():
    config = make.gpt_oss()
    config.intermediate_size = 64
    return config


def deepseek():
    # A block of 128 rows of keys and values ends within a head.
    config = make.deepseek_v3()
    config.update(dict(
        hidden_size=64, intermediate_size=32, moe_intermediate_size=32, q_lora_rank=32, n_routed_experts=4,
        num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=2, tie_word_embeddings=True,
    ))  # fmt: skip
    return config


def mistral4():
    config = make.mistral4()
    config.update(dict(
        intermediate_size=32, moe_intermediate_size=32, q_lora_rank=32, n_routed_experts=4, num_experts_per_tok=2,
        first_k_dense_replace=0,
    ))  # fmt: skip
    return config


def pack(codes, bits):
    """Packs codes [..., n] into int32 [..., n * bits / 32], the first code in the lowest bits."""
    codes = codes.to(torch.int64).unflatten(-1, (-1, 32 // bits))
    words = (codes << (torch.arange(32 // bits) * bits)).sum(-1)
    return words.where(words < 2**31, words - 2**32).to(torch.int32)


def groups(weight, group, bits, scale_dtype, symmetric):
    """Codes [rows, cols], scales and zeros [rows, groups] of a weight, and its values."""
    rows, cols = weight.shape
    grouped = weight.reshape(rows, -1, group)
    top = 2**bits - 1
    if symmetric:
        scale = grouped.abs().amax(-1) * 2 / top
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        least, most = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
        scale = (most - least) / top
        zero = (-least / scale).round().clamp(0, top)
    scale = scale.to(scale_dtype).float()
    codes = (grouped / scale[..., None] + zero[..., None]).round().clamp(0, top)
    values = scale[..., None] * (codes - zero[..., None])
    return codes.reshape(rows, cols), scale, zero, values.reshape(rows, cols)


def gptq(bits, group, act_order, symmetric, form="gptq"):
    def quantize(name, weight, random):
        cols = weight.shape[1]
        order = torch.randperm(cols, generator=random) if act_order else torch.arange(cols)
        codes, scale, zero, values = groups(weight[:, order], group, bits, torch.float16, symmetric)
        back = torch.argsort(order)
        g_idx = torch.arange(cols)[back] // group
        stored_zero = zero - 1 if form == "gptq" else zero
        stem = name.removesuffix("weight")
        return values[:, back], {
            stem + "qweight": pack(codes[:, back].contiguous(), bits).T,
            stem + "qzeros": pack(stored_zero.T.to(torch.int64) & (2**bits - 1), bits),
            stem + "scales": scale.T.half(),
            stem + "g_idx": g_idx.to(torch.int32),
        }

    config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=act_order, sym=symmetric,
                  checkpoint_format=form)  # fmt: skip
    return quantize, config


def awq(group):
    def quantize(name, weight, _):
        codes, scale, zero, values = groups(weight, group, 4, torch.float16, symmetric=False)
        stem = name.removesuffix("weight")

        def pack_rows(lines):
            order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
            return pack(lines.unflatten(-1, (-1, 8))[..., order].flatten(-2), 4)

        tensors = {"qweight": pack_rows(codes.T), "qzeros": pack_rows(zero.T), "scales": scale.T.half()}
        return values, {stem + key: tensor for key, tensor in tensors.items()}

    return quantize, dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")


def fp8(block, spelling, static=False):
    """block: rows and columns that share a scale; None: all."""

    def quantize(name, weight, _):
        rows, cols = weight.shape
        block_rows, block_cols = block or (rows, cols)
        row_blocks, col_blocks = -(-rows // block_rows), -(-cols // block_cols)
        scale = torch.empty(row_blocks, col_blocks)
        for i in range(row_blocks):
            for j in range(col_blocks):
                part = weight[i * block_rows : (i + 1) * block_rows, j * block_cols : (j + 1) * block_cols]
                scale[i, j] = part.abs().max() / 448
        every = scale.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_cols, 1)[:, :cols]
        codes = (weight / every).to(FP8)
        stem = name.removesuffix("weight")
        tensors = {name: codes, stem + spelling: scale if block else scale.reshape(())}
        if static:
            tensors[stem + "input_scale"] = torch.tensor(0.5)
        return codes.float() * every, tensors

    config = dict(quant_method="fp8", activation_scheme="static" if static else "dynamic")
    if block:
        config |= dict(fmt="e4m3", weight_block_size=list(block))
    return quantize, config


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(weight):
    """Codes [..., cols / 32, 16], two a byte, exponents [..., cols / 32] and values of a weight [..., cols]."""
    grouped = weight.unflatten(-1, (-1, 32))
    exponent = (grouped.abs().amax(-1) / 6).log2().ceil()
    scaled = grouped / 2 ** exponent[..., None]
    code = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    values = (E2M1[code] * scaled.sign() * 2 ** exponent[..., None]).flatten(-2)
    code = code + 8 * (scaled < 0)
    return (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8), (exponent + 127).to(torch.uint8), values


def nvfp4(weight):
    """Codes [rows, cols / 2], two a byte, scales [rows, cols / 16], the matrix's scale and values of a weight."""
    rows, cols = weight.shape
    grouped = weight.reshape(rows, -1, 16)
    matrix_scale = weight.abs().max() / (6 * 448)
    scale = (grouped.abs().amax(-1) / 6 / matrix_scale).to(FP8)
    every = (scale.float() * matrix_scale)[..., None]
    code = ((grouped / every).abs()[..., None] - E2M1).abs().argmin(-1)
    values = (E2M1[code] * grouped.sign() * every).reshape(rows, cols)
    code = (code + 8 * (grouped < 0)).reshape(rows, cols)
    return (code[:, ::2] + 16 * code[:, 1::2]).to(torch.uint8), scale, matrix_scale, values


def modelopt():
    """As ModelOpt's MIXED_PRECISION: attention in FP8, the rest in NVFP4, scales of activations and of a KV cache."""

    def quantize(name, weight, _):
        stem = name.removesuffix("weight")
        tensors = {stem + "input_scale": torch.tensor(0.5)}
        if "self_attn" in name:
            scale = weight.abs().max() / 448
            codes = (weight / scale).to(FP8)
            values = codes.float() * scale
            tensors |= {name: codes, stem + "weight_scale": scale}
            if "k_proj" in name or "v_proj" in name:
                tensors[f"{stem}{stem[-7]}_scale"] = torch.tensor(0.25)
        else:
            codes, scale, matrix_scale, values = nvfp4(weight)
            tensors |= {name: codes, stem + "weight_scale": scale, stem + "weight_scale_2": matrix_scale}
        return values, tensors

    return quantize, dict(quant_method="modelopt", quant_algo="MIXED_PRECISION", kv_cache_quant_algo="FP8")


def gpt_oss_published(folder, config, seed, scheme, excluded):
    """As OpenAI publishes it: the experts' matrices in MXFP4, with the outputs before the inputs."""
    model = random_model(config, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    values, stored = {}, {}
    for name, tensor in state.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales, dequantized = mxfp4(tensor.float().transpose(1, 2))
            stored |= {name + "_blocks": blocks.contiguous(), name + "_scales": scales}
            values[name] = dequantized.transpose(1, 2).contiguous()
        else:
            values[name], stored[name] = tensor.float(), tensor
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    set_config(folder, dict(quant_method="mxfp4", modules_to_not_convert=list(excluded)))
    reread = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    for name, tensor in values.items():
        assert torch.equal(reread[name].float(), tensor), f"transformers reads other values of {name}"
    return plain_model(config, values)


def mistral_published(folder, config, seed, scheme, excluded):
    """As Mistral publishes Small 4: the experts of a layer in one tensor of codes and one of scales, beside a vision
    tower."""
    quantize, quantization = scheme
    random_model(config, seed).to(torch.bfloat16).save_pretrained(folder)
    values, stored = quantized_tensors(load_file(folder / "model.safetensors"), quantize, excluded, random=None)
    for name in [name for name in values if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts = [quantize("weight", matrix, None) for matrix in values[name]]
        values[name] = torch.stack([dequantized for dequantized, _ in experts])
        stored[name] = torch.stack([tensors["weight"] for _, tensors in experts])
        stored[name + "_scale_inv"] = torch.stack([tensors["weight_scale_inv"] for _, tensors in experts]).view(-1, 1, 1)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    make.wrap_as_multimodal(folder, "Mistral3")
    set_config(folder, dict(quantization, modules_to_not_convert=list(excluded)))
    return plain_model(config, values)


def plain_model(config, values):
    with tempfile.TemporaryDirectory() as plain:
        config.save_pretrained(plain)
        save_file(values, Path(plain) / "model.safetensors", metadata={"format": "pt"})
        return transformers.AutoModelForCausalLM.from_pretrained(
            plain, dtype=torch.float32, attn_implementation="eager"
        ).eval()


def quantized_tensors(state, quantize, excluded, random):
    """The values of a checkpoint's tensors, and what is stored for them, when `quantize` has written the linear layers."""
    values, stored = {}, {}
    for name, tensor in state.items():
        linear = tensor.dim() == 2 and "embed" not in name and "router" not in name and ".mlp.gate." not in name
        if linear and not any(part in name for part in excluded):
            values[name], tensors = quantize(name, tensor.float(), random)
            stored |= {key: value.contiguous() for key, value in tensors.items()}
        else:
            values[name], stored[name] = tensor.float(), tensor
    return values, stored


def written_here(folder, config, seed, scheme, excluded):
    quantize, quantization = scheme
    model = random_model(config, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    values, stored = quantized_tensors(state, quantize, excluded, torch.Generator().manual_seed(seed))
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    if excluded:
        quantization = dict(quantization, modules_to_not_convert=list(excluded))
    set_config(folder, quantization)
    return plain_model(config, values)


def bounds(weight, args):
    """The least and the largest value of each group that shares a scale."""
    if args.strategy == "block":
        rows, cols = args.block_structure
        tiles = weight.unflatten(1, (-1, cols)).unflatten(0, (-1, rows))
        return tiles.amin((1, 3)), tiles.amax((1, 3))
    grouped = weight.unflatten(1, (-1, args.group_size or weight.shape[1]))
    return grouped.amin(-1), grouped.amax(-1)


def quantize_layers(model, scheme, ignored=()):
    """Quantizes the linear layers by compressed-tensors, and returns {layer: values}."""
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    quantization = QuantizationConfig(
        config_groups={"group_0": dict(targets=["Linear"], weights=scheme)}, ignore=["lm_head", *ignored]
    )
    apply_quantization_config(model, quantization)
    values = {}
    for name, module in model.named_modules():
        if getattr(module, "quantization_scheme", None) is None:
            continue
        args, weight = module.quantization_scheme.weights, module.weight.data
        matrix_scale = None
        if args.strategy == "tensor_group":
            matrix_scale = generate_gparam(weight.amin().reshape(1), weight.amax().reshape(1))
            module.weight_global_scale.data.copy_(matrix_scale)
        scale, zero = calculate_qparams(*bounds(weight, args), args, global_scale=matrix_scale)
        if matrix_scale is None:
            scale = scale.bfloat16().float()
        module.weight_scale.data.copy_(scale)
        if getattr(module, "weight_zero_point", None) is not None:
            module.weight_zero_point.data.copy_(zero)
        values[name] = fake_quantize(weight, scale, zero, args, global_scale=matrix_scale)
    return values


def save_compressed(model, folder):
    """Writes a model after quantize_layers(), without a tied head."""
    from compressed_tensors.compressors import ModelCompressor

    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    state = {
        name: tensor.bfloat16() if tensor.dtype == torch.float32 and "global_scale" not in name else tensor
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    compressor.update_config(folder)


def compressed(folder, config, seed, scheme, ignored):
    """Written by compressed-tensors."""
    model, plain = random_model(config, seed), random_model(config, seed)
    for name, values in quantize_layers(model, scheme, ignored).items():
        plain.get_submodule(name).weight.data.copy_(values)
    save_compressed(model, folder)
    set_config(folder, None)
    return plain


def int_args(bits, symmetric, group=None):
    strategy = dict(strategy="group", group_size=group) if group else dict(strategy="channel")
    return dict(num_bits=bits, type="int", symmetric=symmetric, **strategy)


def nvfp4_args():
    return dict(
        num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16, scale_dtype=FP8, zp_dtype=FP8
    )


def mxfp4_args():
    return dict(
        num_bits=4, type="float", symmetric=True, strategy="group", group_size=32, scale_dtype=torch.uint8,
        zp_dtype=torch.uint8,
    )  # fmt: skip


# name: (how it is written, configuration, scheme, layers left in bfloat16)
MODELS = {
    "fp8-block": (written_here, qwen2, fp8((128, 128), "weight_scale_inv"), ()),
    "fp8-tensor": (written_here, llama, fp8(None, "weight_scale", static=True), ("layers.1.self_attn.v_proj",)),
    "fp8-channel": (compressed, llama, dict(num_bits=8, type="float", strategy="channel"), ()),
    "gptq-4-act-order": (written_here, llama, gptq(4, 32, act_order=True, symmetric=False), ()),
    "gptq-8": (written_here, llama, gptq(8, 64, act_order=False, symmetric=True, form="gptq_v2"), ("layers.0.self_attn.v_proj",)),
    "awq": (written_here, qwen3_moe, awq(32), ()),
    "int4-symmetric": (compressed, llama, int_args(4, True, 32), ("re:.*layers.2.self_attn.*",)),
    "int4-zeros": (compressed, qwen2, int_args(4, False, 32), ()),
    "int8-channel": (compressed, llama, int_args(8, True), ()),
    "mxfp4": (gpt_oss_published, gpt_oss, None, ("model.layers.*.self_attn", "model.layers.*.mlp.router")),
    "nvfp4": (compressed, qwen2, nvfp4_args(), ("re:.*layers.2.self_attn.*",)),
    "modelopt": (written_here, qwen3_moe, modelopt(), ("layers.1.self_attn.o_proj",)),
    "fp8-latent": (written_here, deepseek, fp8((128, 128), "weight_scale_inv"), ()),
    "fp8-experts": (mistral_published, mistral4, fp8(None, "weight_scale_inv"), ("lm_head",)),
    "mxfp4-linear": (compressed, qwen2, mxfp4_args(), ("re:.*layers.2.self_attn.*",)),
}  # fmt: skip
SEEDS = {"fp8-latent": 310}  # not 300 plus the place in the list


def random_model(config, seed):
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    make.randomise(model, torch.bfloat16, seed)
    return model


def set_config(folder, quantization):
    """The keys and values of the cache are float32, as in the reference; weights that are not quantized stay in
    bfloat16."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = "float32"
    if quantization:
        config["quantization_config"] = quantization
    path.write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:] or list(MODELS):
        write, make_config, scheme, excluded = MODELS[name]
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        model = write(folder, make_config(), SEEDS.get(name, 300 + list(MODELS).index(name)), scheme, excluded)
        tokenizer = make.make_tokenizer()
        tokenizer.save_pretrained(folder)
        cases = [make.run(model, tokenizer, text) for text in PROMPTS]
        golden = dict(model=name, dtype="float32", cases=cases)
        (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False))
        tokens = {token for case in cases for token in case["greedy_ids"]}
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {len(tokens)} different tokens, {size / 1000:.0f} KB", flush=True)


if __name__ == "__main__":
    main()
