#!/usr/bin/env python3
"""How far the formats of published checkpoints, computed by stagecoach on a CPU, are from the 16-bit model: KL divergence of
the next token, beside a reference that computes the same file.

usage: format_quality.py MODEL [--gguf FILE.gguf --ggml LIBRARY] [--tokens 2000] [--formats gptq-4 gguf-q4_k kv-fp8 ...]
                         [--dtype float32 | --round-inputs] [--threads 2] [--out FILE.jsonl]
       (needs what quantize_quality.py needs, and gguf, grpcio, grpcio-tools; build/cpu/bin with prompt_logits)

MODEL is a folder of Gemma 3 in bfloat16. Formats of GGUF need FILE.gguf, any .gguf of the same model, for its tokenizer, and
LIBRARY, llama.cpp's libggml-base.so, which tests/bench/build_llama_cpp.sh builds.

Each file is written with its format's own library, or from the format's definition where that library needs a GPU, by
round to nearest. It is computed twice: by stagecoach, with its weights as stored, and by transformers in float32 with the
values that the format's reference gives (compressed-tensors, gguf-py, or scale * (code - zero)). Both keep keys and values in
bfloat16, as a server does by default, or for kv-fp8, whose weights are those of MODEL, in FP8 (common/kv_fp8.h); MODEL itself,
in float32, does not. `value` and `reference_value` are the means over the tokens of KL(MODEL || each), over the whole
vocabulary, in nats. `noise` is the standard error of the mean of their differences (noise_of). `from_reference` is the mean of
KL(reference || stagecoach). stagecoach's distributions come from prompt_logits, in one process; a server that loads the same
file must give the first 256 tokens the log-probabilities that prompt_logits gives.

Rounding keys and values hides small differences: a change in the last bits of a float32 takes some of them to the next bfloat16,
and then `from_reference` is about 1e-5. So two more comparisons exist:

--dtype float32: both expand the weights to float32 and round nothing else. What `from_reference` shows then is how weights are
  read and decoded, to 1e-9.
--round-inputs: weights are as stored, both keep keys and values in float32, and the reference rounds the inputs of products as a
  CPU with AMX does (docs/kernels.md). What `from_reference` shows then is the products; where they round to bfloat16 in every
  layer, as for bfloat16 and FP8, the last bits of a float32 decide as they do in the cache. Not for GGUF, whose cache cannot be
  float32 beside quantized weights.

STAGECOACH_CPU_TARGET in the environment selects stagecoach's instruction set (kernels/cpu/cpu_target.h) and is in the rows' names.
With avx512 or less, --round-inputs rounds only the inputs of products with integers.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from quantize_quality import CHUNK, ROOT, divergence, emit_divergence, logits_of, text_ids, weights_of
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DynamicCache

sys.path += [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "cluster")]

import gguf_copy
import make_quantized
from harness import BIN_DIR, Cluster
from make_quantized import awq, fp8, gptq, int_args, modelopt, nvfp4_args
from stagecoach.v1 import inference_pb2 as pb

SERVED = 256  # tokens of the text that a server computes, too
TARGET = os.environ.get("STAGECOACH_CPU_TARGET", "")  # empty: the best instruction set of the CPU
SERVER_TOLERANCE = 1e-5  # of log-probabilities, which a server computes from the same logits in float32


class BFloat16Cache(DynamicCache):
    """Rounds keys and values to bfloat16."""

    def update(self, keys, values, *more, **named):
        return super().update(keys.bfloat16().float(), values.bfloat16().float(), *more, **named)


class Fp8Cache(DynamicCache):
    """Rounds each row of keys and values to e4m3 codes times the smallest power of two with which 448 reaches its largest."""

    def update(self, keys, values, *more, **named):
        return super().update(self.rounded(keys), self.rounded(values), *more, **named)

    @staticmethod
    def rounded(rows):
        mantissa, exponent = torch.frexp(rows.abs().amax(-1, keepdim=True))  # from 0.5 to 1; 448 is 0.875 * 2 ** 9
        scale = torch.exp2((exponent - 9 + (mantissa > 0.875)).clamp(-32, 7).float())
        return (rows / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


# The type of keys and values, if it is not that of the weights, and the reference's cache.
KV_DTYPES = {"kv-fp8": ("fp8", Fp8Cache)}


def integers(x):
    """Inputs of products with integer codes: 16-bit integers with a scale per 32 of them (kernels/cpu/quant-inl.h)."""
    blocks = x.unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 32767
    return ((blocks / scale).round() * scale).flatten(-2)


def bfloat16(x):
    """Inputs of products with codes of FP8 or bfloat16, with AMX."""
    return x.bfloat16().float() if TARGET in ("", "amx") else x


def round_inputs(model, form):
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        if name == "lm_head":  # has the type of the embeddings
            is_integer = form.startswith("gguf-")
        elif form == "modelopt-mixed":
            is_integer = "self_attn" not in name
        else:
            is_integer = "fp8" not in form and form != "bfloat16"
        rounded = integers if is_integer else bfloat16
        module.register_forward_pre_hook(lambda _, inputs, rounded=rounded: (rounded(inputs[0]),))


def with_float32_cache(model, folder):
    """`model`, in `folder`, with a config.json after which a server keeps keys and values in float32, and weights as stored."""
    if model != folder:
        for file in model.iterdir():
            (folder / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    return folder


def logits_with(model, ids, cache=None):
    """As logits_of(), with the scale of Gemma's embeddings in the checkpoint's type: 25.25 instead of the root of 640."""
    scale = model.get_input_embeddings().embed_scale
    scale.copy_(scale.bfloat16())
    return logits_of(model, ids, cache)


def plain(model, values=None):
    """The model in float32, with other values of its tensors."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if values:
        loaded.load_state_dict({name: torch.as_tensor(value) for name, value in values.items()}, strict=False)
    return loaded


