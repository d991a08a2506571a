// Package signin asks issuers who a user is: OpenID Connect providers, and GitHub with an
// OAuth app. It holds the protocols, verifies what issuers answer, and reads the groups of
// signed-in users again.
//
// The package serves no HTTP and stores nothing: its callers keep attempts, devices and
// sessions. Errors and logs contain no codes, tokens or secrets.
package signin
