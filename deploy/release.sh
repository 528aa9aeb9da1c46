#!/usr/bin/env bash
# Builds a release: the programs with the files that run them, the chart, and checksums. The same sources and programs
# give the same bytes.
#   deploy/release.sh [--bin DIR] [--out DIR] [--images]
# Default: from build/cpu/bin into build/release. --images: also the images of deploy/images/build.sh and their bills of
# materials.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
bin=$root/build/cpu/bin
out=$root/build/release
images=

die() { echo "release.sh: error: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --images) images=1 ;;
    *) die "usage: deploy/release.sh [--bin DIR] [--out DIR] [--images]" ;;
  esac
  shift
done

programs=(stagecoach stagecoach-router stagecoach-worker)
for program in "${programs[@]}"; do [ -x "$bin/$program" ] || die "no $bin/$program: build it first"; done
version=$(sed -n 's/^project(stagecoach VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ "$("$bin/stagecoach" --version)" = "stagecoach $version" ] || die "$bin/stagecoach is not version $version"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
name=stagecoach-$version-linux-$(uname -m)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

pack() { # ARCHIVE FOLDER, both within $scratch
  tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u+rwX,go+rX,go-w \
    -cf - "$2" | gzip -9n >"$out/$1"
}

rm -rf "$out"
mkdir -p "$out" "$scratch/$name/bin"
out=$(cd "$out" && pwd)
for program in "${programs[@]}"; do install -m 755 "$bin/$program" "$scratch/$name/bin/"; done
for folder in deploy/{systemd,compose,grafana,prometheus} docs; do cp -r "$root/$folder" "$scratch/$name/"; done
cp "$root"/{README.md,CHANGELOG.md,LICENSE,NOTICE,SECURITY.md} "$scratch/$name/"
pack "$name.tar.gz" "$name"

# The same content as `helm package`, but with fixed dates.
mkdir "$scratch/stagecoach"
cp -r "$root"/helm/{Chart.yaml,values.yaml,values.schema.json,README.md,templates} "$scratch/stagecoach/"
pack "stagecoach-chart-$version.tgz" stagecoach

python3 "$root/deploy/images/rootfs.py" --bin "$bin" --sbom "$out/$name.spdx.json" --name "$name" --version "$version" "${programs[@]}"
if [ -n "$images" ]; then
  "$root/deploy/images/build.sh" --bin "$bin" --out "$out"
fi
(cd "$out" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
echo "release.sh: $out"
(cd "$out" && ls -1)
