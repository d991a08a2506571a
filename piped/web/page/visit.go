package page

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// visit is one request of a browser, with what it may do.
type visit struct {
	*Handler
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // with the browser's credentials
	now     time.Time
	caller  *controlv1.GetCallerResponse
	allowed map[string]bool // by permission and application: answers of CheckAccess
	age     time.Duration   // how old what takes long to read may be; 0 unless a stream refreshes a view
	oldest  time.Time       // when the oldest of that was read; zero if there is none
	podsOf  []string        // applications whose live states readPods has read
}

// visit begins a visit. It is never nil; the error is that of the credentials.
func (h *Handler) visit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	v := &visit{Handler: h, w: w, r: r, ctx: r.Context(), now: h.config.Now(), allowed: map[string]bool{}}
	token := h.config.Token(r)
	if token == "" {
		return v, status.Error(codes.Unauthenticated, "there is no session")
	}
	v.ctx = metadata.AppendToOutgoingContext(v.ctx, "authorization", "SESSION "+token)
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		v.ctx = peer.NewContext(v.ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(address)})
	}
	var err error
	v.caller, err = h.control.GetCaller(v.ctx, &controlv1.GetCallerRequest{})
	return v, err
}

// extent returns where the caller has a permission.
func (v *visit) extent(permission string) controlv1.PermissionExtent {
	for _, p := range v.caller.GetPermissions() {
		if p.Permission == permission {
			return p.Extent
		}
	}
	return controlv1.PermissionExtent_PERMISSION_EXTENT_NOWHERE
}

// everywhere reports whether the caller has a permission in all applications.
func (v *visit) everywhere(permission string) bool {
	return v.extent(permission) == controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE
}

// somewhere reports whether the caller has a permission in some application.
func (v *visit) somewhere(permission string) bool {
	return v.extent(permission) >= controlv1.PermissionExtent_PERMISSION_EXTENT_SOME
}

// maxChecks limits the applications whose permissions are asked for in a visit. Of further ones
// the buttons are shown to all who have the permission somewhere.
const maxChecks = 50

// can reports whether the caller has a permission in an application. It decides which buttons
// are shown; the API decides what is done.
func (v *visit) can(permission, applicationID string) bool {
	if v.everywhere(permission) || !v.somewhere(permission) {
		return v.everywhere(permission)
	}
	key := permission + " " + applicationID
	allowed, known := v.allowed[key]
	if !known && len(v.allowed) >= maxChecks {
		return true
	}
	if !known {
		resp, err := v.control.CheckAccess(v.ctx, &controlv1.CheckAccessRequest{Permission: permission, ApplicationId: applicationID})
		allowed = err == nil && resp.Allowed
		v.allowed[key] = allowed
	}
	return allowed
}

// fragment reports whether htmx asks for a part of a page.
func (v *visit) fragment() bool { return v.r.Header.Get("HX-Request") == "true" }

// query returns the query of the request without empty values.
func (v *visit) query() url.Values {
	q := v.r.URL.Query()
	for name, values := range q {
		if len(values) == 1 && values[0] == "" {
			q.Del(name)
		}
	}
	return q
}

// here returns the local address that the browser shows.
func (v *visit) here() string {
	target := v.r.URL
	if v.fragment() || v.r.Method != http.MethodGet {
		shown := v.r.Header.Get("HX-Current-URL")
		if shown == "" {
			shown = v.r.Referer()
		}
		u, err := url.Parse(shown)
		if err != nil || u.Host != v.r.Host || !strings.HasPrefix(u.Path, "/") {
			return "/"
		}
		target = u
	}
	return (&url.URL{Path: target.Path, RawQuery: target.RawQuery}).String()
}

// signIn returns the address of the sign-in page that leads back to where the user is.
func (v *visit) signIn() string {
	return "/sign-in?" + url.Values{"next": {v.here()}}.Encode()
}

// saw notes when something was read that takes long to read, in milliseconds; 0 if it was not.
func (v *visit) saw(readAt int64) {
	if at := time.UnixMilli(readAt); readAt > 0 && (v.oldest.IsZero() || at.Before(v.oldest)) {
		v.oldest = at
	}
}

// listed returns the deployments of a request.
func (v *visit) listed(req *apiservice.ListDeploymentsRequest) (*apiservice.ListDeploymentsResponse, error) {
	return v.api.ListDeployments(v.ctx, req)
}

// cutMethod splits a pattern of http.ServeMux.
func cutMethod(pattern string) (method, path string, ok bool) { return strings.Cut(pattern, " ") }
