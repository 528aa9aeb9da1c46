"""Copies of a checkpoint as .gguf, quantized by llama.cpp's own library (libggml-base of tests/bench/build_llama_cpp.sh).

As llama-quantize does without a mix of formats: a matrix whose rows are not whole blocks of 256 has another format, norms
stay in float32, and embeddings that are also the head are Q8_0, or Q6_K where rows are whole blocks of 256.
"""
import ctypes

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

KINDS = {"q4_0": Type.Q4_0, "q4_k": Type.Q4_K, "q5_k": Type.Q5_K, "q6_k": Type.Q6_K, "q8_0": Type.Q8_0, "iq4_xs": Type.IQ4_XS}
# llama-quantize makes Q5_1 of Q5_K, which stagecoach does not read.
FOR_ODD_ROWS = {Type.Q4_K: Type.Q5_0, Type.Q5_K: Type.Q8_0, Type.Q6_K: Type.Q8_0, Type.IQ4_XS: Type.IQ4_NL}


class Quantizer:
    def __init__(self, library):
        self._quantize = ctypes.CDLL(library).ggml_quantize_chunk
        self._quantize.restype = ctypes.c_size_t
        self._quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]

    def quantize(self, matrix, kind):
        """`matrix`: float32 [rows, cols]. Returns bytes [rows, bytes of a row]."""
        rows, cols = matrix.shape
        out = np.empty(gguf.quant_shape_to_byte_shape(matrix.shape, kind), np.uint8)
        written = self._quantize(kind, np.ascontiguousarray(matrix).ctypes.data, out.ctypes.data, 0, rows, cols, None)
        assert written == out.nbytes, f"ggml wrote {written} bytes of {kind.name}, not {out.nbytes}"
        return out


def kind_of(name, cols, kind):
    if name == "token_embd.weight":
        kind = Type.Q6_K if kind != Type.Q8_0 else kind
    return kind if cols % gguf.GGML_QUANT_SIZES[kind][0] == 0 else FOR_ODD_ROWS[kind]


def write_copy(state, n_layers, like, kind, library, out):
    """`state`: tensors of Gemma 3 by Hugging Face's names, float32. `like`: a .gguf file of the same model, from which the
    tokenizer and the sizes are copied."""
    header, quantizer = gguf.GGUFReader(like), Quantizer(library)
    writer = gguf.GGUFWriter(out, header.fields["general.architecture"].contents())
    for name, field in header.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    names = gguf_names(state, n_layers)
    for name, tensor in state.items():
        values, to = tensor.numpy(), names[name]
        if values.ndim == 1:
            writer.add_tensor(to, values + 1)  # Gemma's norms are stored as 1 + w
        else:
            form = kind_of(to, values.shape[1], kind)
            writer.add_tensor(to, quantizer.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_values(state, n_layers, path):
    """The values of such a file by the names of `state`, expanded by gguf-py."""
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    values = {name: stored[to] for name, to in gguf_names(state, n_layers).items()}
    expanded = {name: gguf.dequantize(tensor.data, tensor.tensor_type) for name, tensor in values.items()}
    return {name: value - 1 if value.ndim == 1 else value for name, value in expanded.items()}


def gguf_names(state, n_layers):
    """{Hugging Face's name: GGUF's name}."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, n_layers)
    return {name: names.get_name(name, try_suffixes=(".weight",)) for name in state}
