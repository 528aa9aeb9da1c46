#!/usr/bin/env bash
# Builds a release from built programs: a bundle, a Python wheel and a Debian package, each with the libraries that a bare
# machine lacks and the demo model; the chart, a bill of materials, and checksums. The same sources and programs give the
# same bytes.
#   deploy/release.sh [--bin DIR] [--out DIR] [--images] [--fast]
# Default: from build/cpu/bin into build/release. --images: also the images of deploy/images/build.sh and their bills of
# materials. --fast: compresses less, for tests.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
bin=$root/build/cpu/bin
out=$root/build/release
images=
level=9
deb_flags=(-Zxz)

die() { echo "release.sh: error: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --images) images=1 ;;
    --fast) level=1 deb_flags=(-Zgzip -z1) ;;
    *) die "usage: deploy/release.sh [--bin DIR] [--out DIR] [--images] [--fast]" ;;
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
    -cf - "$2" | gzip -"${level}n" >"$out/$1"
}

rm -rf "$out"
mkdir -p "$out" "$scratch/$name"/{bin,lib/stagecoach,share/stagecoach,share/doc/stagecoach/deploy}
out=$(cd "$out" && pwd)
tree=$scratch/$name
doc=$tree/share/doc/stagecoach

# The tree of bundle, wheel and package: programs find their libraries by their RPATH, $ORIGIN/../lib/stagecoach.
for program in "${programs[@]}"; do strip -o "$tree/bin/$program" "$bin/$program"; done
paths=("${programs[@]/#/$bin/}")
carried=$(python3 "$root/deploy/packages/carried.py" "${paths[@]}")
while read -r library file _; do install -m 644 "$file" "$tree/lib/stagecoach/$library"; done <<<"$carried"
cp -r "$root/deploy/demo-model" "$tree/share/stagecoach/"
cp -r "$root/docs" "$doc/"
cp -r "$root"/deploy/{systemd,compose,grafana,prometheus} "$doc/deploy/"
cp "$root"/{CHANGELOG.md,LICENSE,NOTICE,SECURITY.md} "$doc/"
python3 "$root/deploy/packages/licenses.py" --out "$doc/licenses" "${paths[@]}"
cp "$root/deploy/packages/README.md" "$root/deploy/quickstart.sh" "$tree/"
# The newest C library that any file asks for is the oldest that they run with.
glibc=$(objdump -T "$tree"/bin/* "$tree"/lib/stagecoach/* | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
glibc=${glibc#GLIBC_}

# Not xz, which a bare Debian or Ubuntu has no program to unpack.
pack "$name.tar.gz" "$name"
python3 "$root/deploy/packages/wheel.py" --tree "$tree" --version "$version" --glibc "$glibc" --out "$out" --level "$level"
"$root/deploy/packages/deb.sh" "$tree" "$version" "$glibc" "$out" "${deb_flags[@]}"

# The same content as `helm package`, but with fixed dates.
mkdir "$scratch/stagecoach"
cp -r "$root"/helm/{Chart.yaml,values.yaml,values.schema.json,README.md,templates} "$scratch/stagecoach/"
pack "stagecoach-chart-$version.tgz" stagecoach

python3 "$root/deploy/images/rootfs.py" --bin "$bin" --installed --sbom "$out/$name.spdx.json" --name "$name" --version "$version" "${programs[@]}"
if [ -n "$images" ]; then
  "$root/deploy/images/build.sh" --bin "$bin" --out "$out"
fi
(cd "$out" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
echo "release.sh: $out"
(cd "$out" && ls -1)
