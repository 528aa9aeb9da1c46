"""OPT-6.7B's shape: waves of 131 sequences with 2,040 tokens in all, at every number of stages and several memory
fractions, in several starts each. Stages on one GPU share a fraction. No wave fails, and all give the tokens of a server
with blocking kernel launches (CUDA_LAUNCH_BLOCKING=1, one stage; a few waves also at several stages). The same runs with
random delays on every stream and NaN in unwritten memory (--disturb). At several stages the router splits a wave's prompts
into steps of a few hundred tokens; the last two starts use one microbatch, so that a step takes all tokens that have
arrived."""
import random
import statistics
import time

import client
from checks import Check, of_stages
from results import at_most
from servers import Spec

ALL_STARTS, ALL_WAVES, ALL_FRACTIONS = 5, 200, (0.3, 0.5, 0.9)  # a smaller run cannot meet a goal
N_TOKENS = 6
N_DIFFERENT = 4  # number of different waves, sent in turn
WAVE_LIMIT_S = 20  # on an H200 one wave takes less than 1 s, a start of 200 waves up to 41 s
DISTURB = ("--disturb", "20261122")
ONE_MICROBATCH = ("--microbatches", "1")  # then a step may take up to --max-batched-tokens
FIRST_WITH_ONE = 3  # index of the first start with one microbatch, from 0
REFERENCE = "one stage's tokens where launches block"
NO_REFERENCE = "its own first waves"


def wave(number, n_sequences, n_tokens, vocab):
    """Prompts of random lengths with `n_tokens` tokens in all."""
    generator = random.Random(number)
    cuts = sorted(generator.sample(range(1, n_tokens), n_sequences - 1))
    lengths = [end - begin for begin, end in zip([0, *cuts], [*cuts, n_tokens])]
    return [[generator.randrange(3, vocab) for _ in range(length)] for length in lengths]


def variant(stages, fraction, how):
    return f"{of_stages('opt_6.7b', stages)}/fraction_{fraction:g}/{how}"


def name_of(stages, fraction, how, start):
    return f"{variant(stages, fraction, how)}/start_{start + 1}/waves_with_other_tokens"


def blocking_name(stages):
    return f"{of_stages('opt_6.7b', stages)}/launch_blocking/waves_with_other_tokens"


REFERENCE_NAME = blocking_name(1)


def steps(server):
    return max(client.by_stage(client.metrics(server), "stagecoach_stage_steps_total").values())


def run(server, results, name, n_waves, waves):
    n_sequences, n_prompt = len(waves[0]), sum(map(len, waves[0]))
    first = results.find(REFERENCE_NAME)
    expected = first and first["digests"]
    found, differing, times_ms, steps_before = {}, [], [], steps(server)
    for i in range(n_waves):
        began = time.perf_counter()
        answers = client.complete(server, waves[i % len(waves)], N_TOKENS, limit_s=WAVE_LIMIT_S, temperature=0)
        times_ms.append((time.perf_counter() - began) * 1e3)
        if any(len(answer) != N_TOKENS for answer in answers):
            raise client.CheckFailed(f"wave {i}: an answer has not its {N_TOKENS} tokens")
        seen = client.digests(answers)
        found.setdefault(i % len(waves), seen)
        right = expected[i % len(waves)] if expected else found[i % len(waves)]
        if seen != right:
            differing.append(sum(one != other for one, other in zip(seen, right)))
    n_distinct = min(len(set(of_wave)) for of_wave in found.values())
    if name == REFERENCE_NAME and n_distinct < n_sequences / 2:
        raise client.CheckFailed(f"{n_distinct} different answers to {n_sequences} prompts: others would be equal by chance")
    command = f"{server.command}; /v1/completions, {n_sequences} prompts of {n_prompt:,} tokens, {N_TOKENS} tokens each"
    reference = REFERENCE if expected else NO_REFERENCE
    in_one = ONE_MICROBATCH[0] in server.spec.flags
    results.add(name, len(differing), f"of {n_waves} waves of {n_sequences} sequences, {n_prompt:,} tokens"
                f"{' in one microbatch' if in_one else ''}, with other tokens",
                command, reference=reference, waves=n_waves, one_microbatch=in_one,
                steps_a_wave=round((steps(server) - steps_before) / n_waves, 2),
                wave_ms=round(statistics.median(times_ms), 1), sequences_that_differ=differing[:20],
                **({"digests": [found[i] for i in sorted(found)]} if name == REFERENCE_NAME else {}))
    if differing:
        raise client.CheckFailed(f"{len(differing)} of {n_waves} waves have other tokens than {reference} gave")


