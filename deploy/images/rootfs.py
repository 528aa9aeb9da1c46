#!/usr/bin/env python3
"""Builds an image's root file system and its bill of materials, without privileges. It has only the programs and the
libraries that they load: no shell, no package manager.

  rootfs.py --bin DIR [--tar OUT.tar] --sbom OUT.spdx.json PROGRAM...
  rootfs.py --bin DIR --installed --sbom OUT.spdx.json PROGRAM...
  rootfs.py --bin DIR --update-lock PROGRAM...

Libraries come from packages of the distribution on which the programs were linked; DISTRIBUTION.lock beside this file
pins their versions and checksums. With --installed, the bill of materials is that of a bundle, which carries this machine's
libraries without the C library. CUDA's libraries come from the wheels pinned in deploy/cuda-wheels.txt, as installed
by deploy/cuda-toolkit.sh. The same programs and lock give the same bytes.
"""
import argparse
import base64
import collections
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WHEELS = ROOT / "deploy" / "cuda-wheels.txt"
RUST_LOCK = ROOT / "common" / "text" / "rust" / "Cargo.lock"
USER = 65532
C_LIBRARY = "libc6"  # the package that is on every machine
Package = collections.namedtuple("Package", "name version sha256")


def die(message):
    sys.exit(f"rootfs.py: error: {message}")


