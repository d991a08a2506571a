package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

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
	maxBody int64
	slots   chan struct{} // one for each delivery being read
	current atomic.Pointer[Webhooks]
	refused rate.Sometimes // how often refusals are logged
}

func newHooks(cfg Config, l limits) *hooks {
	h := &hooks{
		look: cfg.Look, preview: cfg.Preview, log: cfg.Logger, told: cfg.Observer, maxBody: l.body, slots: make(chan struct{}, l.deliveries),
		refused: rate.Sometimes{First: 10, Interval: 10 * time.Second},
	}
	h.current.Store(&Webhooks{})
	return h
}

// ServeHTTP reads a delivery and has the repositories it concerns looked at.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known, name := h.current.Load(), r.PathValue("name")
	receiver := known.Receivers[name]
	if receiver == nil {
		http.NotFound(w, r)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		h.answer(w, r, http.StatusServiceUnavailable, "too many deliveries at once: send it again later")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, h.maxBody)
	push, err := receiver.Parse(r)
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
	looking := 0
	for _, repo := range watched {
		if push.Concerns(repo.Remote, repo.Branch) {
			h.log.Info("push announced", "webhook", name, "repo", repo.ID)
			h.look(repo.ID)
			looking++
		}
	}
	if looking == 0 {
		return http.StatusAccepted, "nothing to do: nothing here watches this repository and branch"
	}
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
		h.log.Info("pull request announced", "webhook", name, "repo", repo.ID, "pullRequest", push.Proposal.Number)
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

// answer answers a delivery, and tells what became of it.
func (h *hooks) answer(w http.ResponseWriter, r *http.Request, code int, line string) {
	h.told.Delivered(r.PathValue("name"), deliveryOf(code))
	answer(w, code, line)
}

// refuse answers a delivery that could not be read.
func (h *hooks) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.refused.Do(func() {
		h.log.Info("webhook delivery refused; more such may follow unlogged", "webhook", r.PathValue("name"), "from", r.RemoteAddr, "error", err)
	})
	var tooLarge *http.MaxBytesError
	switch {
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
