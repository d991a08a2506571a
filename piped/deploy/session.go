package deploy

import "time"

// User is a person as an issuer knows them. Subjects of two issuers are two users.
type User struct {
	Issuer  string   // the configured name of the issuer; "" for the holder of an API key
	Subject string   // what roles, approvals and the audit log name, such as an e-mail address or a login
	Name    string   // for display; may be ""
	Groups  []string // as the issuer names them
}

// Session is one sign-in of a user. Its secret is never stored.
type Session struct {
	ID   string // public, in lists and the audit log
	Hash []byte // SHA-256 of the secret in the cookie or file
	User User
	// KeyID is the API key that opened the session; "" for a user of an issuer. The
	// session ends with the key.
	KeyID string
	// Refresh is what reads the user's groups again at the issuer, encrypted at rest;
	// nil if the issuer gave nothing for it.
	Refresh    []byte
	Remote     string // client address of the sign-in
	Client     string // what signed in: "page" or "pipectl"
	CreatedAt  time.Time
	ExpiresAt  time.Time // absolute limit
	LastUsedAt time.Time // the idle limit counts from here; precise to a minute
	GroupsAt   time.Time // when the groups were read last
	EndedAt    time.Time // zero while it is open
}

// DisabledUser is a user who cannot sign in.
type DisabledUser struct {
	Issuer, Subject string
	By              string // the subject of the caller who disabled the user
	At              time.Time
}

// AuditRecord is one call of the API that changed something or was denied, or one sign-in.
// A record is never changed.
type AuditRecord struct {
	ID      int64 // ascending, set by the store
	At      time.Time
	Subject string
	Issuer  string // "" for an API key
	// CallerID is the ID of the API key or session; Session says which.
	CallerID   string
	Session    bool
	Remote     string
	Method     string // such as piped.control.v1.ControlService/SyncApplication
	Permission Permission
	// ApplicationID and DeploymentID are what the call was about; "" if about neither.
	ApplicationID string
	DeploymentID  string
	Code          string // gRPC status code, such as OK or PermissionDenied
	Reason        string // why it was denied or failed; "" for success
	Duration      time.Duration
	// Target and Result are parts of the request and of the response, without secrets.
	Target, Result map[string]string
}
