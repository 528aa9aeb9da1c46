"""Follows a router's health as a load balancer does: by grpc.health.v1.Health/Watch."""
import threading
import time

import grpc
from harness import wait_until

_SERVING = b"\x08\x01"  # HealthCheckResponse; bare GPU machines have no package for it


class HealthWatch:
    """`changes` are (time, whether the router serves), on time.monotonic()."""

    def __init__(self, address):
        self.changes = []
        self._channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        self._call = self._channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._call.cancel()
        self._thread.join()
        self._channel.close()

    def _follow(self):
        try:
            for answer in self._call:
                self.changes.append((time.monotonic(), answer == _SERVING))
        except grpc.RpcError:
            pass  # the watch or the router has ended

    def await_serving(self, serving):
        wait_until(lambda: self.changes and self.changes[-1][1] == serving, f"serving={serving} by the router's health service")

    def noticed_after(self, moment):
        """Seconds from `moment` until the router said that it does not serve. None: it has not."""
        return next((at - moment for at, serving in self.changes if at > moment and not serving), None)
