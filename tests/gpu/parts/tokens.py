"""Every golden model and the demo model: 14 prompts at the same time, 40 tokens each, greedy and with a seed, give the
same tokens at 2 and 4 stages as at one stage (--batch-invariant)."""
import random

import client
from checks import Check
from results import at_least
from servers import Spec
from shapes import layers_of

LENGTHS = (1, 2, 3, 5, 8, 13, 15, 16, 17, 31, 33, 60, 100, 150)
N_TOKENS = 40


def prompts(vocab, max_len):
    generator = random.Random(14)
    return [[generator.randrange(3, vocab) for _ in range(min(length, max_len - N_TOKENS))] for length in LENGTHS]


def name_of(model, stages, kind="nccl"):
    return f"{kind}/same_tokens/{stages}_stages/{model}"


def run(server, results, model, vocab, kind):
    asked = prompts(vocab, client.max_model_len(server))
    bodies = [dict(prompt=prompt, max_tokens=N_TOKENS, temperature=0) for prompt in asked]
    bodies += [dict(prompt=prompt, max_tokens=N_TOKENS, temperature=1.0, seed=i) for i, prompt in enumerate(asked)]
    answers = client.complete_each(server, bodies)
    found, n_tokens = client.digests(answers), sum(map(len, answers))
    if n_tokens != len(bodies) * N_TOKENS:
        raise client.CheckFailed(f"{n_tokens} tokens instead of {len(bodies) * N_TOKENS}")
    stages = server.spec.stages
    command = f"{server.command}; /v1/completions, {len(asked)} prompts greedy and with a seed, all at once, {N_TOKENS} tokens each"
    if stages == 1:
        results.add(name_of(model, 1, kind), n_tokens, "tokens of one stage, which those of more are compared with", command,
                    digests=found)
        return
    expected = results.find(name_of(model, 1, kind))
    if expected is None:
        raise client.CheckFailed("there is no run with one stage to compare with")
    differ = sum(one != other for one, other in zip(found, expected["digests"]))
    results.add(name_of(model, stages, kind), int(differ == 0), f"golden model with the same {n_tokens:,} tokens at 1 and {stages} "
                "stages, batch-invariant, greedy and with a seed", command, reference="one stage of the same binaries",
                sequences_that_differ=differ)
    if differ:
        raise client.CheckFailed(f"{differ} of {len(found)} sequences have other tokens than at one stage")


def checks_of(options, models, kind, *flags):
    """`kind`: the start of the results' names."""
    part, found = "tokens" if kind == "nccl" else f"{kind}/tokens", []
    for model in models:
        config = options.models.config(model)
        layers, vocab = layers_of(config), config["vocab_size"]
        for stages in options.stages:
            spec = Spec(model, stages, options.flags("--batch-invariant", "--max-batched-tokens", 256, *flags))
            found.append(Check(f"{part}/{model}/{stages}_stages", spec, limit_s=120,
                               run=lambda server, results, model=model, vocab=vocab: run(server, results, model, vocab, kind),
                               why_not=f"{layers} layers" if layers < stages else ""))
    return found


def checks(options):
    return checks_of(options, options.models.for_tokens(), "nccl")


def summarize(options, results):
    wanted = options.models.for_tokens()
    for stages in options.several:
        lines = [line for model in wanted if (line := results.find(name_of(model, stages)))]
        if len(lines) == len(wanted):
            name = "golden_and_demo" if stages == 2 else f"{stages}_stages/golden_and_demo"
            results.add(f"nccl/same_tokens/{name}", sum(line["value"] for line in lines),
                        f"models with the same tokens at 1 and {stages} stages, greedy and with a seed", lines[0]["command"],
                        goal=at_least(len(wanted), "all"))
