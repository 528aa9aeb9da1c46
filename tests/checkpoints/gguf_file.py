"""Writes GGUF files without a library. Shapes are outermost first, as everywhere in this project; the file stores them
reversed."""
import struct

_VALUES = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
           "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
_STRING, _ARRAY = 8, 9
_TENSORS = {"F32": 0, "F16": 1, "Q8_0": 8, "Q4_K": 12, "BF16": 30}
_ALIGNMENT = 32


def _string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value):
    """Encodes a string, a list of strings, or (type, number or list of numbers)."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))
    kind, form = _VALUES[value[0]]
    if isinstance(value[1], list):
        return struct.pack("<IIQ", _ARRAY, kind, len(value[1])) + struct.pack(f"<{len(value[1])}{form}", *value[1])
    return struct.pack(f"<I{form}", kind, value[1])


def padding(size):
    """What follows `size` bytes, so that the next ones are aligned."""
    return bytes(-size % _ALIGNMENT)


def gguf_header(metadata, tensors, version=3):
    """`tensors`: {name: (type, shape, size in bytes)}. Their data follow in this order, each with its padding."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += _string(key) + _value(value)
    at = 0
    for name, (kind, shape, size) in tensors.items():
        out += _string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        out += struct.pack("<IQ", _TENSORS[kind], at)
        at += size + len(padding(size))
    return out + padding(len(out))


def gguf_bytes(metadata, tensors, version=3):
    """`tensors`: {name: (type, shape, bytes)}."""
    header = gguf_header(metadata, {name: (kind, shape, len(raw)) for name, (kind, shape, raw) in tensors.items()}, version)
    return header + b"".join(raw + padding(len(raw)) for _, _, raw in tensors.values())
