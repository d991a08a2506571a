// Package signature verifies the signatures of Git commits. Keys holds OpenPGP and SSH public
// keys and verifies a commit object against them as git does: the signature covers the object
// without its signature header.
//
//	object.go   a commit object: signed content, signature, time
//	keys.go     key files
//	openpgp.go  OpenPGP signatures
//	ssh.go      SSH signatures, and files of allowed signers
//
// A commit must have exactly one signature, made with one of the given keys while that key was
// valid. Signed tags, signed parents and the author's name do not count. The package trusts
// only the given keys: it uses no keyring of the user and no network.
package signature
