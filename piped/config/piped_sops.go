package config

import "github.com/c785c783/piped/piped/config/strict"

// SOPS is spec.sops: the keys of SOPS files in Git. The zero value means that there
// are none.
type SOPS struct {
	// AgeIdentityFile is the file that `age-keygen` writes, or an SSH private key without a
	// passphrase.
	AgeIdentityFile string `yaml:"ageIdentityFile"`
	// PGPKeyFile holds PGP private keys in ASCII armor, as `gpg --export-secret-keys --armor`
	// writes them.
	PGPKeyFile string `yaml:"pgpKeyFile"`
	// PGPPassphraseFile holds the passphrase of those PGP keys that have one.
	PGPPassphraseFile string `yaml:"pgpPassphraseFile"`
}

func (s SOPS) complete(d *strict.Document, r resolver) SOPS {
	if d.Has("sops") && s.AgeIdentityFile == "" && s.PGPKeyFile == "" {
		d.Problemf("sops", "expected ageIdentityFile, pgpKeyFile or both")
	}
	if s.PGPPassphraseFile != "" && s.PGPKeyFile == "" {
		d.Problemf("sops.pgpPassphraseFile", "has no effect without sops.pgpKeyFile")
	}
	s.AgeIdentityFile = r.path("sops.ageIdentityFile", s.AgeIdentityFile)
	s.PGPKeyFile = r.path("sops.pgpKeyFile", s.PGPKeyFile)
	s.PGPPassphraseFile = r.path("sops.pgpPassphraseFile", s.PGPPassphraseFile)
	return s
}
