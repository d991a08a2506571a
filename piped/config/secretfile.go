package config

import (
	"os"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// readSecret returns what a file holds, trimmed, which is never empty or only white
// space. Errors are of kind deploy.Invalid and do not show the content: they say
// what was to be read and, of an empty file, what to write into it.
func readSecret(file string, trim func(string) string, what, advice string) (strict.Secret, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return strict.Secret{}, deploy.Errorf(deploy.Invalid, "read %s: %w", what, err)
	}
	text := trim(string(content))
	if strings.TrimSpace(text) == "" {
		return strict.Secret{}, deploy.Errorf(deploy.Invalid, "read %s: %s is empty; %s", what, file, advice)
	}
	return strict.NewSecret(text), nil
}
