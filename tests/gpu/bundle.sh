#!/usr/bin/env bash
# Packs one file with everything that tests/gpu/run.py needs on a bare machine with GPUs (Ubuntu 24.04 with Python 3, a
# driver, and the libraries of CUDA and NCCL): stripped programs, their shared libraries, golden models, the demo model
# and the scripts. tests/bench/bombs.py and tests/bench/recovery.py are packed too; they need
# Python's grpcio and protobuf there, in any version.
#   tests/gpu/bundle.sh [--bin DIR] [--out FILE.tar.gz] [PROGRAM...]
# PROGRAM: further programs of DIR; transport_nccl_bench is included if it exists. On the GPU machine:
#   tar xzf FILE.tar.gz && stagecoach-gpu/tests/gpu/run.py
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root most=$((60 << 20)) name=stagecoach-gpu
bin=$root/build/cuda/bin
out=$root/build/$name.tar.gz

die() { echo "bundle.sh: error: $*" >&2; exit 1; }

programs=(stagecoach stagecoach-router stagecoach-worker)
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --out) out=${2:?--out needs a file}; shift ;;
    -*) die "usage: tests/gpu/bundle.sh [--bin DIR] [--out FILE.tar.gz] [PROGRAM...]" ;;
    *) programs+=("$1") ;;
  esac
  shift
done
if [ -x "$bin/transport_nccl_bench" ]; then programs+=(transport_nccl_bench); fi
for program in "${programs[@]}"; do [ -x "$bin/$program" ] || die "no $bin/$program: build it first"; done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
to=$scratch/$name

mkdir -p "$to"/{bin,lib,deploy,docs,proto,tests/gpu,tests/bench,tests/checkpoints,tests/cluster/data,tests/golden}
for program in "${programs[@]}"; do strip -o "$to/bin/$program" "$bin/$program"; done
# Libraries of every Ubuntu are not packed, and neither is CUDA, which must fit the machine's driver.
(cd "$bin" && PYTHONPATH=$root/deploy/images python3 - "${programs[@]}" <<'END'
import sys
import rootfs
for name, path in rootfs.libraries([f"./{program}" for program in sys.argv[1:]]).items():
    print(name, path)
END
) | while read -r library path; do
  case $library in
    linux-vdso* | */ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libstdc++.so* | libgcc_s.so*) ;;
    libcu* | libnv* | libnccl*) ;;
    *) cp -L "$path" "$to/lib/$library" ;;
  esac
done
cp -r "$root/deploy/demo-model" "$to/deploy/"
cp -r "$root/docs/shapes" "$to/docs/"
cp -r "$root/tests/golden/data" "$to/tests/golden/"
protoc -I "$root/proto" --include_imports --descriptor_set_out="$to/proto/descriptors.binpb" \
  stagecoach/v1/inference.proto
cp "$root"/tests/bench/{random_checkpoint,random_gguf,grammar_schema,bombs,bomb_requests,gap_listener,recovery}.py "$to/tests/bench/"
cp "$root/tests/checkpoints/gguf_file.py" "$to/tests/checkpoints/"
cp "$root"/tests/cluster/{stopped_thread,polling,faults,harness,protos,packed_protos,recovery,workload}.py "$to/tests/cluster/"
cp "$root"/tests/cluster/{lost_stages,broken_links,proxied,toxiproxy,health}.py "$to/tests/cluster/"
cp "$root"/tests/cluster/data/tools.jinja "$to/tests/cluster/data/"
cp "$root"/tests/gpu/*.py "$to/tests/gpu/"
mkdir "$to/tests/gpu/parts" && cp "$root"/tests/gpu/parts/*.py "$to/tests/gpu/parts/"
cp "$root"/{LICENSE,NOTICE} "$to/"
{ git -C "$root" describe --always --dirty 2>/dev/null || echo unknown; } >"$to/COMMIT"

mkdir -p "$(dirname "$out")"
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -6n >"$out"
size=$(stat -c %s "$out")
[ "$size" -lt $most ] || die "$out has $((size >> 20)) MiB: 60 are allowed"
echo "bundle.sh: $out, $((size >> 20)) MiB"
