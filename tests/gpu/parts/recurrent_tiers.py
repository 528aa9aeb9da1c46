"""A model with recurrent layers, whose KV cache has room for a few prompts: all of them come again from host memory, with
the states at their ends, and give the same tokens (--batch-invariant)."""
import random

import client
from checks import Check, of_stages
from results import at_least
from servers import Spec

MODEL = "qwen3-5"
BLOCK = 16
N_TOKENS = 8
STATES = "stagecoach_stage_kv_store_states_total"
KV_BYTES = 3 << 20  # over all stages


def run(server, results, n_prompts):
    generator = random.Random(18)
    prompts = [[generator.randrange(4, 250) for _ in range(12 * BLOCK + 5)] for _ in range(n_prompts)]

    def answers():
        return [client.complete(server, [prompt], N_TOKENS, temperature=0)[0] for prompt in prompts]

    computed, fetched = answers(), answers()
    differ = sum(one != other for one, other in zip(computed, fetched))
    n_states = sum(client.by_stage(client.metrics(server), STATES, result="fetched").values())
    results.add(f"{of_stages(MODEL.replace('-', '_'), server.spec.stages)}/host_kv/same_tokens", n_prompts - differ,
                f"of {n_prompts} prompts with the same {N_TOKENS} tokens computed and from host memory",
                f"{server.command}; /v1/completions, one at a time, twice", goal=at_least(n_prompts, "all"), states_fetched=n_states)
    if differ:
        raise client.CheckFailed(f"{differ} of {n_prompts} prompts have other tokens from host memory")
    if not n_states:
        raise client.CheckFailed("no state came from host memory, which is what this is about")


def checks(options):
    n_prompts = options.small(48, 16)
    return [Check(f"recurrent_tiers/{stages}_stages", limit_s=120,
                  spec=Spec(MODEL, stages, options.flags("--batch-invariant", "--max-sequences", 1, "--max-model-len", 512,
                                                         "--kv-memory", KV_BYTES // stages, "--host-kv", "64MiB"),
                            prefix_cache="on"),
                  run=lambda server, results: run(server, results, n_prompts)) for stages in options.stages]


def summarize(options, results):
    pass
