"""Throughput of 64 requests with a JSON schema and of the same requests without one, alternating, on the servers of
`speed`."""
import json
import statistics
import sys
import time

import client
import shapes
from checks import Check, of_stages

from parts import speed

sys.path.append(str(shapes.ROOT / "tests" / "bench"))
from grammar_schema import SCHEMA


def rate(server, n_requests, n_tokens, form):
    """Output tokens per second; all requests run at the same time."""
    bodies = [dict(prompt=[10 + (i * 7 + j) % 200 for j in range(16)], max_tokens=n_tokens, temperature=1.0, seed=i, **form)
              for i in range(n_requests)]
    began = time.perf_counter()
    answers = client.complete_each(server, bodies)
    seconds = time.perf_counter() - began
    if any(len(answer) != n_tokens for answer in answers):
        raise client.CheckFailed(f"an answer has not its {n_tokens} tokens")
    return n_requests * n_tokens / seconds


def run(server, results, n_requests, n_tokens, n_runs):
    forms = {"free": {}, "constrained": {"guided_json": json.dumps(SCHEMA)}}
    rates = {name: [] for name in forms}
    watch = None
    for i in range(n_runs + 1):
        for name, form in forms.items():
            if name == "constrained" and i == n_runs:
                watch = client.StageWatch(server)
            measured = rate(server, n_requests, n_tokens, form)
            if i > 0:  # the first run of each is a warm-up
                rates[name].append(measured)
    free, constrained = (statistics.median(rates[name]) for name in ("free", "constrained"))
    results.add(f"{of_stages(speed.MODEL, server.spec.stages)}/constrained_throughput/64_requests", constrained,
                f"output tok/s held to a JSON schema, {n_tokens} tokens each, median of {n_runs}",
                f"{server.command}; {n_requests} at a time over HTTP, schema of tests/bench/grammar_schema.py",
                reference="the same requests without one, in turns", reference_value=free, **watch.read())


def checks(options):
    size = options.small((64, 128, 5), (4, 8, 2))
    return [Check(f"constrained/{stages}_stages", speed.spec(options, stages), lambda server, results: run(server, results, *size),
                  limit_s=120) for stages in options.stages]


def summarize(options, results):
    pass
