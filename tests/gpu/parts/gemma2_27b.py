"""Gemma-2-27B's shape with random weights in 12 files, at one stage (two starts) and at two: loading rate in GB/s, time
to ready, time between tokens. The files stay in the page cache if memory allows."""
import client
import shapes
from checks import Check, of_stages
from results import at_least
from servers import Spec

COPY_BYTES_PER_S = 4.3e12  # rate of a memory copy on an H200; bounds a token's time from below


def run_load(server, results):
    page = client.metrics(server)
    n_bytes = sum(client.by_stage(page, "stagecoach_stage_memory_bytes", kind="weights").values())
    seconds = max(client.by_stage(page, "stagecoach_stage_load_seconds", phase="read").values())
    stages, start = server.spec.stages, server.spec.start + 1
    files = sum(path.stat().st_size for path in server.model_dir.glob("*.safetensors"))
    name = of_stages("gemma2_27b", stages)
    results.add(f"{name}/load/start_{start}", files / seconds / 1e9,
                f"GB/s: {files / 1e9:.1f} GB in 12 files, to {stages} devices in {seconds:.1f} s, the slowest stage's",
                f"tests/bench/random_checkpoint.py tests/golden/data/gemma2 DIR --shape gemma2-27b; {server.command}",
                goal=at_least(8), weights_bytes=n_bytes)
    results.add(f"{name}/ready_after_s/start_{start}", server.ready_after_s, "s", server.command)


def run_itl(server, results, arguments):
    report = client.bench(server, arguments)
    client.check_answers(report)
    results.add(f"{of_stages('gemma2_27b', server.spec.stages)}/itl_ms/batch_1", report["tpot_ms"]["mean"], "ms between tokens",
                f"{server.command}; stagecoach bench {' '.join(arguments)}", reference="to read the weights at 4.3 TB/s",
                reference_value=shapes.CHECKPOINTS["gemma2-27b"] / COPY_BYTES_PER_S * 1e3, itl_ms=report["itl_ms"],
                ttft_ms=report["ttft_ms"])


def checks(options):
    arguments = ("latency", "--batch-size", "1", "--input-tokens", options.small("128", "16"), "--output-tokens",
                 options.small("64", "8"), "--repeat", "2", "--warmup", "1")
    found = []
    for stages, start in ((1, 0), (1, 1), (2, 0)):
        if stages not in options.stages:
            continue
        spec = Spec("gemma2-27b", stages, options.flags("--max-model-len", options.small(8192, 256)), start=start)
        found.append(Check(f"gemma2_27b/{stages}_stages/load/start_{start + 1}", spec, run_load, limit_s=30))
        if start == 0:
            found.append(Check(f"gemma2_27b/{stages}_stages/itl", spec, lambda server, results: run_itl(server, results, arguments),
                               limit_s=120))
    return found


def summarize(options, results):
    pass