def by_compressed_tensors(scheme):
    def write(args, folder):
        model = plain(args.model)
        values = make_quantized.quantize_layers(model, scheme)
        model.config.dtype = torch.bfloat16
        make_quantized.save_compressed(model, folder)
        del model
        # transformers cannot load every file that this library writes, so the values do not pass through the file.
        values = {f"{name}.weight": value for name, value in values.items()}
        return folder, plain(args.model, values), "compressed-tensors"

    return write


def by_definition(scheme):
    quantize, quantization = scheme

    def write(args, folder):
        state = load_file(args.model / "model.safetensors")
        values, stored = make_quantized.quantized_tensors(state, quantize, (), torch.Generator().manual_seed(1))
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((args.model / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
        return folder, plain(args.model, values), "scale * (code - zero)"

    return write


def by_ggml(kind):
    def write(args, folder):
        state = {name: tensor.float() for name, tensor in load_file(args.model / "model.safetensors").items()}
        n_layers, path = json.loads((args.model / "config.json").read_text())["num_hidden_layers"], folder / "copy.gguf"
        gguf_copy.write_copy(state, n_layers, args.gguf, kind, args.ggml, path)
        return path, plain(args.model, gguf_copy.read_values(state, n_layers, path)), "gguf-py"

    return write


FORMATS = {
    "bfloat16": lambda args, folder: (args.model, plain(args.model), "the same weights"),
    "kv-fp8": lambda args, folder: (args.model, plain(args.model), "the same weights"),
    "compressed-tensors-fp8-channel": by_compressed_tensors(dict(num_bits=8, type="float", strategy="channel")),
    "compressed-tensors-fp8-block": by_compressed_tensors(
        dict(num_bits=8, type="float", strategy="block", block_structure=[128, 128])),
    "compressed-tensors-int8": by_compressed_tensors(int_args(8, True)),
    "compressed-tensors-int4": by_compressed_tensors(int_args(4, True, 128)),
    "compressed-tensors-int4-zeros": by_compressed_tensors(int_args(4, False, 128)),
    "compressed-tensors-nvfp4": by_compressed_tensors(nvfp4_args()),
    "fp8-block": by_definition(fp8((128, 128), "weight_scale_inv")),
    "gptq-4": by_definition(gptq(4, 128, act_order=False, symmetric=True)),
    "gptq-4-act-order": by_definition(gptq(4, 128, act_order=True, symmetric=True)),
    "gptq-8": by_definition(gptq(8, 128, act_order=False, symmetric=True)),
    "awq": by_definition(awq(128)),
    "modelopt-mixed": by_definition(modelopt()),
    **{f"gguf-{name}": by_ggml(kind) for name, kind in gguf_copy.KINDS.items()},
}


def our_logits(model, types, ids, vocabulary, threads):
    """Yields stagecoach's logits of the next CHUNK positions. `types`: the flags of the weights' and the cache's types."""
    command = [BIN_DIR / "prompt_logits", model, *types, "--threads", str(threads)]
    with tempfile.TemporaryFile() as given, subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE) as program:
        given.write(ids.to(torch.int32).numpy().tobytes())
        given.seek(0)
        while block := program.stdout.read(CHUNK * vocabulary * 4):
            yield torch.frombuffer(bytearray(block), dtype=torch.float32).view(-1, vocabulary)
    if program.returncode:
        raise SystemExit(f"prompt_logits {model}: exit code {program.returncode}")


def served_logprobs(model, types, ids, threads):
    """The log-probabilities that a server gives the prompt's tokens, without the first."""
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=ids.tolist()), sampling=pb.SamplingParams(max_tokens=1, prompt_logprobs=0))
    flags = [*types, "--threads-per-worker", threads, "--max-model-len", len(ids) + 1]
    with Cluster(model, flags=flags) as cluster:
        messages = list(cluster.stub.Generate(request))
    return torch.tensor([position.chosen.logprob for message in messages for position in message.prompt.logprobs])


