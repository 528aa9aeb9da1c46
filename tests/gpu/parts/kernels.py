"""The kernels' own tests, if their programs are installed: each operation against the reference, the golden models, and
some operations under memcheck. The same for PTX of older architectures (tests/gpu/build_ptx.sh), which the GPU's driver
compiles. They need one GPU and no server."""
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile

import client
import servers
from checks import Check, LeftOut
from processes import ends_with_us

OPERATIONS, GOLDEN = "kernels_cuda_test", "golden_cuda_test"
NO_MODELS = re.compile(r"cannot open directory: No such file or directory \[([^]]*tests/golden/data)[^]]*\]")
MEMCHECK = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
# Running all tests under memcheck takes too long, so it runs those with indices from tables of slots, blocks and
# segments.
MEMCHECKED = ("a step is built*", "Attention: sequences of all kinds*", "Attention: padding*", "GatherKeys*", "Sample: greedy*",
              "Sample: a mask*", "PackRows*", "ExpertMlp equals*")


PASSED = re.compile(r"All tests passed \((?P<assertions>\d+) assertions? in (?P<cases>\d+) test cases?\)"
                    r"|test cases: +\d+ \| +(?P<ran>\d+) passed \| +\d+ skipped\s+assertions: +(?P<all>\d+)")
ARCHITECTURES = ("compute_80", "compute_89")
SHARDS = 8  # processes that share a program's tests, whose time is mostly that of the CPU


def outputs_of(commands, env):
    """Runs the commands at the same time. Returns the exit code and the output of each."""
    with contextlib.ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in commands]
        running = [stack.enter_context(subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT,
                                                        start_new_session=True, preexec_fn=ends_with_us()))
                   for command, out in zip(commands, said)]
        try:
            codes = [process.wait() for process in running]
        except BaseException:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
        for out in said:
            out.seek(0)
        return [(code, out.read()) for code, out in zip(codes, said)]


@contextlib.contextmanager
def shared_gpu(env):
    """Adds what processes need to use the GPU at the same time (MPS), if it is there. Else they take turns."""
    control = shutil.which("nvidia-cuda-mps-control")
    with tempfile.TemporaryDirectory() as pipes:
        with_mps = env | dict(CUDA_MPS_PIPE_DIRECTORY=pipes, CUDA_MPS_LOG_DIRECTORY=pipes)
        started = control and subprocess.run([control, "-d"], env=with_mps).returncode == 0
        try:
            yield with_mps if started else env
        finally:
            if started:
                subprocess.run([control], input="quit\n", text=True, env=with_mps)


def run(results, bin_dir, what, program, *arguments, under=(), shards=1):
    command = [*under, bin_dir / program, *arguments]
    split = [[*command, "--shard-count", str(shards), "--shard-index", str(i)] for i in range(shards)] if shards > 1 else [command]
    assertions = cases = 0
    with shared_gpu(servers.environment(bin_dir, wants_nccl=False)) as env:
        outputs = outputs_of(split, env)
    for code, said in outputs:
        if code != 0 and (match := NO_MODELS.search(" ".join(said.split()))):
            raise LeftOut(f"{program} was built to find the golden models in {match[1]}, and they are not there")
        found = PASSED.search(said)
        if code != 0 or found is None:
            print(f"  the end of what {program} says:\n" + "\n".join(f"    | {line}" for line in said.splitlines()[-30:]), flush=True)
            raise client.CheckFailed(f"{program} ended with exit code {code}: {(said.strip().splitlines() or ['nothing'])[-1]}")
        assertions += int(found["assertions"] or found["all"])
        cases += int(found["cases"] or found["ran"])
    results.add(f"kernels/{what}/assertions", assertions, f"assertions of {cases} test cases, all of which hold",
                shlex.join([*under, program, *arguments]))


def checks(options):
    def check(what, limit_s, *command, **more):
        missing = next((name for name in command[:1] if not (options.bin_dir / name).exists()), None) \
            or next((name for name in more.get("under", ())[:1] if not shutil.which(name)), None)
        return Check(f"kernels/{what}", None, lambda _, results: run(results, options.bin_dir, what, *command, **more), limit_s,
                     why_not=f"no {missing}" if missing else "")

    found = [check("operations", 400, OPERATIONS, shards=SHARDS), check("golden", 400, GOLDEN, shards=SHARDS),
             check("memcheck", 600, OPERATIONS, ",".join(MEMCHECKED), under=MEMCHECK)]
    for architecture in ARCHITECTURES:
        for what, program in (("operations", OPERATIONS), ("golden", GOLDEN)):
            found.append(check(f"{architecture}/{what}", 400, f"{program}.{architecture}", shards=SHARDS))
    return found


def summarize(options, results):
    pass
