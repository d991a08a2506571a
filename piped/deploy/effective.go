package deploy

import "time"

// EffectiveConfig is a configuration as it is in effect, without secrets.
type EffectiveConfig struct {
	YAML     string // "" with an Error
	Error    string // why the configuration, or a newer one of the agent, is invalid
	Warnings []string

	LoadedAt time.Time // of an agent
	Commit   string    // of an application
	Path     string    // of an application's file, from the root of the repository
}
