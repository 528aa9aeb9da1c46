#!/usr/bin/env python3
"""Counts how much one change touches, how long files are and which folders include which, for the working tree and for
revisions, read without a checkout.

usage: counts.py [--rev REV]... [--sampling NAME] [--flag NAME]... [--load-flag NAME] [--metric NAME] [--files] [--json]
       counts.py --commit REV...

Identifiers match in snake_case, kebab-case and CamelCase, also as a part of a longer one. Touched files and arrows leave
tests, benchmarks and documents out. An arrow is a pair of libraries (folders with a CMakeLists.txt) or of any folders: a
file of the first includes one of the second. A flag of the load travels from the router's command line to the workers:
the files that carry it are those of proto/, common/, router/ and worker/ that name it in code. --commit only names and
counts the files that these commits touch.
"""
import argparse
import collections
import io
import json
import pathlib
import re
import statistics
import subprocess
import tarfile

import check_includes

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {".h": "C++", ".cpp": "C++", ".cc": "C++", ".inc": "C++", ".inl": "C++", ".cu": "CUDA", ".cuh": "CUDA",
             ".rs": "Rust", ".py": "Python"}
ON_THE_WAY = re.compile(r"(proto|common|router|worker)/")
NO_PRODUCT = re.compile(r"(^|/)(tests|testing|results)/|_(test|bench|sim)\.\w+$|/test_\w+\.py$|\.md$")


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True).stdout


def read_tree(revision):
    """{path: text} of a revision, or of the working tree if it is None; without binary files."""
    if revision is None:
        names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
        contents = ((name, (ROOT / name).read_bytes()) for name in names if name and (ROOT / name).is_file())
    else:
        archive = tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", revision)))
        contents = ((member.name, archive.extractfile(member).read()) for member in archive if member.isfile())
    return {name: content.decode(errors="replace") for name, content in contents if b"\0" not in content}


def spellings(name, joined="[-_]?"):
    """A pattern for an identifier: min_p also stands for min-p, MinP, kMinP and MIN_P, but not for admin_p or min_pixels."""
    first, *rest = re.split(r"[-_]", name.lower())
    head = rf"(?:(?<![A-Za-z]){first}|{first.capitalize()}|(?<![A-Za-z]){first.upper()})"
    tail = "".join(rf"{joined}(?:{part}|{part.capitalize()}|{part.upper()})" for part in rest)
    return re.compile(head + tail + "(?![a-z0-9])")


def touched(tree, name):
    pattern = spellings(name)
    return sorted(path for path, text in tree.items() if not NO_PRODUCT.search(path) and pattern.search(text))


def carriers(tree, name):
    """The files between a flag and the workers. Texts for people spell a flag with hyphens, and do not count."""
    pattern = spellings(name, joined="_?")
    return [path for path in touched(tree, name) if ON_THE_WAY.match(path) and pattern.search(tree[path])]


def changed(commit):
    names = git("diff", "--name-only", "-z", f"{commit}^", commit).decode().split("\0")
    return [name for name in names if name and not NO_PRODUCT.search(name)]


def arrows(tree, folder_of):
    """{folder: the other folders that its files include}."""
    graph = collections.defaultdict(set)
    for path, text in tree.items():
        if pathlib.PurePath(path).suffix in check_includes.SOURCES and not NO_PRODUCT.search(path):
            for include in check_includes.INCLUDE.findall(text):
                is_proto = check_includes.included_folder(include) == "proto"
                if is_proto or include in tree:
                    graph[folder_of(path)].add("proto" if is_proto else folder_of(include))
    return {folder: sorted(others - {folder}) for folder, others in sorted(graph.items())}


def measure(tree, names, load_flag):
    lines = collections.defaultdict(dict)
    folders = collections.Counter()
    for path, text in tree.items():
        if language := LANGUAGES.get(pathlib.PurePath(path).suffix):
            lines[language][path] = text.count("\n")
            parts = path.split("/")[:-1]
            folders.update({"/".join(parts[:depth]): text.count("\n") for depth in range(1, min(len(parts), 2) + 1)})
    any_folder = arrows(tree, lambda path: path.rpartition("/")[0])
    libraries = arrows(tree, lambda path: next(str(folder) for folder in pathlib.PurePath(path).parents
                                               if f"{folder}/CMakeLists.txt" in tree or folder.name == ""))
    return {
        "touched": {**{f"files with {name}": touched(tree, name) for name in names},
                    f"files that carry {load_flag}": carriers(tree, load_flag)},
        "files": {language: {"count": len(files), "lines": sum(files.values()), "median": statistics.median(files.values()),
                             "longest": max(files.values()), "longest_file": max(files, key=files.get)}
                  for language, files in sorted(lines.items())},
        "arrows": {kind: {"count": sum(map(len, graph.values())), "cycles": check_includes.cycles(graph)}
                   for kind, graph in (("libraries", libraries), ("folders", any_folder))},
        "lines_by_folder": dict(sorted(folders.items())),
    }


def table(results, with_files):
    """The results as (label, a cell per tree), in the order of their sections."""
    every = list(results.values())
    for label in every[0]["touched"]:
        yield label, [len(one["touched"][label]) for one in every]
        if with_files:
            for path in sorted(set().union(*(one["touched"][label] for one in every))):
                yield f"  {path}", ["x" if path in one["touched"][label] else "" for one in every]
    for language in sorted(set().union(*(one["files"] for one in every))):
        of = [one["files"].get(language, {}) for one in every]
        for key in ("count", "lines", "median", "longest"):
            yield f"{language}: {'files' if key == 'count' else key}", [f"{one[key]:g}" if one else "" for one in of]
    for kind in every[0]["arrows"]:
        yield f"include arrows between {kind}", [one["arrows"][kind]["count"] for one in every]
        yield f"include cycles between {kind}", [len(one["arrows"][kind]["cycles"]) for one in every]
    for folder in sorted(set().union(*(one["lines_by_folder"] for one in every))):
        yield f"lines in {folder}/", [one["lines_by_folder"].get(folder, "") for one in every]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rev", action="append", default=[], help="also count this revision; can be given several times")
    parser.add_argument("--sampling", default="min_p", help="a sampling parameter [min_p]")
    parser.add_argument("--flag", action="append", help="a flag [load_stall_limit, link_timeout]")
    parser.add_argument("--load-flag", default="memory_fraction", help="a flag of the load [memory_fraction]")
    parser.add_argument("--metric", default="metadata_late", help="a metric of stages [metadata_late]")
    parser.add_argument("--files", action="store_true", help="name the touched files")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--commit", nargs="+", help="only name and count the files that these commits touch")
    options = parser.parse_args()
    if options.commit:
        for commit in options.commit:
            files = changed(commit)
            print(f"{commit}: {len(files)} files: {' '.join(files)}")
        return
    names = [options.sampling, *(options.flag or ["load_stall_limit", "link_timeout"]), options.metric]
    results = {revision or "working tree": measure(read_tree(revision), names, options.load_flag)
               for revision in [*options.rev, None]}
    if options.json:
        print(json.dumps(results, indent=1))
        return
    rows = [("", list(results)), *table(results, options.files)]
    widths = [max(len(str(cells[i])) for _, cells in rows) for i in range(len(results))]
    label_width = max(len(label) for label, _ in rows)
    for label, cells in rows:
        print(label.ljust(label_width), *(str(cell).rjust(width) for cell, width in zip(cells, widths)), sep="  ")
    for revision, one in results.items():
        for kind, found in one["arrows"].items():
            for cycle in found["cycles"]:
                print(f"{revision}: cycle between {kind}: {cycle}")


if __name__ == "__main__":
    main()
