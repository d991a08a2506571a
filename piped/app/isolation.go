package app

import (
	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
)

// IsolationModes returns the modes that the configuration permits, the strongest
// first.
func IsolationModes(i config.Isolation) []sandbox.Mode {
	if i == config.IsolationAuto {
		return []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock}
	}
	return []sandbox.Mode{sandbox.Mode(i)}
}
