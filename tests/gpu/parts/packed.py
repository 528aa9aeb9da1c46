"""Weights that stay packed, at one stage: a model of 26 billion parameters in INT4 (quantized at load) and in Q4_K within 24 GiB of
a GPU, at a context of 8,192; and the rates at which packed files, and 16-bit files that --quantize packs, are loaded from the page
cache."""
import client
import gpus
from checks import Check
from results import at_least, at_most
from servers import Spec

from parts import speed

MEMORY_GIB = 24
LONG = speed.Load(one="", several="", invariant="", bench=speed.bench("latency", 1, 8000, 64, "--repeat", "2", "--warmup", "1"),
                  value=lambda report: report["tpot_ms"]["mean"], unit="ms between tokens", goals={}, peers={},
                  small=speed.bench("latency", 1, 16, 4))
# Name in result lines: model, flags.
SMALL = {"gemma2_27b/int4": ("gemma2-27b-shape", ("--load-format", "dummy", "--quantize", "int4")),
         "llama_26b/q4_k": ("llama-26b-q4_k", ())}
# Name in result lines: model, flags, goal in GB/s of the files' bytes.
LOADS = {"llama_26b/q4_k": ("llama-26b-q4_k", (), 15), "mistral_7b_v0.3/quantize_int4": ("mistral-7b-files", ("--quantize", "int4"), 3),
         "mistral_7b_v0.3/quantize_int8": ("mistral-7b-files", ("--quantize", "int8"), 3),
         "mistral_7b_v0.3/quantize_fp8": ("mistral-7b-files", ("--quantize", "fp8"), 3)}


def fraction():
    """The flag that gives a stage 24 GiB of the first GPU; none on CPUs."""
    found = gpus.all_gpus()
    return ("--memory-fraction", f"{MEMORY_GIB * 2**30 / found[0][1]:.4f}") if found else ()


def run_long(server, results, name, smoke):
    report, watched, command = speed.measure(server, LONG, smoke)
    used = max((int(mib) / 1024 for mib in gpus.query("gpu=memory.used").split()), default=0)
    results.add(f"packed/{name}/24_gib/memory", used, "GiB of a GPU's memory in use, all processes", command,
                goal=at_most(MEMORY_GIB), kv_tokens=16 * server.kv_blocks)
    results.add(f"packed/{name}/24_gib/decode_after_8000", LONG.value(report), LONG.unit, command, itl_ms=report["itl_ms"],
                ttft_ms=report["ttft_ms"], **watched)


def run_load(server, results, name, goal):
    seconds = max(client.by_stage(client.metrics(server), "stagecoach_stage_load_seconds", phase="read").values())
    path = server.model_dir
    files = path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.glob("*.safetensors"))
    results.add(f"packed/{name}/load/start_{server.spec.start + 1}", files / seconds / 1e9,
                f"GB/s: {files / 1e9:.1f} GB from the page cache in {seconds:.2f} s", server.command, goal=at_least(goal),
                ready_after_s=server.ready_after_s)


def checks(options):
    if 1 not in options.stages:
        return []
    found = []
    for name, (model, flags) in SMALL.items():
        spec = Spec(model, 1, options.flags("--max-model-len", options.small(8192, 256), *flags, *fraction()))
        found.append(Check(f"packed/{name}/24_gib", spec, limit_s=120,
                           run=lambda server, results, name=name: run_long(server, results, name, options.smoke)))
    for name, (model, flags, goal) in LOADS.items():
        for start in range(2):  # the first one may read the disk
            spec = Spec(model, 1, options.flags("--max-model-len", options.small(8192, 256), *flags), start=start)
            found.append(Check(f"packed/{name}/load/start_{start + 1}", spec, limit_s=30, run=lambda server, results, name=name, goal=goal:
                               run_load(server, results, name, goal)))
    return found


def summarize(options, results):
    pass
