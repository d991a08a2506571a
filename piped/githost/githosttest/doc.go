// Package githosttest is a Git host for tests: a server that answers the part of
// GitHub's REST API that package githost asks, over HTTP, as docs.github.com says. It
// owns what it was told and shows it to the test.
package githosttest
