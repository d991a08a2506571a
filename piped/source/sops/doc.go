// Package sops decrypts files in the format of SOPS with age identities and PGP
// keys. It verifies the MAC of each file.
//
// A SOPS file holds encrypted values in the place of values, as
// ENC[AES256_GCM,data:...,iv:...,tag:...,type:...], and under the key sops its
// metadata: the data key encrypted for each recipient, the rules by which values are
// encrypted, and a MAC over all values. The formats are YAML, JSON, dotenv, INI, and
// an envelope of JSON for any other file.
//
// SOPS itself is not linked: with it the program has the clients of five clouds.
package sops
