#!/usr/bin/env bash
# Builds a control plane, a kubelet and the tools of their tests from Go modules, once:
#   tests/kubernetes/build.sh [FOLDER]     default: ~/.cache/stagecoach-tools; half an hour the first time
# GOFLAGS=-p=1 limits it to one compiler at a time.
set -euo pipefail

readonly KUBERNETES=v1.35.4 STAGING=v0.35.4 # same version as the schemas in tests/helm/schemas.py
readonly ETCD=v3.6.16 KWOK=v0.8.0 HELM=v3.22.0 KUBE_SCORE=v1.20.0
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/stagecoach-tools}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
scratch=$(mktemp -d)
readonly folder scratch
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
export CGO_ENABLED=0 GOBIN="$folder" GOTOOLCHAIN=local

say() { echo "tests/kubernetes/build.sh: $*"; }

# Prints the folder of a module's sources.
sources() { (cd / && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p'; }

# installed PROGRAM VERSION: succeeds if it is installed.
installed() { [ -x "$folder/$1" ] && [ "$(cat "$folder/$1.version" 2>/dev/null)" = "$2" ]; }

install_program() { # PACKAGE VERSION
  local program=${1##*/}
  ! installed "$program" "$2" || return 0
  say "$program $2"
  go install -trimpath -ldflags '-s -w' "$1@$2"
  echo "$2" >"$folder/$program.version"
}

# k8s.io/kubernetes refers to its own libraries by folders of its repository, which a dependent module does not have.
# This module uses the published libraries of the same version instead.
build_kubernetes() { # PROGRAMS...
  local program wanted=() module="$scratch/kubernetes" flags library
  for program in "$@"; do installed "$program" "$KUBERNETES" || wanted+=("$program"); done
  [ ${#wanted[@]} -gt 0 ] || return 0
  say "Kubernetes $KUBERNETES: ${wanted[*]}"
  if [ ! -d "$module" ]; then
    mkdir "$module"
    {
      printf 'module control-plane\n\ngo 1.25.0\n\nrequire k8s.io/kubernetes %s\n\n' "$KUBERNETES"
      sed -n 's,^\t\?\(replace \)\?\(k8s.io/[^ ]*\) => ./staging/.*,\2,p' "$(sources "k8s.io/kubernetes@$KUBERNETES")/go.mod" |
        while read -r library; do printf 'replace %s => %s %s\n' "$library" "$library" "$STAGING"; done
    } >"$module/go.mod"
    {
      printf '//go:build tools\n\npackage tools\n\nimport (\n'
      for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
        printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "$program"
      done
      printf ')\n'
    } >"$module/tools.go"
    (cd "$module" && go mod tidy -e >/dev/null 2>"$scratch/tidy.log") || { tail -n 20 "$scratch/tidy.log" >&2; exit 1; }
  fi
  flags="-s -w -X k8s.io/component-base/version.gitVersion=$KUBERNETES"
  flags+=" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${KUBERNETES:3:2}"
  for program in "${wanted[@]}"; do
    (cd "$module" && go build -trimpath -ldflags "$flags" -o "$folder/$program" "k8s.io/kubernetes/cmd/$program")
    echo "$KUBERNETES" >"$folder/$program.version"
    say "$program is there"
  done
}

# etcd's main package is in the module's root, whose modules also replace each other by folders.
build_etcd() {
  ! installed etcd "$ETCD" || return 0
  say "etcd $ETCD"
  mkdir "$scratch/etcd"
  cat >"$scratch/etcd/main.go" <<'END'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
END
  printf 'module etcd\n\ngo 1.25.0\n\nrequire go.etcd.io/etcd/server/v3 %s\n' "$ETCD" >"$scratch/etcd/go.mod"
  (cd "$scratch/etcd" && go mod tidy >/dev/null 2>&1 && go build -trimpath -ldflags '-s -w' -o "$folder/etcd" .)
  echo "$ETCD" >"$folder/etcd.version"
}

build_kubernetes kube-apiserver
build_etcd
build_kubernetes kube-controller-manager kube-scheduler kubectl
install_program sigs.k8s.io/kwok/cmd/kwok "$KWOK"
stages=$(sources "sigs.k8s.io/kwok@$KWOK")/kustomize/stage
grep -lZ '^kind: Stage' "$stages"/{node/fast,node/heartbeat-with-lease,pod/fast}/*.yaml | xargs -0 sed '/^apiVersion:/i ---' \
  >"$folder/kwok-stages.yaml"
install_program helm.sh/helm/v3/cmd/helm "$HELM"
install_program github.com/zegl/kube-score/cmd/kube-score "$KUBE_SCORE"
build_kubernetes kubelet
say "all in $folder"
