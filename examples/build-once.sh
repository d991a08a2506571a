#!/bin/sh
# Builds a program of an example with its own go.mod, once per content: what was built is kept
# under ${XDG_CACHE_HOME:-~/.cache}/piped and only copied the next time.
#
#   build-once.sh DIR NAME PACKAGE LDFLAGS NOTE OUT
#
# DIR is the directory of the module, NAME that of the kept program, PACKAGE what is built, and
# NOTE what is said before a build.
set -eu

if [ $# -ne 6 ]; then
    echo "usage: $0 DIR NAME PACKAGE LDFLAGS NOTE OUT" >&2
    exit 2
fi
name=$2 package=$3 ldflags=$4 note=$5
case $6 in
/*) out=$6 ;;
*) out=$PWD/$6 ;;
esac
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
cd "$1"

# Tests are no part of the program, so a change in them needs no new one.
key=$({
    go version
    echo "$package $ldflags"
    {
        find . -type f \( -name '*.go' -o -path './stages/*' -o -name go.mod -o -name go.sum \) ! -name '*_test.go'
        echo "$self"
    } | LC_ALL=C sort | xargs sha256sum | cut -d' ' -f1
} | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/piped
binary=$cache/$name-$key

# deliver puts the kept program at OUT; a running one keeps its old file.
deliver() {
    if [ "$out" -ef "$binary" ]; then return; fi # linked to it already
    mkdir -p "$(dirname "$out")"
    ln -f "$binary" "$out.new" 2>/dev/null || cp "$binary" "$out.new"
    mv -f "$out.new" "$out"
}

# progress prints how far the compiler is, from the package names on stdin.
progress() {
    total=$1
    if [ -t 2 ]; then every=0; else every=20; fi
    awk -v total="$total" -v every="$every" '
        function now() { "date +%s" | getline t; close("date +%s"); return t }
        BEGIN { last = now() }
        !/^[A-Za-z0-9_.\/~-]+$/ || !/[a-z]/ { print; fflush(); next }   # not a package: a message
        { n++ }
        every == 0 { printf "\r%d packages compiled of at most %d", n, total; fflush(); next }
        n % 10 == 0 && now() - last >= every { printf "%d packages compiled of at most %d\n", n, total; fflush(); last = t }
        END { if (n) printf "%s%d packages compiled, linked\n", every ? "" : "\r\033[K", n }
    ' >&2
}

if [ -x "$binary" ]; then
    deliver
    exit 0
fi
mkdir -p "$cache"
if command -v flock >/dev/null; then # a second build of the same would only slow down the first
    exec 9>"$cache/$name.lock"
    flock 9
    if [ -x "$binary" ]; then
        deliver
        exit 0
    fi
fi

echo "$note" >&2
# As in the Makefile: what is compiled for the agent serves here, and the other way round.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
total=$(go list -deps "$package" | wc -l)
new=$cache/$name-new.$$
trap 'rm -f "$new" "$new.failed"' EXIT
# Each compiler frees memory only from 1 GiB on, which few packages reach: that is a
# sixth of its time. It changes neither the result nor what the cache holds it for.
: "${GOGC:=1000}" "${GOMEMLIMIT:=1GiB}"
export GOGC GOMEMLIMIT
{
    go build -v -o "$new" -ldflags "$ldflags" "$package" 2>&1 9>&- || : >"$new.failed"
} | progress "$total"
if [ -e "$new.failed" ]; then
    echo "The build failed; the compiler's messages are above." >&2
    exit 1
fi
mv "$new" "$binary"
deliver
