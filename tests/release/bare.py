"""A bare Debian or Ubuntu in a folder: the files of this machine's essential packages, which know of no others.

    root = bare.Root(folder)
    root.run("/opt/bin/program", "--flag")

Files that this user may not read are left out. Programs run there with the folder as their root and this machine's network.
This needs root or user namespaces.
"""
import os
import pathlib
import re
import subprocess

# Mounts go with the namespace that they were made in.
ENTER = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
LEFT_OUT = re.compile(r"/usr/share/(doc|man|locale|info|lintian)/")
LINKS = ("bin", "sbin", "lib", "lib64")


def _stanzas():
    """{package: its fields in dpkg's database}, of installed packages of this architecture."""
    found = {}
    for text in pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", text, re.M))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = {**fields, "text": text}
    return found


def _with_dependencies(names, stanzas):
    provided = {name: package for package, fields in stanzas.items()
                for name in re.findall(r"([\w.+-]+)(?: \([^)]*\))?(?:, |$)", fields.get("Provides", ""))}
    found, left = set(), list(names)
    while left:
        name = left.pop()
        name = name if name in stanzas else provided.get(name)
        if name and name not in found:
            found.add(name)
            # All alternatives are tried; those that are installed here have a stanza.
            left += re.findall(r"([a-z0-9][\w.+-]+)(?::any)?(?: \([^)]*\))?(?=[,|\s]|$)",
                               ", ".join(stanzas[name].get(key, "") for key in ("Pre-Depends", "Depends")))
    return found


def _unshare():
    """A command before another that gives it mounts and processes of its own; None: not allowed here."""
    for user in ([], ["--map-root-user"]):
        command = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child"]
        if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return None


def is_possible():
    return _unshare() is not None


class Root:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._stanzas = _stanzas()
        self._installed = set()
        for link in LINKS:
            (self.folder / "usr" / link).mkdir(parents=True)
            (self.folder / link).symlink_to(f"usr/{link}")
        for name in ("dev", "proc", "tmp", "etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "usr/bin/sh").symlink_to("dash")  # made by a script of the package
        self.add(*(name for name, fields in self._stanzas.items() if fields.get("Essential") == "yes"))

    def add(self, *names):
        """Adds packages that this machine has, with what they depend on."""
        new = sorted(_with_dependencies(names, self._stanzas) - self._installed)
        listed = subprocess.run(["dpkg-query", "-L", *new], check=True, capture_output=True, text=True).stdout.splitlines()
        files = sorted({path[1:] for path in listed if path.startswith("/") and not LEFT_OUT.match(path) and path[1:] not in LINKS
                        and (os.path.islink(path) or os.path.isfile(path) and os.access(path, os.R_OK))})
        packed = subprocess.run(["tar", "-C", "/", "-cf", "-", "--null", "--files-from=-"], check=True, stdout=subprocess.PIPE,
                                input="\0".join(files).encode()).stdout
        subprocess.run(["tar", "-C", self.folder, "-xf", "-", "--keep-directory-symlink", "--no-same-owner"], check=True, input=packed)
        self._installed |= set(new)
        info = self.folder / "var/lib/dpkg/info"
        for name in new:
            for file in pathlib.Path("/var/lib/dpkg/info").glob(f"{name}*.list"):
                if file.name in (f"{name}.list", f"{name}:amd64.list"):
                    (info / file.name).write_text(file.read_text())
        status = "".join(self._stanzas[name]["text"].strip() + "\n\n" for name in sorted(self._installed))
        (self.folder / "var/lib/dpkg/status").write_text(status)

    def run(self, *command, **options):
        return subprocess.run([*_unshare(), "sh", "-c", ENTER, self.folder, *map(str, command)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}, **options)

    def files(self):
        """All paths, without those that dpkg keeps for itself."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")
                if not re.match(r"(var/lib/dpkg|var/log|dev|proc)(/|$)", str(path.relative_to(self.folder)))}
