// Package sops decrypts files in the format of SOPS with age identities and PGP
// keys. It verifies the MAC of each file.
//
// In a SOPS file, values are replaced by their ciphertext in the form
// ENC[AES256_GCM,data:...,iv:...,tag:...,type:...]. The key sops has the metadata: the data key
// encrypted for each recipient, the rules that select encrypted values, and a MAC over the
// values. The formats are YAML, JSON, dotenv and INI; other files are in a JSON envelope.
//
// The package does not use the SOPS library, because that would link the clients of five clouds.
package sops
