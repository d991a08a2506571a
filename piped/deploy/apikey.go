package deploy

import "time"

// Role is what an API key may do: one of PipeCD's roles, a built-in role or one of the
// configuration.
type Role string

// PipeCD's roles of API keys.
const (
	ReadOnly  Role = "READ_ONLY"
	ReadWrite Role = "READ_WRITE"
)

// APIKey is one key of the control API. The secret itself is never stored.
type APIKey struct {
	ID        string
	Name      string // unique among the enabled keys
	Subject   string // recorded as the commander of each request
	Role      Role
	Limit     *Selector // restricts the key to some applications; nil for no restriction
	Hash      []byte    // SHA-256 of "<id>.<secret>"; the secret has 165 bits of entropy
	Creator   string    // the subject that created it; "" if the agent did
	Disabled  bool      // permanent
	CreatedAt time.Time
	UpdatedAt time.Time // when it was created or disabled
	// LastUsedAt is the minute of the last use, zero if never used. It may lag by a few
	// minutes, and writing it is not reported as a change.
	LastUsedAt time.Time
}
