"""Tenants that load a server at the same time over HTTP, each with its own number of connections, and their served
answers.

    async with Load(address, key="sk-a", n_connections=300, priority=-100) as flood: ...

Each connection repeats requests until the end of the block.
"""
import asyncio
import json
import re


def tokens_computed(metrics_text):
    """{tenant: tokens prefilled and decoded for it}, from the metrics page."""
    found = re.findall(r'^stagecoach_tenant_tokens_total\{.*?tenant="([^"]*)".*?\} (\S+)$', metrics_text, re.MULTILINE)
    return {tenant: float(value) for tenant, value in found}


async def ask_for_metrics(address):
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


class Load:
    """`n_served` answers with `n_tokens` tokens in all had status 200; `n_refused` answers had another status."""

    def __init__(self, address, key, n_connections, max_tokens=40, priority=0, n_prompt=20):
        self.address = address
        self.n_connections = n_connections
        self.n_served = self.n_tokens = self.n_refused = 0
        self._changed = asyncio.Condition()
        self._n_made = 0
        self._key, self._max_tokens, self._priority, self._n_prompt = key, max_tokens, priority, n_prompt

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._connection(i)) for i in range(self.n_connections)]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def served(self, n):
        """Waits for `n` served answers."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.n_served >= n or any(task.done() for task in self._tasks))
        for task in self._tasks:
            if task.done():
                task.result()

    def _request(self):
        # No two prompts share a prefix, so each one is computed.
        self._n_made += 1
        prompt = [3 + self._n_made * 7 % 200, *(3 + (self._n_made // 200 + i * 11) % 200 for i in range(self._n_prompt - 1))]
        body = json.dumps({"prompt": prompt, "max_tokens": self._max_tokens, "ignore_eos": True, "priority": self._priority})
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {self.address}\r\nAuthorization: Bearer {self._key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
        return (head + body).encode()

    async def _connection(self, _):
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            while True:
                writer.write(self._request())
                head = "HTTP/1.1 1"
                while head.startswith("HTTP/1.1 1"):  # skips interim responses, which come while a request waits
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])
                answer = json.loads(await reader.readexactly(length))
                async with self._changed:
                    if head.startswith("HTTP/1.1 200"):
                        self.n_served += 1
                        self.n_tokens += answer["usage"]["completion_tokens"]
                    else:
                        assert head.startswith("HTTP/1.1 429"), (head, answer)
                        self.n_refused += 1
                    self._changed.notify_all()
                if not head.startswith("HTTP/1.1 200"):
                    await asyncio.sleep(0.05)  # like a client that retries
        finally:
            writer.close()
