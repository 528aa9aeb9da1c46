"""Values of flags from environment variables and from the configuration file."""
import os
import pathlib
import re
import subprocess

import httpx
import pytest
from harness import DEMO_MODEL, STAGECOACH, Cluster, arguments_of, children_of, wait_until


def run(*arguments, code=0, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STAGECOACH_")}
    done = subprocess.run([STAGECOACH, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**clean, **environment})
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "stagecoach"
    folder.mkdir()
    path = folder / "config.toml"
    path.write_text("server = '127.0.0.1:1'\n[serve]\nstages = 3\nhttp = '127.0.0.1:7000'\nkv-store = 'redis://:hidden@host'\n")
    return path


def test_each_value_says_where_it_comes_from(config):
    said = run("config", "serve", XDG_CONFIG_HOME=str(config.parents[1]), STAGECOACH_STAGES="2").stdout.splitlines()
    assert said[0] == f"file: {config}"
    assert "serve --stages 2  (STAGECOACH_STAGES)" in said
    assert f"serve --http 127.0.0.1:7000  ({config}:4)" in said
    assert f"serve --kv-store ...  ({config}:5)" in said
    said = run("config", "--config", config).stdout
    assert f"chat --server 127.0.0.1:1  ({config}:1)" in said and f"bench serve --server 127.0.0.1:1  ({config}:1)" in said
    assert run("config", "--config", "off", "bench", XDG_CONFIG_HOME=str(config.parents[1])).stdout == "file: none\n"


def test_a_value_from_outside_is_used_and_a_flag_comes_first(config):
    elsewhere = run("generate", "--config", config, "--prompt", "a", code=1).stderr
    assert "127.0.0.1:1" in elsewhere
    assert "127.0.0.1:2" in run("generate", "--config", config, "--prompt", "a", code=1, STAGECOACH_SERVER="127.0.0.1:2").stderr
    assert "127.0.0.1:3" in run("generate", "--config", config, "--prompt", "a", "--server", "127.0.0.1:3", code=1,
                                STAGECOACH_SERVER="127.0.0.1:2").stderr


def test_errors_name_the_place(config):
    said = run("check", DEMO_MODEL, code=2, STAGECOACH_STAGES="many").stderr
    assert "--stages is from STAGECOACH_STAGES" in said
    config.write_text("[serve]\nstages = 0\n")
    assert f"--stages is from {config}:2" in run("serve", DEMO_MODEL, "--config", config, code=2).stderr
    config.write_text("[serve]\n\ntensor-parallel-size = 2\n")
    assert run("serve", DEMO_MODEL, "--config", config, code=2).stderr == (
        f"error: {config}:3: `serve` has no flag --tensor-parallel-size; a model is split by layers, not within them: use "
        "--stages N\n")
    config.write_text("[serve]\nstages = \n")
    assert f"error: {config}:2: " in run("chat", "--config", config, code=2).stderr
    assert run("version").stdout.startswith("stagecoach ")
    assert "no such configuration file" in run("chat", "--config", "/none.toml", code=2).stderr


def test_a_secret_of_the_file_is_in_no_command_line_and_the_router_has_it(config, tmp_path):
    store = tmp_path / "secret-place"
    config.write_text(f"[serve]\nkv-store = 'dir:{store}'\nrequest-log = false\nkv-memory = '8MiB'\n")
    with Cluster(DEMO_MODEL, flags=["--config", config]) as server:
        children = children_of(server.process.pid)
        assert len(children) == 2
        for pid in [server.process.pid, *(pid for pid, _ in children)]:
            assert "secret-place" not in " ".join(arguments_of(pid))
        (router,) = (pid for pid, name in children if name == "stagecoach-rout")
        assert "--request-log\0off" in pathlib.Path(f"/proc/{router}/cmdline").read_text()
        assert f"STAGECOACH_KV_STORE=dir:{store}" in pathlib.Path(f"/proc/{router}/environ").read_text()
        body = {"prompt": "The train", "max_tokens": 2}
        assert httpx.post(f"http://{server.http}/v1/completions", json=body, timeout=120).status_code == 200
    assert "api=" not in server.log()


def test_a_request_is_one_line_in_the_log(cluster):
    body = {"prompt": "The train", "max_tokens": 2, "ignore_eos": True}
    id = httpx.post(f"http://{cluster.http}/v1/completions", json=body, timeout=120, headers={"X-Request-Id": "one-line"}).json()["id"]
    assert id == "cmpl-one-line"
    line = re.compile(r"router: .*one-line.* tenant=- api=/v1/completions prompt_tokens=\d+ cached_tokens=\d+ output_tokens=2 "
                      r"choices=1 ttft_ms=\d+ duration_ms=\d+ finish=length status=OK")
    wait_until(lambda: line.search(cluster.log()), "the line of the request")
