#!/usr/bin/env python3
"""A client that reads streams one after the other, and measures the time between a stream's messages.

usage: gap_listener.py GRPC N_STREAMS
Prints a line when all streams run. Then, for each line that it reads, it prints the gaps since the line before, as
JSON: their number, percentiles in ms, and the error of a stream that has failed. It ends with its input.
"""
import json
import os
import pathlib
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / "cluster")]

import protos  # noqa: E402

protos.make_importable()

import grpc  # noqa: E402
from stagecoach.v1 import inference_pb2 as pb  # noqa: E402
from stagecoach.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

REQUEST = pb.GenerateRequest(text="The next train", sampling=pb.SamplingParams(max_tokens=400, ignore_eos=True))


class Stream:
    def __init__(self, stub):
        self.error = None
        self.has_begun = threading.Event()
        self._stub, self._gaps = stub, []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        try:
            while True:
                last = None
                for _ in self._stub.Generate(REQUEST):
                    now = time.monotonic()
                    if last is not None:
                        self._gaps.append(now - last)
                    last = now
                    self.has_begun.set()
        except grpc.RpcError as error:
            self.error = error.code().name
            self.has_begun.set()

    def take(self):
        gaps, self._gaps = self._gaps, []
        return gaps


def summary(streams):
    gaps = sorted(gap for stream in streams for gap in stream.take())

    def share(part):
        return round(gaps[min(len(gaps) - 1, int(len(gaps) * part))] * 1e3, 2) if gaps else None

    return dict(n=len(gaps), p50=share(0.5), p99=share(0.99), max=share(1),
                error=next((stream.error for stream in streams if stream.error), None))


def main():
    address, n_streams = sys.argv[1], int(sys.argv[2])
    stub = pb_grpc.InferenceStub(grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]))
    streams = [Stream(stub) for _ in range(n_streams)]
    for stream in streams:
        stream.has_begun.wait()
    print("running", flush=True)
    for _ in sys.stdin:
        print(json.dumps(summary(streams)), flush=True)
    os._exit(0)  # its streams never end


if __name__ == "__main__":
    main()
