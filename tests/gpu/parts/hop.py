"""Time of a hop between two GPUs, by transport_nccl_bench: hidden states to the next stage and tokens back. Measured
between stages that run one kernel at a time, and between stages whose kernels overlap as those of layers do."""
import json
import subprocess
import tempfile

import client
import servers
from checks import Check
from processes import ends_with_us
from results import at_most

PROGRAM = "transport_nccl_bench"
HOP_US = 20  # limit for one row


def run(results, bin_dir, how="", flags=()):
    if not (bin_dir / PROGRAM).exists():
        raise client.CheckFailed(f"{PROGRAM} is not among the programs")
    env = servers.environment(bin_dir, wants_nccl=True)
    with (tempfile.TemporaryFile("w+") as errors,  # a pipe would need a reader
          subprocess.Popen([bin_dir / PROGRAM, *flags], env=env, stdout=subprocess.PIPE, stderr=errors, text=True,
                           preexec_fn=ends_with_us()) as process):
        try:
            for text in process.stdout:
                if not text.startswith("{"):  # skips NCCL's warnings
                    print(f"  {text.rstrip()}", flush=True)
                    continue
                line = json.loads(text)
                rows = line["rows"]
                results.add(f"nccl_hop/hidden_and_tokens/{how}{rows}_rows", line["us_hidden_and_tokens"],
                            "us for two hops: hidden states of so many rows of 4096 float32 there, tokens back",
                            " ".join([PROGRAM, "--rows", str(rows), *flags]), transport=line["links"],
                            goal=at_most(2 * HOP_US, "two hops") if rows == 1 else None)
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            errors.seek(0)
            said = errors.read().strip()
            raise RuntimeError("\n".join(line for line in said.splitlines() if line.startswith("error")) or said[-500:])


def checks(options):
    # With two GPUs the program must exist.
    wanted = options.n_gpus > 1 or (options.bin_dir / PROGRAM).exists()
    why_not = "" if wanted and options.several else f"no {PROGRAM}, or no two GPUs"
    return [Check("hop/2_gpus", None, lambda _, results: run(results, options.bin_dir), limit_s=120, why_not=why_not),
            Check("hop/2_gpus_overlapping", None, limit_s=120, why_not=why_not,
                  run=lambda _, results: run(results, options.bin_dir, "overlapping/", ["--copies"]))]


def summarize(options, results):
    pass
