"""Prompts with a common prefix of 1,024 tokens: the same tokens whether the prompts are computed separately, at the
same time, or from a fully cached prefix (--batch-invariant); and the gain in time to the first token."""
import random

import client
from checks import Check, of_stages
from results import at_least
from servers import Spec

from parts import speed

HITS = "vllm:prefix_cache_hits_total"


def run_tokens(server, results, vocab, n_prompts, n_shared, n_own, n_tokens):
    generator = random.Random(17)

    def some(n):
        return [generator.randrange(3, vocab) for _ in range(n)]

    beginning = some(n_shared)
    bodies = [dict(prompt=beginning + some(n_own), max_tokens=n_tokens, temperature=0) for _ in range(n_prompts)]
    apart = client.complete_each(server, [dict(body, cache_salt=str(i)) for i, body in enumerate(bodies)])
    if before := client.total(client.metrics(server), HITS):
        raise client.CheckFailed(f"{before:.0f} tokens were shared across salts")
    together = client.complete_each(server, bodies)
    again = client.complete_each(server, bodies)
    hits = client.total(client.metrics(server), HITS)
    differ = sum(not one == two == three for one, two, three in zip(apart, together, again))
    least = n_prompts * n_shared
    results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/prefix_cache/same_tokens", n_prompts - differ,
                f"prompts of {n_prompts} with the same {n_tokens} tokens apart, beside each other and adopted whole",
                f"{server.command}; /v1/completions, {n_prompts} at once, {n_shared} tokens in common and {n_own} of their own",
                goal=at_least(n_prompts, "all"), cached_tokens=hits)
    if differ:
        raise client.CheckFailed(f"{differ} of {n_prompts} prompts have other tokens when their beginning is adopted")
    if hits < least:
        raise client.CheckFailed(f"{hits:.0f} tokens were adopted instead of at least {least}")


def run_speed(server, results, n_prompts, n_shared, n_own, n_tokens):
    name = f"{of_stages(speed.MODEL, server.spec.stages)}/prefix_cache"
    arguments = speed.bench("throughput", n_prompts, n_shared + n_own, n_tokens, "--prefix-tokens", str(n_shared), "--warmup", "1")
    report = client.bench(server, arguments)
    client.check_answers(report)
    command = f"{server.command}; stagecoach bench {' '.join(arguments)}"
    which = server.spec.prefix_cache
    for what, value, unit in (("ttft_ms", report["ttft_ms"]["mean"], f"ms to the first token, mean of {n_prompts}"),
                              ("throughput", speed.output_rate(report), "output tok/s")):
        results.add(f"{name}/{what}/{which}", value, unit, command, reference=None if which == "off" else "off",
                    reference_value=None if which == "off" else results.value(f"{name}/{what}/off"))


def checks(options):
    size = options.small((32, 1024, 64, 64), (4, 64, 16, 8))
    vocab = options.models.config("mistral-7b")["vocab_size"]
    found = []
    for stages in options.stages:
        def spec(*more, cache="on", stages=stages):
            return Spec("mistral-7b", stages, options.flags("--load-format", "dummy", *more), prefix_cache=cache)

        found.append(Check(f"prefix_cache/{stages}_stages/tokens", spec("--batch-invariant"), limit_s=120,
                           run=lambda server, results: run_tokens(server, results, vocab, *size)))
        for cache in ("off", "on"):
            found.append(Check(f"prefix_cache/{stages}_stages/speed/{cache}", spec(cache=cache), limit_s=120,
                               run=lambda server, results: run_speed(server, results, *size)))
    return found


def summarize(options, results):
    pass
