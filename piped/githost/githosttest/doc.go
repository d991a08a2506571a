// Package githosttest is a fake Git host for tests and the demo: an HTTP server with the part
// of GitHub's REST API that package githost uses. Its users read what it received.
package githosttest
