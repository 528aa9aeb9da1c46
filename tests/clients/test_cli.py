"""The `stagecoach` program against a cluster."""
import http.server
import json
import os
import pty
import select
import signal
import socket
import subprocess
import threading

import httpx
import pytest
from harness import DEMO_MODEL, STAGECOACH, Cluster, wait_until
from proxy import CuttableProxy
from terminal import Terminal, read_until
from wire import metric, wait_for


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


def test_an_empty_answer_says_why(cluster):
    result = run("generate", "--server", cluster.grpc, "--prompt", "Which towns does the coach stop in?", "--temperature", 0)
    assert result.stdout == "\n"
    assert "the model ended its answer at once" in result.stderr
    assert "--chat" in result.stderr


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
    assert answer["usage"] == {"prompt_tokens": len(answer["prompt_ids"]), "completion_tokens": 6, "cached_tokens": 0,
                               "stored_tokens": {"host": 0, "disk": 0, "store": 0}}
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


def test_an_error_from_the_server_is_one_line(cluster):
    result = run("generate", "--server", cluster.grpc, "--prompt", "a", "--n", 500, code=1)
    assert result.stderr.startswith("error: ")
    assert "sampling.n: 500" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_error_says_that_there_is_no_server():
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


def test_chat_remembers_earlier_messages(cluster):
    """Piped lines are questions. Answers with history differ from answers without it only because of the earlier
    messages."""
    arguments = ["chat", "--server", cluster.grpc, "--temperature", "0", "--max-tokens", "16"]
    first = run(*arguments, stdin="Hello!\n").stdout
    assert first.strip()
    twice = run(*arguments, stdin="Hello!\n/reset\nHello!\n/exit\n").stdout
    assert twice == first * 2


