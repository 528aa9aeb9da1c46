"""Qwen3-30B-A3B's shape (128 experts, 8 used), at one stage: batch 1, one long prompt, 16, 64 and 256 requests at a time,
prefill, time to ready; also with --batch-invariant, without grouped GEMMs, and with experts that stay packed."""
import dataclasses

from checks import Check
from results import at_least, at_most
from servers import Spec

from parts import speed

MODEL, NAME = "qwen3-30b-a3b", "qwen3_30b_a3b"
PEER = "vLLM 0.26.0 (Triton experts), H200, the same shape, another run"


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    load: speed.Load  # gives bench, value and unit
    goal: object
    peer: float


def at_a_time(n, requests):
    return speed.Load(one="", several="", invariant="", bench=speed.bench("serve", requests, 128, 256, "--concurrency", str(n)),
                      value=speed.output_rate, unit="output tok/s", goals={}, peers={},
                      small=speed.bench("serve", 4, 16, 16, "--concurrency", "2"))


PREFILL = speed.Load(one="", several="", invariant="", bench=speed.bench("throughput", 32, 4096, 1, "--repeat", "2", "--warmup", "1"),
                     value=speed.prompt_rate, unit="prompt tok/s", goals={}, peers={}, small=speed.bench("throughput", 4, 100, 1))
FIGURES = (
    Figure("decode/batch_1", speed.ITL, at_most(2.2), 4.11),
    Figure("server/16_at_a_time/128_256", at_a_time(16, 96), at_least(1_400), 1_320),
    Figure("server/64_at_a_time/128_256", at_a_time(64, 256), at_least(3_600), 3_580),
    Figure("server/256_at_a_time/128_256", at_a_time(256, 768), at_least(12_000), 10_538),
    Figure("prefill/32x4096", PREFILL, at_least(65_000), 56_131),
    Figure("ttft/8192_tokens", speed.LONG_PROMPT, at_most(140), 167),
)


def run_start(server, results):
    results.add(f"{NAME}/ready_after_s", server.ready_after_s, "s", f"{server.command}; random weights", goal=at_most(41))


def run_figure(server, results, figure, smoke, prefix=""):
    report, watched, command = speed.measure(server, figure.load, smoke)
    compared = dict(goal=figure.goal, reference=PEER, reference_value=figure.peer)
    if prefix:
        compared = dict(reference="the standard way of this run", reference_value=results.value(f"{NAME}/{figure.name}"))
    results.add(f"{NAME}/{prefix}{figure.name}", figure.load.value(report), figure.load.unit, command, itl_ms=report["itl_ms"],
                ttft_ms=report["ttft_ms"], **compared, **watched)


def checks(options):
    if 1 not in options.stages:
        return []
    found = []
    not_grouped = (("STAGECOACH_GROUPED_GEMM", "off"),)
    for flags, env, prefix, figures in (((), (), "", FIGURES), (("--batch-invariant",), (), "batch_invariant/", FIGURES),
                                        ((), not_grouped, "not_grouped/", FIGURES[:2]),
                                        (("--quantize", "int4"), (), "packed_int4/", FIGURES),
                                        (("--quantize", "fp8"), (), "packed_fp8/", FIGURES)):
        spec = Spec(MODEL, 1, options.flags("--load-format", "dummy", "--max-model-len", options.small(16384, 256), *flags), env)
        part = f"experts/{prefix}"
        if not prefix:
            found.append(Check(f"{part}start", spec, run_start, limit_s=60))
        found += [Check(f"{part}{figure.name}", spec, limit_s=240, run=lambda server, results, figure=figure, prefix=prefix:
                        run_figure(server, results, figure, options.smoke, prefix)) for figure in figures]
    return found


def summarize(options, results):
    pass
