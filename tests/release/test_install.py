"""Installs the bundle, the wheel and the Debian package of a release on a bare system, where they must give the answer that
the programs of the build give."""
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import bare
import pytest
from harness import BIN_DIR, DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTION = "When does the next coach leave from Greywell to Elmstead after 12:00 on Sunday?"  # as deploy/quickstart.sh asks
ASK = ("--stages", "2", "--chat", QUESTION, "--temperature", "0", "--max-tokens", "200")
OF_THE_MACHINE = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|ld-linux-x86-64)\.so\.\d+$")
pytestmark = pytest.mark.skipif(not bare.is_possible(), reason="needs root or user namespaces")


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The wheel's and the bundle's system; the Debian package has its own."""
    return bare.Root(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def answer():
    said = run(BIN_DIR / "stagecoach", "generate", "--model", DEMO_MODEL, *ASK)
    assert said.returncode == 0 and said.stdout.strip(), said.stderr
    return said.stdout.strip()


@pytest.fixture(scope="module")
def bundle(release, root):
    """The unpacked bundle's folder below the bare system's root."""
    file, = release.glob("*-linux-*.tar.gz")
    for one in (file, ROOT / "deploy" / "quickstart.sh"):
        (root.folder / "tmp" / one.name).write_bytes(one.read_bytes())
    return pathlib.Path("/tmp") / file.name.removesuffix(".tar.gz")


def missing(root, programs):
    """Libraries of programs that come neither with them nor with the C library; an administrator's variables are ignored."""
    listed = root.run("env", "LD_LIBRARY_PATH=", "/lib64/ld-linux-x86-64.so.2", "--list", programs)
    assert listed.returncode == 0, listed.stderr
    found = dict(re.findall(r"^\s*(\S+) => (.*?)(?: \(0x.*)?$", listed.stdout, re.M))
    assert len(found) > 20, listed.stdout
    return {name: path for name, path in found.items() if not re.search(r"/lib/stagecoach/", path) and not OF_THE_MACHINE.match(name)}


def test_the_bundle_answers_on_a_bare_system(root, bundle, answer):
    said = root.run("sh", "-c", f"cd /tmp && bash quickstart.sh --bundle {bundle.name}.tar.gz")
    assert said.returncode == 0, said.stdout + said.stderr
    assert answer in said.stdout and re.search(r"ready grpc=\S+ http=\S+ metrics=\S+", said.stdout), said.stdout
    again = root.run(bundle / "quickstart.sh")
    assert again.returncode == 0 and answer in again.stdout, again.stdout + again.stderr
    for program in ("stagecoach", "stagecoach-router", "stagecoach-worker"):
        assert missing(root, bundle / "bin" / program) == {}


def test_quickstart_says_what_is_wrong_with_a_bundle(root, bundle):
    (root.folder / "tmp" / "broken.tar.gz").write_bytes((root.folder / "tmp" / f"{bundle.name}.tar.gz").read_bytes()[:100])
    root.run("tar", "-C", "/etc", "-czf", "/tmp/other.tar.gz", "debian_version")
    for file, says in (("broken", "is not a bundle"), ("other", "is not a bundle"), ("none", "--bundle needs the file")):
        said = root.run("sh", "-c", f"cd /tmp && bash quickstart.sh --bundle {file}.tar.gz")
        assert said.returncode == 1 and says in said.stderr, said.stderr


def test_the_wheel_answers_on_a_bare_system(release, root, answer):
    """pip lays it into an environment; its files then run where no Python is."""
    wheel, = release.glob("*.whl")
    environment = root.folder / "opt" / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, check=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment / "bin" / "python")
    installed = run(*pip, "install", "-q", "--no-index", "--root-user-action=ignore", wheel)
    assert (installed.returncode, installed.stderr) == (0, ""), installed.stderr  # pip warns of a wheel that is not well formed
    assert not (root.folder / "usr/bin/python3").exists()
    said = root.run("/opt/venv/bin/stagecoach", "generate", "--model", "/opt/venv/share/stagecoach/demo-model", *ASK)
    assert said.returncode == 0 and said.stdout.strip() == answer, said.stderr
    assert missing(root, "/opt/venv/bin/stagecoach-router") == {}
    metadata, = environment.glob("lib/*/site-packages/stagecoach-*.dist-info/METADATA")
    assert f"Version: {version()}\n" in metadata.read_text()
    run(*pip, "uninstall", "-q", "-y", "stagecoach", check=True)
    assert not list(environment.rglob("*stagecoach*/**/*.so*")) and not (environment / "bin" / "stagecoach").exists()


