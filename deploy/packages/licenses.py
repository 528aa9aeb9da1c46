#!/usr/bin/env python3
"""Collects the licences of everything that a release contains: the libraries that it carries, the headers and the Rust
crates that are compiled into its programs.

  licenses.py --out DIR PROGRAM...

Those of libraries come from the packages of this machine, those of crates from cargo's copies of their sources.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil

import carried
from rootfs import ROOT, die, output

INSTALLED_BY = ROOT / "deploy" / "install-deps.sh"
DOC = pathlib.Path("/usr/share/doc")
COMMON = pathlib.Path("/usr/share/common-licenses")
IS_LICENSE = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.I)
RUST = ROOT / "common" / "text" / "rust" / "Cargo.toml"


def package_of(path):
    return re.split("[:,]", output("dpkg", "-S", path))[0]


def development_packages():
    """The packages of headers that a build uses: some libraries are only headers, and so are compiled in."""
    text = INSTALLED_BY.read_text()
    names = re.findall(r"[\w.+-]+-dev\b", text.partition("packages=(")[2].partition(")")[0]) + re.findall(r"libboost[\w.-]*-dev\b", text)
    return {name for name in names if (DOC / name / "copyright").exists()}


def copy_of_packages(packages, out):
    """A file for each text, named after its packages, in whose names there is no underscore. Also copies the
    texts that Debian's copyright files only name."""
    of, named = collections.defaultdict(list), set()
    for package in packages:
        of[(DOC / package / "copyright").read_text()].append(package)
    for text, same in of.items():
        (out / f"{'_'.join(same)}.txt").write_text(text)
        named |= set(re.findall(rf"{COMMON}/([\w.-]*\w)", text))
    for name in sorted(named):
        if (COMMON / name).exists():
            shutil.copyfile(COMMON / name, out / f"common-{name}.txt")


def tool(name):
    return shutil.which(name, path=f"{os.environ['PATH']}:{pathlib.Path.home()}/.cargo/bin") or die(f"{name} is needed")


def linked_crates():
    """The crates that become part of the programs, without those that only tests or build scripts need."""
    data = json.loads(output(tool("cargo"), "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform",
                             "x86_64-unknown-linux-gnu", "--manifest-path", RUST))
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    found, left = set(), [data["resolve"]["root"]]
    while left:
        if (crate := left.pop()) not in found:
            found.add(crate)
            left += [one["pkg"] for one in nodes[crate]["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])]
    crates = [crate for crate in data["packages"] if crate["id"] in found and crate["source"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def write_crates(path):
    """One file: what each crate says about its licence, then each text once with the crates that have it."""
    texts, lines = collections.defaultdict(list), []
    for crate in linked_crates():
        name = f"{crate['name']} {crate['version']}"
        files = sorted(one for one in pathlib.Path(crate["manifest_path"]).parent.iterdir() if one.is_file() and IS_LICENSE.match(one.name))
        lines.append(f"{name}: {crate['license'] or 'see its text'}" + ("" if files else f" (no text; by {', '.join(crate['authors'])})"))
        for file in files:
            texts[file.read_text()].append(name)
    parts = [f"Rust crates in the programs, with their licences as they give them.\n\n{chr(10).join(lines)}\n"]
    parts += [f"Of {', '.join(names)}:\n\n{text}" for text, names in texts.items()]
    path.write_text(f"\n{'-' * 100}\n".join(parts))


def copy_of_rust(out):
    """Rust's own library is part of the programs, too. Debian's package of the compiler is built from the same sources."""
    compiler = tool("rustc")
    notice = pathlib.Path(output(compiler, "--print", "sysroot").strip()) / "share" / "doc" / "rust" / "COPYRIGHT-library.html"
    if not notice.exists():
        notice = DOC / package_of(os.path.realpath(compiler)) / "copyright"
    shutil.copyfile(notice, out / f"rust-library{notice.suffix or '.txt'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
    parser.add_argument("programs", nargs="+")
    flags = parser.parse_args()
    flags.out.mkdir(parents=True)
    libraries = carried.carried(flags.programs)
    if strangers := [str(file) for _, file, package in libraries if package is None]:
        die(f"of no package, so their licence is not known: {', '.join(strangers)}")
    copy_of_packages(sorted({package for _, _, package in libraries} | development_packages()), flags.out)
    write_crates(flags.out / "rust-crates.txt")
    copy_of_rust(flags.out)


if __name__ == "__main__":
    main()
