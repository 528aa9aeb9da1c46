"""Shapes of this year's models with random weights, at one stage: batch 1, 64 and 256 requests at a time, prefill, each
beside the time in which the GPU can read the weights, or multiply by them. gpt-oss once more with experts that stay packed."""
from checks import Check
from servers import Spec

from parts import speed
from parts.experts import PACKED, PREFILL, at_a_time

# Active parameters of a token, as published. The layers' 16-bit weights take two bytes each.
ACTIVE = {"gpt-oss-20b": 3.6e9, "gpt-oss-120b": 5.1e9, "qwen3.6-27b": 27e9, "qwen3.6-35b-a3b": 3e9}
# Models whose MXFP4 experts can stay packed. The larger one does not fit on one GPU in another way.
PACKABLE, ONLY_PACKED = {"gpt-oss-20b", "gpt-oss-120b"}, {"gpt-oss-120b"}
COPY_BYTES_PER_S, FLOPS = 4.3e12, 790e12  # of an H200
LOADS = {"decode/batch_1": speed.ITL, "server/64_at_a_time/128_256": at_a_time(64, 192),
         "server/256_at_a_time/128_256": at_a_time(256, 512), "prefill/32x4096": PREFILL}


def bound(model, name):
    """(what it is, value) of the GPU's own limit; None where it depends on the experts that a batch needs."""
    if name.startswith("decode"):
        return "to read the active weights in 16 bits at 4.3 TB/s", 2 * ACTIVE[model] / COPY_BYTES_PER_S * 1e3
    if name.startswith("prefill"):
        return "products alone at 790 TFLOP/s", FLOPS / (2 * ACTIVE[model])
    return None, None


def run_load(server, results, name, prefix, smoke):
    report, watched, command = speed.measure(server, LOADS[name], smoke)
    reference, value = bound(server.spec.model, name)
    results.add(f"{server.spec.model}/{prefix}{name}", LOADS[name].value(report), LOADS[name].unit, command, reference=reference,
                reference_value=value, itl_ms=report["itl_ms"], ttft_ms=report["ttft_ms"], **watched)


def run_start(server, results, prefix):
    results.add(f"{server.spec.model}/{prefix}ready_after_s", server.ready_after_s, "s", f"{server.command}; random weights")


def checks(options):
    if 1 not in options.stages:
        return []
    found = []
    ways = [(model, (), "") for model in ACTIVE if model not in ONLY_PACKED]
    ways += [(model, PACKED, "packed/") for model in ACTIVE if model in PACKABLE]
    for model, env, prefix in ways:
        spec = Spec(model, 1, options.flags("--load-format", "dummy", "--max-model-len", options.small(16384, 256)), env)
        found.append(Check(f"families/{model}/{prefix}start", spec, limit_s=180, run=lambda server, results, prefix=prefix:
                           run_start(server, results, prefix)))
        found += [Check(f"families/{model}/{prefix}{name}", spec, limit_s=240,
                        run=lambda server, results, name=name, prefix=prefix:
                        run_load(server, results, name, prefix, options.smoke)) for name in LOADS]
    return found


def summarize(options, results):
    pass
