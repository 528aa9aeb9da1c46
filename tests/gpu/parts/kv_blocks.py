"""OPT-13B's shape: the number of KV blocks at each number of stages, and its growth."""
from checks import Check, of_stages
from results import NO_ONE_STAGE, at_least
from servers import Spec


def name_of(stages):
    return f"{of_stages('opt_13b', stages)}/kv_blocks"


def run(server, results):
    stages, alone = server.spec.stages, results.value(name_of(1))
    more = {}
    if stages > 1 and alone:
        more = dict(growth=round(server.kv_blocks / alone, 3), goal=at_least(stages * alone, f"{stages} times one stage's"))
    elif stages > 1:
        more = dict(no_goal=NO_ONE_STAGE)
    results.add(name_of(stages), server.kv_blocks, "blocks of 16 tokens", server.command, **more)


def checks(options):
    # On CPUs the KV cache is only as large as useful, unless --kv-memory gives its size.
    flags = options.flags("--load-format", "dummy", *(("--kv-memory", "8MiB") if options.device == "cpu" else ()))
    return [Check(f"kv_blocks/{stages}_stages", Spec("opt-13b", stages, flags), run, limit_s=30) for stages in options.stages]


def summarize(options, results):
    pass
