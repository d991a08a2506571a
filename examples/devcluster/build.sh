#!/bin/sh
# Builds devcluster into OUT, once per content; see ../build-once.sh.
#
#   examples/devcluster/build.sh OUT
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUT    (OUT is the file to write, for example bin/devcluster)" >&2
    exit 2
fi
here=$(dirname "$0")
v=k8s.io/component-base/version
exec "$here/../build-once.sh" "$here" devcluster . \
    "-s -w -X $v.gitVersion=v1.36.3 -X $v.gitMajor=1 -X $v.gitMinor=36 -X $v.gitTreeState=clean" \
    "Building devcluster. The first build compiles the Kubernetes control plane:
some 4 minutes on two idle cores, and 3 GB of Go build cache. Later builds take seconds." "$1"