def checks(options):
    shape = options.small((131, 2040), (12, 120))
    waves = [wave(i, *shape, options.models.config("opt-6.7b")["vocab_size"]) for i in range(N_DIFFERENT)]
    flags = ("--batch-invariant", "--load-format", "dummy", "--max-batched-tokens", 2048)
    found = []

    def add(mode, what, name, n_waves, stages, fraction, more=(), env=(), start=0):
        share = f"{options.memory_fraction(fraction, stages):g}"
        spec = Spec("opt-6.7b", stages, options.flags(*flags, "--memory-fraction", share, *more), env, start)
        found.append(Check(f"waves/{stages}_stages/{what}", spec, limit_s=30 + 0.5 * n_waves, sizes={"waves": n_waves}, mode=mode,
                           run=lambda server, results: run(server, results, name, n_waves, waves)))

    def add_blocking(stages):
        add("", "launch_blocking", blocking_name(stages), 2 * N_DIFFERENT, stages, options.fractions[0],
            env=(("CUDA_LAUNCH_BLOCKING", "1"),))

    if 1 in options.stages:
        add_blocking(1)
    for how, more in (("plain", ()), ("disturbed", DISTURB)):
        for start in range(options.starts):
            for stages in options.stages:
                for fraction in options.fractions:
                    in_one = ONE_MICROBATCH if stages > 1 and start >= FIRST_WITH_ONE else ()
                    add(f"waves/{stages}_stages/{how}", f"fraction_{fraction:g}/{how}/start_{start + 1}",
                        name_of(stages, fraction, how, start), options.waves, stages, fraction, (*more, *in_one), start=start)
    # These come last: such a start takes long, and may never end if a launch waits for another launch of the same
    # thread.
    for stages in options.several:
        add_blocking(stages)
    return found


def add_sum(options, results, model, stages, how):
    """Adds the sum over all starts with these `stages`."""
    names = [name_of(n, fraction, how, start) for n in stages for fraction in options.fractions for start in range(options.starts)]
    lines = [line for name in names if (line := results.find(name, waves=options.waves))]
    if not lines:
        return
    n_waves, n_wrong = sum(line["waves"] for line in lines), sum(line["value"] for line in lines)
    alone = sum(line["reference"] == NO_REFERENCE for line in lines)
    reference = "; ".join(filter(None, (alone < len(lines) and REFERENCE, alone and f"in {alone} starts only {NO_REFERENCE}")))
    enough = options.starts >= ALL_STARTS and options.waves >= ALL_WAVES and set(ALL_FRACTIONS) <= set(options.fractions)
    # The goal counts only if all starts ended with a reference: the result of a start that did not end is unknown, and
    # one that is compared only with itself may be wrong throughout.
    goal = at_most(0) if n_wrong or enough and not alone and len(lines) == len(names) else None
    results.add(f"{model}/waves_with_other_tokens" + ("" if how == "plain" else f"/{how}"),
                n_wrong, f"of {n_waves:,} waves, {len(lines)} of {len(names)} starts ended, at "
                f"{sorted({line['n_stages'] for line in lines})} stages", lines[-1]["command"], goal=goal, reference=reference,
                starts=len(names), starts_ended=len(lines), starts_without_reference=alone)


def summarize(options, results):
    for how in ("plain", "disturbed"):
        for stages in options.stages:
            add_sum(options, results, of_stages("opt_6.7b", stages), [stages], how)
        add_sum(options, results, "nccl/opt_6.7b", options.stages, how)
    for stages in options.several:
        alone, here = ([line["wave_ms"] for fraction in options.fractions
                        for line in results.named(f"{variant(n, fraction, 'plain')}/") if not line["one_microbatch"]]
                       for n in (1, stages))
        if alone and here:
            results.add("nccl/opt_6.7b/wave_ms" if stages == 2 else f"nccl/opt_6.7b/{stages}_stages/wave_ms",
                        statistics.median(here),
                        f"ms, median of the starts' medians at {stages} stages", "as nccl/opt_6.7b/waves_with_other_tokens",
                        reference="1 stage", reference_value=statistics.median(alone))
