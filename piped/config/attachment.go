package config

import (
	"fmt"
	"path"
	"path/filepath"

	"github.com/c785c783/piped/piped/config/strict"
)

// Encryption is spec.encryption: files of the application that are templates
// filled with decrypted secrets.
type Encryption struct {
	// EncryptedSecrets are encrypted texts by name. The agent's `secretManagement` decrypts them.
	EncryptedSecrets map[string]string `yaml:"encryptedSecrets"`
	// DecryptionTargets are the files that are filled, in memory only. They are inside the
	// application's directory.
	// Required.
	DecryptionTargets []string `yaml:"decryptionTargets"`
	// Position is where the block stands, as file:line.
	Position string `yaml:"-"`
}

// Attachment is spec.attachment: files of the application that are templates
// filled with the text of others. All are inside the application's directory.
type Attachment struct {
	// Sources are files by name. They are read after decryption.
	Sources map[string]string `yaml:"sources"`
	// Targets are the files that are filled.
	// Required.
	Targets []string `yaml:"targets"`
	// Position is where the block stands, as file:line.
	Position string `yaml:"-"`
}

func (e *Encryption) complete(d *strict.Document) {
	e.Position = d.Position("encryption")
	for name, text := range e.EncryptedSecrets {
		checkNamed(d, "encryption.encryptedSecrets", name, text)
	}
	checkTargets(d, "encryption.decryptionTargets", e.DecryptionTargets)
}

func (a *Attachment) complete(d *strict.Document) {
	a.Position = d.Position("attachment")
	for name, file := range a.Sources {
		if checkNamed(d, "attachment.sources", name, file) {
			checkFile(d, "attachment.sources."+name, file)
		}
	}
	checkTargets(d, "attachment.targets", a.Targets)
}

// checkNamed reports an empty name or value, and whether there is none.
func checkNamed(d *strict.Document, at, name, value string) bool {
	switch {
	case name == "":
		d.Problemf(at, "expected names, found an empty one")
	case value == "":
		d.Problemf(at+"."+name, "expected a value, found an empty one")
	default:
		return true
	}
	return false
}

func checkTargets(d *strict.Document, at string, files []string) {
	if len(files) == 0 {
		d.Problemf(at, "expected at least one file of the application")
	}
	for i, file := range files {
		checkFile(d, fmt.Sprintf("%s[%d]", at, i), file)
	}
}

// checkFile reports a file that is not inside the application's directory.
func checkFile(d *strict.Document, at, file string) {
	if !filepath.IsLocal(file) || path.Clean(file) == "." {
		d.Problemf(at, "expected the name of a file inside the application's directory, found %q", file)
	}
}
