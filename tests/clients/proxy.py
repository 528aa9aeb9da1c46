"""A proxy that simulates network failure: it forwards every connection to an address until a test breaks them."""
import contextlib
import socket
import threading

from wire import split


class CuttableProxy:
    def __init__(self, target):
        self._target = split(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._mark = None
        self._down = False
        self._sockets = set()

    def __enter__(self):
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:  # the first thread appends to the list; it has ended here
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()

    def cut_at(self, mark):
        """Breaks all connections after the target sends the first `mark`, and accepts no others until `mend()`."""
        with self._lock:
            self._mark = mark

    def mend(self):
        with self._lock:
            self._down = False

    def _cut(self):
        with self._lock:
            self._down = True
            self._mark = None
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._down:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._pass, args=(source, sink, source is server)))
                self._threads[-1].start()

    def _pass(self, source, sink, is_answer):
        said = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    mark = self._mark if is_answer else None
                said += data if mark else b""
                if mark and mark in said:
                    n_sent = len(data) - (len(said) - said.index(mark) - len(mark))
                    sink.sendall(data[:max(n_sent, 0)])
                    self._cut()
                    break
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