@pytest.fixture(autouse=True)
def own_history(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def chat(cluster):
    return Terminal("--server", cluster.grpc, "--temperature", "0", "--ignore-eos", "--max-tokens", "20")


def test_chat_on_a_terminal(chat):
    chat.type("Hello!\r")
    chat.read_until("tokens/s")
    chat.read_until("> ")
    chat.type("half a li\x03")
    chat.read_until("to end")
    chat.read_until("> ")
    chat.end()


def test_ctrl_d_right_after_the_prompt_ends(cluster):
    """The terminal would swallow a ctrl-D that is typed before raw mode, and the prompt must not appear before it."""
    for _ in range(20):
        Terminal("--server", cluster.grpc).end()


def test_a_line_can_be_edited_and_recalled(chat, tmp_path):
    chat.type("Helo!\x1b[D\x1b[Dl\r")  # cursor two to the left
    chat.read_until("tokens/s")
    chat.type("\x1b[A\r")  # the previous line
    chat.read_until("tokens/s")
    said = [content for role, content in chat.conversation(tmp_path / "said.json") if role == "user"]
    assert said == ["Hello!", "Hello!"]
    chat.end()


def test_a_paste_is_one_message(chat, tmp_path):
    chat.type("\x1b[200~one\rtwo\rthree\r\x1b[201~")
    chat.type(" four\r")
    chat.read_until("tokens/s")
    said = [content for role, content in chat.conversation(tmp_path / "said.json") if role == "user"]
    assert said == ["one\ntwo\nthree four"]
    chat.end()


def test_commands_are_not_sent_as_questions(chat, tmp_path):
    chat.type("/help\r")
    chat.read_until("/system TEXT")
    chat.type("/hlep\r")
    chat.read_until("unknown command /hlep; did you mean /help?")
    chat.type("/system Be brief.\r")
    chat.read_until("is set")
    chat.type("//help\r")
    chat.read_until("tokens/s")
    messages = chat.conversation(tmp_path / "said.json")
    assert messages[:2] == [("system", "Be brief."), ("user", "/help")]
    chat.type("/reset\r")
    chat.read_until("a new conversation")
    assert chat.conversation(tmp_path / "said.json") == [("system", "Be brief.")]
    chat.end()


def test_parameters_can_be_set_in_a_chat(chat, tmp_path):
    chat.type("/set max-tokens 3\r")
    chat.read_until("from the next answer on")
    chat.type("Hello!\r")
    chat.read_until("3 tokens, ")
    chat.type("/set\r")
    chat.read_until("max-tokens            3\r\n")
    chat.type("/set temprature 1\r")
    chat.read_until("did you mean temperature?")
    chat.type("/set top-p 3\r")
    chat.read_until("not 3")
    chat.type("/set max-tokens\r")
    chat.read_until("from the next answer on")
    chat.type("/set\r")
    chat.read_until("max-tokens            Maximum number of new tokens")
    chat.read_until("> ")
    chat.end()


def test_the_history_outlives_a_chat(cluster, tmp_path):
    arguments = ["--server", cluster.grpc, "--temperature", "0", "--max-tokens", "2"]
    first = Terminal(*arguments)
    first.type("\x1b[200~Hello,\rcoach!\x1b[201~\r")
    first.read_until("tokens, ")
    first.read_until("> ")
    first.end()
    history = tmp_path / "state" / "stagecoach" / "history"
    assert history.stat().st_mode & 0o077 == 0
    again = Terminal(*arguments)
    again.type("\x1b[A\r")
    again.read_until("tokens, ")
    assert again.conversation(tmp_path / "said.json")[0] == ("user", "Hello,\ncoach!")
    again.end()
    kept = history.read_text()
    nothing = Terminal(*arguments, "--history", "off")
    nothing.type("Not kept\r")
    nothing.read_until("tokens, ")
    nothing.read_until("> ")
    nothing.end()
    assert history.read_text() == kept


MARKDOWN = ["# A he", "ading\nwith **bo", "ld** text and `code`.\n\n- one\n- two\n```py\nx *", "= 2\n```\n"]


def answer_in_markdown():
    """An HTTP server with one model, which thinks, and answers in Markdown."""
    def event(delta, **more):
        return f"data: {json.dumps({'id': 'a', 'choices': [{'index': 0, 'delta': delta, **more}]})}\n\n".encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self._send("application/json", [json.dumps({"object": "list", "data": [{"id": "a-model"}]}).encode()])

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send("text/event-stream", [event({"reasoning_content": "Hm."}), *(event({"content": one}) for one in MARKDOWN),
                                             event({}, finish_reason="stop"), b"data: [DONE]\n\n"])

        def _send(self, kind, parts):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(sum(map(len, parts))))
            self.end_headers()
            for part in parts:
                self.wfile.write(part)
                self.wfile.flush()

        def log_message(self, *_):
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def test_an_answer_in_markdown():
    plain = "".join(MARKDOWN)
    with answer_in_markdown() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run("chat", "--server", url, stdin="Hello\n").stdout == plain + "\n"
        for arguments, environment, is_shown in ([], {}, True), (["--plain"], {}, False), ([], {"NO_COLOR": "1"}, False):
            chat = Terminal("--server", url, *arguments, **environment)
            chat.type("Hello\r")
            seen = chat.read_until("TTFT").replace("\r\n", "\n")
            chat.read_until("> ")
            if is_shown:
                assert "\x1b[2mHm.\x1b[0m\n\n" in seen  # thinking is dim
                assert "\x1b[1mA heading\x1b[0m\nwith \x1b[0m\x1b[1mbold\x1b[0m text and \x1b[0m\x1b[36mcode\x1b[0m.\n" in seen
                assert "• one\n• two\n\x1b[2m```py\x1b[0m\n\x1b[36mx *= 2\x1b[0m\n" in seen
            else:
                assert plain in seen and "[thinking]\nHm." in seen
            chat.end()
        server.shutdown()


def test_no_color_turns_off_colors(cluster):
    chat = Terminal("--server", cluster.grpc, NO_COLOR="1")
    chat.type("/help\r")
    assert "\x1b[2m" not in chat.read_until("stops an answer")
    chat.read_until("> ")
    chat.end()


