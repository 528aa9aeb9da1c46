"""A copy of a tiny model for damage tests, and the output of `stagecoach check` and `serve` for it."""
import json
import pathlib
import shutil
import subprocess
import sys

from harness import STAGECOACH, protos
from tensors import read_safetensors, write_bin, write_safetensors

GOLDEN = protos.ROOT / "tests" / "golden" / "data"


class Checkpoint:
    """The files of a golden model in `folder`; all tensors are in one model.safetensors."""

    def __init__(self, folder, model="mistral"):
        self.folder = pathlib.Path(folder)
        self.tensors = {}
        for source in sorted((GOLDEN / model).iterdir()):
            if source.suffix == ".safetensors":
                self.tensors |= read_safetensors(source)
            elif source.name not in ("golden.json", "model.safetensors.index.json"):
                shutil.copy(source, self.folder / source.name)
        self.write_safetensors()

    def path(self, name):
        return self.folder / name

    def read(self, name):
        return json.loads(self.path(name).read_text())

    def write(self, name, value):
        self.path(name).write_text(value if isinstance(value, str) else json.dumps(value))

    def set(self, name, **values):
        """Replaces keys of a JSON file; None removes one."""
        merged = self.read(name) | values
        self.write(name, {key: value for key, value in merged.items() if value is not None})

    def remove(self, *names):
        for name in names:
            self.path(name).unlink()

    def write_safetensors(self, tensors=None, name="model.safetensors"):
        write_safetensors(self.path(name), self.tensors if tensors is None else tensors)

    def write_bin(self, tensors=None, **options):
        """Writes pytorch_model.bin and removes model.safetensors."""
        self.path("model.safetensors").unlink(missing_ok=True)
        write_bin(self.path("pytorch_model.bin"), self.tensors if tensors is None else tensors, **options)


class Verdict:
    def __init__(self, code, text, peak_bytes):
        self.code = code
        self.text = text
        self.peak_bytes = peak_bytes

    @property
    def words(self):
        """The text without line breaks, whose positions depend on the width."""
        return " ".join(self.text.split())


# A child's peak memory starts at its parent's memory, and the test process is large. So a small process starts the
# measured program.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stderr=subprocess.STDOUT)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def check(folder, *flags):
    """Runs `stagecoach check`."""
    command = [sys.executable, "-c", _MEASURED, STAGECOACH, "check", str(folder), *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    return Verdict(result.returncode, result.stdout, int(result.stderr) * 1024)


def of_session(session):
    """Remaining processes of the session in which a command was started."""
    left = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            left.append(int(stat.parent.name))
    return left


def refused_start(folder, *flags):
    """Runs `stagecoach serve`, which must end with one error and leave no process behind; returns its output."""
    command = [STAGECOACH, "serve", str(folder), "--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "127.0.0.1:0",
               *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert out == ""
    lines = err.splitlines()
    errors = [i for i, line in enumerate(lines) if line.startswith("error:")]
    assert len(errors) == 1, err
    assert not of_session(process.pid)
    return "\n".join(lines[errors[0]:])
