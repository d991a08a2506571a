package signin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/deploy"
)

// deviceFlow is a sign-in on another device that is under way.
type deviceFlow struct {
	Issuer   string        `json:"issuer"`
	Code     string        `json:"code"`
	Interval time.Duration `json:"interval"`
	Next     time.Time     `json:"next"` // the earliest time of the next poll
	Expires  time.Time     `json:"expires"`
}

// deviceRequest is the body of POST /sign-in/device. The issuer may be left out if there is
// only one.
type deviceRequest struct {
	Issuer string `json:"issuer"`
}

type deviceResponse struct {
	Handle    string `json:"handle"`
	UserCode  string `json:"user_code"`
	URI       string `json:"verification_uri"`
	Complete  string `json:"verification_uri_complete,omitempty"`
	Interval  int    `json:"interval"`
	ExpiresIn int    `json:"expires_in"`
}

// device begins a device flow. The issuer's device code does not leave the agent.
func (h *Handler) device(w http.ResponseWriter, r *http.Request) {
	var in deviceRequest
	if !read(w, r, &in) {
		return
	}
	issuer, ok := h.config.Issuers.Find(in.Issuer)
	if all := h.config.Issuers.All(); in.Issuer == "" && len(all) == 1 {
		issuer, ok = all[0], true
	}
	if !ok {
		refuse(w, http.StatusNotFound, "unknown_issuer", "name a configured issuer")
		return
	}
	d, err := issuer.StartDevice(r.Context())
	if deploy.IsKind(err, deploy.NotFound) {
		refuse(w, http.StatusNotFound, "unsupported", "the issuer has no device flow: sign in with a browser on this computer, or with an API key")
		return
	}
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	now := h.config.Now()
	expires := d.Expires
	if latest := now.Add(maxDeviceFlow); expires.After(latest) {
		expires = latest
	}
	flow := deviceFlow{Issuer: issuer.Name(), Code: d.Code, Interval: d.Interval, Next: now.Add(d.Interval), Expires: expires}
	handle, err := h.tickets.issue(r.Context(), ticketDevice, flow, expires.Sub(now))
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	write(w, http.StatusOK, deviceResponse{
		Handle: handle, UserCode: d.UserCode, URI: d.VerificationURI, Complete: d.Complete,
		Interval: int(d.Interval / time.Second), ExpiresIn: int(expires.Sub(now) / time.Second),
	})
}

// maxDeviceFlow limits how long a user may take, whatever the issuer permits.
const maxDeviceFlow = 30 * time.Minute

type deviceTokenRequest struct {
	Handle string `json:"handle"`
}

// deviceToken asks whether the user has signed in. A handle is taken for the time of one poll,
// so that two polls at once are not two sign-ins.
func (h *Handler) deviceToken(w http.ResponseWriter, r *http.Request) {
	var in deviceTokenRequest
	if !read(w, r, &in) {
		return
	}
	var flow deviceFlow
	err := h.tickets.take(r.Context(), ticketDevice, in.Handle, &flow)
	if deploy.IsKind(err, deploy.NotFound) {
		refuse(w, http.StatusBadRequest, "expired_token", "the sign-in has expired or was completed: begin again")
		return
	}
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	got, err := h.poll(r, &flow)
	switch {
	case err == nil:
		h.answerToken(w, r, who{User: got.User, Refresh: got.Refresh})
		return
	case errors.Is(err, signin.ErrPending), errors.Is(err, signin.ErrSlowDown), deploy.IsKind(err, deploy.Unavailable):
		if err := h.tickets.put(context.WithoutCancel(r.Context()), ticketDevice, in.Handle, flow, flow.Expires); err != nil {
			h.failedJSON(w, r, err)
			return
		}
	}
	switch {
	case errors.Is(err, signin.ErrPending):
		refuse(w, http.StatusBadRequest, "authorization_pending", "the user has not signed in yet")
	case errors.Is(err, signin.ErrSlowDown):
		refuse(w, http.StatusBadRequest, "slow_down", "wait longer between two requests")
	default:
		h.failedJSON(w, r, err)
	}
}

// poll asks the issuer, unless it is too early. It changes the flow's times.
func (h *Handler) poll(r *http.Request, flow *deviceFlow) (signin.Identity, error) {
	now := h.config.Now()
	if now.Before(flow.Next) {
		return signin.Identity{}, signin.ErrSlowDown
	}
	issuer, ok := h.config.Issuers.Find(flow.Issuer)
	if !ok {
		return signin.Identity{}, deploy.Errorf(deploy.Denied, "issuer %s is not configured any more", flow.Issuer)
	}
	got, err := issuer.PollDevice(r.Context(), signin.Device{Code: flow.Code})
	if errors.Is(err, signin.ErrSlowDown) {
		flow.Interval += 5 * time.Second // as defined by RFC 8628
	}
	flow.Next = now.Add(flow.Interval)
	return got, err
}
