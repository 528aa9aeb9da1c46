#!/usr/bin/env bash
# Builds the images without privileges. Each is a root file system with the programs and their libraries; buildah turns
# it into an image. Archives and bills of materials (SPDX) are written to build/images.
#   deploy/images/build.sh [--bin DIR] [--cuda-bin DIR] [--out DIR] [router] [worker-cpu] [worker-cuda]
# Default: router and worker-cpu. Programs must already be built: in build/cpu/bin, and in build/cuda/bin for
# worker-cuda. SOURCE_DATE_EPOCH (default: the commit's time) is the date of all files, so that the same sources give
# the same images.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
bin=$root/build/cpu/bin
cuda_bin=$root/build/cuda/bin
out=$root/build/images

die() { echo "build.sh: error: $*" >&2; exit 1; }

images=()
while [ $# -gt 0 ]; do
  case $1 in
    --bin | --cuda-bin | --out)
      [ $# -ge 2 ] || die "$1 needs a folder"
      case $1 in --bin) bin=$2 ;; --cuda-bin) cuda_bin=$2 ;; --out) out=$2 ;; esac
      shift
      ;;
    router | worker-cpu | worker-cuda) images+=("$1") ;;
    *) die "no image '$1'; there are: router worker-cpu worker-cuda" ;;
  esac
  shift
done
[ ${#images[@]} -gt 0 ] || images=(router worker-cpu)
command -v buildah >/dev/null || die "buildah is missing: apt-get install buildah"

version=$(sed -n 's/^project(stagecoach VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out"
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

for image in "${images[@]}"; do
  programs=(stagecoach-worker)
  from=$bin
  case $image in
    router) programs=(stagecoach-router stagecoach) ;;
    worker-cuda) from=$cuda_bin ;;
  esac
  echo "build.sh: stagecoach/$image:$version"
  python3 "$here/rootfs.py" --bin "$from" --tar "$context/rootfs.tar" --sbom "$out/$image.spdx.json" \
    --name "stagecoach/$image" --version "$version" "${programs[@]}"
  # Files keep their dates from the tar, which --timestamp would set to the same value.
  buildah bud --quiet --isolation chroot --format oci --timestamp "$SOURCE_DATE_EPOCH" \
    --label org.opencontainers.image.title="stagecoach $image" \
    --label org.opencontainers.image.description="A pipeline-parallel server for large language models: $image" \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.revision="$revision" \
    --label org.opencontainers.image.licenses=Apache-2.0 \
    --file "$here/${image%%-*}.Containerfile" --tag "stagecoach/$image:$version" "$context" >/dev/null
  rm -f "$out/$image.tar"
  buildah push --quiet "stagecoach/$image:$version" "oci-archive:$out/$image.tar:stagecoach/$image:$version"
  echo "build.sh: $out/$image.tar, $(($(stat -c %s "$out/$image.tar") / 1048576)) MiB, $image.spdx.json"
done
