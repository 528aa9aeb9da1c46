"""Tests the systemd units and the Compose file, whose files and programs must exist and run, and that a release can be made
again. test_install.py tests what is in a release."""
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from harness import BIN_DIR

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


def known_flags(program):
    return set(re.findall(r"--[a-z][a-z-]*", run(BIN_DIR / program, "--help").stdout))


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The units with the paths of the built programs, and settings in place of an administrator's."""
    folder = tmp_path_factory.mktemp("units")
    (folder / "bin").symlink_to(BIN_DIR)  # a link, because BIN_DIR's own path may contain a space
    (folder / "router.conf").write_text("FLAGS=--model=/srv/models/chat --stages=127.0.0.1:9100\n")
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/usr/local/bin/", f"{folder}/bin/")
        text = text.replace("/etc/stagecoach/router.conf", f"{folder}/router.conf")
        (folder / unit.name).write_text(text)
    (folder / "stagecoach-worker@0.service").symlink_to("stagecoach-worker@.service")
    return folder


@needs_systemd
@pytest.mark.parametrize("unit", ["stagecoach-router.service", "stagecoach-worker@0.service"])
def test_systemd_accepts_the_units(units, unit):
    verified = run("systemd-analyze", "verify", "--man=no", units / unit)
    said = [line for line in verified.stderr.splitlines() if "stagecoach" in line]
    assert verified.returncode == 0 and not said, verified.stderr


@needs_systemd
@pytest.mark.parametrize("unit", ["stagecoach-router.service", "stagecoach-worker@0.service"])
def test_systemd_restricts_the_units(units, unit):
    """systemd's exposure score of a unit: 0 is fully confined, 10 not at all; a unit without settings has 9.6."""
    rated = run("systemd-analyze", "security", "--offline=true", "--threshold=40", "--no-pager", units / unit)
    assert rated.returncode == 0, rated.stdout[-2000:] + rated.stderr


def test_compose_uses_only_flags_that_the_programs_know():
    services = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        program = "stagecoach-router" if name == "router" else "stagecoach-worker"
        assert {flag.split("=")[0] for flag in service["command"]} <= known_flags(program), name
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
    stages = next(f for f in services["router"]["command"] if f.startswith("--stages=")).removeprefix("--stages=")
    assert [address.split(":")[0] for address in stages.split(",")] == [name for name in services if name != "router"]


def test_the_same_sources_give_an_identical_release(release, tmp_path):
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release).returncode == 0
    again = run(ROOT / "deploy" / "release.sh", "--fast", "--bin", BIN_DIR, "--out", tmp_path / "out")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
