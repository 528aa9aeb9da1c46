"""Reads processes from /proc, and ties their lives to ours."""
import ctypes
import os
import pathlib
import signal
import subprocess

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def ends_with_us():
    """A preexec_fn: the kernel kills the process when this one dies, even by SIGKILL. Its own children are not
    affected; `stagecoach serve` ends its workers itself."""
    parent = os.getpid()

    def ask():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)

    return ask


def code_of(command, **more):
    """Runs a command and returns its exit code. If interrupted, kills the command and everything it has started."""
    with subprocess.Popen(command, start_new_session=True, preexec_fn=ends_with_us(), **more) as process:
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def stat_fields(pid):
    """(name, [state, parent, ...]) of /proc/PID/stat; None: the process is gone."""
    try:
        head, _, tail = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return head.partition("(")[2], tail.split()


def children_of(pid):
    """[(pid, name)] of the children in the order of their start; the kernel cuts names to 15 characters."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        stat = stat_fields(path.name)
        if stat and int(stat[1][1]) == pid:
            found.append((int(stat[1][19]), int(path.name), stat[0]))
    return [(child, name) for _, child, name in sorted(found)]


def is_running(pid):
    stat = stat_fields(pid)
    return stat is not None and stat[1][0] not in "ZX"
