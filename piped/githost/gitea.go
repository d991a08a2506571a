package githost

import (
	"net/http"
	"net/url"

	"github.com/c785c783/piped/piped/deploy"
)

// gitea handles Gitea, and Forgejo, which also sends the same headers under its own name,
// as documented in "Webhooks" on docs.gitea.com and forgejo.org.
func gitea() host {
	return host{name: "Gitea", event: "X-Gitea-Event", open: openGitea, read: readGitea}
}

// openGitea verifies a delivery and returns its payload, for both content types of
// webhooks. Unlike GitHub's, the signature of a form covers the payload in it.
func openGitea(r *http.Request, secret []byte) ([]byte, error) {
	mac, err := giteaSignature(r)
	if err != nil {
		return nil, err
	}
	media, err := mediaType(r)
	if err != nil {
		return nil, err
	}
	payload, err := body(r)
	if err != nil {
		return nil, err
	}
	if media == mediaForm {
		form, err := url.ParseQuery(string(payload))
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "the delivery's content type is a form, but its body is not")
		}
		payload = []byte(form.Get("payload"))
	}
	return payload, verify(payload, mac, secret)
}

// giteaSignature returns the first signature header present; all have the same value.
func giteaSignature(r *http.Request) ([]byte, error) {
	for _, header := range []string{"X-Gitea-Signature", "X-Forgejo-Signature"} {
		if r.Header.Get(header) != "" {
			return signature(r, header, "")
		}
	}
	return signature(r, "X-Hub-Signature-256", "sha256=")
}

// readGitea parses a push or a pull request; see host.read.
func readGitea(event string, payload []byte) (Push, error) {
	switch event {
	case "push":
		return readRefPush(payload)
	case "pull_request", "pull_request_sync":
		return readPullRequest(payload, "opened", "reopened", "synchronized")
	default:
		return Push{}, nil
	}
}
