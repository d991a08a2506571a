// Package gittest creates real Git repositories and serves them over HTTP and SSH, for tests,
// the demo and benchmarks. Its functions return errors; functions with a testing.TB parameter
// fail the test instead.
//
// Repositories are written in process. The servers run the git binary found on
// PATH (git http-backend, git upload-pack), on loopback and free ports. The
// package is never part of the agent.
package gittest
