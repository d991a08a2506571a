package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// Webhooks is what POST /webhooks/<name> knows.
type Webhooks struct {
	// Receivers reads the deliveries, by the name of the webhook.
	Receivers map[string]*githost.Receiver
	// Repositories are the watched ones; any receiver may announce a push to
	// any of them.
	Repositories []Repository
}

// Repository is a branch that the agent watches.
type Repository struct {
	ID     string // what Config.Look is called with
	Remote string // where it is fetched from, in any form that Git takes
	Branch string
}

// SetWebhooks replaces the webhooks that are served, all at once; requests that
// are under way end with those they began with. The server keeps w: do not
// change it afterwards.
func (s *Server) SetWebhooks(w Webhooks) { s.hooks.current.Store(&w) }

// retryAfter is when a sender that found the server busy may come again.
const retryAfter = 5 * time.Second

// hooks answers deliveries. What it says to a sender that has not proved itself
// does not depend on what the agent knows.
type hooks struct {
	look    func(repoID string)
	preview func(ctx context.Context, repoID string, p githost.Proposal) error
	log     *slog.Logger
	told    Observer
	limits  limits
	slots   slots
	bursts  bursts // of what is logged
	current atomic.Pointer[Webhooks]
}

func newHooks(cfg Config, l limits) *hooks {
	h := &hooks{
		look: cfg.Look, preview: cfg.Preview, log: cfg.Logger, told: cfg.Observer, limits: l,
		slots: slots{most: l.deliveries, perAddress: l.perAddress}, bursts: bursts{pause: burstPause},
	}
	h.current.Store(&Webhooks{})
	return h
}

// ServeHTTP reads a delivery and has the repositories it concerns looked at. The header
// is checked first: what is not signed is refused before it takes a slot.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, name := h.current.Load(), r.PathValue("name")
	receiver := known.Receivers[name]
	if receiver == nil {
		http.NotFound(w, r)
		return
	}
	d := h.newDelivery(w, r)
	r.Body = http.MaxBytesReader(w, d, h.limits.body)
	push, err := receiver.Parse(r)
	d.end(err == nil)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	code, line := h.announce(r.Context(), name, push, known.Repositories)
	h.answer(w, r, code, line)
}

// announce wakes whoever watches what was pushed, and returns the answer.
func (h *hooks) announce(ctx context.Context, name string, push githost.Push, watched []Repository) (code int, line string) {
	if push.Ping {
		return http.StatusOK, "the webhook works"
	}
	if push.Proposal != nil {
		return h.propose(ctx, name, push, watched)
	}
	if len(push.Branches) == 0 {
		return http.StatusAccepted, "nothing to do: this is no push to a branch"
	}
	var looking []string
	for _, repo := range watched {
		if push.Concerns(repo.Remote, repo.Branch) {
			h.look(repo.ID)
			looking = append(looking, repo.ID)
		}
	}
	if len(looking) == 0 {
		return http.StatusAccepted, "nothing to do: nothing here watches this repository and branch"
	}
	h.say(name, "push announced", "repo", strings.Join(looking, ","))
	return http.StatusAccepted, "looking"
}

// propose has a pull request previewed, for every repository whose branch it is to
// be merged into.
func (h *hooks) propose(ctx context.Context, name string, push githost.Push, watched []Repository) (code int, line string) {
	previewing := 0
	for _, repo := range watched {
		if !push.Proposes(repo.Remote, repo.Branch) {
			continue
		}
		h.say(name, "pull request announced", "repo", repo.ID, "pullRequest", push.Proposal.Number)
		if err := h.preview(ctx, repo.ID, *push.Proposal); err != nil {
			h.log.Warn("a pull request cannot be previewed", "webhook", name, "repo", repo.ID, "pullRequest", push.Proposal.Number, "error", err)
			return http.StatusServiceUnavailable, "the pull request cannot be previewed now: send it again later"
		}
		previewing++
	}
	if previewing == 0 {
		return http.StatusAccepted, "nothing to do: nothing here watches the branch that the pull request is for"
	}
	return http.StatusAccepted, "the pull request was announced"
}

// say logs an event of a webhook, the first one of a burst: what follows within
// burstPause is counted, and the count is in the line of the next burst.
func (h *hooks) say(webhook, event string, details ...any) {
	begins, before := h.bursts.begins(webhook+"/"+event, time.Now())
	if !begins {
		return
	}
	if before > 0 {
		details = append(details, "unloggedBefore", before)
	}
	h.log.Info(event, append([]any{"webhook", webhook}, details...)...)
}

// answer answers a delivery, and tells what became of it.
func (h *hooks) answer(w http.ResponseWriter, r *http.Request, code int, line string) {
	h.told.Delivered(r.PathValue("name"), deliveryOf(code))
	answer(w, code, line)
}

// refuse answers a delivery that could not be read.
func (h *hooks) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.say(r.PathValue("name"), "webhook delivery refused", "from", r.RemoteAddr, "error", err)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		h.answer(w, r, http.StatusServiceUnavailable, "too many deliveries at once: send it again later")
	case errors.As(err, &tooLarge):
		h.answer(w, r, http.StatusRequestEntityTooLarge, "the delivery is too large: at most "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes are read")
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.answer(w, r, http.StatusRequestTimeout, "the delivery did not arrive in time")
	case deploy.IsKind(err, deploy.Denied):
		h.answer(w, r, http.StatusUnauthorized, "the signature or token is missing or wrong: set the same secret at both ends")
	default:
		h.answer(w, r, http.StatusBadRequest, err.Error())
	}
}
