package githost

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Push is the content of a delivery. If none of Ping, Branches and Proposal is set, the
// delivery is of no interest: a tag, a deleted branch, another event.
type Push struct {
	// Remotes are the URLs of the repository as sent by the host: for HTTPS, for SSH
	// and its page. There is at least one if Branches or Proposal is set.
	Remotes []string
	// Branches are the created or moved branches, without refs/heads/.
	Branches []string
	// Proposal is the pull request with a new head, or nil.
	Proposal *Proposal
	// Ping is set if the host only tests the webhook.
	Ping bool
}

// Concerns reports whether the push moved the branch of the repository at remote, which
// may be written in any form; see SameRepository.
func (p Push) Concerns(remote, branch string) bool {
	return slices.Contains(p.Branches, branch) && p.of(remote)
}

// Proposes reports whether the delivery is of a pull request into the branch of the
// repository at remote.
func (p Push) Proposes(remote, branch string) bool {
	return p.Proposal != nil && p.Proposal.Base == branch && p.of(remote)
}

func (p Push) of(remote string) bool {
	return slices.ContainsFunc(p.Remotes, func(r string) bool { return SameRepository(r, remote) })
}

// Receiver parses the deliveries of one webhook. It is safe for concurrent use.
type Receiver struct {
	host   host
	secret strict.Secret
}

// host defines how one kind of host signs and encodes its deliveries.
type host struct {
	name  string // display name
	event string // header with the event's name
	// open verifies a delivery with the secret and returns its payload.
	open func(r *http.Request, secret []byte) ([]byte, error)
	// read parses an authentic payload. It returns the zero Push for events without
	// effect, such as a pull request from a fork.
	read func(event string, payload []byte) (Push, error)
}

// New returns the receiver of a webhook whose deliveries are signed with secret. An empty
// secret or an unknown type is an error of kind deploy.Invalid.
func New(t config.WebhookType, secret strict.Secret) (*Receiver, error) {
	if strings.TrimSpace(secret.Reveal()) == "" {
		return nil, deploy.Errorf(deploy.Invalid, "the secret is empty, so anyone could send to the webhook; set the same secret here and at the Git host")
	}
	hosts := map[config.WebhookType]host{
		config.WebhookGitHub: gitHub(), config.WebhookGitLab: gitLab(), config.WebhookGitea: gitea(), config.WebhookBitbucket: bitbucket(),
	}
	h, known := hosts[t]
	if !known {
		return nil, deploy.Errorf(deploy.Invalid, "webhook type %q is not known; expected %s", t, strict.Alternatives(t.Values()))
	}
	return &Receiver{host: h, secret: secret}, nil
}

// Parse reads one delivery. The caller limits the size of the body and the time to read
// it. The error is of kind deploy.Denied if the sender does not know the secret, in most
// cases before the body is read, and deploy.Invalid if the delivery cannot be parsed;
// it wraps the error of reading the body.
func (rc *Receiver) Parse(r *http.Request) (Push, error) {
	payload, err := rc.host.open(r, []byte(rc.secret.Reveal()))
	if err != nil {
		return Push{}, err
	}
	event := r.Header.Get(rc.host.event)
	if event == "" {
		return Push{}, deploy.Errorf(deploy.Invalid, "the delivery has no header %s; check that the webhook's type is that of its sender", rc.host.event)
	}
	push, err := rc.host.read(event, payload)
	if err != nil {
		// The cause is omitted since it may quote the payload.
		return Push{}, deploy.Errorf(deploy.Invalid, "the payload of event %q is not the JSON that %s sends", event, rc.host.name)
	}
	push.Remotes, push.Branches = names(push.Remotes), names(push.Branches)
	switch {
	case len(push.Branches) == 0 && push.Proposal == nil:
		push.Remotes = nil
	case len(push.Remotes) == 0:
		return Push{}, deploy.Errorf(deploy.Invalid, "the payload of event %q names no address of its repository", event)
	}
	return push, nil
}

// The content types of a payload: JSON as the body, or in the field "payload" of a form.
const (
	mediaJSON = "application/json"
	mediaForm = "application/x-www-form-urlencoded"
)

// mediaType returns the content type of the request, one of the two.
func mediaType(r *http.Request) (string, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != mediaJSON && media != mediaForm {
		return "", deploy.Errorf(deploy.Invalid, "the delivery is neither JSON nor a form; set the webhook's content type to %s at the Git host", mediaJSON)
	}
	return media, nil
}

// body reads the request's body.
func body(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "read the delivery: %w", err)
	}
	return data, nil
}

// decode reads a payload as a T.
func decode[T any](payload []byte) (T, error) {
	var v T
	err := json.Unmarshal(payload, &v)
	return v, err
}

// moved returns the branch of a reference, or "" if it is no branch or was deleted.
func moved(ref, after string) string {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok || isZero(after) {
		return ""
	}
	return branch
}

// isZero reports whether hash is the null commit.
func isZero(hash string) bool { return hash != "" && strings.Trim(hash, "0") == "" }

// names returns the non-empty texts without duplicates, in order.
func names(all []string) []string {
	var out []string
	for _, s := range all {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
