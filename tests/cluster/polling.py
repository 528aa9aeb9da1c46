"""Waits for what programs do not report by themselves."""
import time


def seconds_until(condition, most):
    """Seconds until `condition` held; None: more than `most`. Polls, because /ready, /metrics and the log can only be
    asked."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > most:
            return None
        time.sleep(0.01)
    return time.monotonic() - began
