#!/usr/bin/env bash
# Runs every test of the project, starting from a bare machine.
#   tests/run.sh              all stages but "long"
#   tests/run.sh cpu lint     some of: lint cpu cluster chart deploy quickstart cuda debug tsan
#   tests/run.sh long         tests that repeat what others show, for more models, stages or faults
#   tests/run.sh --gpu        only the tests that need a GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:$HOME/.cargo/bin"
unset MAKEFLAGS

readonly STAGES=(lint cpu cluster chart deploy quickstart cuda debug tsan)
readonly LOGS=build/test-logs

# Each unit test runs in one build, because compiling takes longer than testing: where numbers or much work matter in the
# release build, where input from outside is read under ASan, where threads meet under TSan. "long" runs all of them in
# the first two.
readonly RELEASE_TESTS=(kernels_host_test kernels_reference_test kernels_cpu_test kernels_cuda_emulated_test encoding_test
  model_test scheduler_test golden_test)
readonly ASAN_TESTS=(common_test config_test trace_test gguf_test redis_test text_test fd_store_test metrics_test rpc_test flight_test
  serve_flags_test model_spec_test loader_test router_text_test http_test journal_test kv_events_test router_access_test
  sizing_test cli_test doctor_test quantize_test plan_test drill_test timeline_test check_test kv_test launch_test bench_test)
readonly TSAN_TESTS=(frontend_test http_server_test replicas_test succession_test dispatch_test kv_exchange_test
  kv_store_test worker_service_test stage_test transport_test transport_grpc_test transport_nccl_test)
# Tests of the release build that take most of its time and resemble others.
readonly LONG_RELEASE_TESTS="Attention: (batch-invariant rows|batch-invariant, with|few rows after a long context, all)"
readonly PROGRAMS=(stagecoach stagecoach-worker stagecoach-router)
jobs=$(nproc)
readonly jobs

passed=0
failed=0
skipped=0
failures=()

say() { printf '\n=== %s\n' "$*"; }

# Prints the sum of the numbers before WORD in pytest's summary lines.
number_before() { grep -E '^=+ .* in [0-9.]+s' "$2" | tail -n 1 | grep -oE "[0-9]+ $1" | cut -d ' ' -f 1 || true; }

# Adds the counts of ctest or pytest in a log; returns non-zero if the log has none.
count() {
  local log=$1 line total bad
  if line=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1) && [ -n "$line" ]; then
    bad=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$line")
    total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$line")
    passed=$((passed + total - bad))
    failed=$((failed + bad))
  elif grep -qE '^=+ .* in [0-9.]+s' "$log"; then
    local good errors none
    good=$(number_before passed "$log") bad=$(number_before failed "$log")
    errors=$(number_before error "$log") none=$(number_before skipped "$log")
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${bad:-0} + ${errors:-0}))
    skipped=$((skipped + ${none:-0}))
    bad=$((${bad:-0} + ${errors:-0}))
  else
    return 1
  fi
  [ "$bad" -gt 0 ] || bad=0
  counted_failures=$bad
}

# Prints the failed tests of a ctest or pytest log, one per line, so that the end of a run's output names them.
failed_tests() {
  sed -n '/^The following tests FAILED:/,/^$/ { s/^[[:space:]]*\([0-9]* - .*\)/  \1/p }' "$1"
  grep -E '^(FAILED|ERROR) ' "$1" | cut -c 1-300 | sed 's/^/  /' || true
}

