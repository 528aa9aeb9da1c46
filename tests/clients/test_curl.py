"""curl, as in the README."""
import json
import subprocess


def curl(cluster, path, *arguments, code=0):
    run = subprocess.run(["curl", "-sS", "--noproxy", "*", *arguments, f"http://{cluster.http}{path}"], capture_output=True,
                         text=True, timeout=60)
    assert run.returncode == code, run.stderr
    return run.stdout


def post(cluster, path, body, *arguments):
    return curl(cluster, path, "-H", "Content-Type: application/json", "-d", json.dumps(body), *arguments)


BODY = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 24}


def test_stream(cluster):
    whole = json.loads(post(cluster, "/v1/chat/completions", BODY))["choices"][0]["message"]["content"]
    lines = post(cluster, "/v1/chat/completions", dict(BODY, stream=True), "-N").split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == whole


def test_headers(cluster):
    head = post(cluster, "/v1/chat/completions", dict(BODY, stream=True), "-D", "-", "-o", "/dev/null")
    assert head.startswith("HTTP/1.1 200 OK")
    fields = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in head.splitlines()[1:] if line}
    assert fields["content-type"] == "text/event-stream; charset=utf-8"
    assert fields["cache-control"] == "no-cache" and fields["date"].endswith("GMT")


def test_a_large_body_waits_for_100_continue(cluster):
    """curl sends Expect: 100-continue before a body of more than 1 MB."""
    body = json.dumps({"prompt": "x", "padding": "y" * 3_000_000}).encode()
    run = subprocess.run(["curl", "-sS", "--noproxy", "*", "-v", "-H", "Content-Type: application/json", "--data-binary", "@-",
                          f"http://{cluster.http}/tokenize"], input=body, capture_output=True, timeout=60)
    assert b"HTTP/1.1 100 Continue" in run.stderr
    assert json.loads(run.stdout)["count"] > 0


def test_a_missing_content_type_gives_an_error_with_advice(cluster):
    answer = json.loads(curl(cluster, "/v1/chat/completions", "-d", json.dumps(BODY)))
    assert "Content-Type: application/json" in answer["error"]["message"]
