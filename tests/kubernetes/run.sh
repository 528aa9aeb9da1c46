#!/usr/bin/env bash
# Tests the chart on a real API server (simulated nodes), then on a real kubelet with containerd and the CPU images.
#   tests/kubernetes/run.sh [--tools DIR] [--crds DIR] [--bin DIR] [PYTEST ARGS...]
# Run it as root, with Go and openssl. The kubelet's tests also need containerd, runc, containernetworking-plugins,
# buildah and busybox-static, and are skipped without them. The first run builds the control plane (build.sh, half an
# hour); later runs take seven minutes on two cores. --crds: a folder with the definitions that no Go module has,
# InferencePool and LeaderWorkerSet (.yaml or .yaml.xz); without it their variants are skipped. Everything runs in
# separate process, mount and network namespaces and ends with them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools=${XDG_CACHE_HOME:-$HOME/.cache}/stagecoach-tools
python=build/venv/bin/python
bin=build/cpu/bin
while [ $# -gt 0 ]; do
  case $1 in
    --tools) tools=$2 ;;
    --crds) STAGECOACH_CRDS=$(cd "$2" && pwd) && export STAGECOACH_CRDS ;;
    --bin) bin=$2 ;;
    *) break ;;
  esac
  shift 2
done
[ "$(id -u)" -eq 0 ] || { echo "tests/kubernetes/run.sh: needs root for its namespaces" >&2; exit 1; }
STAGECOACH_BIN_DIR=$(cd "$bin" && pwd)
[ -x "$python" ] || { python3 -m venv build/venv && build/venv/bin/pip install -q -r tests/requirements.txt; }
tests/kubernetes/build.sh "$tools"
tools=$(cd "$tools" && pwd)
export STAGECOACH_BIN_DIR STAGECOACH_KUBERNETES_TOOLS="$tools" PATH="$tools:$PATH"
# Fetches the modules that the tests need while there is still a network.
"$python" -c 'import sys; sys.path[:0] = ["tests/helm"]; import schemas; [schemas.module_dir(m) for m in [*schemas.CRDS, *sys.argv[1:]]]' \
  sigs.k8s.io/gateway-api@v1.4.0

scratch=$(mktemp -d)
readonly scratch
export STAGECOACH_CGROUP="stagecoach-$(basename "$scratch")"
cleanup() {
  # The cgroup stays busy until the kernel has removed its last process.
  local deadline=$((SECONDS + 10))
  while [ -n "$(find /sys/fs/cgroup -maxdepth 2 -name "$STAGECOACH_CGROUP")" ] && [ $SECONDS -lt $deadline ]; do
    find /sys/fs/cgroup -depth -type d -path "*/$STAGECOACH_CGROUP*" -exec rmdir {} + 2>/dev/null || true
  done
  umount "$scratch/root/overlay" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
if command -v buildah >/dev/null; then
  # A separate store: images of this machine are not touched.
  printf '[storage]\ndriver = "overlay"\nrunroot = "%s/run"\ngraphroot = "%s/root"\n' "$scratch" "$scratch" >"$scratch/storage.conf"
  CONTAINERS_STORAGE_CONF="$scratch/storage.conf" deploy/images/build.sh --bin "$STAGECOACH_BIN_DIR" --out "$scratch/images"
  export STAGECOACH_IMAGES="$scratch/images"
fi
[ $# -gt 0 ] || set -- tests/kubernetes
unshare --net --pid --mount --fork --kill-child --mount-proc bash -c '
  ip link set lo up
  exec "$@"' sh "$python" -m pytest -ra --durations=10 --timeout 900 -p no:cacheprovider --tb=short "$@"
