"""Time to ready, at one stage: the shapes of Mistral 7B and Gemma-2-27B from files in the page cache. As the first start of a
machine, which tunes, and as later ones, which find its tuning in a folder."""
import statistics

from checks import Check
from results import at_most
from servers import Spec

TUNING = "build/gpu/tuning"  # relative to the working directory, so that result lines have no path of a machine
# Name in result lines, goal of a later start in seconds.
MODELS = {"mistral-7b-files": ("mistral_7b_v0.3", 4), "gemma2-27b": ("gemma2_27b", 10)}
# The start that fills the folder is neither.
STARTS = {"first": ("off", 2), "filling": (TUNING, 1), "later": (TUNING, 3)}


def name_of(model, how):
    return f"start/{MODELS[model][0]}/{how}"


def checks(options):
    if 1 not in options.stages:
        return []
    found = []
    for model in MODELS:
        for how, (folder, n) in STARTS.items():
            for start in range(n):
                spec = Spec(model, 1, options.flags("--max-model-len", options.small(8192, 256), "--tuning-cache", folder),
                            start=10 * list(STARTS).index(how) + start)
                name = f"{name_of(model, how)}/start_{start + 1}"
                found.append(Check(f"start/{model}/{how}/{start + 1}", spec, limit_s=10,
                                   run=lambda server, results, name=name:
                                   results.add(name, server.ready_after_s, "s to ready", server.command)))
    return found


def summarize(options, results):
    for model, (_, goal) in MODELS.items():
        lines = {how: results.named(f"{name_of(model, how)}/start_") for how in ("first", "later")}
        medians = {how: statistics.median(line["value"] for line in some) for how, some in lines.items() if some}
        if len(medians) == 2:
            results.add(name_of(model, "later"), medians["later"], "s to ready, median", lines["later"][0]["command"],
                        goal=at_most(goal), first_start_s=medians["first"], of_first_start=round(medians["later"] / medians["first"], 3))
