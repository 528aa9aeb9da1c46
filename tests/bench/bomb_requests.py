#!/usr/bin/env python3
"""The client of tests/bench/bombs.py that asks for too much.

usage: bomb_requests.py NAME HTTP GRPC
Prints the number of requests by outcome, as JSON.
"""
import concurrent.futures
import functools
import http.client
import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / "cluster")]

import protos  # noqa: E402

protos.make_importable()

import grpc  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

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


if __name__ == "__main__":
    outcomes = BOMBS[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}))
