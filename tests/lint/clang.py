#!/usr/bin/env python3
"""Runs clang's checks on our units, with the compile commands of build/lint.

usage: clang.py thread-safety [UNIT...]
       clang.py tidy [UNIT...]
       clang.py tidy --changed [BASE] [--most N]

thread-safety: checks that members and functions with the annotations of common/mutex.h are used under their locks.
tidy: runs the checks of .clang-tidy. Without UNIT it checks all units, which takes hours. --changed checks only the
units that differ from BASE, and reports only findings on changed lines. For a changed header it checks the header's own
unit, or else the first unit that includes it. BASE is the merge base with origin/main if there is one and it is not
HEAD itself, else HEAD~1. --most limits the number of units; it keeps those with the most changed lines.
Configures the build folder and generates headers if necessary.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "lint"
LOCKS = re.compile(r"\b(MutexLock|Mutex|CondVar)\b")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def git(*args):
    """Returns the lines of the output, or None if git fails, for example in a shallow clone."""
    done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None


def configure():
    # A folder of its own, because build/cpu may compile its sources in groups.
    subprocess.run(["cmake", "--preset", "cpu", "-B", BUILD], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", "stagecoach_generated"], check=True,
                   stdout=subprocess.DEVNULL)


def compile_commands():
    """Returns the first command of each of our units, by path relative to the root."""
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = os.path.relpath(entry["file"], ROOT)
        if path.endswith(".cpp") and not path.startswith(("build/", "..")):
            commands.setdefault(path, entry)
    return commands


def includes(path):
    return INCLUDE.findall((ROOT / path).read_text())


def units_with_locks(commands):
    """Returns the units that name a lock, and those that include a header with code that takes one."""
    takes = {path for path in git("ls-files", "*.h") if "MutexLock" in (ROOT / path).read_text()}
    return [path for path in commands
            if LOCKS.search((ROOT / path).read_text()) or takes & set(includes(path))]


def syntax_command(entry):
    """Translates a command of gcc to clang. Drops the warning flags, because clang has others."""
    arguments = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(arguments) if re.search(r"(^|/)(c|g|clang)\+\+(-\d+)?$", word))
    arguments = [word for word in arguments[compiler + 1:] if not word.startswith("-W") and word != "-c"]
    if "-o" in arguments:
        at = arguments.index("-o")
        del arguments[at:at + 2]
    return ["clang++-19", *arguments, "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety"]


def tidy_command(entry, lines=None):
    """`lines` limits the report to these [first, last] ranges, by path relative to the root."""
    command = ["clang-tidy-19", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-error"]
    if lines is not None:
        command.append("--line-filter=" + json.dumps([dict(name=path, lines=hunks) for path, hunks in lines.items()]))
    return [*command, entry["file"]]


def base_of_changes():
    """Returns a commit, or None if the history does not go back far enough."""
    head = git("rev-parse", "HEAD")
    base = git("merge-base", "HEAD", "origin/main")
    if base and base != head:
        return base[0]
    parent = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    return parent[0] if parent else None


def unit_of_header(header, commands):
    stem = header.removesuffix(".h")
    for unit in (f"{stem}.cpp", f"{stem}_test.cpp"):
        if unit in commands:
            return unit
    return next((unit for unit in commands if header in includes(unit)), None)


def changed_lines(base):
    """Returns the lines of C++ files that differ from `base`, as [first, last] ranges by path."""
    base = base or base_of_changes()
    if base is None:
        print("clang.py: no earlier commit is in this clone: nothing to compare")
        return {}
    diff = git("diff", "--unified=0", "--no-ext-diff", "--no-color", "--diff-filter=d", "--no-prefix", base, "--", "*.h", "*.cpp")
    if diff is None:
        sys.exit(f"clang.py: git has no commit '{base}'")
    print(f"clang.py: changes since {base[:12]}")
    lines = {}
    for line in diff:
        if line.startswith("+++ "):
            path = line[4:]
        elif (hunk := HUNK.match(line)) and hunk[2] != "0":
            first = int(hunk[1])
            lines.setdefault(path, []).append([first, first + int(hunk[2] or 1) - 1])
    return lines


def changed_units(commands, lines):
    """Returns the units to check for these lines. Those with the most lines come first."""
    n_lines = {}
    for path, hunks in lines.items():
        if unit := path if path in commands else unit_of_header(path, commands) if path.endswith(".h") else None:
            n_lines[unit] = n_lines.get(unit, 0) + sum(last - first + 1 for first, last in hunks)
    return sorted(n_lines, key=n_lines.get, reverse=True)


def check(units, commands, make_command, n_jobs):
    """Returns whether all units are clean. Prints the findings of the others."""
    def run(unit):
        began = time.monotonic()
        done = subprocess.run(make_command(commands[unit]), cwd=commands[unit]["directory"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return unit, done, time.monotonic() - began

    n_failed = 0
    with concurrent.futures.ThreadPoolExecutor(n_jobs) as pool:
        for unit, done, seconds in pool.map(run, units):
            if done.returncode != 0:
                n_failed += 1
                print(f"--- {unit}\n{done.stdout}")
            elif seconds > 1:
                print(f"{unit}: {seconds:.0f} s", flush=True)
    print(f"clang.py: {len(units)} units, {n_failed} with findings")
    return n_failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=["thread-safety", "tidy"])
    parser.add_argument("units", nargs="*", metavar="UNIT")
    parser.add_argument("--changed", nargs="?", const="", metavar="BASE")
    parser.add_argument("--most", type=int, metavar="N")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)), metavar="JOBS")
    args = parser.parse_args()

    configure()
    commands = compile_commands()
    if unknown := [unit for unit in args.units if unit not in commands]:
        sys.exit(f"clang.py: not compiled by the preset cpu: {' '.join(unknown)}")
    if args.check == "thread-safety":
        return check(args.units or units_with_locks(commands), commands, syntax_command, args.j)
    units, lines = args.units or list(commands), None
    if args.changed is not None:
        lines = changed_lines(args.changed)
        units = changed_units(commands, lines)
    if args.most is not None and len(units) > args.most:
        print(f"clang.py: left out, more than {args.most}: {' '.join(units[args.most:])}")
        units = units[:args.most]
    return check(units, commands, lambda entry: tidy_command(entry, lines), args.j)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
