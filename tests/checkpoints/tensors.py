"""Writes checkpoint files without a library, so that they can have any error: safetensors, and PyTorch's pickles.

A tensor is (dtype, shape, bytes); the dtype is spelled as in safetensors.
"""
import json
import pathlib
import struct
import zipfile


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    at = 8 + n
    return {name: (e["dtype"], e["shape"], raw[at + e["data_offsets"][0] : at + e["data_offsets"][1]])
            for name, e in header.items()}


def safetensors_header(tensors):
    """The header of tensors stored one after the other: {name: {dtype, shape, data_offsets}}."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def safetensors_bytes(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(path, tensors):
    data = b"".join(data for _, _, data in tensors.values())
    pathlib.Path(path).write_bytes(safetensors_bytes(safetensors_header(tensors), data))


# The opcodes of pickle protocol 2 that a state dict needs.
_STORAGES = {"F32": "FloatStorage", "BF16": "BFloat16Storage", "F16": "HalfStorage", "F64": "DoubleStorage",
             "I64": "LongStorage"}
_ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I64": 8}


def _text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _int(value):
    return b"J" + struct.pack("<i", value)


def _ints(values):
    return b"(" + b"".join(map(_int, values)) + b"t"


def _global(module, name):
    return f"c{module}\n{name}\n".encode()


def _strides(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return strides


def _tensor(key, dtype, shape, n_items):
    storage = (b"(" + _text("storage") + _global("torch", _STORAGES[dtype]) + _text(key) + _text("cpu") +
               _int(n_items) + b"tQ")
    hooks = _global("collections", "OrderedDict") + b")R"
    arguments = b"(" + storage + _int(0) + _ints(shape) + _ints(_strides(shape)) + b"\x89" + hooks + b"t"
    return _global("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def state_dict_pickle(tensors, extra=b""):
    """data.pkl of a state dict. `extra`: one more key and value, already pickled."""
    items = b""
    for i, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        items += _text(name) + _tensor(str(i), dtype, shape, len(data) // _ITEM_BYTES[dtype])
    return b"\x80\x02" + _global("collections", "OrderedDict") + b")R(" + items + extra + b"u."


def write_bin(path, tensors, pickled=None):
    """Writes a file like torch.save; `pickled` replaces data.pkl."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", state_dict_pickle(tensors) if pickled is None else pickled)
        for i, (_, _, data) in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{i}", data)
        archive.writestr("archive/version", "3\n")


def calls(module, name, argument):
    """A pickled key whose value is a function call's result, as in a malicious file."""
    return _text("x") + _global(module, name) + b"(" + _text(argument) + b"tR"


def legacy_bin():
    """The start of a file of torch.save before 1.6: consecutive pickles, of which the first is a magic number."""
    magic = 0x1950A86A20F9469CFC6C
    raw = magic.to_bytes(10, "little")
    return b"\x80\x02\x8a" + bytes([len(raw)]) + raw + b"." + b"\x80\x02M\xe9\x03." + b"\x80\x02}q\x00."
