"""An HTTP proxy that passes requests on and records them with their answers."""
import contextlib
import dataclasses
import http.client
import http.server
import json
import threading

from wire import split


@dataclasses.dataclass
class Exchange:
    method: str
    path: str
    headers: dict  # names in lower case
    body: bytes
    status: int = 0
    answer: bytes = b""

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The data of the answer's server-sent events, in order."""
        lines = self.answer.decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


@contextlib.contextmanager
def recorded(target):
    """Yields (address, [Exchange]) of a proxy in front of "HOST:PORT". Exchanges are in the order of their requests."""
    exchanges = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            exchange = Exchange(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            exchanges.append(exchange)
            upstream = http.client.HTTPConnection(*split(target))
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("host", "connection", "accept-encoding")}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            exchange.status = answer.status
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may leave early
                while piece := answer.read1(65536):
                    exchange.answer += piece
                    self.wfile.write(piece)
            upstream.close()
            self.close_connection = True

        do_GET = do_POST = do_DELETE = do_HEAD = pass_on

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", exchanges
        finally:
            server.shutdown()
            thread.join()
