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

// Webhooks configures POST /webhooks/<name>.
type Webhooks struct {
	// Receivers parse the deliveries, by name of the webhook.
	Receivers map[string]*githost.Receiver
	// Repositories are the configured ones. Any receiver may announce pushes to any
	// of them.
	Repositories []Repository
}

// Repository is a tracked branch.
type Repository struct {
	ID     string // argument of Config.Poll
	Remote string // fetch URL, in any form that Git accepts
	Branch string
}

// SetWebhooks replaces all webhooks atomically; running requests end with the previous
// ones. The caller must not change w afterwards.
func (s *Server) SetWebhooks(w Webhooks) { s.hooks.current.Store(&w) }

// retryAfter is the Retry-After of a busy server.
const retryAfter = 5 * time.Second

// hooks handles deliveries. Responses to unauthenticated senders do not depend on what is
// configured.
type hooks struct {
	poll    func(repoID string)
	preview func(ctx context.Context, repoID string, p githost.Proposal) error
	log     *slog.Logger
	counts  DeliveryMetrics
	limits  limits
	slots   slots
	bursts  bursts // of log lines
	current atomic.Pointer[Webhooks]
}

func newHooks(cfg Config, l limits) *hooks {
	h := &hooks{
		poll: cfg.Poll, preview: cfg.Preview, log: cfg.Logger, counts: cfg.Deliveries, limits: l,
		slots: slots{most: l.deliveries, perAddress: l.perAddress}, bursts: bursts{pause: burstPause},
	}
	h.current.Store(&Webhooks{})
	return h
}

// ServeHTTP parses a delivery and polls the repositories it concerns. The header is
// checked first: an unsigned delivery is rejected without taking a slot.
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

// announce polls the repositories that a push concerns and returns the response.
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
	var polled []string
	for _, repo := range watched {
		if push.Concerns(repo.Remote, repo.Branch) {
			h.poll(repo.ID)
			polled = append(polled, repo.ID)
		}
	}
	if len(polled) == 0 {
		return http.StatusAccepted, "nothing to do: the agent does not watch this repository and branch"
	}
	h.logEvent(name, "push announced", "repo", strings.Join(polled, ","))
	return http.StatusAccepted, "accepted: the repository is fetched"
}

// propose requests a preview of a pull request for every repository whose branch it is to
// be merged into.
func (h *hooks) propose(ctx context.Context, name string, push githost.Push, watched []Repository) (code int, line string) {
	previewing := 0
	for _, repo := range watched {
		if !push.Proposes(repo.Remote, repo.Branch) {
			continue
		}
		h.logEvent(name, "pull request announced", "repo", repo.ID, "pullRequest", push.Proposal.Number)
		if err := h.preview(ctx, repo.ID, *push.Proposal); err != nil {
			h.log.Warn("cannot request the preview of a pull request", "webhook", name, "repo", repo.ID, "pullRequest", push.Proposal.Number, "error", err)
			return http.StatusServiceUnavailable, "the preview cannot be requested now: retry later"
		}
		previewing++
	}
	if previewing == 0 {
		return http.StatusAccepted, "nothing to do: the agent does not watch the base branch of the pull request"
	}
	return http.StatusAccepted, "accepted: the pull request is previewed"
}

// logEvent logs the first event of a burst. Later events within burstPause are counted, and the
// count is logged with the next burst.
func (h *hooks) logEvent(webhook, event string, details ...any) {
	begins, before := h.bursts.begins(webhook+"/"+event, time.Now())
	if !begins {
		return
	}
	if before > 0 {
		details = append(details, "unloggedBefore", before)
	}
	h.log.Info(event, append([]any{"webhook", webhook}, details...)...)
}

// answer responds to a delivery and counts it.
func (h *hooks) answer(w http.ResponseWriter, r *http.Request, code int, line string) {
	h.counts.Delivered(r.PathValue("name"), deliveryOf(code))
	answer(w, code, line)
}

// refuse responds to a delivery that could not be parsed.
func (h *hooks) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.logEvent(r.PathValue("name"), "webhook delivery refused", "from", r.RemoteAddr, "error", err)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		h.answer(w, r, http.StatusServiceUnavailable, "too many concurrent deliveries: retry later")
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
