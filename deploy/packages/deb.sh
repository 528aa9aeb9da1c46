#!/usr/bin/env bash
# Packs a release's tree as a Debian package.
#   deb.sh TREE VERSION GLIBC_VERSION OUT [DPKG_DEB_FLAG...]
# Libraries of which a machine gets security updates, under a name that all known releases of Debian and Ubuntu have, come
# from there; the others are carried. The same tree gives the same bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# Names that the programs look for. Debian 13 and Ubuntu 24.04 call libssl3 libssl3t64.
readonly of_the_machine='libssl.so.3 libcrypto.so.3 libz.so.1'
readonly their_packages='libssl3 (>= 3.0.0) | libssl3t64, zlib1g (>= 1:1.2.13)'

[ $# -ge 4 ] || { echo "usage: deb.sh TREE VERSION GLIBC_VERSION OUT [DPKG_DEB_FLAG...]" >&2; exit 2; }
tree=$1 version=$2 glibc=$3 out=$4
shift 4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
doc=$root/usr/share/doc/stagecoach

mkdir -p "$root"/usr/lib/systemd/system "$root/etc/stagecoach" "$root/DEBIAN"
cp -r "$tree"/{bin,lib,share} "$root/usr/"
for library in $of_the_machine; do rm "$root/usr/lib/stagecoach/$library"; done
for unit in "$here"/../systemd/*.service; do
  sed 's|/usr/local/bin/|/usr/bin/|' "$unit" >"$root/usr/lib/systemd/system/${unit##*/}"
done
rm -r "$doc/deploy/systemd"
cp "$tree/README.md" "$doc/"
cat "$doc/LICENSE" "$doc/NOTICE" >"$doc/copyright"
cp "$here/debian/router.conf" "$root/etc/stagecoach/"
echo /etc/stagecoach/router.conf >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$root/DEBIAN/"; done
cat >"$root/DEBIAN/control" <<END
Package: stagecoach
Version: $version
Architecture: amd64
Section: net
Priority: optional
Maintainer: The stagecoach authors <stagecoach@localhost>
Depends: libc6 (>= $glibc), $their_packages
Installed-Size: $(du -sk --apparent-size "$root" | cut -f 1)
Description: pipeline-parallel server for large language models
 A router tokenizes and schedules requests and sends steps to workers, each
 of which holds a range of the model's layers. Clients use HTTP APIs that
 are compatible with OpenAI's and Anthropic's, or gRPC. The package has the
 programs for CPUs, units of systemd and a small model for a first answer.
END
(cd "$root" && find etc usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod -R u+rwX,go+rX,go-w "$root"
# dpkg-deb takes dates after SOURCE_DATE_EPOCH back to it, and leaves earlier ones.
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group "$@" --build "$root" "$out/stagecoach_${version}_amd64.deb" >/dev/null