def compare(base, reference, ids, model, types, threads):
    """KL(model || stagecoach) and KL(reference || stagecoach) of each position."""
    from_base, from_reference, first = [], [], None
    for rows in our_logits(model, types, ids, base.shape[1], threads):
        here = slice(len(from_base) * CHUNK, len(from_base) * CHUNK + len(rows))
        from_base.append(divergence(base[here], rows))
        from_reference.append(divergence(reference[here], rows))
        first = rows if first is None else torch.cat([first, rows])[:SERVED]
    following = ids[1:SERVED]
    chosen = first[: len(following)].gather(1, following[:, None])[:, 0] - weights_of(first[: len(following)])[1]
    difference = (chosen - served_logprobs(model, types, ids[:SERVED], threads)).abs().max().item()
    if difference > SERVER_TOLERANCE:
        raise SystemExit(f"{model}: a server's log-probabilities differ from those of prompt_logits by {difference}")
    return torch.cat(from_base), torch.cat(from_reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--ggml", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    rounding = parser.add_mutually_exclusive_group()
    rounding.add_argument("--dtype", choices=["auto", "float32"], default="auto")
    rounding.add_argument("--round-inputs", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if any(form.startswith("gguf-") for form in args.formats) and not (args.gguf and args.ggml):
        parser.error("formats of GGUF need --gguf and --ggml")
    if args.round_inputs and any(form.startswith(("gguf-", "kv-")) for form in args.formats):
        parser.error("--round-inputs takes formats of folders only")
    torch.set_num_threads(args.threads)
    ids = text_ids(args.model, args.tokens)
    base = logits_with(plain(args.model), ids)
    command = f"tests/bench/format_quality.py {args.model.name} --tokens {args.tokens}"
    is_float32 = args.dtype == "float32"
    rounds_cache = not is_float32 and not args.round_inputs
    variant, how = "", ""
    if is_float32:
        variant, how, command = "/float32", ", nothing rounded", command + " --dtype float32"
    if args.round_inputs:
        variant, command = "/rounded-inputs", command + " --round-inputs"
        how = f", inputs rounded as with {TARGET or 'amx'}, keys and values in float32"
    if TARGET:
        variant, command = f"{variant}/{TARGET}", f"STAGECOACH_CPU_TARGET={TARGET} {command}"
    for form in args.formats:
        kv_dtype, cache = KV_DTYPES.get(form, ("auto", BFloat16Cache if rounds_cache else DynamicCache))
        types = ["--dtype", args.dtype, "--kv-dtype", kv_dtype]
        with tempfile.TemporaryDirectory() as folder:
            copy, model, values = FORMATS[form](args, pathlib.Path(folder))
            for file in args.model.glob("tokenizer*"):
                if copy.is_dir() and copy != args.model:
                    shutil.copy(file, copy)
            if args.round_inputs:
                round_inputs(model, form)
                copy = with_float32_cache(copy, pathlib.Path(folder))
            # A server with --dtype float32 does not round the scale of embeddings either.
            reference = (logits_of if is_float32 else logits_with)(model, ids, cache(config=model.config))
            del model
            ours, from_reference = compare(base, reference, ids[0], copy, types, args.threads)
        emit_divergence(args.out, f"format/{args.model.name}/{form}{variant}/kl", ours, divergence(base, reference),
                        f"transformers in float32, values of {values}{how}", command,
                        from_reference=round(from_reference.mean().item(), 6 if rounds_cache else 9))


if __name__ == "__main__":
    main()
