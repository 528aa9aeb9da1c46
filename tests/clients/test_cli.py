"""The `stagecoach` program against a cluster."""
import json
import os
import pty
import select
import signal
import socket
import subprocess

import pytest
from harness import DEMO_MODEL, STAGECOACH


def run(*arguments, stdin="", code=0, timeout=120):
    result = subprocess.run([STAGECOACH, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result


def generate_json(cluster, *arguments):
    return json.loads(run("generate", "--server", cluster.grpc, "--json", "--temperature", 0, *arguments).stdout)


def test_generate_text(cluster):
    result = run("generate", "--server", cluster.grpc, "--chat", "Hello!", "--temperature", 0, "--max-tokens", 16)
    assert result.stdout.strip()
    assert result.stderr == ""


def test_generate_json(cluster):
    answer = generate_json(cluster, "--prompt", "The train", "--max-tokens", 6, "--ignore-eos", "--logprobs", 2,
                           "--prompt-logprobs", "--echo")
    assert answer["prompt"] == "The train"
    assert len(answer["token_ids"]) == 6
    assert answer["finish_reason"] == "length"
    assert [position["token_id"] for position in answer["logprobs"]] == answer["token_ids"]
    assert all(len(position["top"]) == 2 for position in answer["logprobs"])
    assert answer["prompt_logprobs"][0] is None
    assert [position["token_id"] for position in answer["prompt_logprobs"][1:]] == answer["prompt_ids"][1:]
    assert answer["usage"] == {"prompt_tokens": len(answer["prompt_ids"]), "completion_tokens": 6, "cached_tokens": 0}
    again = generate_json(cluster, "--prompt-ids", ",".join(map(str, answer["prompt_ids"])), "--max-tokens", 6, "--ignore-eos")
    assert again["token_ids"] == answer["token_ids"]
    assert again["text"] == answer["text"]


def test_several_choices(cluster):
    arguments = ["--prompt", "The train", "--n", 3, "--temperature", 1, "--seed", 7, "--max-tokens", 5, "--ignore-eos"]
    answer = json.loads(run("generate", "--server", cluster.grpc, "--json", *arguments).stdout)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert all(len(choice["token_ids"]) == 5 for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 15
    assert "[2]" in run("generate", "--server", cluster.grpc, *arguments).stdout


def test_generate_with_a_cluster_of_its_own(cluster):
    arguments = ["--chat", "Hello!", "--temperature", 0, "--max-tokens", 16, "--json"]
    alone = json.loads(run("generate", "--model", DEMO_MODEL, "--stages", 2, *arguments).stdout)
    served = json.loads(run("generate", "--server", cluster.grpc, *arguments).stdout)
    assert alone["token_ids"] == served["token_ids"]


def test_what_the_server_refuses_is_one_line(cluster):
    result = run("generate", "--server", cluster.grpc, "--prompt", "a", "--top-p", 7, code=1)
    assert result.stderr.startswith("error: ")
    assert "top_p" in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_server_is_named():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for command in (["generate", "--prompt", "a"], ["chat"], ["batch", "/dev/null"]):
            result = run(*command, "--server", address, code=1)
            assert address in result.stderr and "stagecoach serve" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["fly"], ["serve"], ["generate"], ["generate", "--prompt", "a", "--chat", "b"],
                                       ["generate", "--prompt", "a", "--temperature", "hot"], ["serve", "m", "--stages", "0"]])
def test_usage_errors(arguments):
    run(*arguments, code=2)


def test_batch(cluster, tmp_path):
    lines = [{"prompt": f"Line {i}", "max_tokens": 4, "temperature": 0, "ignore_eos": True} for i in range(60)]
    lines[7] = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8, "temperature": 0}
    lines[9] = {"prompt": "bad", "top_p": 3}
    lines[11] = {"prompt": "bad", "top_pp": 3}
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("batch", path, "--server", cluster.grpc, "--concurrency", 16, code=1)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["index"] for answer in answers] == list(range(60))
    assert "top_p" in answers[9]["error"]["message"]
    assert "top_pp" in answers[11]["error"]["message"]
    assert "2 of 60 requests failed" in result.stderr
    for i, answer in enumerate(answers):
        if i not in (7, 9, 11):
            assert len(answer["token_ids"]) == 4, answer
    one = generate_json(cluster, "--prompt", "Line 3", "--max-tokens", 4, "--ignore-eos")
    assert answers[3]["token_ids"] == one["token_ids"]


