"""The scripts of `stagecoach completion`, in real shells. Shells that are not installed are left out: zsh and fish need
`apt-get install zsh fish`."""
import os
import pty
import shutil
import subprocess

import pytest
from harness import BIN_DIR, STAGECOACH
from terminal import read_to_the_end, read_until


@pytest.fixture
def script(tmp_path):
    def make(shell):
        path = tmp_path / f"completion.{shell}"
        path.write_text(subprocess.run([STAGECOACH, "completion", shell], capture_output=True, text=True, check=True).stdout)
        return path
    return make


def in_bash(script, words):
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(["bash", "--norc", "-c", f"compopt() {{ :; }}; source {script}; COMP_WORDS=({quoted}); "
                           f"COMP_CWORD={len(words) - 1}; _stagecoach; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_bash(script, tmp_path):
    path = script("bash")
    (tmp_path / "a-model").mkdir()
    for words, offered in {
            ("", "ser"): ["serve"], ("ben",): ["bench"], ("bench", ""): ["latency", "throughput", "serve"],
            ("serve", "--dev"): ["--device", "--devices"], ("serve", "--device", "cu"): ["cuda"],
            ("serve", "--device", "="): ["cpu", "cuda"], ("serve", "--prefix-cache", "=", "of"): ["off"],
            ("bench", "serve", "--concurr"): ["--concurrency"], ("serve", f"{tmp_path}/a-m"): [f"{tmp_path}/a-model"],
            ("serve", "--merge-adapter", f"{tmp_path}/a-m"): [f"{tmp_path}/a-model"], ("serve", "--served-name", ""): [],
            ("completion", ""): ["bash", "zsh", "fish"]}.items():
        words = [word for word in words if word] + ([""] if words[-1] == "" else [])
        assert in_bash(path, ["stagecoach", *words]) == offered, words


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish(script, tmp_path):
    path = script("fish")
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{BIN_DIR}:{os.environ['PATH']}"}
    for typed, offered in {"stagecoach ser": ["serve"], "stagecoach bench ser": ["serve"], "stagecoach serve --device cu": ["cuda"],
                           "stagecoach serve --devic": ["--device", "--devices"]}.items():
        done = subprocess.run(["fish", "--no-config", "-c", f"source {path}; complete -C '{typed}'"], capture_output=True, text=True,
                              timeout=60, env=environment)
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == offered, (typed, done)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh(script, tmp_path):
    path = script("zsh")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(shutil.which("zsh"), ["zsh", "-f", "-i"],
                  {"PATH": f"{BIN_DIR}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"})
    os.write(terminal, f"PS1='ready''> '; autoload -U compinit; compinit -u; source {path}\n".encode())
    read_until(terminal, "ready> ")
    for typed, completed in {"stagecoach ser\t": "serve", "stagecoach bench lat\t": "latency", "stagecoach serve --device cu\t": "cuda",
                             "stagecoach serve --batch-inv\t": "--batch-invariant"}.items():
        os.write(terminal, typed.encode())
        read_until(terminal, completed)
        os.write(terminal, b"\x15")  # ctrl-U: the line is given up
    os.write(terminal, b"exit\n")
    read_to_the_end(terminal)
    os.waitpid(pid, 0)
    os.close(terminal)
