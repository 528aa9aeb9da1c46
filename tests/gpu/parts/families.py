"""Shapes of this year's models, and of Mixtral, with random weights, at one stage: batch 1, 64 and 256 requests at a time, prefill, each
beside the time in which the GPU can read the weights, or multiply by them. gpt-oss-20b once more with experts expanded to 16 bits.
And the memory of weights and steps, beside what `stagecoach plan` expects."""
import json
import subprocess

import client
from checks import Check
from results import at_most
from servers import Spec

from parts import speed
from parts.experts import PREFILL, at_a_time

# Active parameters of a token, as published. The layers' 16-bit weights take two bytes each.
ACTIVE = {"gpt-oss-20b": 3.6e9, "gpt-oss-120b": 5.1e9, "qwen3.6-27b": 27e9, "qwen3.6-35b-a3b": 3e9, "gemma-4-31b": 31e9,
          "glm-4.7-flash": 3e9, "mixtral-8x7b": 12.9e9}
# A model whose MXFP4 experts fit in 16 bits, too, and the environment of workers that expand them.
EXPANDABLE, EXPANDED = "gpt-oss-20b", (("STAGECOACH_PACKED_EXPERTS", "off"),)
COPY_BYTES_PER_S, FLOPS = 4.3e12, 790e12  # of an H200
LOADS = {"decode/batch_1": speed.ITL, "server/64_at_a_time/128_256": at_a_time(64, 192),
         "server/256_at_a_time/128_256": at_a_time(256, 512), "prefill/32x4096": PREFILL}
LONG_ANSWERS = speed.Load(one="", several="", invariant="", bench=speed.bench("throughput", 512, 1000, 1000), value=speed.output_rate,
                          unit="output tok/s", goals={}, peers={}, small=speed.bench("throughput", 4, 16, 16))
MORE_LOADS = {"gpt-oss-20b": {"throughput/512x1000_1000": LONG_ANSWERS}, "gpt-oss-120b": {"throughput/512x1000_1000": LONG_ANSWERS}}
# Their experts' weights are read once for all sequences, so more of them at a time give more tokens.
FLAGS = {"gpt-oss-20b": ("--max-sequences", "512"), "gpt-oss-120b": ("--max-sequences", "512")}
# TensorRT-LLM 1.0, one H200, its own page.
PEERS = {"gpt-oss-20b": 13_858, "gpt-oss-120b": 6_868}


def loads_of(model):
    return LOADS | MORE_LOADS.get(model, {})


def bound(model, name):
    """(what it is, value) of the GPU's own limit, or of a peer; None where the limit depends on the experts that a batch needs."""
    if name.startswith("decode"):
        return "to read the active weights in 16 bits at 4.3 TB/s", 2 * ACTIVE[model] / COPY_BYTES_PER_S * 1e3
    if name.startswith("prefill"):
        return "products alone at 790 TFLOP/s", FLOPS / (2 * ACTIVE[model])
    if name.startswith("throughput"):
        return "TensorRT-LLM 1.0, H200, 1,000/1,000, its own page", PEERS[model]
    return None, None


def run_load(server, results, name, prefix, smoke):
    load = loads_of(server.spec.model)[name]
    report, watched, command = speed.measure(server, load, smoke)
    reference, value = bound(server.spec.model, name)
    results.add(f"{server.spec.model}/{prefix}{name}", load.value(report), load.unit, command, reference=reference,
                reference_value=value, itl_ms=report["itl_ms"], ttft_ms=report["ttft_ms"], **watched)


def run_start(server, results, prefix):
    results.add(f"{server.spec.model}/{prefix}ready_after_s", server.ready_after_s, "s", f"{server.command}; random weights")


def planned_bytes(server):
    """What `plan` expects of weights and steps, for the flags of this server."""
    given = dict(zip(server.spec.flags, server.spec.flags[1:]))
    same = {"--context": given.get("--max-model-len"), "--max-sequences": given.get("--max-sequences")}
    command = [server.bin_dir / "stagecoach", "plan", server.model_dir, "--json", "--prefix-cache", server.spec.prefix_cache,
               *(word for flag, value in same.items() if value for word in (flag, value))]
    plan = json.loads(subprocess.run(command, env=server.env, capture_output=True, text=True, check=True).stdout)
    return sum(stage["weights_bytes"] + stage["step_bytes"] for stage in plan["stages"])


def run_memory(server, results, prefix):
    page = client.metrics(server)
    used = sum(sum(client.by_stage(page, "stagecoach_stage_memory_bytes", kind=kind).values()) for kind in ("weights", "scratch"))
    planned = planned_bytes(server)
    results.add(f"{server.spec.model}/{prefix}memory_off_plan", abs(used / planned - 1),
                f"of the {planned / 1e9:.2f} GB of weights and steps that plan expects; {used / 1e9:.2f} are used", server.command,
                goal=at_most(0.02))


def checks(options):
    if 1 not in options.stages:
        return []
    found = []
    ways = [*((model, (), "") for model in ACTIVE), (EXPANDABLE, EXPANDED, "expanded/")]
    for model, env, prefix in ways:
        flags = ("--load-format", "dummy", "--max-model-len", options.small(16384, 256), *FLAGS.get(model, ()))
        spec = Spec(model, 1, options.flags(*flags), env)
        found.append(Check(f"families/{model}/{prefix}start", spec, limit_s=180, run=lambda server, results, prefix=prefix:
                           run_start(server, results, prefix)))
        if options.device == "cuda":  # plan is about GPUs
            found.append(Check(f"families/{model}/{prefix}memory", spec, limit_s=30, run=lambda server, results, prefix=prefix:
                               run_memory(server, results, prefix)))
        found += [Check(f"families/{model}/{prefix}{name}", spec, limit_s=240,
                        run=lambda server, results, name=name, prefix=prefix:
                        run_load(server, results, name, prefix, options.smoke)) for name in loads_of(model)]
    return found


def summarize(options, results):
    pass
