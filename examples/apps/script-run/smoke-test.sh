# Tests what runs at a URL. This one only checks the manifests; a real one would
# ask the URL:
#
#   curl --fail --retry 5 --retry-connrefused "$1/healthz"
set -eu
grep -q 'image: registry.example/' deployment.yaml
echo "tested $1"
