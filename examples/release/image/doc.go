// Package image makes the agent's container image without a container engine: from
// scratch, for several architectures, with a list of components (SPDX) and a provenance
// statement attached. The same commit and version of Go result in the same digests. It
// writes an OCI layout and tarballs, and pushes to a registry only when asked to.
package image