# check NAME COMMAND...: runs the command, shows its output, and records its time and counts. Continues after a failure.
check() {
  local name=$1 started=$SECONDS code=0 log counted_failures=0
  shift
  log="$LOGS/${name//[^a-z0-9]/-}.log"
  say "$name: $*"
  "$@" 2>&1 | tee "$log" || code=$?
  if ! count "$log"; then
    if [ "$code" -eq 0 ]; then passed=$((passed + 1)); fi
  fi
  # A failure without a count (a crash, a compiler error) counts as one failure.
  if [ "$code" -ne 0 ] && [ "$counted_failures" -eq 0 ]; then failed=$((failed + 1)); fi
  if [ "$code" -ne 0 ]; then
    failures+=("$name (see $LOGS/$(basename "$log"))")
    mapfile -t -O ${#failures[@]} failures < <(failed_tests "$log")
  fi
  echo "--- $name: $([ "$code" -eq 0 ] && echo ok || echo FAILED), $((SECONDS - started)) s"
  return "$code"
}

# configure PRESET: a new folder compiles sources in groups, as deploy/quickstart.sh does: it takes half the time, and
# shows names that collide. The lint stage compiles files alone. A folder that exists keeps its choice.
configure() {
  if [ -f "build/$1/CMakeCache.txt" ]; then
    cmake "build/$1"
  else
    cmake --preset "$1" -DSTAGECOACH_UNITY=ON
  fi
}

# build PRESET TARGETS...: prints output only on failure. It is no test, but a failure counts.
build() {
  local preset=$1 started=$SECONDS log="$LOGS/build-$1.log"
  shift
  say "build $preset: $*"
  if configure "$preset" >"$log" 2>&1 && cmake --build "build/$preset" -j "$jobs" --target "$@" >>"$log" 2>&1; then
    echo "--- build $preset: ok, $((SECONDS - started)) s"
    return
  fi
  grep -E -A 12 'error|FAILED' "$log" | head -n 80 || tail -n 40 "$log"
  echo "--- build $preset: FAILED, $((SECONDS - started)) s"
  failed=$((failed + 1))
  failures+=("build $preset (see $log)")
  return 1
}

ctests() { # DIR [TEST PROGRAM...]
  local dir=$1 only=()
  shift
  [ $# -eq 0 ] || only=(-R "^($(tr ' ' '|' <<<"$*")): " -E "$LONG_RELEASE_TESTS")
  ctest --test-dir "$dir" -j $((jobs + 1)) --output-on-failure --no-tests=error "${only[@]}"
}

# Compares the lists above with the test programs in the files of CMake.
every_test_is_listed() {
  diff <(git ls-files -z '*CMakeLists.txt' | xargs -0 cat | tr -s ' \n' ' ' | sed 's/stagecoach_test( \?/\n&/g' |
    sed -n 's/^stagecoach_test( \?\(\w\+\) .*/\1/p' | sort) \
    <(printf '%s\n' "${RELEASE_TESTS[@]}" "${ASAN_TESTS[@]}" "${TSAN_TESTS[@]}" | sort)
}

# venv [DIR REQUIREMENTS]: installs Python packages, by default those of the tests.
venv() {
  local dir=${1:-build/venv} requirements=${2:-tests/requirements.txt}
  cmp -s "$requirements" "$dir/requirements.txt" && return
  say "Python packages of $requirements"
  python3 -m venv --clear "$dir" &&
    "$dir/bin/pip" install -q --disable-pip-version-check -r "$requirements" &&
    cp "$requirements" "$dir/requirements.txt"
}

# go_tool PACKAGE@VERSION [NAME]: builds the tool once into build/tools, as NAME. Tests that need a tool are skipped if it
# is not available.
go_tool() {
  local package=${1%@*}
  local name=${2:-${package##*/}}
  [ -x "build/tools/$name" ] && return
  say "$name"
  if ! command -v go >/dev/null; then
    echo "no Go here: the tests with $name are skipped"
    return
  fi
  GOBIN="$PWD/build/tools/new" CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "$1" &&
    mv "build/tools/new/${package##*/}" "build/tools/$name" || echo "$name cannot be built: its tests are skipped"
}

# Builds llm-d's indexer of KV events, which takes a few minutes the first time.
kv_events_indexer() {
  local tool="$PWD/build/tools/kv-events-indexer"
  [ "$tool" -nt tests/kv_events/main.go ] && [ "$tool" -nt tests/kv_events/go.mod ] && return
  say "kv-events-indexer"
  if ! command -v go >/dev/null; then
    echo "no Go here: the test with llm-d's indexer is skipped"
    return
  fi
  (cd tests/kv_events && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$tool" .) ||
    echo "kv-events-indexer cannot be built: its test is skipped"
}

# Client libraries for Node, and coding agents (0.8 GB).
install_node_clients() {
  cmp -s tests/clients/package.json build/node/installed.json && return
  say "clients from npm"
  if ! command -v npm >/dev/null; then
    echo "no Node here: tests of its clients are skipped"
    return
  fi
  rm -rf build/node && mkdir -p build/node && cp tests/clients/package.json build/node &&
    npm install --prefix build/node --silent --no-audit --no-fund &&
    cp tests/clients/package.json build/node/installed.json ||
    echo "clients from npm cannot be installed: their tests are skipped"
}

py() { # ARGS...
  build/venv/bin/python -m pytest -ra --durations=10 --timeout 900 -p no:cacheprovider "$@" --tb=short
}

# Many of these tests wait for programs, so there are more processes than cores. A file's tests stay together, because
# they share servers; the files start in the order given.
py_side_by_side() { # ARGS...
  py -n $((jobs + 2)) --dist loadfile --no-loadscope-reorder -m "not alone and not long" "$@"
}

clang_format() {
  git ls-files -z '*.h' '*.cpp' '*.cu' | xargs -0 clang-format-19 --dry-run --Werror
}

shell_syntax() {
  git ls-files -z '*.sh' .ci/run | xargs -0 -n 1 bash -n
}

stage_lint() {
  venv
  check "clang-format" clang_format || true
  check "shell syntax" shell_syntax || true
  check "ruff" build/venv/bin/ruff check --no-cache --output-format concise || true
  check "layering" python3 tests/layering/check_includes.py . || true
  check "links" python3 tests/docs/links.py || true
  check "every test is listed" every_test_is_listed || true
  check "clang-tidy" tests/lint/clang.py tidy --changed --most 4 || true
}

stage_cpu() {
  build cpu "${PROGRAMS[@]}" "${RELEASE_TESTS[@]}" || return 0
  check "cpu" ctests build/cpu "${RELEASE_TESTS[@]}" || true
}

stage_cluster() {
  build cpu "${PROGRAMS[@]}" || return 0
  venv
  command -v grpcurl >/dev/null || go_tool github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
  go_tool github.com/rakyll/hey@v0.1.4
  go_tool github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0 toxiproxy-server
  kv_events_indexer
  install_node_clients
  venv build/frameworks tests/clients/frameworks/requirements.txt ||
    echo "no packages for tests/clients/frameworks: their tests are skipped"
  # Long files first.
  check "cluster" py_side_by_side tests/monitoring tests/gpu/test_smoke.py tests/clients tests/cluster tests/checkpoints \
    tests/gpu tests/layering deploy/demo-model-training || true
  check "cluster alone" py -m alone tests/cluster || true
}

stage_long() {
  build cpu all || return 0
  check "cpu" ctests build/cpu || true
  venv
  check "long" py -n $((jobs + 2)) --dist loadfile -m long tests/cluster || true
  build debug all || return 0
  sanitize_addresses
  check "debug" ctests build/debug || true
  with_debug_programs check "debug long" py_side_by_side tests/clients/test_cli.py tests/clients/test_http_api.py \
    tests/clients/test_http_access.py tests/clients/test_keep_alive.py tests/clients/test_resume.py || true
}

# Calls a command whose tests start the programs of that build, which start slowly.
with_debug_programs() {
  STAGECOACH_BIN_DIR="$PWD/build/debug/bin" STAGECOACH_START_TIMEOUT_S=300 "$@"
}

sanitize_addresses() {
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
}

# Tests the chart: renders it, validates it against the API's definitions, and runs its programs as it specifies.
stage_chart() {
  build cpu "${PROGRAMS[@]}" || return 0
  venv
  go_tool helm.sh/helm/v3/cmd/helm@v3.22.0
  go_tool github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
  if [ -x build/tools/kubeconform ] && [ tests/helm/schemas.py -nt build/schemas ]; then
    build/venv/bin/python tests/helm/schemas.py build/schemas || echo "no schemas: their test is skipped"
  fi
  check "chart" py_side_by_side tests/helm tests/pods || true
}

# Tests the parts of a release: bundle, units, Compose file.
stage_deploy() {
  build cpu "${PROGRAMS[@]}" || return 0
  venv
  check "deploy" py tests/release || true
}

stage_quickstart() {
  check "quickstart" bash deploy/quickstart.sh </dev/null || true
}

# Checks that the GPU kernels and the worker compile and link, for one GPU architecture and one head size; takes a few
# minutes.
stage_cuda() {
  check "cuda toolkit" deploy/cuda-toolkit.sh || return 0
  build cuda-ci kernels_cuda_test transport_nccl_gpu_test stagecoach-worker || return 0
  passed=$((passed + 1))
}

stage_gpu() {
  command -v nvcc >/dev/null || deploy/cuda-toolkit.sh
  build cuda kernels_cuda_test kernels_cuda_bench golden_cuda_test transport_nccl_gpu_test transport_nccl_bench \
    "${PROGRAMS[@]}" || return 0
  check "gpu kernels" build/cuda/bin/kernels_cuda_test || true
  check "gpu golden" build/cuda/bin/golden_cuda_test || true
  check "gpu links" build/cuda/bin/transport_nccl_gpu_test || true
  # Servers with one or more stages, as far as there are GPUs; the rest of that script takes an hour.
  check "gpu servers" tests/gpu/run.py --only hop tokens kv_blocks kill stop --out build/gpu/results.jsonl || true
  if command -v compute-sanitizer >/dev/null; then
    check "gpu memcheck" compute-sanitizer --tool memcheck --error-exitcode 9 build/cuda/bin/kernels_cuda_test || true
  fi
}

# Address and undefined-behaviour sanitizers, including leaks. The compiler is clang, which needs half of gcc's time here
# and checks the use of locks. The tests left out compute much, which takes minutes with kernels that are not optimised.
stage_debug() {
  build debug "${PROGRAMS[@]}" "${ASAN_TESTS[@]}" || return 0
  sanitize_addresses
  check "debug" ctests build/debug "${ASAN_TESTS[@]}" || true
  venv
  with_debug_programs check "debug cluster" py_side_by_side tests/cluster/test_lifecycle.py tests/cluster/test_bad_input.py \
    tests/clients/test_http_wire.py -k "not cancel_in_the_queue and not draining_server" || true
}

stage_tsan() {
  build tsan "${TSAN_TESTS[@]}" || return 0
  export TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions='$PWD/cmake/tsan.supp' halt_on_error=1"
  check "tsan" ctests build/tsan "${TSAN_TESTS[@]}" || true
}

mkdir -p "$LOGS"
wanted=("$@")
[ "${1:-}" != --gpu ] || wanted=(gpu)
[ ${#wanted[@]} -gt 0 ] || wanted=("${STAGES[@]}")
for stage in "${wanted[@]}"; do
  case " ${STAGES[*]} long gpu " in
    *" $stage "*) ;;
    *) echo "tests/run.sh: no stage '$stage'; there are: ${STAGES[*]} long" >&2; exit 2 ;;
  esac
done

say "installing what is missing"
deploy/install-deps.sh --test
for stage in "${wanted[@]}"; do
  stage_started=$SECONDS
  # A stage's environment must not last, but its counts must, so there is no subshell.
  unset ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
  "stage_$stage"
  say "stage $stage took $((SECONDS - stage_started)) s"
done

say "all in $((SECONDS / 60)) min $((SECONDS % 60)) s; ccache: $(ccache -s 2>/dev/null | grep -m 1 -i 'hits' | tr -s ' ' || true)"
for failure in ${failures[@]+"${failures[@]}"}; do echo "failed: $failure"; done
echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ]
