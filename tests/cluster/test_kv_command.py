"""`stagecoach kv` on stores that a server has filled: a Redis with a password and another program's key, and a folder."""
import contextlib
import json
import os
import pathlib
import pty
import subprocess

import pytest
from harness import STAGECOACH
from redis_server import RedisServer
from test_kv_store import N_BLOCKS, ask_and_save, serve
from test_prefix_cache import ask, request
from workload import GOLDEN

N_LAYERS = json.loads((GOLDEN / "opt" / "config.json").read_text())["num_hidden_layers"]
N_VALUES = N_BLOCKS * N_LAYERS


def kv(command, url, *flags, **options):
    return subprocess.run([STAGECOACH, "kv", command, url, *flags], capture_output=True, text=True, timeout=120,
                          **{"stdin": subprocess.DEVNULL, **options})


def kv_json(command, url, *flags, code=0):
    run = kv(command, url, *flags, "--json")
    assert run.returncode == code, run.stderr
    return json.loads(run.stdout)


class Folder:
    def __init__(self, path):
        self.path = path
        self.url = f"dir:{path}"
        self.foreign = pathlib.Path(path, "notes.txt")
        self.foreign.write_text("mine")

    def files(self):
        return sorted(path for path in self.path.glob("??/*") if path.is_file())

    def damage_one(self):
        file = self.files()[0]
        file.write_bytes(file.read_bytes()[:-1])

    def has_foreign(self):
        return self.foreign.read_text() == "mine"


class Redis:
    def __init__(self, server):
        server.ask("SET", "somebody:else", "mine")
        server.ask("CONFIG", "SET", "requirepass", "s3cret")
        server.url = self.url = server.url.replace("redis://", "redis://default:s3cret@")
        self.ask = server.ask

    def damage_one(self):
        key = next(key for key in self.ask("--raw", "--scan").split() if key.startswith("stagecoach:"))
        self.ask("SETRANGE", key, "200", "damaged")

    def has_foreign(self):
        return self.ask("GET", "somebody:else") == "mine"


@contextlib.contextmanager
def filled_store(kind, tmp_path):
    """A store with the blocks of one prompt, whose server has ended."""
    with contextlib.ExitStack() as stack:
        store = Folder(tmp_path) if kind == "folder" else Redis(stack.enter_context(RedisServer()))
        ask_and_save("opt", 2, store.url)
        yield store


@pytest.mark.parametrize("kind", ["redis", "folder"])
def test_list_size_verify_clear(kind, tmp_path):
    with filled_store(kind, tmp_path) as store:
        listed = kv_json("list", store.url)
        assert (listed["values"], listed["blocks"]) == (N_VALUES, N_BLOCKS)
        [group] = listed["groups"]
        assert (group["first_layer"], group["last_layer"], group["layers"]) == (0, N_LAYERS - 1, N_LAYERS)
        assert (group["blocks"], group["whole_blocks"]) == (N_BLOCKS, N_BLOCKS)
        assert group["bytes"] == group["value_bytes"] * N_VALUES == listed["bytes"]
        assert 0 <= group["newest_s"] <= group["oldest_s"]
        size = kv_json("size", store.url)
        assert (size["values"], size["bytes"]) == (N_VALUES, listed["bytes"])
        verified = kv_json("verify", store.url)
        assert (verified["good"], verified["damaged"], verified["foreign"]) == (N_VALUES, 0, 0)

        store.damage_one()
        assert kv_json("verify", store.url, code=1)["damaged"] == 1
        run = kv("verify", store.url, "--delete")
        assert run.returncode == 0 and "1 deleted" in run.stdout
        verified = kv_json("verify", store.url)
        assert (verified["good"], verified["damaged"]) == (N_VALUES - 1, 0)
        assert kv_json("list", store.url)["groups"][0]["whole_blocks"] == N_BLOCKS - 1

        run = kv("clear", store.url, "--older-than", "7d", "--yes")
        assert run.returncode == 0 and "nothing to delete" in run.stdout
        run = kv("clear", store.url)
        assert run.returncode == 1 and "--yes" in run.stderr
        assert kv_json("size", store.url)["values"] == N_VALUES - 1
        run = kv("clear", store.url, "--yes")
        assert run.returncode == 0 and f"deleted {N_VALUES - 1} values" in run.stdout
        assert kv_json("size", store.url)["values"] == 0
        assert "no values" in kv("list", store.url).stdout
        assert store.has_foreign()


def test_a_server_goes_on_while_its_store_is_cleared(tmp_path):
    with filled_store("folder", tmp_path) as store, serve("opt", 1, store.url) as server:
        assert kv("clear", store.url, "--yes").returncode == 0
        assert ask(server.stub, request([1] * 70))[2] == 0


def answer_on_a_terminal(url, answer):
    """(exit code, what it has printed) of `kv clear` whose question is answered."""
    parent, child = pty.openpty()
    os.write(parent, answer.encode())
    run = kv("clear", url, stdin=child)
    os.close(child)
    os.close(parent)
    return run.returncode, run.stdout + run.stderr


def test_clear_asks_on_a_terminal(tmp_path):
    with filled_store("folder", tmp_path) as store:
        for answer in ["n\n", "\n"]:
            code, text = answer_on_a_terminal(store.url, answer)
            assert code == 1 and f"Delete {N_VALUES} values" in text and "nothing is deleted" in text
        assert len(store.files()) == N_VALUES
        code, text = answer_on_a_terminal(store.url, "y\n")
        assert code == 0 and f"deleted {N_VALUES} values" in text
        assert store.files() == []


def test_no_password_is_printed(tmp_path):
    with filled_store("redis", tmp_path) as store:
        runs = [kv(command, url, *flags) for url in [store.url, store.url.replace("s3cret", "wr0ng")]
                for command, *flags in [("list",), ("list", "--json"), ("size",), ("verify",), ("clear", "--yes")]]
        assert [run.returncode for run in runs] == [0] * 5 + [1] * 5
        runs.append(kv("size", "redis://:s3cret@host:port"))
        assert runs[-1].returncode == 2
        for run in runs:
            assert "s3cret" not in run.stdout + run.stderr and "wr0ng" not in run.stdout + run.stderr


def test_the_environment_may_name_the_store(tmp_path):
    store = Folder(tmp_path)
    run = subprocess.run([STAGECOACH, "kv", "list"], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "STAGECOACH_KV_STORE": store.url})
    assert run.returncode == 0 and "no values" in run.stdout
    assert kv("list", f"dir:{tmp_path}/none").returncode == 1
