"""Clients of a completions API. Each sends one stream after the other until standard input ends, and prints each result
as a line of JSON. They run in network namespaces, so they need only Python.

  clients.py HOST:PORT N_CLIENTS N_TOKENS new|kept [retry]

new: a connection per request; kept: one connection for all. retry: refused requests are sent again, as OpenAI's clients
do.
"""
import http.client
import json
import sys
import threading

address, n_clients, n_tokens, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
retry = "retry" in sys.argv[5:]
stop = threading.Event()
printing = threading.Lock()


class Refused(Exception):
    """No token had arrived, so the request can be sent again."""


def ask(connection):
    body = {"prompt": "The next train", "max_tokens": n_tokens, "ignore_eos": True, "stream": True, "temperature": 0,
            "stream_options": {"include_usage": True}}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise Refused(f"{type(error).__name__}: {error}") from error
    if response.status != 200:
        connection.close()
        raise Refused(f"{response.status} {response.read(300).decode(errors='replace')}")
    text = response.read().decode()
    usage = [json.loads(line[6:]).get("usage") for line in text.splitlines() if line.startswith("data: {")]
    if not text.rstrip().endswith("data: [DONE]") or not usage[-1] or usage[-1]["completion_tokens"] != n_tokens:
        raise ValueError(f"a stream broke off: ...{text[-300:]}")
    return "will_close" if response.will_close else "open"


def client():
    connection = http.client.HTTPConnection(address, timeout=60)
    n_refused = 0
    while not stop.is_set():
        try:
            if ask(connection) == "will_close" or connections == "new":
                connection.close()
            result = {"answer": True, "refused_before": n_refused}
            n_refused = 0
        except Refused as error:
            if retry:
                n_refused += 1
                stop.wait(0.05)
                continue
            result = {"error": str(error)}
        except Exception as error:
            connection.close()
            result = {"error": f"{type(error).__name__}: {error}"}
        with printing:
            print(json.dumps(result), flush=True)


threads = [threading.Thread(target=client) for _ in range(n_clients)]
for thread in threads:
    thread.start()
sys.stdin.read()
stop.set()
for thread in threads:
    thread.join()
