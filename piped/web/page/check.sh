#!/bin/sh
# Checks that the templates of the page are formatted, and that the committed Go code is what
# they generate. Runs from any directory and changes nothing in the tree.
set -u

cd "$(dirname "$0")/../../.." || exit 1
templ() { go tool -modfile=proto/tools.mod templ "$@"; }
failed=0
if ! templ fmt -fail -log-level error piped/web/page; then
	echo "piped/web/page/check.sh: templates are not formatted; run: go tool -modfile=proto/tools.mod templ fmt piped/web/page" >&2
	failed=1
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$tmp/new" && cp piped/web/page/*.templ "$tmp/new" || exit 1
if ! templ generate -include-version=false -path "$tmp/new" -log-level error; then
	echo "piped/web/page/check.sh: the templates cannot be compiled; see above" >&2
	exit 1
fi
mkdir "$tmp/old" && cp piped/web/page/*_templ.go "$tmp/old" && rm "$tmp"/new/*.templ
if ! (cd "$tmp" && diff -r -u old new) >"$tmp/diff"; then
	head -n 60 "$tmp/diff"
	echo "piped/web/page/check.sh: generated Go code is stale; run: make generate" >&2
	failed=1
fi
exit $failed
