#!/bin/sh
# Checks the .proto files: style, formatting, that they keep the contract of the
# last release, and that the committed Go code is what they generate. Runs from any
# directory and changes nothing in the tree.
set -u

cd "$(dirname "$0")/.." || exit 1
buf() { go tool -modfile=proto/tools.mod buf "$@"; }
failed=0

# Tells "a check found something" from "the tool does not run".
if ! buf --version >/dev/null; then
	echo "proto/check.sh: buf cannot be built or run; see the message above" >&2
	exit 1
fi
if ! buf lint; then
	echo "proto/check.sh: the .proto files break a rule of buf.yaml; see above" >&2
	failed=1
fi
if ! buf format -d --exit-code; then
	echo "proto/check.sh: .proto files are not formatted; run: go tool -modfile=proto/tools.mod buf format -w" >&2
	failed=1
fi
if ! buf breaking --against proto/released.binpb; then
	echo "proto/check.sh: what was released is changed or gone, and clients use it; see above: leave it, and add beside it" >&2
	failed=1
fi

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
if ! proto/generate.sh "$tmp/new"; then
	echo "proto/check.sh: the code cannot be generated; see above" >&2
	exit 1
fi
# The committed side: generated files only.
mkdir "$tmp/old"
(cd proto && find . -name '*.pb.go' | tar cf - -T -) | (cd "$tmp/old" && tar xf -)
if ! (cd "$tmp" && diff -r -u old new/proto) >"$tmp/diff"; then
	head -n 60 "$tmp/diff"
	echo "proto/check.sh: generated Go code is stale; run: proto/generate.sh" >&2
	failed=1
fi
exit $failed
