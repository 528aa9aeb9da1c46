"""What `stagecoach serve` opens and says when it starts."""
import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import tempfile

import httpx
from harness import DEMO_MODEL, STAGECOACH, parse_ready
from terminal import read_to_the_end, read_until


@contextlib.contextmanager
def serve(*flags):
    """(addresses of the ready line, log) of a server that is stopped at the end."""
    with tempfile.TemporaryFile(mode="w+") as log:
        process = subprocess.Popen([STAGECOACH, "serve", DEMO_MODEL, *flags], stdout=subprocess.PIPE, stderr=log, text=True)
        line = process.stdout.readline()
        try:
            assert line, os.pread(log.fileno(), 1 << 20, 0).decode()
            yield parse_ready(line), lambda: os.pread(log.fileno(), 1 << 20, 0).decode()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0


def port_of(address):
    return int(address.rpartition(":")[2])


def test_without_flags_http_is_open_and_a_second_server_takes_the_next_ports():
    with serve() as (first, log):
        assert httpx.get(f"http://{first['http']}/v1/models").json()["data"][0]["id"] == "demo-model"
        assert f"http://{first['http']} has a web page; OpenAI's API is at http://{first['http']}/v1" in log()
        assert all(address.startswith("127.0.0.1:") for address in (first["grpc"], first["http"], first["metrics"]))
        with serve() as (second, log):
            assert httpx.get(f"http://{second['http']}/health").status_code == 200
            for name in "grpc", "http", "metrics":
                assert port_of(second[name]) > port_of(first[name])
                assert f"is taken, so --{name} is {second[name]}" in log()


def test_http_can_be_off():
    with serve("--http", "off", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0") as (ready, log):
        assert "http" not in ready and "web page" not in log()


def test_a_taken_port_that_was_asked_for_is_an_error_with_its_holder():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for how in (["--http", address], ["STAGECOACH_HTTP", address]):
            flags, environment = (how, {}) if how[0].startswith("--") else ([], {how[0]: how[1]})
            done = subprocess.run([STAGECOACH, "serve", DEMO_MODEL, *flags], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, **environment})
            assert done.returncode == 1
            assert re.fullmatch(rf"error: cannot listen on {address} \(--http\): process {os.getpid()} \([^\n]*\) has this port; "
                                r"stop it, or give another port\n", done.stderr), done.stderr


def test_on_a_terminal_the_address_stands_alone():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(STAGECOACH, [STAGECOACH, "serve", DEMO_MODEL, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics",
                               "127.0.0.1:0"], {**os.environ, "NO_COLOR": "1"})
    seen = read_until(terminal, "ctrl-C stops the server", timeout_s=120)
    http = re.search(r"ready .*http=(\S+)", seen)[1]
    assert f"\r\n  http://{http}  a web page; OpenAI's API is at http://{http}/v1. " in seen
    os.write(terminal, b"\x03")
    read_to_the_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
