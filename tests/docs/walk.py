#!/usr/bin/env python3
"""Runs the commands of a document: every `sh` block in one shell, at the root of a copy of the checkout. Then looks in their
output for each line of the `text` block that follows, where `...` stands for anything.

  walk.py DOCUMENT.md...        STAGECOACH_BIN_DIR: folder of the programs (default: build/cpu/bin)

The shell has a network of its own, where every port is free; this needs root or user namespaces. Blocks with a word after
`sh`, such as `sh cluster`, are only counted.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR", ROOT / "build" / "cpu" / "bin")).resolve()
TIMEOUT_S = 240  # of a block


def blocks(text):
    """(kind, content, line) of the fenced blocks."""
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        yield match[1].strip(), match[2], text.count("\n", 0, match.start()) + 1


def expected(line):
    return re.compile(".*".join(re.escape(part) for part in line.strip().split("...")))


def own_network():
    """A command before another that gives it a network of its own."""
    for unshare in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        prefix = [*unshare, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    sys.exit("walk.py: error: no network namespaces here")


class Shell:
    """A bash that reads one block after the other; a line of its output marks the end of each."""

    def __init__(self, folder):
        environment = os.environ | {"PATH": f"{BIN_DIR}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"}
        self._mark = f"done-{random.getrandbits(64):x}"
        self._folder = folder
        self._process = subprocess.Popen([*own_network(), "bash", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def _write(self, text):
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def run(self, block):
        (self._folder / "block").write_text(block)  # a file: what runs must not read the next block as its input
        self._write(f". ./block </dev/null\necho; echo {self._mark}\n")
        output = []
        for line in self._process.stdout:
            if line.startswith(self._mark):
                return "".join(output)
            output.append(line)
        raise RuntimeError(f"the shell has ended, or did not come to an end in {TIMEOUT_S} s:\n{block}\n{''.join(output)}")

    def end(self):
        self._write("kill $(jobs -p) 2>/dev/null\nwait\nexit\n")
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait()

    def kill(self):
        """Kills the shell's session, and so everything that it started."""
        subprocess.run(["pkill", "-KILL", "--session", str(self._process.pid)])


def walk(document):
    """(number of blocks run, number of blocks left out, expected lines that did not come)."""
    n_run, n_left_out, missing = 0, 0, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for entry in ("deploy", "helm", "README.md"):
            (folder / entry).symlink_to(ROOT / entry)
        shell = Shell(folder)
        for reason in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(reason, lambda *_: shell.kill())
        output = None
        for kind, content, line in blocks(document.read_text()):
            signal.alarm(TIMEOUT_S)
            if kind == "sh":
                output = shell.run(content)
                n_run += 1
            elif kind.startswith("sh "):
                output = None
                n_left_out += 1
            elif kind == "text" and output is not None:
                for wanted in content.splitlines():
                    if not expected(wanted).search(output):
                        missing.append(f"{document.name}:{line}: not said: {wanted}\n{output}")
        shell.end()
        signal.alarm(0)
    return n_run, n_left_out, missing


def main():
    failed = False
    for name in sys.argv[1:]:
        n_run, n_left_out, missing = walk(pathlib.Path(name))
        print(f"{name}: {n_run} blocks run, {n_left_out} left out")
        for one in missing:
            print(one)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
