"""Python classes of the project's .proto files, generated if they are missing or older than their sources. In a bundle
for GPU machines they come from packed descriptors."""
import fcntl
import pathlib
import sys

import packed_protos

ROOT = pathlib.Path(__file__).parents[2]
PROTO_DIR = ROOT / "proto"
OUT_DIR = ROOT / "build" / "python"
PACKED = ROOT / "proto" / "descriptors.binpb"  # of tests/gpu/bundle.sh


def _is_current(sources):
    stamp = OUT_DIR / "stamp"
    return stamp.exists() and all(
        source.stat().st_mtime <= stamp.stat().st_mtime
        and (OUT_DIR / source.relative_to(PROTO_DIR).with_name(source.stem + "_pb2.py")).exists() for source in sources)


def _generate(sources):
    import grpc_tools
    from grpc_tools import protoc

    googles = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"--proto_path={PROTO_DIR}", f"--proto_path={googles}", f"--python_out={OUT_DIR}",
                 f"--grpc_python_out={OUT_DIR}",
                 *(str(source.relative_to(PROTO_DIR)) for source in sources)]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc failed on {PROTO_DIR}")
    (OUT_DIR / "stamp").touch()


def make_importable():
    if PACKED.exists():
        packed_protos.make_importable(PACKED)
        return
    # Without grpc/health/v1: a generated package named `grpc` would hide grpcio's own.
    sources = sorted([*(PROTO_DIR / "stagecoach").rglob("*.proto"), *(PROTO_DIR / "opentelemetry").rglob("*.proto")])
    OUT_DIR.mkdir(parents=True, exist_ok=True)
    with open(OUT_DIR / "lock", "w") as lock:  # tests that start at the same time generate once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(sources):
            _generate(sources)
    if str(OUT_DIR) not in sys.path:
        sys.path.insert(0, str(OUT_DIR))
