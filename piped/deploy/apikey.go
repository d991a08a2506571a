package deploy

import "time"

// Role is what an API key may do.
type Role string

// The roles of API keys.
const (
	ReadOnly  Role = "READ_ONLY"
	ReadWrite Role = "READ_WRITE"
)

// APIKey is one key of the control API. The secret itself is never stored.
type APIKey struct {
	ID        string
	Name      string // of the enabled keys one has it
	Subject   string // who acts with the key: the commander of what it asks for
	Role      Role
	Hash      []byte // SHA-256 of "<id>.<secret>"; the secret has 165 bits of entropy
	Creator   string // the subject that made it; "" when the agent did
	Disabled  bool   // for good
	CreatedAt time.Time
	UpdatedAt time.Time // when it was made or disabled
	// LastUsedAt is the minute of its last use, zero when it was never used. It
	// may lag behind by a few minutes, and is no change.
	LastUsedAt time.Time
}
