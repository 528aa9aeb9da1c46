"""The kernels' own tests, if their programs are installed: each operation against the reference, the golden models, and
some operations under memcheck. They need one GPU and no server."""
import re
import shlex
import shutil
import subprocess
import tempfile

import client
import servers
from checks import Check, LeftOut
from processes import code_of

OPERATIONS, GOLDEN = "kernels_cuda_test", "golden_cuda_test"
NO_MODELS = re.compile(r"cannot open directory: No such file or directory \[([^]]*tests/golden/data)[^]]*\]")
MEMCHECK = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
# Running all tests under memcheck takes too long, so it runs those with indices from tables of slots, blocks and
# segments.
MEMCHECKED = ("a step is built*", "Attention: sequences of all kinds*", "Attention: padding*", "GatherKeys*", "Sample: greedy*",
              "Sample: a mask*", "PackRows*", "ExpertMlp equals*")


def output_of(command, env):
    """Returns the exit code and the output."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        code = code_of(command, env=env, stdout=said, stderr=subprocess.STDOUT)
        said.seek(0)
        return code, said.read()


def run(results, bin_dir, what, program, *arguments, under=()):
    code, said = output_of([*under, bin_dir / program, *arguments], servers.environment(bin_dir, wants_nccl=False))
    if code != 0 and (match := NO_MODELS.search(" ".join(said.split()))):
        raise LeftOut(f"{program} was built to find the golden models in {match[1]}, and they are not there")
    found = re.search(r"All tests passed \((\d+) assertions? in (\d+) test cases?\)", said)
    if code != 0 or found is None:
        print(f"  the end of what {program} says:\n" + "\n".join(f"    | {line}" for line in said.splitlines()[-30:]), flush=True)
        raise client.CheckFailed(f"{program} ended with exit code {code}: {(said.strip().splitlines() or ['nothing'])[-1]}")
    results.add(f"kernels/{what}/assertions", int(found[1]), f"assertions of {found[2]} test cases, all of which hold",
                shlex.join([*under, program, *arguments]))


def checks(options):
    def check(what, limit_s, *command, **more):
        missing = next((name for name in command[:1] if not (options.bin_dir / name).exists()), None) \
            or next((name for name in more.get("under", ())[:1] if not shutil.which(name)), None)
        return Check(f"kernels/{what}", None, lambda _, results: run(results, options.bin_dir, what, *command, **more), limit_s,
                     why_not=f"no {missing}" if missing else "")

    return [check("operations", 300, OPERATIONS), check("golden", 300, GOLDEN),
            check("memcheck", 600, OPERATIONS, ",".join(MEMCHECKED), under=MEMCHECK)]


def summarize(options, results):
    pass
