"""Resumable streams over gRPC and HTTP whose clients come back when their router is killed, and kills of the router."""
import asyncio
import dataclasses
import json
import os
import re
import secrets
import signal
import threading
import time

import aiohttp
import grpc
from faults import is_ready, pids
from harness import wait_until
from recovery import PROMPT, STREAM_TIMEOUT_S, Streams
from stagecoach.v1 import inference_pb2 as pb

RETRY_S = 0.02


def router_or_none(cluster):
    try:
        return pids(cluster)[0]
    except (ValueError, FileNotFoundError, ProcessLookupError):
        return None


def kill_router(cluster):
    """Returns when another router has taken the killed one's place; it may not serve yet."""
    killed = pids(cluster)[0]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: router_or_none(cluster) not in (None, killed), "the next router")


def await_router(cluster):
    """Returns when the router serves over gRPC and HTTP."""
    def serves():
        try:
            return is_ready(cluster)
        except OSError:
            return False
    wait_until(serves, "the router")


async def follow_on(stub, request, outcome):
    """Reads one resumable stream to its end, over any number of connections."""
    call = stub.Chat if isinstance(request, pb.ChatRequest) else stub.Generate
    position, sent = 0, False
    deadline = time.monotonic() + STREAM_TIMEOUT_S
    while True:
        try:
            if sent:
                stream = stub.Resume(pb.ResumeRequest(request_id=request.request_id, **{"from": position}), timeout=STREAM_TIMEOUT_S)
            else:
                sent, stream = True, call(request, timeout=STREAM_TIMEOUT_S)
            async for message in stream:
                outcome.add(message)
                position = message.position
            return
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND and position == 0:
                sent = False  # no router has had the request
            elif error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                outcome.error, outcome.details = error.code(), error.details()
                return
        await asyncio.sleep(RETRY_S)


class ResumedStreams(Streams):
    """Streams that outlive their connections. `ids` are the streams' ids, for as long as the server keeps them."""
    channel_options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 50),
                       ("grpc.max_reconnect_backoff_ms", 100)]
    follow = staticmethod(follow_on)

    def __init__(self, address, all_requests):
        self.ids = [secrets.token_hex(8) for _ in all_requests]
        super().__init__(address, all_requests)

    def _prepared(self, request, index, salt):
        copy = super()._prepared(request, index, salt)
        copy.resumable, copy.request_id = True, self.ids[index]
        return copy


TOOL = {"type": "function", "function": {"name": "note", "parameters": {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 200, "maxLength": 250}},
    "required": ["text"], "additionalProperties": False}}}


def http_requests(n, n_tokens):
    """n pairs (path, body): sampled text, two choices with log-probabilities, a schema, a tool call, two prompts."""
    def one(i):
        text = PROMPT.format(8 + i % 12, i % 60)
        chat = {"messages": [{"role": "user", "content": text}]}
        schema = {"type": "json_schema", "json_schema": {"name": "note", "schema": TOOL["function"]["parameters"]}}
        path, fields = [("/v1/chat/completions", chat),
                        ("/v1/completions", {"prompt": text, "n": 2, "logprobs": 2}),
                        ("/v1/chat/completions", chat | {"response_format": schema}),
                        ("/v1/chat/completions", chat | {"tools": [TOOL], "tool_choice": "required"}),
                        ("/v1/completions", {"prompt": [text, text[::-1]], "echo": True})][i % 5]
        return path, fields | {"max_tokens": n_tokens, "ignore_eos": True, "seed": 5000 + i, "temperature": 1.0, "stream": True}
    return [one(i) for i in range(n)]


@dataclasses.dataclass
class HttpOutcome:
    """`events` are the events as bytes, without repetitions; `error` is what was wrong, or None."""
    events: list = dataclasses.field(default_factory=list)
    error: object = None

    def answers(self):
        """All that the stream has said, by choice, without what differs between two equal requests."""
        said = {}
        for event in self.events[:-1]:
            for choice in json.loads(event.partition(b"data: ")[2])["choices"]:
                delta = choice.get("delta", {})
                parts = said.setdefault(choice["index"], ["", "", [], None])
                parts[0] += (choice.get("text") or "") + (delta.get("content") or "")
                parts[1] += "".join(call["function"].get("name", "") + call["function"].get("arguments", "")
                                    for call in delta.get("tool_calls", ()))
                parts[2].append(choice.get("logprobs"))
                parts[3] = choice["finish_reason"] or parts[3]
        return said


async def _events(response):
    held = b""
    async for piece in response.content.iter_any():
        held += piece
        while (end := held.find(b"\n\n")) >= 0:
            event, held = held[:end], held[end + 2:]
            if b"data: " in event:  # otherwise a comment
                yield event


async def _follow_on_http(session, base, path, body, outcome):
    position, sent, held = 0, False, []
    deadline = time.monotonic() + STREAM_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if sent:
                request = session.get(f"{base}/v1/streams/{body['request_id']}?from={position}")
            else:
                sent, request = True, session.post(base + path, json=body)
            async with request as response:
                if response.status == 404 and position == 0:
                    sent = False  # no router has had the request
                elif response.status not in (200, 503):
                    outcome.error = await response.text()
                    return
                held = []
                async for event in _events(response) if response.status == 200 else ():
                    held.append(event)
                    if event.startswith(b"id: ") or event == b"data: [DONE]":
                        outcome.events += held
                        held = []
                    if event.startswith(b"id: "):
                        position = int(re.match(rb"id: (\d+)", event)[1])
                    if event == b"data: [DONE]":
                        return
        except (aiohttp.ClientError, ConnectionError):
            pass
        await asyncio.sleep(RETRY_S)
    outcome.error = "hung"


class HttpStreams:
    """All requests at once, on a thread of their own, until every stream has ended."""

    def __init__(self, address, all_requests):
        self.outcomes = [HttpOutcome() for _ in all_requests]
        self._base = f"http://{address}"
        self._requests = [(path, body | {"request_id": secrets.token_hex(8), "stream_options": {"resumable": True, "include_usage": True}})
                          for path, body in all_requests]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_all()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()

    def await_events(self, n):
        wait_until(lambda: not self._thread.is_alive() or all(o.error or len(o.events) >= n for o in self.outcomes),
                   f"{n} events of each stream", timeout_s=STREAM_TIMEOUT_S)

    async def _run_all(self):
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(_follow_on_http(session, self._base, *request, outcome)
                                   for request, outcome in zip(self._requests, self.outcomes, strict=True)))

    def read_again(self):
        """The events of every stream from its beginning."""
        async def run():
            async with aiohttp.ClientSession() as session:
                async def one(body):
                    async with session.get(f"{self._base}/v1/streams/{body['request_id']}") as response:
                        return [event async for event in _events(response)]
                return await asyncio.gather(*(one(body) for _, body in self._requests))
        return asyncio.run(run())
