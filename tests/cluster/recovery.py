"""Streams of mixed kinds that run while processes and connections of their pipeline fail, and what became of each."""
import asyncio
import dataclasses
import json
import pathlib
import random
import secrets
import threading
import time

import grpc
from harness import wait_until
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from workload import logprob_tuple

PROMPT = "When does the next coach leave from Greywell to Elmstead after {}:{:02} on Sunday? "
STREAM_TIMEOUT_S = 240
TOOLS_TEMPLATE = pathlib.Path(__file__).parent / "data" / "tools.jinja"  # tool calls need a template that renders tools
_NOTES = {"type": "object", "properties": {"notes": {"type": "array", "minItems": 60, "items": {"type": "string", "maxLength": 20}}},
          "required": ["notes"], "additionalProperties": False}
_TOOLS = json.dumps([{"type": "function", "function": {"name": "write", "parameters": _NOTES}}])
_SHORTEST_LONG_PROMPT, _LONGEST_PROMPT = 900, 1500
_VOCABULARY = range(100, 1500)  # ids of the demo model's ordinary tokens


def _generate(i, sampling, **fields):
    return pb.GenerateRequest(text=PROMPT.format(8 + i % 12, i % 60) * (1 + i % 3), sampling=sampling, **fields)


def _long_prompt(i, n_prompt, sampling):
    ids = random.Random(i).choices(_VOCABULARY, k=n_prompt)
    return pb.GenerateRequest(tokens=pb.TokenIds(ids=ids), sampling=sampling)


def _tool_call(i, sampling):
    return pb.ChatRequest(messages=[pb.ChatMessage(role="user", content=PROMPT.format(8 + i % 12, i % 60))], tools=_TOOLS,
                          tool_choice=pb.ToolChoice(mode=pb.ToolChoice.REQUIRED), sampling=sampling)


def requests(n, n_tokens):
    """n requests: greedy, seeded, with penalties, logprobs, a regular expression, a JSON schema, JSON events, tool calls,
    prompt logprobs, two choices, a long prompt."""
    def one(i):
        def sampling(**fields):
            return pb.SamplingParams(max_tokens=n_tokens, ignore_eos=True, seed=1000 + i, **fields)
        notes = pb.Grammar(json_schema=json.dumps(_NOTES))
        kinds = [lambda: _generate(i, sampling(temperature=0.0)),
                 lambda: _generate(i, sampling(temperature=1.0)),
                 lambda: _generate(i, sampling(temperature=0.8, presence_penalty=0.5, repetition_penalty=1.2)),
                 lambda: _generate(i, sampling(temperature=1.0, logprobs=3, top_k=20, top_p=0.9)),
                 lambda: _generate(i, sampling(temperature=1.0, grammar=pb.Grammar(regex="[a-z ]{2000}"))),
                 lambda: _generate(i, sampling(temperature=1.0, grammar=notes)),
                 lambda: _generate(i, sampling(temperature=1.0, grammar=notes), json_events=pb.JsonEvents()),
                 lambda: _tool_call(i, sampling(temperature=1.0)),
                 lambda: _generate(i, sampling(temperature=0.7, prompt_logprobs=1)),
                 lambda: _generate(i, sampling(temperature=1.0, n=2)),
                 lambda: _long_prompt(i, _SHORTEST_LONG_PROMPT, sampling(temperature=1.0))]
        return kinds[i % len(kinds)]()
    return [one(i) for i in range(n)]


def long_prompts(n, n_tokens):
    """n requests whose prompts take much longer to compute than their answers."""
    return [_long_prompt(i, _LONGEST_PROMPT, pb.SamplingParams(max_tokens=n_tokens, ignore_eos=True, temperature=1.0, seed=i))
            for i in range(n)]


@dataclasses.dataclass
class Choice:
    """Everything that a stream has said about one choice. Floats are compared for equality, because a row's result does
    not depend on its neighbours."""
    token_ids: list = dataclasses.field(default_factory=list)
    text: str = ""
    finish_reason: int = 0
    logprobs: tuple = ()
    events: list = dataclasses.field(default_factory=list)
    tool_calls: list = dataclasses.field(default_factory=list)  # [name, arguments]; the ids are drawn

    def add(self, message):
        self.token_ids += message.token_ids
        self.text += message.text
        self.finish_reason = message.finish_reason or self.finish_reason
        self.logprobs += logprob_tuple(message.logprobs)
        for event in message.json_events:
            if self.events and self.events[-1][0] == event.path:
                self.events[-1][1] += event.delta
            else:
                self.events.append([event.path, event.delta])
        for delta in message.tool_calls:
            if delta.index == len(self.tool_calls):
                self.tool_calls.append([delta.name, ""])
            self.tool_calls[delta.index][1] += delta.arguments


