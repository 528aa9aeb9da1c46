#!/usr/bin/env bash
# Runs the fuzz targets one after the other, from seeds made of the tiny models. Stops at the first finding and saves
# its input under build/fuzz-findings. To reproduce it, pass that file to the target's program.
#   tests/fuzz/run.sh                       60 seconds per target
#   tests/fuzz/run.sh 180 gguf template     180 seconds for each named target
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PATH:$HOME/.cargo/bin"

seconds=${1:-60}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || { echo "usage: tests/fuzz/run.sh [SECONDS [TARGET...]]" >&2; exit 2; }
[ $# -eq 0 ] || shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do targets+=("$(basename "$source" _fuzz.cpp)"); done
fi

command -v clang++-19 >/dev/null || { echo "clang-19 is missing: run deploy/install-deps.sh --fuzz" >&2; exit 1; }
cmake --preset fuzz >/dev/null
nice cmake --build build/fuzz -j "${FUZZ_JOBS:-$(nproc)}" --target "${targets[@]/%/_fuzz}"
python3 tests/fuzz/seeds.py build/fuzz-corpus

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
mkdir -p build/fuzz-findings
for target in "${targets[@]}"; do
  corpus=build/fuzz-corpus/$target
  log=build/fuzz-findings/$target.log
  dictionary=tests/fuzz/$target.dict
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
           -artifact_prefix="build/fuzz-findings/$target-")
  [ ! -e "$dictionary" ] || options+=(-dict="$dictionary")
  if ! nice "build/fuzz/bin/${target}_fuzz" "${options[@]}" "$corpus" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "$target: a finding; see $log" >&2
    exit 1
  fi
  printf '%-14s %s\n' "$target" "$(awk '/^stat::number_of_executed_units/ {runs=$2} /cov: / {line=$0}
    END {sub(/.*cov: /, "", line); sub(/ .*/, "", line); print runs " inputs, " line " edges, no finding"}' "$log")"
done
