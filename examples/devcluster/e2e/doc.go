// Package e2e tests the devcluster binary named by the environment variable
// DEVCLUSTER, as its users see it. It imports nothing of the binary, so that
// testing does not link the control plane once more.
package e2e
