"""Mistral-7B's shape at each number of stages: batch 1, one long prompt, bursts, a steady 64 concurrent requests,
prefill, KV cache size and time to ready; also --batch-invariant at one stage. Each load also records the stages' shares
of time and the steps whose metadata arrived early."""
import dataclasses
import typing

import client
from checks import Check, of_stages
from results import NO_ONE_STAGE, at_least, at_most
from servers import Spec

MODEL = "mistral_7b_v0.3"
PEER = "vLLM 0.26.0, H200, the same shape and load, another run"


@dataclasses.dataclass(frozen=True)
class Load:
    one: str  # name of the result at one stage
    several: str  # name at several stages
    invariant: str  # name with --batch-invariant at one stage
    bench: tuple
    value: typing.Callable  # maps a report to the value
    unit: str
    goals: dict  # by number of stages
    peers: dict
    small: tuple = ()  # flags of a smoke run; they override the others because they come later


def output_rate(report):
    return report["output_tokens_per_s"]


def prompt_rate(report):
    return report["prompt_tokens"] / report["duration_s"]


def bench(mode, requests, input_tokens, output_tokens, *more):
    return (mode, *(("--batch-size",) if mode == "latency" else ("--requests",)), str(requests), "--input-tokens",
            str(input_tokens), "--output-tokens", str(output_tokens), *more)


ITL = Load("decode/batch_1", "itl_ms/batch_1", "itl_ms/batch_1", bench("latency", 1, 128, 256, "--repeat", "3", "--warmup", "1"),
           lambda report: report["tpot_ms"]["mean"], "ms between tokens", {1: at_most(3.9)}, {1: 4.76, 2: 4.79, 4: 5.6},
           bench("latency", 1, 16, 8))
LONG_PROMPT = Load("ttft/8192_tokens", "prefill_8192_ms", "prefill/8192_ms",
                   bench("latency", 1, 8192, 1, "--repeat", "3", "--warmup", "1"), lambda report: report["ttft_ms"]["p50"],
                   "ms to the first token, median of 3", {1: at_most(200), 4: at_most(80)}, {1: 210, 2: 198, 4: 128},
                   bench("latency", 1, 200, 1))
BURST_256 = Load("throughput/256x128_512", "throughput/256x128_512", "throughput/256x128_512",
                 bench("throughput", 256, 128, 512, "--repeat", "2", "--warmup", "1"), output_rate, "output tok/s",
                 {1: at_least(23_000), 4: at_least(42_000)}, {1: 19_326, 2: 28_353, 4: 26_748}, bench("throughput", 8, 16, 16))
LOADS = (
    ITL, LONG_PROMPT, BURST_256,
    Load("prefill/64x4096", "prefill/64x4096", "prefill/64x4096",
         bench("throughput", 64, 4096, 1, "--repeat", "2", "--warmup", "1"), prompt_rate, "prompt tok/s",
         {1: at_least(43_000), 4: at_least(160_000)}, {1: 41_293, 2: 75_767, 4: 151_358},
         bench("throughput", 4, 100, 1)),
    Load("throughput/1000x1024_256", "throughput/1000x1024_256", "throughput/1000x1024_256",
         bench("throughput", 1000, 1024, 256), output_rate, "output tok/s", {1: at_least(6_600)}, {1: 5_784, 2: 11_991, 4: 21_645},
         bench("throughput", 8, 64, 16)),
    Load("server/64_at_a_time/128_256", "server/64_at_a_time/128_256", "server/64_at_a_time/128_256",
         bench("serve", 640, 128, 256, "--concurrency", "64"), output_rate, "output tok/s",
         {1: at_least(12_500), 4: at_least(12_000)}, {1: 9_671, 2: 10_080, 4: 6_272},
         bench("serve", 8, 16, 16, "--concurrency", "4")),
    Load("server/burst_1000x1024_256", "server/burst_1000x1024_256", "server/burst_1000x1024_256",
         bench("serve", 1000, 1024, 256, "--concurrency", "0"), output_rate, "output tok/s",
         {1: at_least(6_700), 2: at_least(12_800), 4: at_least(25_000)}, {1: 5_895, 2: 11_415, 4: 15_306},
         bench("serve", 8, 64, 16, "--concurrency", "0")),
)
INVARIANT_LOADS = (ITL, LONG_PROMPT, BURST_256)
INVARIANT_LIMIT = 1.15  # slowdown factor with --batch-invariant
STAGES_LIMIT = 1.04  # slowdown factor at 4 stages, batch 1
KV_TOKENS = {1: 903_648, 2: 1_920_544, 4: 3_947_584}  # the peer's values
READY_S = {1: 40, 2: 47, 4: 49}
TTFT_MS = {1: (at_most(7), 9.5), 2: (None, 10.1), 4: (at_most(9), 13.8)}


