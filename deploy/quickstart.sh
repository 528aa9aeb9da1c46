#!/usr/bin/env bash
# From a fresh checkout to a streamed answer: installs missing dependencies, builds, serves the demo model on a router
# and two CPU stages, each in its own process, and sends it a question. On a terminal a chat follows; then everything is
# stopped.
#   deploy/quickstart.sh                  a second run starts in seconds
#   deploy/quickstart.sh --bundle FILE    installs and builds nothing: unpacks a release's bundle into this folder
#   quickstart.sh                         in the folder of an unpacked bundle: the same
#   ... --keep                            keeps serving on the default ports until ctrl-C
set -euo pipefail

readonly QUESTION="When does the next coach leave from Greywell to Elmstead after 12:00 on Sunday?"

die() { echo "quickstart: error: $*" >&2; exit 1; }

keep=
bundle=
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=1 ;;
    --bundle)
      [ -f "${2:-}" ] || die "--bundle needs the file of a bundle, stagecoach-VERSION-linux-x86_64.tar.gz"
      bundle=$2
      shift
      ;;
    *) die "usage: deploy/quickstart.sh [--bundle FILE] [--keep]" ;;
  esac
  shift
done

# Unpacks the bundle, and enters its folder.
enter_bundle() {
  echo "quickstart: unpacking $bundle"
  local folder
  folder=$(tar -tzf "$bundle" | sed -n 's|/bin/stagecoach$||p') || folder=
  [ -n "$folder" ] || die "$bundle is not a bundle of stagecoach, or not all of it"
  tar -xzf "$bundle"
  cd "$folder"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
if [ -n "$bundle" ]; then
  enter_bundle
elif [ -x "$here/bin/stagecoach" ]; then
  cd "$here"
  bundle=$here
else
  cd "$here/.."
fi
if [ -n "$bundle" ]; then
  readonly MODEL=share/stagecoach/demo-model BIN=bin LOGS=quickstart-logs
else
  readonly MODEL=deploy/demo-model BIN=build/cpu/bin LOGS=build/quickstart
fi
[ -f "$MODEL/model.safetensors" ] || die "$PWD/$MODEL is incomplete: is it all here?"
mkdir -p "$LOGS"

# step NAME COMMAND...: shows the command's output on a terminal; elsewhere only if it fails.
# The first errors are the cause; the end of a log often only repeats that there were some.
show_failure() {
  grep -m 5 -E '(^| )(fatal )?error:|^E: ' "$1" || tail -n 30 "$1"
}

step() {
  local name=$1
  shift
  echo "quickstart: $name"
  if [ -t 1 ]; then
    "$@"
  else
    "$@" >"$LOGS/step.log" 2>&1 || { show_failure "$LOGS/step.log" >&2; die "$name failed: see $PWD/$LOGS/step.log"; }
  fi
}

# A new build folder compiles sources in groups, which takes half the time. A folder that exists stays as it is.
configure() {
  if [ -f build/cpu/CMakeCache.txt ]; then
    cmake build/cpu
  else
    cmake --preset cpu -DSTAGECOACH_UNITY=ON -DSTAGECOACH_WERROR=OFF
  fi
}

build() {
  PATH="$PATH:$HOME/.cargo/bin" configure >"$LOGS/configure.log" 2>&1 ||
    { tail -n 30 "$LOGS/configure.log" >&2; return 1; }
  PATH="$PATH:$HOME/.cargo/bin" cmake --build --preset cpu --target stagecoach stagecoach-worker stagecoach-router
}

server=
stop() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null || true
  # Not every version of bash can wait for a process that was started by `exec 3< <(...)`.
  tail --pid="$server" -s 0.1 -f /dev/null
  server=
}

if [ -n "$bundle" ]; then
  # The loader's own words come first.
  "$BIN/stagecoach" --version >/dev/null ||
    die "the programs need x86-64 and glibc 2.36 (Debian 12, Ubuntu 24.04) or later; this is $(uname -m) with $(getconf GNU_LIBC_VERSION || echo 'another C library')"
else
  step "installing what is missing" deploy/install-deps.sh
  step "building (the first time takes some minutes)" build
fi

addresses=(--grpc 127.0.0.1:0 --http 127.0.0.1:0 --metrics 127.0.0.1:0)
[ -z "$keep" ] || addresses=()
echo "quickstart: starting a router and two stages of $MODEL"
trap stop EXIT
# A separate process session, so that ctrl-C in the chat does not reach the server.
exec 3< <(exec setsid "$BIN/stagecoach" serve "$MODEL" --stages 2 ${addresses[@]+"${addresses[@]}"} 2>"$LOGS/serve.log")
server=$!
read -r ready <&3 || { grep '^error:' "$LOGS/serve.log" >&2 || tail -n 30 "$LOGS/serve.log" >&2; die "the demo model did not start: see $PWD/$LOGS/serve.log"; }
address=${ready#*grpc=}
address=${address%% *}
echo "quickstart: $ready"

echo
echo "> $QUESTION"
"$BIN/stagecoach" generate --server "$address" --chat "$QUESTION" --temperature 0 --max-tokens 200
cat <<END

That was $MODEL, a small model made for this project that knows a coach timetable. To go on:
  $BIN/stagecoach serve $MODEL --stages 2   serve it, with a web page at http://127.0.0.1:8000
  $BIN/stagecoach run $MODEL                talk to it, without a server beside
  $BIN/stagecoach chat                            talk to what is being served
  $BIN/stagecoach serve /path/to/model --stages N your own model: config.json, safetensors, tokenizer.json
  $BIN/stagecoach generate --help                 one prompt; batch --help: a file of them
END
[ -z "$bundle" ] || echo "These commands are for the folder $PWD."

if [ -n "$keep" ]; then
  echo
  echo "quickstart: serving on $address until ctrl-C; its log is $LOGS/serve.log"
  trap 'exit 0' INT TERM
  tail --pid="$server" -s 0.2 -f /dev/null &
  wait "$!"
  die "the server has ended: see $PWD/$LOGS/serve.log"
elif [ -t 0 ] && [ -t 1 ]; then
  echo
  "$BIN/stagecoach" chat --server "$address" --temperature 0
fi
