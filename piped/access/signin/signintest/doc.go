// Package signintest holds issuers for tests, which run on loopback addresses and check what
// they are sent: an OpenID Connect provider and a fake of GitHub. It also holds sessions and
// states in memory, with the contract of the stored ones.
//
// Only tests import it.
package signintest