def name_of(load, stages):
    return f"{of_stages(MODEL, stages)}/{load.one if stages == 1 else load.several}"


def measure(server, load, smoke):
    """Returns the report, the stages' activity and the command."""
    arguments = (load.small if smoke else load.bench)
    watch = client.StageWatch(server)
    report = client.bench(server, arguments)
    client.check_answers(report)
    return report, watch.read(), f"{server.command}; stagecoach bench {' '.join(arguments)}"


def goal_of(load, stages, results):
    """The goal of a load, in the form of Results.add."""
    if load is not ITL or stages != 4:
        return dict(goal=load.goals.get(stages))
    alone = results.value(name_of(load, 1))
    return dict(goal=at_most(STAGES_LIMIT * alone, f"{STAGES_LIMIT} times one stage's")) if alone else dict(no_goal=NO_ONE_STAGE)


def run_load(server, results, load, smoke):
    stages = server.spec.stages
    report, watched, command = measure(server, load, smoke)
    name = name_of(load, stages)
    alone = stages > 1 and results.value(name_of(load, 1)) or None
    results.add(name, load.value(report), load.unit, command, **goal_of(load, stages, results), reference=PEER,
                reference_value=load.peers.get(stages), itl_ms=report["itl_ms"], ttft_ms=report["ttft_ms"],
                one_stage=alone, **watched)
    if load is ITL:
        goal, peer = TTFT_MS.get(stages, (None, None))
        results.add(f"{of_stages(MODEL, stages)}/ttft/128_tokens", report["ttft_ms"]["p50"], "ms", f"as {name}", goal=goal,
                    reference=PEER, reference_value=peer)
    if watched["metadata_early"] is not None:
        results.add(f"{name}/metadata_early", watched["metadata_early"], "of the steps, at the stage with the fewest", f"as {name}",
                    goal=at_least(0.99))


def run_invariant(server, results, load, smoke):
    report, watched, command = measure(server, load, smoke)
    usual = results.value(name_of(load, 1))
    goal = None
    if usual and load is BURST_256:
        goal = at_least(usual / INVARIANT_LIMIT, f"{usual:,.6g} without the flag; {INVARIANT_LIMIT} times slower")
    elif usual:
        goal = at_most(usual * INVARIANT_LIMIT, f"{usual:,.6g} without the flag; {INVARIANT_LIMIT} times slower")
    results.add(f"{MODEL}/batch_invariant/{load.invariant}", load.value(report), load.unit, command, goal=goal,
                no_goal=NO_ONE_STAGE, **watched)


def run_start(server, results):
    stages = server.spec.stages
    peer = KV_TOKENS.get(stages)
    results.add(f"{of_stages(MODEL, stages)}/kv_tokens", 16 * server.kv_blocks, "tokens", server.command,
                goal=peer and at_least(peer, PEER))
    results.add(f"{of_stages(MODEL, stages)}/ready_after_s", server.ready_after_s, "s", server.command, goal=at_most(15),
                reference=f"{PEER}; dummy weights in both", reference_value=READY_S.get(stages))


def spec(options, stages, *more):
    """The server of this part; `constrained` uses the same."""
    return Spec("mistral-7b", stages, options.flags("--load-format", "dummy", *more, *options.speed_flags))


def checks(options):
    found = []
    for stages in options.stages:
        found.append(Check(f"speed/{stages}_stages/start", spec(options, stages), run_start, limit_s=30))
        found += [Check(f"speed/{stages}_stages/{load.several}", spec(options, stages), limit_s=240,
                        run=lambda server, results, load=load: run_load(server, results, load, options.smoke)) for load in LOADS]
    if 1 in options.stages:
        found += [Check(f"speed/batch_invariant/{load.several}", spec(options, 1, "--batch-invariant"), limit_s=240,
                        run=lambda server, results, load=load: run_invariant(server, results, load, options.smoke))
                  for load in INVARIANT_LOADS]
    return found


def summarize(options, results):
    pass
