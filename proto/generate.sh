#!/bin/sh
# Regenerates the Go code of every .proto file, beside it. Runs from any
# directory; what it needs is named in tools.mod and built by go itself. When
# generating fails, nothing is changed.
#
#   proto/generate.sh          into the tree
#   proto/generate.sh DIR      into DIR/proto instead
set -eu

dir=${1-}
if [ -n "$dir" ]; then
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
else
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 1' HUP INT TERM
	dir=$tmp
fi

cd "$(dirname "$0")/.."
go tool -modfile=proto/tools.mod buf generate --template proto/buf.gen.yaml -o "$dir"

if [ -n "${tmp-}" ]; then
	# A file whose .proto is gone must not stay.
	find proto -name '*.pb.go' -exec rm {} +
	cp -R "$tmp/proto/." proto/
fi
