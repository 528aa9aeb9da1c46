"""OPT-6.7B's shape at 2 stages: 1,000 requests of 1,024 prompt and 256 output tokens at the same time, with KV memory
for a third of them. No request is lost, and each gets all its tokens. Stages that share a GPU get 400 requests."""
import client
from checks import Check
from results import at_most
from servers import Spec

STAGES = 2
BLOCK_TOKENS = 16
PREEMPTIONS = "vllm:num_preemptions_total"
SPARE_BYTES = 9e9  # memory per stage besides the KV cache: weights and scratch


def run(server, results, n_requests, n_input, n_output):
    before = client.total(client.metrics(server), PREEMPTIONS)
    arguments = ("throughput", "--requests", str(n_requests), "--input-tokens", str(n_input), "--output-tokens", str(n_output))
    report = client.bench(server, arguments)
    preempted = client.total(client.metrics(server), PREEMPTIONS) - before
    share = server.kv_blocks * BLOCK_TOKENS / (n_requests * (n_input + n_output))
    lost = n_requests - report["requests"]["ok"]
    missing = n_requests * n_output - report["output_tokens"]
    results.add("nccl/opt_6.7b/2_stages/preemption/lost_requests", lost,
                f"of {n_requests:,} requests of {n_input:,}/{n_output} at once, KV for {share:.2f} of them",
                f"{server.command}; stagecoach bench {' '.join(arguments)}",
                goal=at_most(0, "vLLM 0.26.0 lost all of them") if lost or preempted else None, no_goal="nothing was preempted",
                missing_tokens=missing, preemptions=preempted, output_tok_s=round(report["output_tokens_per_s"], 1))
    if lost or missing:
        raise client.CheckFailed(f"{lost} requests lost, {missing} tokens missing: {report['error']}")
    if not preempted:
        raise client.CheckFailed("no sequence was preempted, which is what this is about")


def checks(options):
    shares_gpu = len(set(options.devices[:STAGES])) == 1
    n_requests, n_input, n_output = load = options.small((400 if shares_gpu else 1000, 1024, 256), (24, 16, 96))
    config = options.models.config("opt-6.7b")
    token_bytes = 2 * 2 * config["num_hidden_layers"] // STAGES * config["hidden_size"]  # keys and values, 2 bytes each
    kv_bytes = n_requests * (n_input + n_output) // 3 * token_bytes
    flags = ["--load-format", "dummy", "--max-sequences", n_requests, "--max-batched-tokens", options.small(8192, 256)]
    # A smaller GPU has KV memory for even fewer sequences without the flag.
    if options.gpu_bytes is None or kv_bytes + SPARE_BYTES < 0.9 * options.gpu_bytes:
        flags += ["--kv-memory", kv_bytes]
    spec = Spec("opt-6.7b", STAGES, options.flags(*flags))
    return [Check("preemption/2_stages", spec, lambda server, results: run(server, results, *load), limit_s=400,
                  why_not="" if STAGES in options.stages else "no 2 stages here")]


def summarize(options, results):
    pass