@dataclasses.dataclass
class Outcome:
    """`error` is a grpc.StatusCode, or None. `times` are those of the stream's messages, on time.monotonic(), and
    `n_tokens` the tokens of all choices up to each."""
    choices: dict = dataclasses.field(default_factory=dict)
    prompt_logprobs: tuple = ()
    error: object = None
    details: str = ""
    times: list = dataclasses.field(default_factory=list)
    n_tokens: list = dataclasses.field(default_factory=list)

    def add(self, message):
        choice = self.choices.setdefault(message.index, Choice())
        choice.add(message)
        if message.HasField("prompt"):
            self.prompt_logprobs += logprob_tuple(message.prompt.logprobs)
        self.times.append(time.monotonic())
        self.n_tokens.append((self.n_tokens[-1] if self.n_tokens else 0) + len(message.token_ids))

    def equals(self, other):
        return (self.choices, self.prompt_logprobs) == (other.choices, other.prompt_logprobs)

    def begins(self, other):
        """All that this stream has said, the other one has said, too."""
        return all(index in other.choices and other.choices[index].token_ids[:len(choice.token_ids)] == choice.token_ids
                   for index, choice in self.choices.items())

    def tokens_before(self, moment):
        return max((n for at, n in zip(self.times, self.n_tokens, strict=True) if at <= moment), default=0)

    def silence_across(self, moment):
        """Seconds of the longest pause between two messages that ends after `moment`. None: the stream had ended."""
        ends = [i for i, at in enumerate(self.times) if at > moment]
        return max((self.times[i] - (self.times[i - 1] if i else moment) for i in ends), default=None)


async def follow(stub, request, outcome):
    """Reads one stream to its end."""
    call = stub.Chat if isinstance(request, pb.ChatRequest) else stub.Generate
    try:
        async for message in call(request, timeout=STREAM_TIMEOUT_S):
            outcome.add(message)
    except grpc.RpcError as error:
        outcome.error, outcome.details = error.code(), error.details()


class Streams:
    """All requests at once, on a thread of their own, until every stream has ended. They take no prompt from a cache that
    earlier requests have filled."""
    channel_options = ()
    follow = staticmethod(follow)

    def __init__(self, address, all_requests):
        self.outcomes = [Outcome() for _ in all_requests]
        self._address = address
        salt = secrets.token_hex(8)
        self._requests = [self._prepared(request, i, salt) for i, request in enumerate(all_requests)]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_all()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()

    def await_messages(self, n, of=None):
        """Waits until `of` streams (None: all) have n messages, or have ended."""
        wanted = len(self.outcomes) if of is None else of
        wait_until(lambda: not self._thread.is_alive() or sum(bool(o.error) or len(o.times) >= n for o in self.outcomes) >= wanted,
                   f"{n} messages of {wanted} streams", timeout_s=STREAM_TIMEOUT_S)

    async def _run_all(self):
        options = [("grpc.enable_http_proxy", 0), *self.channel_options]
        async with grpc.aio.insecure_channel(self._address, options=options) as channel:
            stub = pb_grpc.InferenceStub(channel)
            await asyncio.gather(*(self.follow(stub, *pair) for pair in zip(self._requests, self.outcomes, strict=True)))

    def _prepared(self, request, index, salt):
        copy = type(request)()
        copy.CopyFrom(request)
        copy.cache_salt = salt
        return copy


def undisturbed(cluster, all_requests, kind=Streams):
    """The outcomes without a fault."""
    with kind(cluster.grpc, all_requests) as streams:
        pass
    assert not any(outcome.error for outcome in streams.outcomes), [o.details for o in streams.outcomes if o.error]
    return streams.outcomes


def classify(outcomes, expected):
    """{identical, error, hung, different}: number of streams. What a stream with an error has said was right; a repeated
    token makes a stream different."""
    counts = dict(identical=0, error=0, hung=0, different=0)
    for outcome, right in zip(outcomes, expected, strict=True):
        if outcome.error is None:
            counts["identical" if outcome.equals(right) else "different"] += 1
        elif not outcome.begins(right):
            counts["different"] += 1
        else:
            counts["hung" if outcome.error == grpc.StatusCode.DEADLINE_EXCEEDED else "error"] += 1
    return counts


def n_with_tokens_to_come(outcomes, expected, moment, n):
    """Number of streams that had at least n tokens still to come."""
    return sum(right.n_tokens[-1] - outcome.tokens_before(moment) >= n for outcome, right in zip(outcomes, expected, strict=True))


def replace_weights(model):
    """Puts another file in the place of a folder's model.safetensors, with the same header and zeros."""
    weights = model / "model.safetensors"
    content = weights.read_bytes()
    n_header = 8 + int.from_bytes(content[:8], "little")
    update = model / "update"
    update.write_bytes(content[:n_header] + bytes(len(content) - n_header))
    update.replace(weights)
