"""One toxiproxy process in front of one address: it cuts, holds up and delays the connections through it."""
import contextlib
import json
import signal
import subprocess
import urllib.request

from harness import START_TIMEOUT_S, STOP_TIMEOUT_S, wait_until
from protos import ROOT

PROGRAM = ROOT / "build" / "tools" / "toxiproxy-server"  # built by `tests/run.sh cluster`


class Toxiproxy:
    def __init__(self, stack, api_port, listen, upstream):
        self._api = f"http://127.0.0.1:{api_port}"
        self._process = subprocess.Popen([PROGRAM, "-host", "127.0.0.1", "-port", str(api_port)], stdout=subprocess.DEVNULL)
        stack.callback(self._process.wait, timeout=STOP_TIMEOUT_S)
        stack.callback(self._process.kill)
        wait_until(self._answers, "toxiproxy's API", timeout_s=START_TIMEOUT_S)
        self._ask("POST", "proxies", name="proxy", listen=listen, upstream=upstream, enabled=True)

    def _ask(self, method, path, **body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._api}/{path}", json.dumps(body).encode(), headers, method=method)
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).read()

    def _answers(self):
        with contextlib.suppress(OSError):
            return self._ask("GET", "version")

    def cut(self):
        """Closes the connections and refuses others."""
        self._ask("POST", "proxies/proxy", enabled=False)

    def hang(self):
        """Connections stay open and can be opened, and nothing comes."""
        self._process.send_signal(signal.SIGSTOP)

    def delay(self, ms):
        """Everything comes this much later, in both directions."""
        for stream in ("upstream", "downstream"):
            self._ask("POST", "proxies/proxy/toxics", name=stream, type="latency", stream=stream, attributes=dict(latency=ms))

    def limit(self, mb_per_s):
        """What clients send arrives at most at this rate, in 10^6 bytes per second, for each connection."""
        self._ask("POST", "proxies/proxy/toxics", type="bandwidth", stream="upstream", attributes=dict(rate=round(1000 * mb_per_s)))

    def mend(self):
        """Ends all of these. What was held up comes at once."""
        self._process.send_signal(signal.SIGCONT)
        for toxic in json.loads(self._ask("GET", "proxies/proxy"))["toxics"]:
            self._ask("DELETE", f"proxies/proxy/toxics/{toxic['name']}")
        self._ask("POST", "proxies/proxy", enabled=True)
