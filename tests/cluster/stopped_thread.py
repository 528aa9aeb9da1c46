"""Stops one thread of another process, like a debugger. SIGSTOP can only stop whole processes."""
import contextlib
import ctypes
import os
import pathlib

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _threads(process):
    """[(start time, id, name)], the oldest first. Thread ids give no order, because they wrap around."""
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            head, _, tail = (task / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        found.append((int(tail.split()[19]), int(task.name), head.partition("(")[2]))
    return sorted(found)


def thread_names(process):
    return sorted({name for _, _, name in _threads(process)})


def _thread_of(process, name):
    # The oldest one: threads that it starts inherit its name.
    for _, thread, its_name in _threads(process):
        if its_name == name:
            return thread
    raise ProcessLookupError(f"process {process} has no thread {name!r}")


@contextlib.contextmanager
def stopped_thread(process, name):
    """Enter and leave it in the same thread, which the kernel knows as the tracer. If the process is killed in the
    block, it ends only when the block is left."""
    thread = _thread_of(process, name)
    _ptrace(_PTRACE_SEIZE, thread)
    try:
        _ptrace(_PTRACE_INTERRUPT, thread)
        os.waitpid(thread, _WALL)
        yield
    finally:
        try:
            _ptrace(_PTRACE_DETACH, thread)
        except ProcessLookupError:  # killed in the block: its process ends after the tracer has waited for it
            with contextlib.suppress(ChildProcessError):
                os.waitpid(thread, _WALL)
