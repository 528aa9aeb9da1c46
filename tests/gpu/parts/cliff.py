"""Few new tokens after a cached context. The tokens are the same as without the cache (--batch-invariant). The time to
the first token, by number of new tokens, is never longer than for the next larger number. Also measures the gaps in a
stream that runs beside such requests."""
import random
import statistics
import threading
import time

import client
from checks import Check, of_stages
from results import at_most
from servers import Spec

from parts import speed

NEW = (1, 2, 4, 8, 15, 16, 17, 31, 32, 48, 63, 64, 65, 96, 128, 256)
CACHED = (0, 1024, 8000, 30000)  # whole KV blocks
FEW = range(16, 64)
FIRST_TOKEN_MS, GAP_MS = 15, 12
NOISE_MS, NOISE = 0.5, 1.1  # allowed noise between two times to the first token
PEERS = "a68c67f, one H200: 91 to 99 ms of 16 to 63 behind 30,000, 21 of 64; gap p99 beside them 95 ms"


def tokens(generator, vocab, n):
    return [generator.randrange(3, vocab) for _ in range(n)]


def run_tokens(server, results, vocab, cached, new, n_tokens):
    generator = random.Random(19)
    beginning = tokens(generator, vocab, cached)
    bodies = [dict(prompt=beginning + tokens(generator, vocab, n), max_tokens=n_tokens, temperature=0) for n in new]
    apart = [client.complete_each(server, [dict(body, cache_salt=str(i))])[0] for i, body in enumerate(bodies)]
    client.complete_each(server, [dict(prompt=beginning, max_tokens=1, temperature=0)])
    behind = [client.complete_each(server, [body])[0] for body in bodies]
    differ = [n for n, one, two in zip(new, apart, behind) if one != two]
    results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/cliff/different_tokens", len(differ),
                f"of {len(new)} prompts have other tokens behind {cached} cached ones than computed whole",
                f"{server.command}; /v1/completions, {n_tokens} tokens each", goal=at_most(0))
    if differ:
        raise client.CheckFailed(f"{differ} new tokens behind {cached} cached ones have other answers")


def first_token_ms(server, prompt):
    start = time.monotonic()
    stream = client.Stream(server, prompt, 1)
    try:
        if stream.next() is None:
            raise RuntimeError("the stream ended before its first token")
        return (time.monotonic() - start) * 1e3
    finally:
        stream.close()


def run_first_tokens(server, results, vocab, cached, new, repeat):
    generator = random.Random(23)
    found = {}
    for n_cached in cached:
        beginning = tokens(generator, vocab, n_cached)
        if beginning:
            first_token_ms(server, beginning)
        first_token_ms(server, beginning + tokens(generator, vocab, max(new)))  # warm-up: work that is done once per shape
        for n in new:
            ms = statistics.median(first_token_ms(server, beginning + tokens(generator, vocab, n)) for _ in range(repeat))
            found[n_cached, n] = ms
            is_bound = n in FEW and n_cached == max(CACHED)
            results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/cliff/ttft_ms/{n}_behind_{n_cached}", ms,
                        f"ms to the first token, median of {repeat}", f"{server.command}; /v1/completions, stream",
                        goal=at_most(FIRST_TOKEN_MS) if is_bound else None, reference=PEERS if is_bound else None)
    worst, place = max((found[c, n] / (found[c, larger] + NOISE_MS), f"{n} instead of {larger} behind {c}")
                       for c in cached for n, larger in zip(new, new[1:]))
    results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/cliff/worst_step", worst,
                f"times the first token of the next larger number of new tokens, and {NOISE_MS} ms: {place}",
                server.command, goal=at_most(NOISE, "noise"))


def run_gaps(server, results, vocab, cached, n_requests, n_stream, is_small):
    generator = random.Random(29)
    beginning = tokens(generator, vocab, cached)
    first_token_ms(server, beginning)
    prompts = [beginning + tokens(generator, vocab, FEW[i * 7 % len(FEW)]) for i in range(n_requests)]
    stream = client.Stream(server, tokens(generator, vocab, 32), n_stream)
    times, enough, ended = [], threading.Event(), threading.Event()

    def read():
        while not enough.is_set() and (data := stream.next()) is not None and data != "[DONE]":
            times.append(time.monotonic())
        stream.close()
        ended.set()

    reader = threading.Thread(target=read, daemon=True)
    begin = time.monotonic()
    reader.start()
    n_beside = 0
    for prompt in prompts:
        if ended.is_set():
            break
        first_token_ms(server, prompt)
        n_beside += 1
    end = time.monotonic()
    enough.set()
    reader.join(timeout=30)
    gaps = sorted((b - a) * 1e3 for a, b in zip(times, times[1:]) if begin <= a and b <= end)
    if not gaps or (n_beside < n_requests and not is_small):
        raise client.CheckFailed(f"the stream ended early: {n_beside} requests, {len(gaps)} gaps")
    results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/cliff/gap_p99_ms", gaps[int(0.99 * (len(gaps) - 1))],
                f"ms between a stream's tokens, p99 of {len(gaps)}, beside {n_beside} requests one after another of {FEW[0]} to "
                f"{FEW[-1]} new tokens behind {cached}", server.command, goal=at_most(GAP_MS), reference=PEERS,
                p50_ms=round(statistics.median(gaps), 3))


def checks(options):
    vocab = options.models.config("mistral-7b")["vocab_size"]
    new, cached = options.small((NEW, CACHED), ((1, 3, 17, 40), (0, 64)))
    found = []
    for stages in options.stages:
        def spec(*more, stages=stages):
            return Spec("mistral-7b", stages, options.flags("--load-format", "dummy", *more), prefix_cache="on")

        found.append(Check(f"cliff/{stages}_stages/tokens", spec("--batch-invariant"), limit_s=180, run=lambda server, results: run_tokens(
            server, results, vocab, max(cached), tuple(n for n in new if n < 128), options.small(16, 4))))
        found.append(Check(f"cliff/{stages}_stages/first_tokens", spec(), limit_s=180, run=lambda server, results: run_first_tokens(
            server, results, vocab, cached, new, options.small(5, 1))))
        found.append(Check(f"cliff/{stages}_stages/gaps", spec(), limit_s=120, run=lambda server, results: run_gaps(
            server, results, vocab, max(cached), options.small(60, 3), options.small(4000, 200), options.smoke)))
    return found


def summarize(options, results):
    pass
