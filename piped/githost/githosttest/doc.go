// Package githosttest is a fake Git host for tests: an HTTP server with the part of
// GitHub's REST API that package githost uses. Tests read what it received.
package githosttest
