// Package secret renders the files of an application that are templates: with decrypted secrets
// (spec.encryption) and with the text of other files (spec.attachment). The result is an fs.FS
// that overlays the commit's tree. Plaintext is never written to disk, and does not appear in
// errors, logs or formatted values of this package.
//
// Secrets are encrypted in PipeCD's format (KEY_PAIR) or as age files (AGE). Templates can use
// those functions of sprig that depend only on their arguments, and their computing time is
// limited (functions.go, meter.go). Targets and sources are files in the application's
// directory; symbolic links are followed.
//
// Files that are encrypted by SOPS are decrypted whenever they are opened (sops.go).
//
// The package reads only the files of the tree and, in LoadKeys, the key files in the agent's
// configuration.
package secret
