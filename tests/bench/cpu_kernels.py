#!/usr/bin/env python3
"""Compares the CPU kernels with the machine's peaks, and the large GEMMs with oneDNN's.

usage: cpu_kernels.py --bench build/cpu/bin/kernels_cpu_bench [--threads 2] [--seconds 1] [--out results.jsonl]
Before each kernel, the program measures the machine's read bandwidth and its peak rate of multiply-adds. It checks each
result against the reference and prints both rates. oneDNN is the one inside torch (pip install torch), in float32 with
the same number of threads. It is timed right after our kernel, and omitted if torch is not installed.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
LINE = re.compile(r"(?P<name>(gemm|attention) .*?):\s+(?P<ms>[0-9.]+) ms\s+(?P<gbps>[0-9.]+) GB/s \(\s*\d+% of (?P<gbps_peak>[0-9.]+)\)"
                  r"\s+(?P<gflops>[0-9.]+) GFLOP/s \(\s*\d+% of (?P<gflops_peak>[0-9.]+)\)")
YARDSTICK_ROWS = 512


def onednn_gflops(n, k, rows, threads, seconds):
    import torch
    torch.set_num_threads(threads)
    x, w = torch.randn(rows, k), torch.randn(n, k)
    dense_x, dense_w = x.to_mkldnn(), w.to_mkldnn()
    call = lambda: torch.nn.functional.linear(dense_x, dense_w)  # noqa: E731
    assert torch.allclose(call().to_dense(), x @ w.T, rtol=1e-3, atol=1e-3 * k ** 0.5)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 2 * rows * n * k / best / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], check=True, capture_output=True,
                            text=True).stdout.strip()
    about = {"machine": f"{os.cpu_count()} cores, {platform.machine()}", "date": str(datetime.date.today()), "commit": commit,
             "command": f"tests/bench/cpu_kernels.py --threads {args.threads} --seconds {args.seconds:g}"}
    results = []

    def report(name, value, unit, reference, ratio):
        results.append({"name": name, "value": value, "unit": unit, "reference": reference, "ratio": round(ratio, 3), **about})
        print(f"{name:<48} {value:8.1f} {unit:<8} {ratio:6.2f} of {reference}", flush=True)

    program = subprocess.Popen([args.bench, "--threads", str(args.threads), "--seconds", str(args.seconds)],
                               stdout=subprocess.PIPE, text=True)
    about["kernels"] = program.stdout.readline().strip()
    shapes = {}
    for line in program.stdout:
        match = LINE.match(line)
        if not match:
            continue
        name = "/".join(match["name"].split())
        gbps, gflops = float(match["gbps"]), float(match["gflops"])
        of_bandwidth, of_peak = gbps / float(match["gbps_peak"]), gflops / float(match["gflops_peak"])
        if of_bandwidth > of_peak:
            report(name, gbps, "GB/s", "measured read bandwidth", of_bandwidth)
        else:
            report(name, gflops, "GFLOP/s", "measured peak of multiply-adds", of_peak)
        gemm = re.fullmatch(r"gemm/(\d+)/x/(\d+)/bf16/rows/(\d+)", name, re.IGNORECASE)
        if gemm and int(gemm[3]) == YARDSTICK_ROWS and int(gemm[1]) <= 4096:
            shapes[name] = (int(gemm[1]), int(gemm[2]), gflops)
    if program.wait() != 0:
        sys.exit(f"{args.bench} failed")
    try:
        import torch  # noqa: F401
    except ImportError:
        print("no torch here: oneDNN is left out")
        shapes = {}
    for name, (n, k, gflops) in shapes.items():
        peer = onednn_gflops(n, k, YARDSTICK_ROWS, args.threads, args.seconds)
        report(f"{name}/onednn", gflops, "GFLOP/s", f"oneDNN in float32 ({peer:.1f} GFLOP/s)", gflops / peer)
    if args.out:
        with args.out.open("a") as file:
            file.writelines(json.dumps(result) + "\n" for result in results)


if __name__ == "__main__":
    main()
