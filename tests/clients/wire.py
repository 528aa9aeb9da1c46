"""Raw HTTP, for requests that no client library would send."""
import contextlib
import json
import socket
import time


def split(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def connection(address, receive_buffer=None, timeout_s=300):
    with socket.socket() as sock:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(timeout_s)
        sock.connect(split(address))
        yield sock


def parse_event(block):
    """Returns (id or None, data) of one server-sent event; for a comment the data is its text."""
    number = None
    while block.startswith(":") and "\n" in block:  # a comment line before an event
        block = block.split("\n", 1)[1]
    if block.startswith("id: "):
        line, block = block.split("\n", 1)
        number = int(line.removeprefix("id: "))
    if block.startswith(":"):
        return number, block
    data = block.removeprefix("data: ")
    assert data != block and "\n" not in data, block
    return number, data if data == "[DONE]" else json.loads(data)


def is_comment(data):
    return isinstance(data, str) and data.startswith(":")


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The parsed data of each server-sent event, without comments."""
        blocks = self.body.decode().split("\n\n")
        assert blocks[-1] == ""
        return [data for _, data in map(parse_event, blocks[:-1]) if not is_comment(data)]


class Reader:
    """Reads responses from a socket, one after the other."""

    def __init__(self, sock):
        self.sock = sock
        self.held = b""

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError(self.held)
        self.held += data

    def until(self, mark):
        while mark not in self.held:
            self._more()
        head, _, self.held = self.held.partition(mark)
        return head

    def exactly(self, n):
        while len(self.held) < n:
            self._more()
        data, self.held = self.held[:n], self.held[n:]
        return data

    def head(self):
        """(status, headers) of the next response, including interim ones."""
        first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        return int(first.split()[1]), headers

    def response(self, method="GET"):
        """The next final response."""
        status, headers = self.head()
        while status == 100:
            status, headers = self.head()
        if method == "HEAD" or status == 204:
            body = b""
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.exactly(2) == b"\r\n"
        else:
            body = self.rest()
        return Response(status, headers, body)

    def sse(self):
        """Yields (id or None, data or comment) of each event of a chunked response as it arrives. The head must have
        been read."""
        text = b""
        while size := int(self.until(b"\r\n"), 16):
            text += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
            *blocks, text = text.split(b"\n\n")
            for block in blocks:
                yield parse_event(block.decode())
        assert text == b""

    def rest(self):
        """Reads everything up to the end of the connection."""
        with contextlib.suppress(EOFError):
            while True:
                self._more()
        data, self.held = self.held, b""
        return data

    def at_end(self):
        """True if the server closes the connection without sending more."""
        return self.rest() == b""


def request_bytes(method, path, body=None, headers=(), version="1.1"):
    """`body`: bytes, or a value that is encoded as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def ask(address, method, path, body=None, headers=(), version="1.1"):
    """Sends one request on its own connection."""
    with connection(address) as sock:
        sock.sendall(request_bytes(method, path, body, headers, version))
        return Reader(sock).response(method)


@contextlib.contextmanager
def busy(address):
    """Keeps a long request running during the block."""
    body = {"prompt": "The coach", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    with connection(address) as sock:
        sock.sendall(request_bytes("POST", "/v1/completions", body))
        Reader(sock).until(b"data: ")
        yield


def metric(address, name, **labels):
    """The value of one sample of /metrics; 0 if it is missing."""
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    for line in ask(address, "GET", "/metrics").body.decode().splitlines():
        if line.startswith(name) and line[len(name)] in " {" and all(label in line for label in wanted):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def wait_for(condition, timeout_s=300):
    """Polls until `condition()` is true, for states that a server only tells when asked."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)  # leaves the processor to the server
    return value
