"""Runs coding agents from npm as docs/agents.md says, each with a home of its own and without a way to the network.
tests/run.sh installs them if Node is installed."""
import os
import re
import shutil
import subprocess

import pytest
import scripted_model
from harness import Cluster, protos
from recorder import recorded

PROGRAMS = protos.ROOT / "build" / "node" / "node_modules" / ".bin"
DOCUMENT = protos.ROOT / "docs" / "agents.md"
# A picture of one pixel.
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da6364"
                    "f8cf500f00038601805a347d6b0000000049454e44ae426082")
CLOSING = "The command has printed its word."
COMMAND = "echo stagecoach-$((40+2))"
PRINTED = "stagecoach-42"
# How many tools have answered since the user's last message.
N_RESULTS = "messages | selectattr('role', 'equalto', 'tool') | list | length"


def needs(program):
    return pytest.mark.skipif(not (shutil.which("node") and (PROGRAMS / program).exists()), reason=f"no {program} here")


def documented(kind, address):
    """The block of docs/agents.md that begins with ```kind, for the server at this address."""
    (block,) = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    assert "127.0.0.1:8000" in block
    return block.replace("127.0.0.1:8000", address)


class Agent:
    """A server whose model gives these replies, and a home and a working folder for the agent. `exchanges` are those of the
    last run."""

    def __init__(self, program, folder, replies):
        self.home, self.work = folder / "home", folder / "work"
        self._program, self._folder, self._replies = program, folder, replies
        for one in (self.home, self.work):
            one.mkdir()

    def __enter__(self):
        rules = [(f"{N_RESULTS} == {n}", reply) for n, reply in enumerate(self._replies)]
        model = scripted_model.write(self._folder / "my-model", [*rules, ("true", CLOSING)])
        self._cluster = Cluster(model, stages=2)
        self._cluster.__enter__()
        self._recorded = recorded(self._cluster.http)
        self.address, self._all = self._recorded.__enter__()
        return self

    def __exit__(self, *exception):
        self._recorded.__exit__(*exception)
        self._cluster.__exit__(*exception)

    def run(self, *arguments, **environment):
        """What the program prints. `exchanges` are then its requests for answers."""
        self._all.clear()
        nowhere = "http://127.0.0.1:9"
        process = subprocess.run(
            [PROGRAMS / self._program, *map(str, arguments)], cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=240,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere,
                 "NO_PROXY": "127.0.0.1", **environment})
        assert process.returncode == 0, f"{process.stdout}\n{process.stderr}\n{[(e.path, e.answer) for e in self._all]}"
        self.exchanges = [exchange for exchange in self._all if exchange.method == "POST"]
        assert all(exchange.status == 200 for exchange in self.exchanges), self.exchanges
        return process.stdout


def check_cached(usages, least=0.98):
    """`usages`: (tokens of the prompt, cached ones) of one request after another. Each finds everything cached that the one
    before computed, and at least this share of its prompt."""
    for (before, _), (tokens, cached) in zip(usages, usages[1:]):
        assert cached > before - 32 and cached >= least * tokens, usages
