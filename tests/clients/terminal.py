"""Programs on pseudo-terminals."""
import json
import os
import pty
import select

from harness import STAGECOACH


def read_until(terminal, text, seen="", timeout_s=60):
    """Reads a program's terminal output until it contains `text` after the part `seen` before."""
    while text not in seen:
        assert select.select([terminal], [], [], timeout_s)[0], seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def read_to_the_end(terminal, seen="", timeout_s=60):
    """Everything that a program writes to its terminal until it closes it. An unread terminal could block its exit."""
    while True:
        assert select.select([terminal], [], [], timeout_s)[0], seen
        try:
            data = os.read(terminal, 4096)
        except OSError:  # EIO: the last process has closed the terminal
            return seen
        if not data:
            return seen
        seen += data.decode(errors="replace")


class Terminal:
    """A command of `stagecoach`, by default a chat, on its own pseudo-terminal. Its history is in a file of this
    environment: XDG_STATE_HOME."""

    def __init__(self, *arguments, command="chat", **environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(STAGECOACH, [STAGECOACH, command, *arguments], {**os.environ, "TERM": "xterm", **environment})
        self._unread = ""
        self.start = self.read_until("> ")

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_until(self, text):
        """Reads up to and including `text`; later output stays for the next call."""
        seen = read_until(self.fd, text, self._unread)
        end = seen.index(text) + len(text)
        self._unread = seen[end:]
        return seen[:end]

    def end(self):
        """REQUIRES: the prompt was read. Input typed earlier may be taken as part of another line."""
        self.type("\x04")
        rest = read_to_the_end(self.fd, self._unread)
        assert os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0, rest
        os.close(self.fd)

    def conversation(self, path):
        """Saves the conversation and returns its messages."""
        self.type(f"/save {path}\r")
        self.read_until(" messages")
        self.read_until("> ")
        return [(message["role"], message["content"]) for message in json.loads(path.read_text())]
