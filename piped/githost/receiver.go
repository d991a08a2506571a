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

// Push is what a delivery says happened. None of Ping, Branches and Proposal being
// set means that it was something nobody here waits for: a tag, a deleted branch,
// another event.
type Push struct {
	// Remotes are the addresses of the one repository as the host writes them:
	// for HTTPS, for SSH and for people. There is at least one if there are
	// Branches or a Proposal.
	Remotes []string
	// Branches are the names, without refs/heads/, of the branches that were
	// created or moved.
	Branches []string
	// Proposal is the pull request that has a new head; nil if there is none.
	Proposal *Proposal
	// Ping is set when the host only tries whether the webhook works.
	Ping bool
}

// Concerns reports whether the push moved the branch of the repository at
// remote, in whichever way the remote is written; see SameRepository.
func (p Push) Concerns(remote, branch string) bool {
	return slices.Contains(p.Branches, branch) && p.of(remote)
}

// Proposes reports whether the push is of a pull request that is to be merged into
// the branch of the repository at remote.
func (p Push) Proposes(remote, branch string) bool {
	return p.Proposal != nil && p.Proposal.Base == branch && p.of(remote)
}

func (p Push) of(remote string) bool {
	return slices.ContainsFunc(p.Remotes, func(r string) bool { return SameRepository(r, remote) })
}

// Receiver reads the deliveries of one webhook. It is safe for concurrent use.
type Receiver struct {
	host   host
	secret strict.Secret
}

// host is how one kind of host signs and writes its deliveries.
type host struct {
	name  string // for people
	event string // the header that names the event
	// open returns the payload of a delivery whose sender knows the secret.
	open func(r *http.Request, secret []byte) ([]byte, error)
	// read returns what an authentic payload says, of the event it is of.
	read func(event string, payload []byte) (Push, error)
}

// New returns the receiver of a webhook whose deliveries are signed with
// secret. An empty secret, by which anybody could send, and an unknown type are
// refused; the errors are of kind deploy.Invalid.
func New(t config.WebhookType, secret strict.Secret) (*Receiver, error) {
	if strings.TrimSpace(secret.Reveal()) == "" {
		return nil, deploy.Errorf(deploy.Invalid, "the secret is empty, so that anybody could send to the webhook; set the same secret here and at the Git host")
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

// Parse reads one delivery. The caller bounds the size of the body and the time
// to read it. A sender that does not prove to know the secret gets kind
// deploy.Denied, mostly before its body is read; a delivery that cannot be
// understood gets deploy.Invalid, which wraps what reading the body returned.
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
		// The cause may quote the payload.
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

// The content types by which a payload arrives: as the body, or as the field
// "payload" of a form.
const (
	mediaJSON = "application/json"
	mediaForm = "application/x-www-form-urlencoded"
)

// mediaType returns which of the two content types the request has.
func mediaType(r *http.Request) (string, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != mediaJSON && media != mediaForm {
		return "", deploy.Errorf(deploy.Invalid, "the delivery is neither JSON nor a form; set the webhook's content type to %s at the Git host", mediaJSON)
	}
	return media, nil
}

// body reads all of the request's body.
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

// moved returns the branch that a reference names, or "" when it is none or
// after says that it is gone.
func moved(ref, after string) string {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok || isZero(after) {
		return ""
	}
	return branch
}

// isZero reports whether hash is what hosts write for a commit that is not.
func isZero(hash string) bool { return hash != "" && strings.Trim(hash, "0") == "" }

// names returns the texts that are not empty, once each, in their order.
func names(all []string) []string {
	var out []string
	for _, s := range all {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
