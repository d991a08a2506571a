package githost

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/c785c783/piped/piped/deploy"
)

const gitLabToken = "X-Gitlab-Token"

// gitLab handles GitLab, as documented in "Webhook events" and "System hooks" on
// docs.gitlab.com. GitLab does not sign deliveries: it sends the secret itself.
func gitLab() host {
	return host{name: "GitLab", event: "X-Gitlab-Event", open: openGitLab, read: readGitLab}
}

// openGitLab returns the payload of a delivery whose header has the secret; GitLab does
// not sign it.
func openGitLab(r *http.Request, secret []byte) ([]byte, error) {
	token := r.Header.Get(gitLabToken)
	if token == "" {
		return nil, deploy.Errorf(deploy.Denied, "the delivery has no header %s; set the secret token at GitLab", gitLabToken)
	}
	// Comparing hashes does not reveal the length of the secret by timing.
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256(secret)
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return nil, deploy.Errorf(deploy.Denied, "header %s holds another secret token; set the same here and at GitLab", gitLabToken)
	}
	return body(r)
}

// gitLabPush is a push to one branch or, as repository_update, to several references.
type gitLabPush struct {
	EventName string `json:"event_name"`
	refChange
	Changes []refChange
	Project gitLabRepository
}

type gitLabRepository struct {
	HTTPURL string `json:"git_http_url"`
	SSHURL  string `json:"git_ssh_url"`
	WebURL  string `json:"web_url"`
}

func (r gitLabRepository) remotes() []string { return []string{r.HTTPURL, r.SSHURL, r.WebURL} }

type refChange struct{ Ref, After string }

// readGitLab parses the hooks of projects, groups and instances. An instance's hook
// reports a push to many branches only as a repository_update; its other events have no
// reference.
func readGitLab(event string, payload []byte) (Push, error) {
	if event == "Merge Request Hook" {
		return readMergeRequest(payload)
	}
	if event != "Push Hook" && event != "System Hook" {
		return Push{}, nil
	}
	p, err := decode[gitLabPush](payload)
	if err != nil {
		return Push{}, err
	}
	changes := []refChange{p.refChange}
	if p.EventName == "repository_update" {
		changes = p.Changes
	}
	push := Push{Remotes: p.Project.remotes()}
	for _, c := range changes {
		push.Branches = append(push.Branches, moved(c.Ref, c.After))
	}
	return push, nil
}

// gitLabMerge is a change of a merge request. OldRev is set only if it adds commits.
type gitLabMerge struct {
	Project    gitLabRepository
	Attributes struct {
		IID             int
		Action          string
		OldRev          string
		SourceBranch    string              `json:"source_branch"`
		TargetBranch    string              `json:"target_branch"`
		SourceProjectID int64               `json:"source_project_id"`
		TargetProjectID int64               `json:"target_project_id"`
		LastCommit      struct{ ID string } `json:"last_commit"`
	} `json:"object_attributes"`
}

// readMergeRequest parses a change of a merge request. It returns the zero Push unless
// the change sets a new head and both branches are in the same project.
func readMergeRequest(payload []byte) (Push, error) {
	m, err := decode[gitLabMerge](payload)
	a := m.Attributes
	isNew := a.Action == "open" || a.Action == "reopen" || a.Action == "update" && a.OldRev != ""
	if err != nil || !isNew || a.SourceProjectID != a.TargetProjectID {
		return Push{}, err
	}
	return Push{
		Remotes:  m.Project.remotes(),
		Proposal: proposal(Proposal{Number: a.IID, Head: a.SourceBranch, Commit: a.LastCommit.ID, Base: a.TargetBranch}),
	}, nil
}
