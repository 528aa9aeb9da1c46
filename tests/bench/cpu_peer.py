#!/usr/bin/env python3
"""Compares the CPU path with llama.cpp on this machine. Both are measured in one run, alternating; results are medians.

usage: cpu_peer.py --peer-bin DIR --model NAME=OURS,THEIRS [--model ...] [--threads 2] [--rounds 5] [--out
results.jsonl]
OURS is a model for `stagecoach serve`, THEIRS a .gguf file. DIR has llama-bench and llama-batched-bench, built on this
machine (tests/bench/build_llama_cpp.sh). Our numbers are measured through the server by a gRPC client, theirs inside
the process.
  prefill       one prompt of 512 random tokens: tokens / time to the first token
  decode        128 tokens after a short prompt, one request: 1 / mean time between tokens
  decode of 16  16 requests at the same time: 16 / mean time between tokens
  read share    for the weights of a folder: bytes read per token of `decode`, times the rate, divided by the read
                bandwidth measured before and after it (kernels_cpu_bench). The model must tie its embedding and head.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from harness import BIN_DIR, STAGECOACH, Cluster  # noqa: E402

PREFILL, DECODE, BATCH = 512, 128, 16


def ours(address, batch, inputs, outputs):
    command = [STAGECOACH, "bench", "latency", "--server", address, "--json", "--repeat", "1", "--warmup", "0",
               "--batch-size", str(batch), "--input-tokens", str(inputs), "--output-tokens", str(outputs)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def read_bandwidth(threads):
    """Read bandwidth in bytes per second: the median over one second of measurements."""
    command = [BIN_DIR / "kernels_cpu_bench", "--threads", str(threads), "--only", "bandwidth"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"median ([\d.]+) GB/s", said)[1]) * 1e9


def measure_ours(address, threads, weights):
    def rate_of_one():
        return 1e3 / ours(address, 1, 8, DECODE + 1)["tpot_ms"]["mean"]
    rates = {"prefill": PREFILL / ours(address, 1, PREFILL, 1)["ttft_ms"]["p50"] * 1e3}
    if weights:
        before = read_bandwidth(threads)
        rates["decode"] = rate_of_one()
        rates["read share"] = weights * rates["decode"] / statistics.mean([before, read_bandwidth(threads)])
    else:
        rates["decode"] = rate_of_one()
    rates["decode of 16"] = BATCH * 1e3 / ours(address, BATCH, 8, DECODE + 1)["tpot_ms"]["mean"]
    return rates


def measure_theirs(directory, model, threads):
    def run(program, *arguments):
        command = [str(directory / program), "-m", str(model), "-t", str(threads), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = json.loads(run("llama-bench", "-p", PREFILL, "-n", DECODE, "-r", 1, "-o", "json"))
    rates = {"prefill" if line["n_gen"] == 0 else "decode": line["avg_ts"] for line in lines}
    batched = run("llama-batched-bench", "-c", 4096, "-npp", 8, "-ntg", DECODE, "-npl", BATCH,
                  "--output-format", "jsonl")
    rates["decode of 16"] = json.loads([s for s in batched.splitlines() if s.startswith("{")][-1])["speed_tg"]
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-bin", type=pathlib.Path, required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    for entry in args.model:
        name, paths = entry.split("=", 1)
        mine, peer = paths.split(",")
        rates = {"ours": [], "theirs": []}
        weights = sum(file.stat().st_size for file in pathlib.Path(mine).glob("*.safetensors"))
        with Cluster(mine, stages=1, flags=["--threads-per-worker", str(args.threads), "--prefix-cache", "off"]) as cluster:
            measure_ours(cluster.grpc, args.threads, weights)  # warm-up: excludes the first use of memory
            for _ in range(args.rounds):
                rates["ours"].append(measure_ours(cluster.grpc, args.threads, weights))
                rates["theirs"].append(measure_theirs(args.peer_bin, peer, args.threads))
        lines = []
        for what in rates["ours"][0]:
            value = statistics.median(r[what] for r in rates["ours"])
            if what == "read share":
                line = {"value": round(value, 3), "unit": "1", "reference": "read bandwidth before and after each run",
                        "ratio": round(value, 3)}
            else:
                peer_rate = statistics.median(r[what] for r in rates["theirs"])
                line = {"value": round(value, 1), "unit": "tok/s", "reference": f"llama.cpp, {round(peer_rate, 1)} tok/s",
                        "ratio": round(value / peer_rate, 3)}
            lines.append({"name": f"{what}/{name}"} | line)
        for line in lines:
            line |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}",
                     "date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
                     "command": f"tests/bench/cpu_peer.py --threads {args.threads} --rounds {args.rounds}"}
            print(json.dumps(line), flush=True)
            if args.out:
                with args.out.open("a") as out:
                    out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
