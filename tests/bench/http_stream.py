#!/usr/bin/env python3
"""Measures the router's cost of HTTP: CPU time per streamed token with many open streams, and latency added to the
first byte.

usage: http_stream.py MODEL [--streams 512] [--tokens 64] [--runs 3] [--first-bytes 200] [--out results.jsonl]
CPU time is the router process's user and system time divided by the tokens that its clients received. The reference is
the same load over gRPC in the same run. The latency is the client's time to the first byte of its answer minus the
router's own time from a request's arrival to its first token. All streams are compared with each other before anything
is reported.
"""
import argparse
import asyncio
import datetime
import json
import os
import pathlib
import platform
import re
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "clients")]

import grpc  # noqa: E402
from harness import Cluster, children_of  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402
from wire import Reader, ask, metric, request_bytes, split  # noqa: E402

PROMPT = [10, 11, 12, 13, 14, 15, 16, 17]


def router_cpu_s(cluster):
    """The router's CPU time: (user, kernel) seconds."""
    pid = [pid for pid, name in children_of(cluster.process.pid) if name.startswith("stagecoach-rout")][0]
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]]


class Stream(asyncio.Protocol):
    """Stores the bytes of one answer; they are parsed after the measurement."""

    def __init__(self, request):
        self.request = request
        self.data = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.data.append(data)
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()

    def connection_lost(self, error):
        self.ended.set_result(None)


async def over_http(cluster, n_streams, n_tokens):
    """Runs all streams; returns (tokens, chunks)."""
    body = {"prompt": PROMPT, "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    request = request_bytes("POST", "/v1/completions", body)
    loop = asyncio.get_running_loop()
    streams = [(await loop.create_connection(lambda: Stream(request), *split(cluster.http)))[1] for _ in range(n_streams)]
    await asyncio.gather(*(stream.ended for stream in streams))
    texts, tokens, chunks = set(), 0, 0
    for stream in streams:
        events = re.findall(rb"data: (\{.*\})\n\n", b"".join(stream.data))
        events = [json.loads(event) for event in events]
        texts.add("".join(event["choices"][0]["text"] for event in events[:-1]))
        tokens += events[-1]["usage"]["completion_tokens"]
        chunks += len(events) - 1
    assert len(texts) == 1 and tokens == n_streams * n_tokens, "streams differ: nothing is timed"
    return tokens, chunks


async def over_grpc(cluster, n_streams, n_tokens):
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=PROMPT),
                                 sampling=pb.SamplingParams(max_tokens=n_tokens, ignore_eos=True, temperature=0))

    async def one(stub):
        tokens = messages = 0
        async for message in stub.Generate(request):
            tokens += len(message.token_ids)
            messages += 1
        return tokens, messages

    async with grpc.aio.insecure_channel(cluster.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.InferenceStub(channel)
        answers = await asyncio.gather(*(one(stub) for _ in range(n_streams)))
    return sum(a[0] for a in answers), sum(a[1] for a in answers)


def cpu_us_a_token(cluster, load, n_streams, n_tokens):
    """Router CPU time in microseconds per token: (total, in the kernel, tokens per message)."""
    user, kernel = router_cpu_s(cluster)
    tokens, messages = asyncio.run(load(cluster, n_streams, n_tokens))
    user_after, kernel_after = router_cpu_s(cluster)
    kernel_us = (kernel_after - kernel) / tokens * 1e6
    return (user_after - user) / tokens * 1e6 + kernel_us, kernel_us, tokens / messages


def added_first_byte_ms(cluster, n):
    body = request_bytes("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "stream": True})
    own = "vllm:time_to_first_token_seconds_sum"
    added = []
    with socket.create_connection(split(cluster.http)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(sock)
        for _ in range(n):
            before = metric(cluster.http, own)
            asked = time.perf_counter()
            sock.sendall(body)
            reader.held = sock.recv(65536)
            seen = time.perf_counter() - asked
            assert reader.response().events[-1] == "[DONE]"
            added.append((seen - (metric(cluster.http, own) - before)) * 1e3)
    return added


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first-bytes", type=int, default=200)
    parser.add_argument("--out")
    args = parser.parse_args()

    flags = ["--max-sequences", args.streams, "--max-batched-tokens", 1024, "--kv-memory", "256MiB", "--prefix-cache", "off"]
    with Cluster(args.model, stages=1, flags=flags) as cluster:
        for load in (over_http, over_grpc):
            asyncio.run(load(cluster, 32, 8))  # warm-up
        runs = {load: [cpu_us_a_token(cluster, load, args.streams, args.tokens) for _ in range(args.runs)]
                for load in (over_http, over_grpc)}
        assert ask(cluster.http, "GET", "/status").json["scheduler"]["running"] == 0
        added = sorted(added_first_byte_ms(cluster, args.first_bytes))
    http_us, kernel_us, merged = (statistics.median(run[i] for run in runs[over_http]) for i in range(3))
    grpc_us = statistics.median(run[0] for run in runs[over_grpc])
    p50, p99 = added[len(added) // 2], added[len(added) * 99 // 100]
    print(f"{args.streams} streams: router CPU {http_us:.1f} us a token over HTTP ({kernel_us:.1f} in the kernel), "
          f"{grpc_us:.1f} us over gRPC; {merged:.2f} tokens a chunk\nadded to the first byte: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    if args.out:
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        common = dict(machine=f"{os.cpu_count()} cores, {platform.machine()}", date=str(datetime.date.today()), commit=commit,
                      command=f"tests/bench/http_stream.py {pathlib.Path(args.model).name} --streams {args.streams} "
                              f"--tokens {args.tokens} --runs {args.runs} --first-bytes {args.first_bytes}")
        lines = [dict(name=f"http_router_cpu/{args.streams}_streams", value=round(http_us, 2), unit="us/token",
                      kernel=round(kernel_us, 2), tokens_a_chunk=round(merged, 3), reference="the same load over gRPC",
                      ratio=round(http_us / grpc_us, 4), **common),
                 dict(name="http_added_first_byte/p50", value=round(p50, 3), unit="ms",
                      reference="the router's own time to the first token, subtracted", p99=round(p99, 3), **common)]
        with open(args.out, "a") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
