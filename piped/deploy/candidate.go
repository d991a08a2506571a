package deploy

// CandidateState says why an application configuration found in Git is no
// application of this agent.
type CandidateState string

// The states of a candidate. Unregistered: nothing selects it (neither
// repositories[].discover nor a request to add it). Unsupported: it is of a kind
// that this agent does not deploy. Deleted: it was an application until it was
// deleted by request.
const (
	CandidateUnregistered CandidateState = "UNREGISTERED"
	CandidateUnsupported  CandidateState = "UNSUPPORTED"
	CandidateDeleted      CandidateState = "DELETED"
)

// Candidate is an application configuration found at the head of a watched
// branch that is no application of this agent. It is listed and left alone.
type Candidate struct {
	Git    GitPath
	Name   string // "" when it cannot be read
	Kind   string // of the configuration file, such as KubernetesApp or TerraformApp
	Labels map[string]string
	State  CandidateState
	Reason string // for a person: why, and what to do to have it deployed
}
