"""Mistral-7B's shape at one stage with its KV cache in 16 bits and with --kv-dtype fp8, in one run: KV tokens, 256 long answers at
a time, batch 1, one long prompt. And golden models with --kv-dtype fp8: the same tokens at 2 and 4 stages as at one."""
import dataclasses

from checks import Check
from results import at_least, at_most
from servers import Spec

from parts import speed, tokens

MODEL, NAME = "mistral-7b", "fp8_kv/mistral_7b_v0.3"
# With sliding windows, sinks, K as values, all layers alike.
GOLDEN = ("mistral", "gemma2", "gpt-oss", "gemma4", "llama3")


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    load: speed.Load  # gives bench, value and unit
    goal: object  # of the ratio to 16 bits


LONG_ANSWERS = speed.Load(one="", several="", invariant="", bench=speed.bench("throughput", 256, 128, 2048, "--repeat", "2"),
                          value=speed.output_rate, unit="output tok/s", goals={}, peers={}, small=speed.bench("throughput", 4, 16, 16))
FIGURES = (Figure("throughput/256x128_2048", LONG_ANSWERS, at_least(1.35)), Figure("decode/batch_1", speed.ITL, at_most(1.05)),
           Figure("ttft/8192_tokens", speed.LONG_PROMPT, at_most(1.05)))


def add_beside(results, name, value, unit, command, goal, **more):
    """A value, and for FP8 its ratio to that of 16 bits."""
    usual = results.value(f"{NAME}/auto/{name}")
    results.add(f"{NAME}/fp8/{name}", value, unit, command, reference="16 bits in this run", reference_value=usual, **more)
    if usual:
        results.add(f"{NAME}/{name}/ratio", value / usual, "of 16 bits", command, goal=goal)


def run_start(server, results, kind):
    n_tokens = 16 * server.kv_blocks
    if kind == "auto":
        results.add(f"{NAME}/auto/kv_tokens", n_tokens, "tokens", server.command)
    else:
        add_beside(results, "kv_tokens", n_tokens, "tokens", server.command, at_least(1.9))


def run_figure(server, results, kind, figure, smoke):
    report, watched, command = speed.measure(server, figure.load, smoke)
    value, more = figure.load.value(report), dict(itl_ms=report["itl_ms"], ttft_ms=report["ttft_ms"], **watched)
    if kind == "auto":
        results.add(f"{NAME}/auto/{figure.name}", value, figure.load.unit, command, **more)
    else:
        add_beside(results, figure.name, value, figure.load.unit, command, figure.goal, **more)


def checks(options):
    found = []
    for kind in ("auto", "fp8") if 1 in options.stages else ():
        spec = Spec(MODEL, 1, options.flags("--load-format", "dummy", "--kv-dtype", kind))
        found.append(Check(f"fp8_kv/{kind}/start", spec, lambda server, results, kind=kind: run_start(server, results, kind), limit_s=30))
        found += [Check(f"fp8_kv/{kind}/{figure.name}", spec, limit_s=240, run=lambda server, results, kind=kind, figure=figure:
                        run_figure(server, results, kind, figure, options.smoke)) for figure in FIGURES]
    return found + tokens.checks_of(options, options.small(GOLDEN, GOLDEN[1:2]), "fp8_kv", "--kv-dtype", "fp8")


def summarize(options, results):
    pass
