package deploy

// CandidateState is the reason why a configuration found in Git is not an application of this
// agent.
type CandidateState string

// The states of a candidate. Unregistered: neither repositories[].discover nor an API
// request selects it. Unsupported: this agent does not deploy its kind. Deleted: a user
// deleted the application.
const (
	CandidateUnregistered CandidateState = "UNREGISTERED"
	CandidateUnsupported  CandidateState = "UNSUPPORTED"
	CandidateDeleted      CandidateState = "DELETED"
)

// Candidate is a configuration at the head of a watched branch that is not an
// application of this agent. The agent lists it and does nothing else.
type Candidate struct {
	Git    GitPath
	Name   string // "" when it cannot be read
	Kind   string // of the configuration file, such as KubernetesApp or TerraformApp
	Labels map[string]string
	State  CandidateState
	Reason string // explanation for users, and how to have it deployed
}
