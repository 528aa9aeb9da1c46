"""Makes all_types.gguf: one tensor of [3, 256] of each type that GGUF models are served from, and, as NAME.f32, the
values that the gguf package dequantizes it to (the reference). Blocks are random bytes with sane scales, since the
package cannot quantize to every type.

usage: python make_gguf.py OUT_DIR            needs: pip install numpy gguf
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

ROWS, COLS = 3, 256
T = gguf.GGMLQuantizationType
TYPES = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q5_0, T.Q4_0, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS]
HALVES = {T.Q8_0: [0], T.Q5_0: [0], T.Q4_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0],
          T.IQ4_XS: [0]}  # where scales lie


def random_blocks(rng, kind):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLS // block, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scales = (rng.standard_normal(len(blocks)) * 0.02).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def main(out):
    out = pathlib.Path(out)
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(out / "all_types.gguf", "llama")
    values = []
    for kind in TYPES:
        if kind in HALVES:
            data = random_blocks(rng, kind)
        else:
            data = gguf.quants.quantize(rng.standard_normal((ROWS, COLS)).astype(np.float32), kind)
        writer.add_tensor(f"{kind.name}.weight", data, raw_dtype=kind)
        values.append(dequantize(data, kind).astype(np.float32).reshape(ROWS, COLS))
        writer.add_tensor(f"{kind.name}.f32", values[-1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
