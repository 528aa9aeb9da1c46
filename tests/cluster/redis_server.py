"""A redis-server of this machine, for tests."""
import shutil
import subprocess
import tempfile

from harness import free_ports, wait_until


class RedisServer:
    """`url` is its address; it keeps nothing when it is killed."""

    def __enter__(self):
        assert shutil.which("redis-server"), "no redis-server here: run deploy/install-deps.sh --test"
        port = free_ports(1)
        self.url = f"redis://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                         "--dir", self._folder.name], stdout=subprocess.DEVNULL)
        wait_until(lambda: self.ask("PING") == "PONG", "Redis")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    def ask(self, *command):
        """What it answers to a command; empty if it does not."""
        run = subprocess.run(["redis-cli", "-u", self.url, *command], capture_output=True, text=True)
        return run.stdout.strip()
