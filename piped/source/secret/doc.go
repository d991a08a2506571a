// Package secret fills in the files of an application that are templates:
// spec.encryption with decrypted secrets, spec.attachment with the text of other
// files. The result is an overlay over the commit's tree, which is read like the
// tree itself; what was decrypted is never written to a disk, and no error, log or
// formatted value of this package shows it.
//
// Secrets are encrypted as PipeCD does it (KEY_PAIR) or as age files (AGE).
// Templates have sprig's functions, without those that depend on anything but
// their arguments, and what one may compute is bounded (functions.go, meter.go).
// Targets and sources are files of the application's directory, wherever symbolic
// links lead.
//
// Files that SOPS encrypts are decrypted when they are opened (sops.go), whatever
// reads them.
//
// The package reads no file but those of the tree and, in LoadKeys, the keys that
// the agent's configuration names.
package secret
