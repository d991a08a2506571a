// Package signature tells who signed a Git commit. Keys holds public keys, of
// OpenPGP and of SSH, and verifies a commit object against them as git does: the
// signature is over the object without its signature's header.
//
//	object.go   a commit object: what is signed, the signature, when it was made
//	keys.go     reading the files of keys
//	openpgp.go  OpenPGP signatures
//	ssh.go      SSH signatures, and the files that say who may make them
//
// A commit must bear exactly one signature, with one of the given keys that was
// valid when the commit was made. Nothing else counts: neither signed tags, nor
// signed parents, nor who the author says to be. The package trusts no key that
// it was not given, and asks neither a keyring of the user nor the network.
package signature
