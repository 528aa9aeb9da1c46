"""Listens to a server's KV events, and keeps what they tell."""
import msgpack
import zmq

BLOCK = 16
TIMEOUT_MS = 60_000
END = (-1).to_bytes(8, "big", signed=True)


class Index:
    """`blocks`: {rank: {hash: (the parent's hash, tokens)}}. Checks that each event fits those before."""

    def __init__(self):
        self.blocks = {}
        self.n_removed = self.n_cleared = 0

    def apply(self, payload):
        time, events, rank = msgpack.unpackb(payload)
        assert 1.7e9 < time < 1e10 and events
        for event in events:
            getattr(self, event.pop("type"))(rank, **event)

    def BlockStored(self, rank, block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name):
        assert (block_size, lora_id, medium, lora_name) == (BLOCK, None, "GPU", None)
        assert len(token_ids) == BLOCK * len(block_hashes)
        blocks = self.blocks.setdefault(rank, {})
        for i, one in enumerate(block_hashes):
            assert one >> 63 == 1 and one not in blocks
            blocks[one] = parent_block_hash, tuple(token_ids[i * BLOCK:(i + 1) * BLOCK])
            parent_block_hash = one

    def BlockRemoved(self, rank, block_hashes, medium):
        assert medium == "GPU"
        for one in block_hashes:
            del self.blocks[rank][one]
        self.n_removed += len(block_hashes)

    def AllBlocksCleared(self, rank):
        for each in [rank] if rank is not None else list(self.blocks):
            self.blocks[each] = {}
        self.n_cleared += 1

    def found(self, tokens, rank=0):
        """The number of blocks at the start of `tokens` that are known."""
        children = {value: one for one, value in self.blocks.get(rank, {}).items()}
        parent, n = None, 0
        while parent := children.get((parent, tuple(tokens[n * BLOCK:(n + 1) * BLOCK]))):
            n += 1
        return n


class Listener:
    """Follows the events since the server's start: what came before it had connected, it asks for."""

    def __init__(self, stack, cluster, topic=""):
        self._context = stack.enter_context(zmq.Context())
        self._cluster = cluster
        self._topic = topic.encode()
        self._live = self._socket(stack, zmq.SUB, cluster.kv_events)
        self._live.subscribe(topic)
        self._stack = stack
        self.index = Index()
        self.payloads = []  # by sequence number

    def _socket(self, stack, kind, endpoint):
        socket = stack.enter_context(self._context.socket(kind))
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, TIMEOUT_MS)
        socket.connect(endpoint)
        return socket

    def replay(self, first):
        """[(sequence number, payload)]"""
        with self._context.socket(zmq.DEALER) as socket:
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.RCVTIMEO, TIMEOUT_MS)
            socket.connect(self._cluster.kv_events_replay)
            socket.send_multipart([b"", first.to_bytes(8, "big")])
            answers = []
            while True:
                delimiter, number, payload = socket.recv_multipart()
                assert delimiter == b""
                if number == END:
                    assert payload == b""
                    return answers
                answers.append((int.from_bytes(number, "big"), payload))

    def _add(self, number, payload):
        if number < len(self.payloads):  # it came with a replay
            assert payload == self.payloads[number]
            return
        assert number == len(self.payloads)
        self.payloads.append(payload)
        self.index.apply(payload)

    def read(self):
        """Takes in what has come. Returns the index."""
        while self._live.poll(0):
            topic, number, payload = self._live.recv_multipart()
            assert topic == self._topic and len(number) == 8
            number = int.from_bytes(number, "big")
            if number > len(self.payloads):
                assert not self.payloads, "a message was lost"
                for missed, old in self.replay(0):
                    self._add(missed, old)
            self._add(number, payload)
        return self.index