def output(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if sys.version_info >= (3, 11) else \
            hashlib.sha256(file.read()).hexdigest()


def libraries(programs):
    """Files that the programs load, by the name under which the loader looks them up."""
    found = {}
    for program in programs:
        for line in output("ldd", program).splitlines():
            if "not found" in line:
                die(f"{program}: {line.strip()}: build it on this machine, or install what it was built with")
            if match := re.match(r"\s*(?:(\S+) => )?(/.+) \(0x", line):
                found[match[1] or match[2]] = pathlib.Path(match[2])
    return found


def owners(loaded):
    """The package of each library; None: it is from no package. If /lib is a link to /usr/lib, packages may use either
    path."""
    aliases = {}
    for name, library in loaded.items():
        real = str(library.resolve())
        for alias in (str(library), real, real.removeprefix("/usr"), "/usr" + str(library)):
            aliases[alias] = name
    found = dict.fromkeys(loaded)
    # Its exit code is non-zero if any of the names belongs to no package.
    listing = subprocess.run(["dpkg", "-S", *aliases], capture_output=True, text=True).stdout
    for package, path in re.findall(r"^([^:, ]+)[^/]*: (/.+)$", listing, re.M):
        if path in aliases:
            found[aliases[path]] = package
    return found


def lock_path():
    release = platform.freedesktop_os_release()
    return HERE / f"{release['ID']}-{release['VERSION_ID']}.lock"


class Wheel:
    """The Python wheel of an unpacked library, pinned by deploy/cuda-wheels.txt."""

    def __init__(self, name, version, licenses):
        self.name, self.version, self.licenses = name, version, licenses

    @classmethod
    def of(cls, library):
        """The wheel of a library; None: it is from no wheel."""
        library = library.resolve()
        for record in (r for parent in library.parents for r in parent.glob("*.dist-info/RECORD")):
            digest = re.search(rf"^{re.escape(str(library.relative_to(record.parents[1])))},sha256=([^,]+),", record.read_text(), re.M)
            if not digest:
                continue
            name, version = record.parent.name.removesuffix(".dist-info").rsplit("-", 1)
            name = name.replace("_", "-")
            if f"{name}=={version}" not in WHEELS.read_text().split():
                die(f"{library} is of {name} {version}, which {WHEELS.name} does not name: lay the toolkit out anew")
            if digest[1] != base64.urlsafe_b64encode(bytes.fromhex(sha256(library))).decode().rstrip("="):
                die(f"{library} is not the file of the wheel {name} {version}: lay the toolkit out anew")
            return cls(name, version, sorted(path for path in (record.parent / "licenses").rglob("*") if path.is_file()))
        return None


def read_lock():
    path = lock_path()
    if not path.exists():
        die(f"no {path.name}: make it with --update-lock")
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {line[0]: Package(*line) for line in lines}


def write_lock(names):
    """Writes the lock with the newest version of each package in apt's lists."""
    lines = []
    for name in sorted(names):
        fields = dict(re.findall(r"^(\S+): (.*)$", output("apt-cache", "show", "--no-all-versions", name), re.M))
        lines.append(f"{name} {fields['Version']} {fields['SHA256']}\n")
    lock_path().write_text("# Packages of the images: name, version, SHA-256. Made by rootfs.py --update-lock.\n" + "".join(lines))


def installed(names):
    """The packages as they are on this machine, where no checksum of the package's file is kept."""
    versions = dict(line.split() for line in output("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names).splitlines())
    return [Package(name, versions[name], None) for name in sorted(names)]


def fetch(package, cache):
    """Returns the package's file: from the cache, or from the archive that apt uses."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{package.sha256}.deb"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        run = subprocess.run(["apt-get", "-q", "download", f"{package.name}={package.version}"], cwd=scratch,
                             capture_output=True, text=True)
        files = list(pathlib.Path(scratch).glob("*.deb"))
        if run.returncode or not files:
            die(f"{package.name} {package.version} cannot be had: point apt at a snapshot of the archive that has it, or take "
                f"newer versions with --update-lock\n{run.stderr}")
        if sha256(files[0]) != package.sha256:
            die(f"{package.name} {package.version} is not the file that {lock_path().name} names")
        files[0].rename(path)
    return path


def unneeded(path):
    """True for files that images do not need: documentation except licenses, and files that only a shell could use."""
    return (path.startswith("usr/share/") and not path.endswith("/copyright")) or path.startswith(("usr/lib/x86_64-linux-gnu/gconv",
                                                                                                   "etc/ld.so.conf.d"))


def unpack(deb, package, root):
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                path = f"usr/{path}" if path.startswith(("lib/", "lib64/", "bin/", "sbin/")) else path
                if not path or member.isdir() or unneeded(path):
                    continue
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if member.issym():
                    target.symlink_to(member.linkname)
                elif member.isfile():
                    target.write_bytes(tar.extractfile(member).read())
                    target.chmod(member.mode & 0o755)
    # Image scanners look here if an image has no package manager.
    status = root / "var/lib/dpkg/status.d" / package.name
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(output("dpkg-deb", "--field", deb))


def lay_out(root, programs, packages, others, cache):
    for link in ("lib", "lib64", "bin", "sbin"):
        (root / "usr" / link).mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(f"usr/{link}")
    for package in packages:
        unpack(fetch(package, cache), package, root)
    for name, library in others.items():
        shutil.copyfile(library, root / "usr/lib/x86_64-linux-gnu" / name)
        if wheel := Wheel.of(library):
            folder = root / "usr/share/doc" / wheel.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "copyright").write_text("\n".join(path.read_text() for path in wheel.licenses))
    for program in programs:
        shutil.copyfile(program, root / "usr/bin" / program.name)
        (root / "usr/bin" / program.name).chmod(0o755)
    etc = root / "etc"
    etc.mkdir()
    (etc / "passwd").write_text(f"root:x:0:0:root:/:/sbin/nologin\nstagecoach:x:{USER}:{USER}:stagecoach:/tmp:/sbin/nologin\n")
    (etc / "group").write_text(f"root:x:0:\nstagecoach:x:{USER}:\n")
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    (etc / "os-release").write_text(pathlib.Path("/etc/os-release").read_text())
    for empty in ("tmp", "model", "proc", "sys", "dev"):
        (root / empty).mkdir()


def check_complete(root, programs):
    """Checks that the programs find every library inside the root, and load none from outside."""
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    for program in programs:
        listing = output(loader, "--inhibit-cache", "--library-path", root / "usr/lib/x86_64-linux-gnu", "--list",
                         root / "usr/bin" / program.name)
        for line in listing.splitlines():
            if "=>" in line and f"=> {root}/" not in line:
                die(f"{program.name} would miss a library in the image: {line.strip()}")


def write_tar(root, path, epoch):
    def entry(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        if info.name == "tmp":
            info.mode = 0o1777
        elif info.isdir():
            info.mode = 0o755
        elif info.isfile():
            info.mode = 0o755 if info.mode & 0o100 else 0o644
        return info

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for one in sorted(root.rglob("*")):
            tar.add(one, arcname=str(one.relative_to(root)), recursive=False, filter=entry)


def crates():
    text = RUST_LOCK.read_text()
    return re.findall(r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"\nsource = ', text)


def write_sbom(path, name, version, programs, packages, others, epoch):
    """Writes SPDX 2.3. Crates are linked statically, so every program is listed as containing them."""
    def entry(kind, package, package_version, purl=None, checksum=None):
        one = {"SPDXID": "SPDXRef-" + re.sub("[^A-Za-z0-9.-]", "-", f"{kind}-{package}-{package_version}"), "name": package,
               "versionInfo": package_version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False}
        if purl:
            one["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
        if checksum:
            one["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
        return one

    release = platform.freedesktop_os_release()
    image = entry("image", name, version)
    parts = [entry("program", program.name, version, checksum=sha256(program)) for program in programs]
    parts += [entry("deb", p.name, p.version, f"pkg:deb/{release['ID']}/{p.name}@{p.version.replace('+', '%2B').replace(':', '%3A')}"
                    f"?arch=amd64&distro={release['ID']}-{release['VERSION_ID']}", p.sha256) for p in packages]
    for library_name, library in others.items():
        wheel = Wheel.of(library)
        parts.append(entry("library", library_name, wheel.version if wheel else "NOASSERTION",
                           f"pkg:pypi/{wheel.name}@{wheel.version}" if wheel else None, sha256(library)))
    parts += [entry("crate", crate, crate_version, f"pkg:cargo/{crate}@{crate_version}") for crate, crate_version in crates()]
    created = output("date", "-u", "-d", f"@{epoch}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    digest = hashlib.sha256("".join(p["SPDXID"] + str(p.get("checksums")) for p in parts).encode()).hexdigest()
    path.write_text(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "documentNamespace": f"urn:stagecoach:sbom:{name}:{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: deploy/images/rootfs.py"]},
        "packages": [image, *parts],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": image["SPDXID"]},
                          *({"spdxElementId": image["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": p["SPDXID"]}
                            for p in parts)]}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--tar", type=pathlib.Path, help="where the root file system goes")
    parser.add_argument("--sbom", type=pathlib.Path, help="where the bill of materials goes")
    parser.add_argument("--name", default="stagecoach", help="name of the image in the bill of materials")
    parser.add_argument("--version", default="0", help="version of the programs")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build" / "images" / "packages")
    parser.add_argument("--update-lock", action="store_true")
    parser.add_argument("--installed", action="store_true", help="the bill of materials names packages as they are installed")
    parser.add_argument("programs", nargs="+")
    flags = parser.parse_args()
    programs = [flags.bin / program for program in flags.programs]
    for program in programs:
        if not program.exists():
            die(f"no {program}: build it first, or say where it is with --bin")
    loaded = libraries(programs)
    owner = owners(loaded)
    names = {package for package in owner.values() if package}
    if flags.update_lock:
        return write_lock(names)
    others = {name: loaded[name] for name, package in owner.items() if package is None}
    if flags.installed:
        packages = installed(names - {C_LIBRARY})
    else:
        lock = read_lock()
        if missing := sorted(names - lock.keys()):
            die(f"{lock_path().name} lacks {', '.join(missing)}: renew it with --update-lock")
        packages = [lock[name] for name in sorted(names)]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    if flags.tar:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch) / "root"
            root.mkdir()
            lay_out(root, programs, packages, others, flags.cache)
            check_complete(root, programs)
            write_tar(root, flags.tar, epoch)
    write_sbom(flags.sbom, flags.name, flags.version, programs, packages, others, epoch)


if __name__ == "__main__":
    main()