def test_a_full_conversation_drops_its_oldest_messages(cluster, tmp_path):
    long = "word " * 250  # each message fits in the context, all together do not
    lines = "".join(f"{n} {long}\n" for n in range(3))
    result = run("chat", "--server", cluster.grpc, "--temperature", "0", "--max-tokens", "4", stdin=lines)
    assert result.stderr == ""


def test_chat_gives_one_answer(cluster):
    assert "--n 2" in run("chat", "--server", cluster.grpc, "--n", 2, code=2).stderr


def test_chat_and_generate_over_http(cluster):
    arguments = ["--temperature", "0", "--max-tokens", "16"]
    url = f"http://{cluster.http}"
    for command in (["generate", "--chat", "Hello!"], ["generate", "--prompt", "The train"]):
        assert run(*command, *arguments, "--server", url).stdout == run(*command, *arguments, "--server", cluster.grpc).stdout
    assert run("chat", *arguments, "--server", url + "/v1", stdin="Hello!\n").stdout == \
        run("chat", *arguments, "--server", cluster.grpc, stdin="Hello!\n").stdout
    assert "n: 500" in run("generate", "--prompt", "a", "--n", 500, "--server", url, code=1).stderr
    assert "only gRPC" in run("batch", "/dev/null", "--server", url, code=1).stderr


LONG = ["--prompt", "The train", "--temperature", "0", "--max-tokens", "1800", "--ignore-eos"]


def server_of(cluster, protocol):
    return f"http://{cluster.http}" if protocol == "http" else cluster.grpc