@pytest.mark.parametrize("mode, flags", [
    ("latency", ["--batch-size", 2, "--repeat", 2, "--warmup", 1]),
    ("throughput", ["--requests", 4, "--prefix-tokens", 16, "--prefixes", 2]),
    ("serve", ["--requests", 4, "--concurrency", 2, "--request-rate", 1000]),
])
def test_bench(cluster, mode, flags):
    arguments = ["bench", mode, "--server", cluster.grpc, "--input-tokens", 32, "--output-tokens", 5, *flags]
    report = json.loads(run(*arguments, "--json").stdout)
    assert report["load"]["mode"] == mode
    assert report["requests"] == {"ok": 4, "failed": 0}
    assert report["prompt_tokens"] == 4 * 32
    assert report["output_tokens"] == 4 * 5
    for figure in "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms":
        assert 0 <= report[figure]["p50"] <= report[figure]["p99"] <= report[figure]["max"]
    assert "TTFT" in run(*arguments).stdout


def test_bench_of_a_file(cluster, tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"prompt": "The train", "max_tokens": 3, "ignore_eos": true}\n')
    report = json.loads(run("bench", "serve", "--server", cluster.grpc, "--file", path, "--requests", 3, "--json").stdout)
    assert report["output_tokens"] == 9
    path.write_text('{"prompt": "The train", "top_pp": 3}\n')
    assert "line 1" in run("bench", "serve", "--server", cluster.grpc, "--file", path, code=1).stderr


def test_chat_remembers(cluster):
    """Piped lines are questions; answers with history differ from none only through what was said before."""
    arguments = ["chat", "--server", cluster.grpc, "--temperature", "0", "--max-tokens", "16"]
    first = run(*arguments, stdin="Hello!\n").stdout
    assert first.strip()
    twice = run(*arguments, stdin="Hello!\n/reset\nHello!\n/exit\n").stdout
    assert twice == first * 2


def read_until(terminal, text, timeout_s=60):
    """What a program writes to its terminal up to and with `text`."""
    seen = ""
    while text not in seen:
        assert select.select([terminal], [], [], timeout_s)[0], seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def test_chat_on_a_terminal(cluster):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(STAGECOACH, [STAGECOACH, "chat", "--server", cluster.grpc, "--temperature", "0", "--ignore-eos",
                              "--max-tokens", "20"])
    read_until(terminal, "> ")
    os.write(terminal, b"Hello!\n")
    assert "tokens/s" in read_until(terminal, "\n> ")
    os.write(terminal, b"\x03")
    read_until(terminal, "ends")
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_ctrl_c_stops_a_cluster_in_order():
    """ctrl-C at a terminal reaches the whole foreground group: the launcher alone must hear it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(STAGECOACH, [STAGECOACH, "serve", str(DEMO_MODEL), "--stages", "2", "--grpc", "127.0.0.1:0", "--http",
                              "off", "--metrics", "127.0.0.1:0"])
    read_until(terminal, "ready grpc=", timeout_s=120)
    os.write(terminal, b"\x03")
    status = None
    while status is None:
        try:
            os.read(terminal, 4096)  # or the programs block on a full terminal
        except OSError:
            status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    os.close(terminal)


def test_a_killed_launcher_takes_its_programs_along():
    from harness import Cluster, is_running

    cluster = Cluster(DEMO_MODEL, stages=2)
    cluster.start()
    descriptors = [os.pidfd_open(pid) for pid in cluster._children]
    cluster.process.send_signal(signal.SIGKILL)
    for descriptor in descriptors:  # readable when the process has ended
        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)
    cluster.process.wait()
    cluster.channel.close()
    cluster.assert_nothing_left()
    assert not any(is_running(pid) for pid in cluster._children)
