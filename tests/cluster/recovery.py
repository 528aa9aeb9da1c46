"""Streams of mixed kinds that run while stages of their pipeline are lost, and what became of each."""
import asyncio
import dataclasses
import threading
import time

import grpc
from faults import pids
from harness import wait_until
from stagecoach.v1 import inference_pb2 as pb
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from workload import Answer, logprob_tuple

PROMPT = "When does the next coach leave from Greywell to Elmstead after {}:{:02} on Sunday? "
STREAM_TIMEOUT_S = 240


def requests(n, n_tokens):
    """n requests: greedy, seeded, with penalties, logprobs, a grammar, prompt logprobs, two choices."""
    def sampling(i):
        common = dict(max_tokens=n_tokens, ignore_eos=True, seed=1000 + i)
        return [dict(temperature=0.0),
                dict(temperature=1.0),
                dict(temperature=0.8, presence_penalty=0.5, repetition_penalty=1.2),
                dict(temperature=1.0, logprobs=3, top_k=20, top_p=0.9),
                dict(temperature=1.0, grammar=pb.Grammar(regex="[a-z ]{2000}")),
                dict(temperature=0.7, prompt_logprobs=1),
                dict(temperature=1.0, n=2)][i % 7] | common
    return [pb.GenerateRequest(text=PROMPT.format(8 + i % 12, i % 60) * (1 + i % 3), sampling=pb.SamplingParams(**sampling(i)))
            for i in range(n)]


@dataclasses.dataclass
class Outcome:
    """`error` is a grpc.StatusCode, or None. `times` are those of the stream's messages, on time.monotonic()."""
    answers: list = dataclasses.field(default_factory=list)
    error: object = None
    details: str = ""
    times: list = dataclasses.field(default_factory=list)

    def silence_after(self, moment):
        """Seconds from `moment` to the stream's next message; None: the stream had ended."""
        return next((at - moment for at in self.times if at > moment), None)


class Streams:
    """All requests at once, on a thread of their own, until every stream has ended."""

    def __init__(self, address, all_requests):
        self.outcomes = [Outcome() for _ in all_requests]
        self._address = address
        self._requests = all_requests
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_all()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()

    def await_messages(self, n):
        """Waits until every stream has n messages, or has ended."""
        wait_until(lambda: not self._thread.is_alive() or all(o.error or len(o.times) >= n for o in self.outcomes),
                   f"{n} messages of each stream", timeout_s=STREAM_TIMEOUT_S)

    async def _run_all(self):
        async with grpc.aio.insecure_channel(self._address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = pb_grpc.InferenceStub(channel)
            await asyncio.gather(*(self._run(stub, *pair) for pair in zip(self._requests, self.outcomes, strict=True)))

    async def _run(self, stub, request, outcome):
        parts, prompt_logprobs = {}, ()
        try:
            async for message in stub.Generate(request, timeout=STREAM_TIMEOUT_S):
                outcome.times.append(time.monotonic())
                if message.HasField("prompt"):
                    prompt_logprobs += logprob_tuple(message.prompt.logprobs)
                part = parts.setdefault(message.index, [[], "", 0, []])
                part[0] += message.token_ids
                part[1] += message.text
                part[2] = message.finish_reason or part[2]
                part[3] += logprob_tuple(message.logprobs)
        except grpc.RpcError as error:
            outcome.error, outcome.details = error.code(), error.details()
        outcome.answers = [Answer(tuple(p[0]), p[1], p[2], tuple(p[3]), prompt_logprobs) for _, p in sorted(parts.items())]


def undisturbed(cluster, all_requests):
    with Streams(cluster.grpc, all_requests) as streams:
        pass
    assert not any(outcome.error for outcome in streams.outcomes), streams.outcomes
    return [outcome.answers for outcome in streams.outcomes]


def classify(outcomes, expected):
    """{identical, error, hung, different}: number of streams."""
    counts = dict(identical=0, error=0, hung=0, different=0)
    for outcome, answers in zip(outcomes, expected, strict=True):
        if outcome.error == grpc.StatusCode.DEADLINE_EXCEEDED:
            counts["hung"] += 1
        elif outcome.error:
            counts["error"] += 1
        else:
            counts["identical" if outcome.answers == answers else "different"] += 1
    return counts


def await_workers(cluster):
    """Pids of all workers, once every stage has one."""
    return wait_until(lambda: (found := pids(cluster)[1]) and all(found) and found, "a worker for every stage")
