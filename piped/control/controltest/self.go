package controltest

import (
	"encoding/base64"

	"github.com/c785c783/piped/piped/deploy"
)

// Self is an agent with the repository "apps" and the platform providers "dev" and "prod". Its
// ciphertext is the base64 of "sealed:" and the plaintext. If Without is set, it has no keys
// and Encrypt fails.
type Self struct{ Without bool }

// Describe implements control.Agent.
func (s Self) Describe() deploy.Agent {
	a := deploy.Agent{
		Name: "the agent", Version: "v1.2.3", StartedAt: Epoch,
		Repositories: []deploy.AgentRepository{{ID: "apps", Remote: "https://git.example.com/apps.git", Branch: "main"}},
		Kinds:        []string{deploy.KindKubernetes},
		Providers:    []deploy.AgentProvider{{Name: "dev", Type: "KUBERNETES"}, {Name: "prod", Type: "KUBERNETES"}},
		Encryption:   deploy.AgentEncryption{Type: "KEY_PAIR", PublicKey: "-----BEGIN PUBLIC KEY-----\n"},
	}
	if s.Without {
		a.Encryption = deploy.AgentEncryption{}
	}
	return a
}

// Encrypt implements control.Agent.
func (s Self) Encrypt(plaintext []byte) (string, error) {
	if s.Without {
		return "", deploy.Errorf(deploy.Illegal, "no keys")
	}
	return base64.StdEncoding.EncodeToString(append([]byte("sealed:"), plaintext...)), nil
}