def version():
    return re.search(r"^project\(stagecoach VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def test_the_debian_package_answers_and_leaves_nothing(release, tmp_path, answer):
    root = bare.Root(tmp_path)
    package, = release.glob("*.deb")
    (root.folder / "stagecoach.deb").write_bytes(package.read_bytes())
    bare_files = root.files()
    refused = root.run("dpkg", "--install", "/stagecoach.deb")
    assert refused.returncode and "stagecoach depends on libssl3" in refused.stderr, refused.stderr
    root.run("dpkg", "--purge", "stagecoach")
    assert root.files() == bare_files
    root.add("libssl3")
    before = root.files()

    installed = root.run("dpkg", "--install", "/stagecoach.deb")
    assert installed.returncode == 0, installed.stderr
    assert run("dpkg-deb", "--field", package, "Version").stdout.strip() == version()
    said = root.run("stagecoach", "generate", "--model", "/usr/share/stagecoach/demo-model", *ASK)
    assert said.returncode == 0 and said.stdout.strip() == answer, said.stderr
    assert missing(root, "/usr/bin/stagecoach-worker").keys() <= {"libssl.so.3", "libcrypto.so.3", "libz.so.1"}
    assert all(path.startswith("/") for path in missing(root, "/usr/bin/stagecoach-router").values())

    etc = root.folder / "etc/stagecoach"
    secret = etc / "secret"
    assert re.fullmatch("[0-9a-f]{64}", secret.read_text()) and secret.stat().st_mode & 0o777 == 0o600
    for unit in (root.folder / "usr/lib/systemd/system").glob("stagecoach-*"):
        program = re.search(r"^ExecStart=(\S+)", unit.read_text(), re.M)[1]
        assert (root.folder / program[1:]).exists(), unit.name
    (etc / "worker-0.conf").write_text("FLAGS=--listen=127.0.0.1:9100\n")
    removed = root.run("dpkg", "--remove", "stagecoach")
    assert removed.returncode == 0 and secret.exists(), removed.stderr
    purged = root.run("dpkg", "--purge", "stagecoach")
    assert purged.returncode == 0, purged.stderr
    assert root.files() == before


@pytest.fixture(scope="module")
def contents(release):
    """{path in the bundle: bytes}"""
    file, = release.glob("*-linux-*.tar.gz")
    with tarfile.open(file) as tar:
        return {one.name.partition("/")[2]: tar.extractfile(one).read() for one in tar if one.isfile()}


def test_no_file_names_the_folders_of_its_builder(contents):
    folders = {str(BIN_DIR.resolve().parent), str(ROOT), os.environ.get("CARGO_HOME", f"{pathlib.Path.home()}/.cargo")}
    found = {(name, folder) for name, data in contents.items() for folder in folders if f"{folder}/".encode() in data}
    assert not found


def test_licences_of_all_that_is_inside(contents):
    folder = "share/doc/stagecoach/licenses/"
    licenses = {name.removeprefix(folder): data.decode() for name, data in contents.items() if name.startswith(folder)}
    programs = [BIN_DIR / name for name in ("stagecoach", "stagecoach-router", "stagecoach-worker")]
    carried = run(sys.executable, ROOT / "deploy" / "packages" / "carried.py", *programs).stdout.splitlines()
    assert {name for name in contents if name.startswith("lib/")} == {f"lib/stagecoach/{line.split()[0]}" for line in carried}
    packages = {package for name, text in licenses.items() for package in name.removesuffix(".txt").split("_") if len(text) > 200}
    assert {line.split()[2] for line in carried} | {"nlohmann-json3-dev", "libcli11-dev"} <= packages
    for crate in ("tokenizers", "minijinja", "llguidance", "serde_json"):
        assert re.search(rf"^{crate} \d", licenses["rust-crates.txt"], re.M), crate
    assert any(name.startswith("rust-library.") for name in licenses)
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in licenses["common-LGPL-2.1.txt"]
    assert {"LICENSE", "NOTICE"} <= {name.removeprefix("share/doc/stagecoach/") for name in contents}

