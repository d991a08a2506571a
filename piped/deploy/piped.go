package deploy

import "time"

// Agent describes this agent by its configuration and process.
type Agent struct {
	Name         string // "" when the configuration gives none
	Version      string
	StartedAt    time.Time
	Repositories []AgentRepository // in the configuration's order, watched or not
	Providers    []AgentProvider   // by name, usable or not
	Kinds        []string          // kinds of application that the agent deploys
	Encryption   AgentEncryption
}

// AgentRepository is a repository of the agent's configuration.
type AgentRepository struct {
	ID, Branch string
	Remote     string // as in the configuration, without credentials
}

// AgentProvider is a platform provider of the agent's configuration.
type AgentProvider struct {
	Name, Type string
}

// AgentEncryption describes how to encrypt secrets so that only the agent can decrypt them.
// The zero value means that the agent has no keys.
type AgentEncryption struct {
	Type      string // KEY_PAIR or AGE
	PublicKey string // PEM (PKIX) for KEY_PAIR, the recipient for AGE
}

// AgentRecord holds the agent settings changed through the API, as stored.
type AgentRecord struct {
	Name        string // "" unless it overrides the configured name
	Description string
	Disabled    bool // nothing new is triggered
	CreatedAt   time.Time
	UpdatedAt   time.Time
}
