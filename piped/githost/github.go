package githost

import (
	"bytes"
	"io"
	"net/http"

	"github.com/google/go-github/v60/github"
)

// gitHub handles GitHub and GitHub Enterprise Server, as documented in "Webhook events and
// payloads" and "Validating webhook deliveries" on docs.github.com.
func gitHub() host {
	return host{name: "GitHub", event: github.EventTypeHeader, open: openGitHub, read: readGitHub}
}

// openGitHub verifies a delivery and returns its payload, for both content types of
// webhooks. The signature covers the body in either.
func openGitHub(r *http.Request, secret []byte) ([]byte, error) {
	// ValidatePayload would also accept SHA-1, in another header and in this one.
	if _, err := signature(r, github.SHA256SignatureHeader, "sha256="); err != nil {
		return nil, err
	}
	if _, err := mediaType(r); err != nil {
		return nil, err
	}
	data, err := body(r)
	if err != nil {
		return nil, err
	}
	signed := &http.Request{Header: r.Header, Body: io.NopCloser(bytes.NewReader(data))}
	payload, err := github.ValidatePayload(signed, secret)
	if err != nil {
		return nil, errWrongSecret() // or a malformed form, which cannot be signed
	}
	return payload, nil
}

// readGitHub parses a push, a pull request or a ping; see host.read.
func readGitHub(event string, payload []byte) (Push, error) {
	switch event {
	case "ping":
		return Push{Ping: true}, nil
	case "push":
		return readRefPush(payload)
	case "pull_request":
		return readPullRequest(payload, "opened", "reopened", "synchronize")
	default:
		return Push{}, nil
	}
}

// refPush is a push of one reference in the format of GitHub, Gitea and Forgejo.
type refPush struct {
	Ref        string
	After      string
	Repository eventRepository
}

// eventRepository is the repository in their events.
type eventRepository struct {
	CloneURL string `json:"clone_url"`
	SSHURL   string `json:"ssh_url"`
	GitURL   string `json:"git_url"`
	HTMLURL  string `json:"html_url"`
}

func (r eventRepository) remotes() []string {
	return []string{r.CloneURL, r.SSHURL, r.GitURL, r.HTMLURL}
}

// readRefPush parses the push of one reference. The branch is "" for a tag or a deleted
// branch.
func readRefPush(payload []byte) (Push, error) {
	p, err := decode[refPush](payload)
	if err != nil {
		return Push{}, err
	}
	return Push{Remotes: p.Repository.remotes(), Branches: []string{moved(p.Ref, p.After)}}, nil
}
