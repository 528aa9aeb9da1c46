"""Client of the checks: completions over HTTP, metrics, and load by `stagecoach bench`."""
import collections
import concurrent.futures
import hashlib
import http.client
import json
import re
import subprocess

from processes import ends_with_us

STAGE_STATES = ("compute", "wait_input", "wait_mask", "wait_send", "idle")


class CheckFailed(Exception):
    """The server still works, but its answers are wrong."""


def _answer(address, method, path, body=None, limit_s=300):
    """(status, text)"""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=limit_s)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _ask(address, method, path, body=None, limit_s=300):
    status, text = _answer(address, method, path, body, limit_s)
    if status != 200:
        raise RuntimeError(f"{method} {path}: {status} {text[:500]}")
    return text


def is_ready(server):
    return _answer(server.http, "GET", "/ready", limit_s=30)[0] == 200


def max_model_len(server):
    return json.loads(_ask(server.http, "GET", "/v1/models"))["data"][0]["max_model_len"]


def complete(server, prompts, max_tokens, limit_s=300, **sampling):
    """Returns the new token ids of each prompt; prompts are token ids too. Sends all prompts in one request."""
    body = dict(prompt=prompts, max_tokens=max_tokens, ignore_eos=True, return_token_ids=True, **sampling)
    answer = json.loads(_ask(server.http, "POST", "/v1/completions", body, limit_s))
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    if len(choices) != len(prompts):
        raise RuntimeError(f"{len(choices)} answers to {len(prompts)} prompts")
    return [choice["token_ids"] for choice in choices]


def complete_each(server, bodies):
    """Returns the new token ids of each request. Sends all requests at the same time, each on its own connection."""
    def one(body):
        body = dict(body, ignore_eos=True, return_token_ids=True)
        return json.loads(_ask(server.http, "POST", "/v1/completions", body))["choices"][0]["token_ids"]

    pool = concurrent.futures.ThreadPoolExecutor(len(bodies))
    try:
        return [future.result() for future in [pool.submit(one, body) for body in bodies]]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a check that has run out of time must not wait


def digests(answers):
    """A short hash per answer: enough to see which answers differ, short enough for a result line."""
    return [hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:6] for tokens in answers]


def metrics(server):
    """{(name, labels sorted by name): value}"""
    found = {}
    for line in _ask(server.metrics, "GET", "/metrics", limit_s=30).splitlines():
        if match := re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line):
            found[match[1], tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[2] or "")))] = float(match[3])
    return found


def by_stage(page, name, **labels):
    """{stage: value} of a per-stage metric."""
    found = collections.Counter()
    for (of, given), value in page.items():
        given = dict(given)
        if of == name and labels.items() <= given.items():
            found[int(given["stage"])] += value
    return found


def total(page, name):
    return sum(value for (of, _), value in page.items() if of == name)


class StageWatch:
    """Stage activity between two moments: shares of time by state, and the share of steps whose metadata arrived
    early."""

    def __init__(self, server):
        self._server = server
        self._before = metrics(server)

    def read(self):
        after = metrics(self._server)

        def grown(name, **labels):
            before = by_stage(self._before, name, **labels)
            return {stage: value - before[stage] for stage, value in by_stage(after, name, **labels).items()}

        seconds = {state: grown("stagecoach_stage_seconds_total", state=state) for state in STAGE_STATES}
        steps, late = grown("stagecoach_stage_steps_total"), grown("stagecoach_stage_metadata_late_steps_total")
        stages = []
        for stage in sorted(steps):
            elapsed = sum(seconds[state][stage] for state in STAGE_STATES) or 1
            stages.append({state: round(seconds[state][stage] / elapsed, 3) for state in STAGE_STATES})
        early = [1 - late[stage] / steps[stage] for stage in steps if stage > 0 and steps[stage] > 0]
        return {"stages": stages, "metadata_early": round(min(early), 4) if early else None}


def bench(server, arguments):
    """The report of `stagecoach bench --json` for the running server."""
    done = subprocess.run([str(server.bin_dir / "stagecoach"), "bench", *arguments, "--json", "--server", server.grpc],
                          capture_output=True, text=True, env=server.env, preexec_fn=ends_with_us())
    if not done.stdout.strip():
        raise RuntimeError(f"bench {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-500:]}")
    report = json.loads(done.stdout)
    report["error"] = done.stderr.strip()[-500:] if done.returncode else ""
    return report


def check_answers(report):
    """Raises if requests of a bench report failed: its numbers are then meaningless."""
    requests = report["requests"]
    if requests["failed"] or not requests["ok"] or report["error"]:
        raise CheckFailed(f"{requests['failed']} requests failed, {requests['ok']} did not: "
                          f"{report['error'] or 'no error is said'}")


class Stream:
    """A streamed completion, read token by token."""

    def __init__(self, server, prompt, max_tokens, temperature=0, **sampling):
        host, _, port = server.http.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=120)
        body = dict(prompt=prompt, max_tokens=max_tokens, temperature=temperature, ignore_eos=True, stream=True,
                    **sampling)
        self._connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            raise RuntimeError(f"stream: {self._response.status} {self._response.read(500)}")

    def next(self):
        """The next event's data; None: the connection has ended."""
        try:
            while line := self._response.readline():
                if line.startswith(b"data: "):
                    return line[6:].strip().decode()
        except (OSError, http.client.HTTPException):
            pass
        return None

    def close(self):
        self._connection.close()
