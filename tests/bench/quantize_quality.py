#!/usr/bin/env python3
"""How far quantized copies of a checkpoint are from it: KL divergence of the next token, beside the same format's reference.

usage: quantize_quality.py MODEL [--tokens 2000] [--formats fp8 int8 int4] [--out FILE.jsonl]
       (needs torch, transformers 5.23 and compressed-tensors 0.20, in an environment of its own)

`stagecoach quantize` writes a copy in each format, and transformers reads it. The reference quantizes the same matrices in
the same groups with compressed-tensors' own round to nearest (scales from least and largest value). All three models compute
in float32 on the text of README.md and docs/. A value is the mean over the tokens of KL(model || copy) in nats; its ratio is
to the reference's value. `noise` is the standard error of the mean difference of the two (noise_of).
"""
import argparse
import datetime
import pathlib
import subprocess
import sys
import tempfile

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "gpu"))

from machine import commit_of, machine_of  # noqa: E402
from results import emit  # noqa: E402

CHUNK = 200  # rows of logits at a time
NOISE_BLOCK = 100  # tokens whose differences count as one


def text_ids(model, n):
    text = "\n".join(path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
    return AutoTokenizer.from_pretrained(model)(text, return_tensors="pt").input_ids[:, :n]


def logits_of(model, ids, cache=None):
    with torch.inference_mode():
        return model(ids, past_key_values=cache).logits[0]


def weights_of(logits):
    """exp(logits - shift), and the logarithm of their sum plus the shift, in float64: in float32, a sum over 262,144 tokens
    is off by 1e-4."""
    shift = logits.amax(-1, keepdim=True)
    weights = (logits - shift).exp()
    return weights, weights.sum(-1, dtype=torch.float64).log() + shift[:, 0]


def divergence(base, other):
    """KL(base || other) of each position."""
    parts = []
    for p, q in zip(base.split(CHUNK), other.split(CHUNK), strict=True):
        weights, log_sum = weights_of(p)
        mean = weights.mul_(p - q).sum(-1, dtype=torch.float64) / (log_sum - p.amax(-1)).exp()
        parts.append(mean - log_sum + weights_of(q)[1])
    return torch.cat(parts)


def noise_of(difference):
    """The standard error of the mean of `difference` by position. Neighbours attend to the same rounded keys and values, so
    their differences are not independent: the error comes from the means of blocks."""
    n_blocks = max(2, len(difference) // NOISE_BLOCK)
    means = difference[: len(difference) // n_blocks * n_blocks].view(n_blocks, -1).mean(-1)
    return means.std().item() / n_blocks**0.5


def emit_divergence(out, name, ours, theirs, reference, command, **more):
    """Emits a result line of divergences by position: ours, and those of `reference`."""
    noise = noise_of(ours - theirs)
    value, other = ours.mean().item(), theirs.mean().item()
    emit({"name": name, "value": round(value, 6), "unit": f"nats, mean of {len(ours)} tokens", "reference": reference,
          "reference_value": round(other, 6), "ratio": round(value / other, 4) if other else None, "noise": round(noise, 6), **more,
          "machine": machine_of("cpu", []), "date": datetime.date.today().isoformat(), "commit": commit_of(),
          "command": command}, out)


def reference(model, copy):
    """`model` with the matrices rounded that the copy has quantized, in the copy's groups."""
    rounded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for name, module in copy.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None or scheme.weights is None:
            continue
        args: QuantizationArgs = scheme.weights
        weight = rounded.get_submodule(name).weight.data
        rows, cols = weight.shape
        groups = weight.view(rows, -1, args.group_size if args.strategy == "group" else cols)
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
        scale = scale.to(torch.bfloat16).float() if args.type == "int" else scale
        weight.copy_(dequantize(quantize(weight, scale, zero, args), scale, zero, args, dtype=torch.float32))
    return rounded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--formats", nargs="+", default=["fp8", "int8", "int4"])
    parser.add_argument("--program", default=ROOT / "build/cpu/bin/stagecoach")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    ids = text_ids(args.model, args.tokens)
    base = logits_of(AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32), ids)
    command = f"tests/bench/quantize_quality.py {pathlib.Path(args.model).name} --tokens {args.tokens}"
    for form in args.formats:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([args.program, "quantize", args.model, f"{folder}/copy", "--format", form], check=True)
            copy = AutoModelForCausalLM.from_pretrained(f"{folder}/copy", dtype=torch.float32)
            ours = divergence(base, logits_of(copy, ids))
            theirs = divergence(base, logits_of(reference(args.model, copy), ids))
        emit_divergence(args.out, f"quantize/{pathlib.Path(args.model).name}/{form}/kl", ours, theirs,
                        "compressed-tensors' round to nearest", command)


if __name__ == "__main__":
    main()
