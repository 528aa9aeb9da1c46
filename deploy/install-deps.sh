#!/usr/bin/env bash
# Installs missing build dependencies of stagecoach, on Debian 12 and Ubuntu 24.04. Asks no questions.
#   deploy/install-deps.sh            dependencies of a build
#   deploy/install-deps.sh --test     also those of tests/run.sh
#   deploy/install-deps.sh --fuzz     also those of tests/fuzz/run.sh
set -euo pipefail

readonly RUST_MINIMUM=1.89

packages=(
  g++ make cmake ninja-build pkg-config ccache mold python3
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev libre2-dev zlib1g-dev
  prometheus-cpp-dev libspdlog-dev libfmt-dev libhwy-dev libcli11-dev libedit-dev libssl-dev libsqlite3-dev libhiredis-dev
  libxxhash-dev libzmq3-dev cppzmq-dev nlohmann-json3-dev libtomlplusplus-dev
)
fuzz_packages=(clang-19 libclang-rt-19-dev llvm-19)
test_packages=(git python3-venv "${fuzz_packages[@]}" clang-format-19 clang-tidy-19 curl openssl iproute2 iptables redis-server)
# For the web page's tests: downloads 124 MB. Ubuntu has Chromium only as a snap.
page_packages=(chromium chromium-driver fonts-dejavu-core)

say() { echo "install-deps: $*"; }
die() { echo "install-deps: error: $*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root to run: $*"
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }

refreshed=
refresh_once() {
  [ -z "$refreshed" ] || return 0
  say "refreshing the package lists"
  apt_get update >/dev/null
  refreshed=1
}

version_at_least() { dpkg --compare-versions "$1" ge "$2"; }

# Prints the installed version of a package; empty if it is not installed.
installed() { { dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null || true; } | sed -n 's/^installed //p'; }

install_missing() {
  local missing=() package present
  present=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qx "installed $package" <<<"$present" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  refresh_once
  say "installing ${missing[*]}"
  apt_get install --no-install-recommends "${missing[@]}" >/dev/null
}

# Boost's 15,000 headers: dpkg's wait for the disk after each file takes longer than all other packages together. Waits
# once at the end instead; a machine that crashes meanwhile has to install them again.
install_boost() {
  local states
  states=$(dpkg-query -W -f '${db:Status-Status} ' "$@" 2>/dev/null || true)
  [ "$states" != "installed installed " ] || return 0
  refresh_once
  say "installing $*"
  apt_get install --no-install-recommends -o DPkg::Options::=--force-unsafe-io "$@" >/dev/null
  sync
}

# Prints the archive from which this machine already installs the release $1, whatever its address and the format of the
# sources.
main_archive() {
  apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    sed -n "s/^$1 main //p" | head -n 1
}

enable_backports() {
  local release=$1 archive signed_by=''
  apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -qx "$release-backports" && return
  archive=$(main_archive "$release")
  [ -n "$archive" ] || die "no apt source of $release found to take $release-backports from"
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] &&
    signed_by='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
  say "adding the suite $release-backports of the archive in use"
  echo "deb $signed_by$archive $release-backports main" |
    as_root tee "/etc/apt/sources.list.d/stagecoach-$release-backports.list" >/dev/null
  refreshed=
  refresh_once
}

# Installs Catch2 3; Debian 12 itself has version 2.
install_catch2_from_backports() {
  local version
  version=$(installed catch2)
  [ -n "$version" ] && version_at_least "$version" 3 && return
  refresh_once
  enable_backports bookworm
  say "installing catch2 from bookworm-backports"
  apt_get install --no-install-recommends -t bookworm-backports catch2 >/dev/null
}

# The tests start their own server, so the package's service must not run on this machine.
install_prometheus() {
  local unit=/etc/systemd/system/prometheus.service
  [ -z "$(installed prometheus)" ] || return 0
  [ -e "$unit" ] || { as_root mkdir -p "${unit%/*}" && as_root ln -s /dev/null "$unit"; }
  install_missing prometheus
}

rust_is_recent() {
  local cargo version
  cargo=$(PATH="$PATH:$HOME/.cargo/bin" command -v cargo) || return 1
  version=$("$cargo" --version 2>/dev/null | cut -d ' ' -f 2) || return 1
  [ -n "$version" ] && version_at_least "$version" "$RUST_MINIMUM"
}

install_rust_debian() {
  rust_is_recent && return
  refresh_once
  say "installing rustc-web cargo-web"
  apt_get install --no-install-recommends rustc-web cargo-web >/dev/null
  rust_is_recent || die "cargo $RUST_MINIMUM or later is needed and cargo-web is older: add the suite bookworm-security to apt's sources, or install Rust with rustup"
}

# Ubuntu's newer Rust packages have the version in their names: cargo-1.89 with rustc-1.89.
install_rust_ubuntu() {
  rust_is_recent && return
  refresh_once
  local newest
  newest=$(apt-cache pkgnames cargo-1. | sed 's/^cargo-//' | sort -V | tail -n 1)
  if [ -z "$newest" ] || ! version_at_least "$newest" "$RUST_MINIMUM"; then
    die "cargo $RUST_MINIMUM or later is needed; the newest package is cargo-${newest:-?}: install Rust with rustup"
  fi
  install_missing "cargo-$newest" "rustc-$newest"
  local tool
  for tool in cargo rustc; do
    as_root update-alternatives --install "/usr/bin/$tool" "$tool" "/usr/bin/$tool-$newest" 100 >/dev/null
  done
  rust_is_recent || die "$(command -v cargo) is older than $RUST_MINIMUM: remove it, or put a newer one before it in PATH"
}

for_tests=
case ${1:-} in
  '') ;;
  --test) packages+=("${test_packages[@]}"); for_tests=1 ;;
  --fuzz) packages+=("${fuzz_packages[@]}") ;;
  *) die "usage: deploy/install-deps.sh [--test | --fuzz]" ;;
esac

[ -r /etc/os-release ] || die "only Debian 12 and Ubuntu 24.04 are known here"
. /etc/os-release
case "${ID:-} ${VERSION_ID:-}" in
  "debian 12")
    [ -z "$for_tests" ] || { install_catch2_from_backports; packages+=("${page_packages[@]}"); }
    install_missing "${packages[@]}"
    install_boost libboost1.81-dev libboost-json1.81-dev
    install_rust_debian
    ;;
  "ubuntu 24.04")
    [ -z "$for_tests" ] || packages+=(catch2)
    install_missing "${packages[@]}"
    install_boost libboost-dev libboost-json-dev
    install_rust_ubuntu
    ;;
  *)
    die "${PRETTY_NAME:-this system} is not known here; install by hand: ${packages[*]} Boost.JSON >= 1.81, Catch2 >= 3 (for tests), cargo >= $RUST_MINIMUM"
    ;;
esac
[ -z "$for_tests" ] || install_prometheus
