package app

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// self describes the agent by the present configuration. It implements control.Agent.
type self struct {
	live    *live
	version string
	started time.Time
}

// Describe implements control.Agent.
func (s self) Describe() deploy.Agent {
	a := deploy.Agent{
		Name: *s.live.name.Load(), Version: s.version, StartedAt: s.started,
		Repositories: s.live.repositories.describe(), Encryption: s.live.secrets.Encryption(), Kinds: s.live.platforms.kinds.Names(),
	}
	kinds := s.live.platforms.providerKinds()
	for _, name := range s.live.platforms.Names() {
		a.Providers = append(a.Providers, deploy.AgentProvider{Name: name, Type: kinds[name]})
	}
	return a
}

// Encrypt implements control.Agent.
func (s self) Encrypt(plaintext []byte) (string, error) { return s.live.secrets.Encrypt(plaintext) }
