#!/bin/sh
# Builds OpenTofu and the provider of the tests into the directory OUT, once per content; see
# ../build-once.sh.
#
#   examples/tofu/build.sh OUT
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUT    (OUT is the directory to write to, for example bin)" >&2
    exit 2
fi
here=$(dirname "$0")
"$here/../build-once.sh" "$here" tofu github.com/opentofu/opentofu/cmd/tofu \
    "-s -w -X github.com/opentofu/opentofu/version.dev=no" \
    "Building OpenTofu. The first build takes some 3 minutes on two idle cores." "$1/tofu"
exec "$here/../build-once.sh" "$here" terraform-provider-sample ./provider "-s -w" \
    "Building the provider of the tests." "$1/terraform-provider-sample"
