#!/bin/sh
# Makes the .proto files as they are now the contract that later versions must
# keep: proto/released.binpb, with which proto/check.sh compares. Run it when a
# release is cut, and commit the result with it. It refuses a contract that breaks
# the one before. Runs from any directory.
set -eu

cd "$(dirname "$0")/.."
buf() { go tool -modfile=proto/tools.mod buf "$@"; }
released=proto/released.binpb

if [ -e "$released" ] && ! buf breaking --against "$released"; then
	echo "proto/release.sh: the .proto files break what was released; see above" >&2
	exit 1
fi
# Comments and positions are no part of the contract.
buf build --exclude-source-info -o "$released"
