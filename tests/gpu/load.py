"""A load of a few streams that start again until one fails, or until the end of the block."""
import http.client
import threading
import time

import client

PROMPT = [10, 11, 12, 13]
PLAIN = dict(max_tokens=200, n=2)
FORMED = dict(max_tokens=200, guided_regex="[a-z ]{1000}")
FLOW_LIMIT_S = 60  # for the next tokens of streams that nothing stops
END_LIMIT_S = 60


class Load:
    """`errors`: (time, words) of each stream's end."""

    def __init__(self, server, requests=(PLAIN, PLAIN, FORMED)):
        self.errors = []
        self._server = server
        self._stopping = False
        self._changed = threading.Condition()
        self._n_events = [0] * len(requests)
        self._last = [time.monotonic()] * len(requests)  # when each stream's newest event came
        self._longest_s = 0.0
        # Daemons: a check that has run out of time must not wait for them.
        self.threads = [threading.Thread(target=self._run, args=(i, request), daemon=True)
                        for i, request in enumerate(requests)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.await_each(4)
        return self

    def __exit__(self, *_):
        self._stopping = True
        self._join()

    def _join(self):
        """Whether all streams have ended in time."""
        deadline = time.monotonic() + END_LIMIT_S
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def _run(self, i, request):
        try:
            while not self._stopping:
                self._read(i, client.Stream(self._server, PROMPT, **request))
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            with self._changed:
                self.errors.append((time.monotonic(), str(error)))
                self._changed.notify_all()

    def _read(self, i, stream):
        try:
            while (event := stream.next()) != "[DONE]":
                if event is None:
                    raise RuntimeError("the connection ends, and no error is said before")
                if '"error"' in event:
                    raise RuntimeError(event)
                with self._changed:
                    self._n_events[i] += 1
                    self._longest_s = max(self._longest_s, time.monotonic() - self._last[i])
                    self._last[i] = time.monotonic()
                    self._changed.notify_all()
        finally:
            stream.close()

    def await_each(self, n):
        """Waits until each stream has n more events."""
        with self._changed:
            wanted = [events + n for events in self._n_events]
            came = self._changed.wait_for(lambda: self.errors or all(map(int.__ge__, self._n_events, wanted)),
                                          FLOW_LIMIT_S)
            if self.errors:
                raise client.CheckFailed(f"a stream fails: {self.errors[0][1][:300]}")
            if not came:
                raise client.CheckFailed(f"a stream gets less than {n} tokens in {FLOW_LIMIT_S} s")

    def forget_gaps(self):
        with self._changed:
            self._longest_s = 0.0
            self._last = [time.monotonic()] * len(self._last)

    def silence_s(self):
        """Seconds since the newest event, of the stream that has waited longest."""
        with self._changed:
            return time.monotonic() - min(self._last)

    def longest_gap_s(self):
        """Of any stream, since forget_gaps()."""
        with self._changed:
            return max(self._longest_s, time.monotonic() - min(self._last))

    def await_end(self):
        """Waits until each stream has failed."""
        if not self._join():
            raise client.CheckFailed(f"a client hears of no error within {END_LIMIT_S} s")
