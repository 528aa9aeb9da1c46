#!/usr/bin/env python3
"""What requests that ask for too much cost: memory of router and workers, and the token gaps of another client.

usage: bombs.py [MODEL] [--bombs NAME ...] [--out results.jsonl] [--bound-mib 1024]
Each bomb gets a server of its own. A line has the resident memory of router and workers before the bomb, at its peak and after
it, and the gaps between the tokens of another client's streams, p50 and p99, alone and beside the bomb. `memory_met`: the peaks are
within the bound. `gap_met`: p99 beside the bomb is at most twice p99 alone, or at most 5 ms (below is noise), and no stream failed.
"""
import argparse
import concurrent.futures
import datetime
import functools
import http.client
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster")]

import grpc  # noqa: E402
from faults import pids  # noqa: E402
from harness import DEMO_MODEL, Cluster  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

MIB = 1 << 20
NOISE_S = 0.005
AMBIGUOUS = 'start: e\ne: e e e | e e | "a" | "b"\n'
WORDS = "The next train leaves at noon. "
LONG = WORDS * (15_000_000 // len(WORDS))


def post(address, path, body):
    """The status. The answer is read, and dropped."""
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        while answer.read(1 << 16):
            pass
        return str(answer.status)
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()


def complete(address, **fields):
    return post(address, "/v1/completions", {"prompt": "The next train", "max_tokens": 16, "ignore_eos": True, **fields})


def together(n, call):
    with concurrent.futures.ThreadPoolExecutor(min(n, 64)) as pool:
        return list(pool.map(call, range(n)))


def grpc_prompt(channel, i):
    request = pb.GenerateRequest(text=f"{i} " + WORDS * (15_900_000 // len(WORDS)), sampling=pb.SamplingParams(max_tokens=1))
    try:
        list(pb_grpc.InferenceStub(channel).Generate(request, timeout=300))
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def grpc_prompts(_, address):
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options=options) as channel:
        return together(60, lambda i: grpc_prompt(channel, i))


def schema(n):
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(n)}}


def chat(address, text):
    return post(address, "/v1/chat/completions", {"max_tokens": 1, "messages": [{"role": "user", "content": text}]})


def prompts(n, address, _):
    return together(n, lambda i: complete(address, prompt=f"{i} " + LONG))


def choices(n_requests, n, address, _):
    return together(n_requests, lambda _: complete(address, n=n, max_tokens=1900, logprobs=20))


def regexes(address, _):
    return together(200, lambda i: complete(address, guided_regex=f"{i}(" + "abc|" * 50_000 + "x)*"))


def schemas(n_properties, address, _):
    return together(8, lambda i: complete(address, guided_json=schema(n_properties + i), max_tokens=200))


# What is sent, by name: (HTTP's address, gRPC's) -> [the outcome of each request].
BOMBS = {
    "prompt_of_15_mb": functools.partial(prompts, 1),
    "20_prompts_of_15_mb": functools.partial(prompts, 20),
    "60_grpc_prompts_of_16_mb": grpc_prompts,
    "tokenize_15_mb": lambda http, _: [post(http, "/tokenize", {"prompt": LONG})],
    "chat_of_15_mb": lambda http, _: [chat(http, LONG)],
    "100_choices_of_20_logprobs": functools.partial(choices, 1, 100),
    "8_times_24_choices_of_20_logprobs": functools.partial(choices, 8, 24),
    "200_regexes_of_200_kb": regexes,
    "ambiguous_grammars": lambda http, _: together(8, lambda _: complete(http, guided_grammar=AMBIGUOUS, max_tokens=1000)),
    "schemas_of_2000_properties": functools.partial(schemas, 2000),
    "schemas_of_5000_properties": functools.partial(schemas, 5000),
}


class Memory:
    """Resident bytes of processes, now and at the most since this was made."""

    def __init__(self, *processes):
        self._processes = processes
        for pid in processes:
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM counts from now

    def read(self, name):
        """Of the process that has most; None: one is gone."""
        most = 0
        for pid in self._processes:
            try:
                text = pathlib.Path(f"/proc/{pid}/status").read_text()
            except FileNotFoundError:
                return None
            lines = dict(line.split(":", 1) for line in text.splitlines())
            if name not in lines:
                return None
            most = max(most, int(lines[name].split()[0]) >> 10)
        return most


class Listener:
    """A client that reads streams one after the other, and when each message came."""

    def __init__(self, stub):
        self.error = None
        self._stub, self._gaps, self._stopping = stub, [], False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        request = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=400, ignore_eos=True))
        try:
            while not self._stopping:
                last = None
                for _ in self._stub.Generate(request):
                    now = time.monotonic()
                    if last is not None:
                        self._gaps.append(now - last)
                    last = now
        except grpc.RpcError as error:
            self.error = error.code().name

    def take(self):
        gaps, self._gaps = self._gaps, []
        return sorted(gaps)

    def stop(self):
        self._stopping = True
        self._thread.join()


def share(ordered, part):
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("inf")


def measure(model, name, seconds):
    with Cluster(model, flags=["--max-waiting", "4096"]) as cluster:
        complete(cluster.http)
        router, workers = pids(cluster)
        listener = Listener(cluster.stub)
        time.sleep(seconds)
        alone = listener.take()
        memory = {"router": Memory(router), "worker": Memory(*workers)}
        before = {who: one.read("VmRSS") for who, one in memory.items()}
        began = time.monotonic()
        # A process of its own, or it would hold this one's listener up.
        thrown = subprocess.run([sys.executable, __file__, "--throw", name, cluster.http, cluster.grpc], capture_output=True,
                                text=True)
        lasted = time.monotonic() - began
        beside = listener.take()
        listener.stop()
        complete(cluster.http)
        outcomes = json.loads(thrown.stdout) if thrown.returncode == 0 else thrown.stderr[-300:]
        line = {"outcomes": outcomes, "seconds": round(lasted, 1)}
        for who, one in memory.items():
            line |= {f"{who}_before_mib": before[who], f"{who}_peak_mib": one.read("VmHWM"), f"{who}_kept_mib": one.read("VmRSS")}
        line |= {f"gap_{when}_p{percent}_ms": round(share(gaps, percent / 100) * 1e3, 2)
                 for when, gaps in (("alone", alone), ("beside", beside)) for percent in (50, 99)}
        line["stream_error"] = listener.error
        return line, share(alone, 0.99), share(beside, 0.99)


def main():
    if sys.argv[1:2] == ["--throw"]:
        outcomes = BOMBS[sys.argv[2]](*sys.argv[3:])
        print(json.dumps({outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO_MODEL))
    parser.add_argument("--bombs", nargs="+", choices=BOMBS, default=list(BOMBS))
    parser.add_argument("--seconds", type=float, default=5, help="for the undisturbed gaps")
    parser.add_argument("--bound-mib", type=int, default=1024)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    for name in args.bombs:
        line, alone, beside = measure(args.model, name, args.seconds)
        peaks = [line["router_peak_mib"], line["worker_peak_mib"]]
        line["memory_met"] = all(peak is not None and peak <= args.bound_mib for peak in peaks)
        line["gap_met"] = line["stream_error"] is None and beside <= max(2 * alone, NOISE_S)
        text = json.dumps({"bench": "bombs", "bomb": name, "bound_mib": args.bound_mib, **line,
                           "model": pathlib.Path(args.model).name, "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                           "date": datetime.date.today().isoformat(),
                           "command": f"tests/bench/bombs.py --bombs {name}"})
        print(text, flush=True)
        if args.out:
            with args.out.open("a") as out:
                out.write(text + "\n")


if __name__ == "__main__":
    main()