@pytest.mark.parametrize("mark", [b"id: 3\n", b"event-stream"])
def test_a_broken_connection_is_replaced(cluster, mark):
    arguments = ["generate", "--chat", "Hello!", "--temperature", "0"]
    with CuttableProxy(cluster.http) as proxy:
        proxy.cut_at(mark)
        process = subprocess.Popen([STAGECOACH, *arguments, "--server", f"http://{proxy.address}"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        assert process.stderr.readline() == "connection lost, reconnecting\n"
        proxy.mend()
        said, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert said == run(*arguments, "--server", cluster.grpc).stdout


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_interrupted_answer_also_ends_on_the_server(protocol):
    """Otherwise the server would keep the stream for an hour."""
    with Cluster(DEMO_MODEL, flags=["--resume-time", "3600"]) as cluster:
        command = [STAGECOACH, "generate", *LONG, "--server", server_of(cluster, protocol)]
        for leave, code in ((lambda process: process.send_signal(signal.SIGINT), 128 + signal.SIGINT),
                            (lambda process: process.stdout.close(), 128 + signal.SIGPIPE)):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                assert process.stdout.read(1)
                leave(process)
                assert process.wait(timeout=60) == code
                assert process.stderr.read() == b""
            wait_for(lambda: metric(cluster.http, "stagecoach_resumable_streams") == 0)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_without_resumable_streams(protocol):
    with Cluster(DEMO_MODEL, flags=["--resume-time", "0"]) as cluster:
        result = run("generate", "--prompt", "The train", "--max-tokens", 4, "--server", server_of(cluster, protocol))
        assert result.stdout.strip() and result.stderr == ""


def test_an_http_port_and_a_missing_server_give_different_errors(cluster):
    for command in (["generate", "--prompt", "a"], ["chat"], ["batch", "/dev/null"], ["bench", "serve"]):
        assert "speaks HTTP, not gRPC" in run(*command, "--server", cluster.http, code=1).stderr
    assert "without TLS" in run("generate", "--prompt", "a", "--tls", "--server", cluster.grpc, code=1).stderr


@pytest.mark.parametrize("arguments, said", [
    (["sreve", "m"], ["unknown command sreve; did you mean serve?"]),
    (["serve", "m", "--port", "8000", "--tensor-parallel-size", "2"],
     ["unknown flag --port; use --http 127.0.0.1:8000", "unknown flag --tensor-parallel-size; a model is split"]),
    (["serve", "--model", "m"], ["unknown flag --model; give the model without a flag"]),
    (["generate", "--prompt", "a", "--temp", "1"], ["unknown flag --temp; use --temperature"]),
    (["serve", "m", "--stages", "0"], ["--stages: must be from 1 to 256, not 0"]),
    (["batch", "f", "--concurrency", "0"], ["--concurrency: must be more than 0, not 0"]),
])
def test_a_wrong_word_gets_a_suggestion(arguments, said):
    stderr = run(*arguments, code=2).stderr
    places = [stderr.index(text) for text in said]
    assert places == sorted(places)


def test_for_a_file_inside_a_model_the_error_names_the_folder():
    stderr = run("serve", DEMO_MODEL / "config.json", code=1).stderr
    assert f"is a file inside a model's folder; give the folder: {DEMO_MODEL}" in " ".join(stderr.split())
    assert "hf download" not in run("serve", "/etc/passwd", code=1).stderr


def test_batch_results_carry_line_number_and_id(cluster, tmp_path):
    path = tmp_path / "batch.jsonl"
    request = {"max_tokens": 4, "temperature": 0}
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_completion_tokens": 4, "temperature": 0}
    lines = [{"id": "own", "prompt": "The train", **request}, None,
             {"custom_id": "theirs", "method": "POST", "url": "/v1/chat/completions", "body": body},
             {"prompt": "x", "response_format": {"type": "json_object"}, "max_tokens": 40}]
    path.write_text("".join((json.dumps(line) if line else "") + "\n" for line in lines))
    own, theirs, form = map(json.loads, run("batch", path, "--server", cluster.grpc).stdout.splitlines())
    assert (own["index"], own["id"], own["stop_reason"]) == (0, "own", None)
    assert theirs["custom_id"] == "theirs" and theirs["error"] is None
    completion = theirs["response"]["body"]
    assert completion["object"] == "chat.completion" and completion["choices"][0]["message"]["content"]
    assert form["index"] == 3 and form["text"].startswith("{")


def test_ctrl_c_in_bench_prints_the_results_so_far(cluster):
    process = subprocess.Popen([STAGECOACH, "bench", "serve", "--server", cluster.grpc, "--requests", "100000", "--concurrency",
                                "1", "--output-tokens", "2", "--input-tokens", "8", "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with httpx.Client(base_url=f"http://{cluster.http}") as http:
        def finished():
            page = http.get("/metrics").text
            return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:request_success_total"))
        begun = finished()
        wait_until(lambda: process.poll() is not None or finished() >= begun + 3, "three requests end")
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["requests"]["ok"] >= 1
    assert "interrupted" in stderr


def test_ctrl_c_stops_a_cluster_in_order():
    """ctrl-C at a terminal reaches the whole foreground process group, but only the launcher may react to it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(STAGECOACH, [STAGECOACH, "serve", str(DEMO_MODEL), "--stages", "2", "--grpc", "127.0.0.1:0", "--http",
                              "off", "--metrics", "127.0.0.1:0"])
    read_until(terminal, "ready grpc=", timeout_s=120)
    os.write(terminal, b"\x03")
    status = None
    while status is None:
        try:
            os.read(terminal, 4096)  # otherwise the programs block on a full terminal
        except OSError:
            status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0
    os.close(terminal)


def test_killing_the_launcher_kills_its_programs():
    from harness import Cluster, is_running

    cluster = Cluster(DEMO_MODEL, stages=2)
    cluster.start()
    descriptors = [os.pidfd_open(pid) for pid in cluster._children]
    cluster.process.send_signal(signal.SIGKILL)
    for descriptor in descriptors:  # a pidfd is readable when the process has ended
        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)
    cluster.process.wait()
    cluster.channel.close()
    cluster.assert_nothing_left()
    assert not any(is_running(pid) for pid in cluster._children)
