#!/usr/bin/env python3
"""Packs NCCL's library small enough to copy to a GPU machine: about 20 MiB instead of 200.

usage: tests/gpu/pack_nccl.py OUT.xz [--version 2.30.7] [--architecture 90]

Since 2.30.3, NCCL accepts two ranks of a communicator on one GPU (NCCL_MULTI_RANK_GPU_ENABLE=1), so that pipelines of
several stages can use NCCL on a machine with one GPU. On that machine:

    mkdir nccl && xz -dc OUT.xz >nccl/libnccl.so.2
    NCCL_MULTI_RANK_GPU_ENABLE=1 LD_LIBRARY_PATH=$PWD/nccl:$LD_LIBRARY_PATH \\
        tests/gpu/run.py --stages 1,2,4 --devices 0,0,0,0 --only tokens kill stop

Parts that are never loaded are filled with zeros, which xz packs to almost nothing: relocatable device code, and
machine code for other GPUs. The rest of the library is unchanged.
"""
import argparse
import lzma
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

FATBIN_MAGIC = 0xBA55ED50
ELF_CODE = 2  # kind of an entry with machine code for one GPU


def sections(elf):
    """Name -> (offset, size) of a 64-bit little-endian ELF file."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    entry_size, n_entries, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(n_entries)]
    names = headers[names_index][4]

    def name(header):
        start = names + header[0]
        return elf[start:elf.index(b"\0", start)].decode()

    return {name(header): (header[4], header[5]) for header in headers}


def zero_other_code(elf, offset, size, architecture):
    """Zeros the code for other GPUs in every fat binary of the section. Returns the number of remaining entries."""
    n_kept = 0
    at, end = offset, offset + size
    while at + 16 <= end:
        magic, _, header_bytes, fat_bytes = struct.unpack_from("<IHHQ", elf, at)
        if magic != FATBIN_MAGIC:
            at += 8  # padding between fat binaries
            continue
        entry, fat_end = at + header_bytes, at + header_bytes + fat_bytes
        while entry < fat_end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", elf, entry)
            gpu, = struct.unpack_from("<I", elf, entry + 28)
            code = entry + entry_header
            if kind == ELF_CODE and gpu == architecture:
                n_kept += 1
            else:
                elf[code:code + payload] = bytes(payload)
            entry = code + payload
        at = fat_end
    return n_kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--version", default="2.30.7")
    parser.add_argument("--architecture", type=int, default=90, help="compute capability without the dot")
    parser.add_argument("--wheel", type=pathlib.Path, help="one that is here already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = args.wheel
        if wheel is None:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch,
                            f"nvidia-nccl-cu13=={args.version}"], check=True)
            wheel = next(pathlib.Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            elf = bytearray(archive.read("nvidia/nccl/lib/libnccl.so.2"))
    found = sections(elf)
    offset, size = found["__nv_relfatbin"]
    elf[offset:offset + size] = bytes(size)
    n_kept = zero_other_code(elf, *found[".nv_fatbin"], args.architecture)
    if n_kept == 0:
        sys.exit(f"pack_nccl.py: {wheel.name} has no code for sm_{args.architecture}")
    args.out.write_bytes(lzma.compress(elf, preset=3))
    print(f"{args.out}: {args.out.stat().st_size >> 20} MiB, code for sm_{args.architecture} in {n_kept} parts")


if __name__ == "__main__":
    main()
