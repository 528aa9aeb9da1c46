#!/usr/bin/env bash
# Builds the images of the router and the CPU worker, and runs a cluster of two stages from them with podman. Each
# container runs as in a pod: read-only, without capabilities, not as root, in one network. Leaves nothing behind.
#   tests/images/run.sh [--bin DIR] [--cuda-bin DIR]      takes a minute; as root, or as a user with ranges in /etc/subuid
# --cuda-bin: also tests the CUDA worker's image (two more minutes), as far as possible without a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bin=build/cpu/bin
cuda_bin=
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --cuda-bin) cuda_bin=$2 ;;
    *) echo "tests/images: unknown: $1" >&2; exit 2 ;;
  esac
  shift 2
done
for tool in buildah podman runc; do
  command -v "$tool" >/dev/null || { echo "tests/images: $tool is missing: apt-get install buildah podman runc" >&2; exit 1; }
done
scratch=$(mktemp -d)
readonly scratch
# Separate stores: images and containers of this machine are not touched.
printf '[storage]\ndriver = "%s"\nrunroot = "%s/run"\ngraphroot = "%s/root"\n' \
  "$([ "$(id -u)" -eq 0 ] && echo overlay || echo vfs)" "$scratch" "$scratch" >"$scratch/storage.conf"
printf '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]\n[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n' \
  >"$scratch/containers.conf"
export CONTAINERS_STORAGE_CONF="$scratch/storage.conf" CONTAINERS_CONF="$scratch/containers.conf"

cleanup() {
  podman rm --all --force --time 1 >/dev/null 2>&1 || true
  podman rmi --all --force >/dev/null 2>&1 || true
  umount "$scratch/root/overlay" 2>/dev/null || true
  rm -rf "$scratch" 2>/dev/null || podman unshare rm -rf "$scratch"
}
trap cleanup EXIT

passed=0
ok() { passed=$((passed + 1)); echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; podman logs --tail 20 router >&2 || true; exit 1; }

deploy/images/build.sh --bin "$bin" --out "$scratch/out"
version=$(sed -n 's/^project(stagecoach VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
first=$(podman image inspect --format '{{.Digest}}' "stagecoach/router:$version")
deploy/images/build.sh --bin "$bin" --out "$scratch/again" router
[ "$first" = "$(podman image inspect --format '{{.Digest}}' "stagecoach/router:$version")" ] || fail "the same sources gave two images"
ok "the same programs and lock give the same image, $first"

# The SBOM must list exactly the files in the image.
python3 - "$scratch/out/router.spdx.json" <<'END' || fail "SBOM"
import json, sys
sbom = json.load(open(sys.argv[1]))
kinds = [p["SPDXID"].split("-")[1] for p in sbom["packages"]]
assert kinds.count("program") == 2 and kinds.count("deb") > 10 and kinds.count("crate") > 50, kinds
assert all(len(p["checksums"][0]["checksumValue"]) == 64 for p in sbom["packages"] if "-deb-" in p["SPDXID"])
END
ok "the bill of materials names programs, packages and crates"

confined=(--read-only --cap-drop all --security-opt no-new-privileges --tmpfs /tmp:size=64m --memory 1g --pids-limit 512
  --volume "$PWD/deploy/demo-model:/model:ro" --detach)
podman run "${confined[@]}" --name stage-0 --network none "stagecoach/worker-cpu:$version" --listen 127.0.0.1:9100 --threads 1 >/dev/null
podman run "${confined[@]}" --name stage-1 --network container:stage-0 "stagecoach/worker-cpu:$version" --listen 127.0.0.1:9101 \
  --threads 1 >/dev/null
podman run "${confined[@]}" --name router --network container:stage-0 "stagecoach/router:$version" --model /model \
  --stages 127.0.0.1:9100,127.0.0.1:9101 --kv-memory 64MiB --http 127.0.0.1:8000 >/dev/null

ask() { podman exec router stagecoach generate --server 127.0.0.1:9000 --chat "Who are you?" --temperature 0 --max-tokens 12; }
deadline=$((SECONDS + 120))
until answer=$(ask 2>&1); do
  [ "$(podman inspect --format '{{.State.Running}}' router)" = true ] || fail "the router ended"
  [ $SECONDS -lt $deadline ] || fail "no answer: $answer"
done
ok "a router and two stages answered: $answer"

for container in router stage-0 stage-1; do
  pid=$(podman inspect --format '{{.State.Pid}}' "$container")
  [ "$(cut -d ' ' -f 1 <<<"$(tr '\0' ' ' <"/proc/$pid/cmdline")")" = "stagecoach-$([ "$container" = router ] && echo router || echo worker)" ] ||
    fail "$container: process 1 is not the program"
  grep -q '^CapBnd:[[:space:]]*0000000000000000$' "/proc/$pid/status" || fail "$container: has capabilities"
  grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$pid/status" || fail "$container: may gain privileges"
  grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" || fail "$container: no seccomp filter"
  [ "$(podman inspect --format '{{.HostConfig.ReadonlyRootfs}} {{.Config.User}}' "$container")" = "true 65532:65532" ] ||
    fail "$container: can write, or is root"
done
ok "process 1 is the program, without capabilities, read-only, user 65532"

# After SIGTERM the running stream must finish; its client runs in its own container.
podman run --name client --network container:stage-0 --entrypoint stagecoach "stagecoach/router:$version" generate \
  --server 127.0.0.1:9000 --prompt "The next train" --max-tokens 400 --ignore-eos >"$scratch/stream" 2>"$scratch/stream.err" &
stream=$!
until [ -s "$scratch/stream" ]; do kill -0 "$stream" 2>/dev/null || fail "no stream: $(cat "$scratch/stream.err")"; done
podman stop --time 60 router >/dev/null
wait "$stream" || fail "the stream broke off: $(cat "$scratch/stream.err")"
[ "$(podman inspect --format '{{.State.ExitCode}}' router)" = 0 ] || fail "router: exit code $(podman inspect --format '{{.State.ExitCode}}' router)"
podman stop --time 60 stage-0 stage-1 >/dev/null
for container in stage-0 stage-1; do
  [ "$(podman inspect --format '{{.State.ExitCode}}' "$container")" = 0 ] || fail "$container did not end by itself on SIGTERM"
done
ok "SIGTERM finishes the stream that runs and ends router and stages with exit code 0"

if [ -n "$cuda_bin" ]; then
  deploy/images/build.sh --cuda-bin "$cuda_bin" --out "$scratch/out" worker-cuda
  python3 - "$scratch/out/worker-cuda.spdx.json" deploy/cuda-wheels.txt <<'END' || fail "SBOM of worker-cuda"
import json, sys
cublas, = [p for p in json.load(open(sys.argv[1]))["packages"] if p["name"].startswith("libcublasLt")]
purl = cublas["externalRefs"][0]["referenceLocator"]
assert purl.removeprefix("pkg:pypi/").replace("@", "==") in open(sys.argv[2]).read().split(), purl
END
  cuda=(podman run --rm --read-only --cap-drop all --security-opt no-new-privileges --network none "stagecoach/worker-cuda:$version")
  "${cuda[@]}" --help | grep -q 'cuda:' || fail "worker-cuda does not know --device cuda"
  ! said=$("${cuda[@]}" --listen 127.0.0.1:9100 --device cuda:0 2>&1) || fail "worker-cuda serves without a GPU"
  grep -q 'no GPU that this process may use' <<<"$said" || fail "worker-cuda without a GPU says: $said"
  ok "the CUDA worker's image holds the pinned cuBLAS and ends with: $said"
fi
echo "$passed passed"
