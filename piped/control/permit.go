package control

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
)

// permit returns an error unless the caller has the permission of a method in some
// application, or everywhere if the method demands that. A method that is not known is denied.
func (c *call) permit(need methodAccess, known bool) error {
	switch {
	case known && need.anyCaller:
		return nil
	case !c.caller.User && !c.policy.Known(c.caller.Role):
		return status.Error(codes.PermissionDenied, "Invalid role")
	case !known:
		return status.Error(codes.PermissionDenied, "Permission denied")
	case !need.permission.OfApplications():
		if c.policy.Allows(c.caller, need.permission) {
			return nil
		}
	case need.everywhere:
		if c.policy.Scope(c.caller, need.permission).All {
			return nil
		}
		return status.Errorf(codes.PermissionDenied, "Permission denied: this needs the permission %q in all applications", need.permission)
	case !c.policy.Scope(c.caller, need.permission).None():
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "Permission denied: this needs the permission %q, which no role of %s grants", need.permission, c.caller.Subject)
}

// Requests about applications and deployments.
type (
	aboutApplication  interface{ GetApplicationId() string }
	aboutApplications interface{ GetApplicationIds() []string }
	aboutDeployment   interface{ GetDeploymentId() string }
)

// permitIn returns an error unless the caller has the method's permission in the applications
// that a request is about. It is silent about those that the caller may not view: to them the
// handler answers as to unknown ones.
func (c *call) permitIn(ctx context.Context, req any) error {
	need := c.methods[c.method].permission
	scope := c.policy.Scope(c.caller, need)
	if need == "" || need == deploy.PermView || !need.OfApplications() || scope.All {
		return nil
	}
	apps, err := subjects(ctx, visible{c.store}, req)
	if err != nil {
		return err
	}
	for _, app := range apps {
		if !scope.Contains(app) {
			return status.Errorf(codes.PermissionDenied, "Permission denied in application %s: %s", app.Name, c.policy.Explain(c.caller, need, app).Reason)
		}
	}
	return nil
}

// subjects returns the visible applications that a request names, or whose deployment it
// names.
func subjects(ctx context.Context, s Store, req any) ([]deploy.Application, error) {
	var ids []string
	if r, ok := req.(aboutApplication); ok {
		ids = append(ids, r.GetApplicationId())
	}
	if r, ok := req.(aboutApplications); ok {
		ids = append(ids, r.GetApplicationIds()...)
	}
	if r, ok := req.(aboutDeployment); ok && r.GetDeploymentId() != "" {
		d, err := s.Deployment(ctx, r.GetDeploymentId())
		if err != nil && !deploy.IsKind(err, deploy.NotFound) {
			return nil, err
		}
		ids = append(ids, d.ApplicationID)
	}
	return s.ApplicationsByID(ctx, nonEmpty(ids))
}

// levelStep is the grid on which callers who may not view all get the answer NOT_FOUND.
const levelStep = 10 * time.Millisecond

// level waits until a multiple of levelStep has passed since the call began, unless the caller
// may view all applications: how long the answer takes must not tell a hidden application from
// an unknown one.
func (c *call) level(ctx context.Context) {
	if c.policy.Scope(c.caller, deploy.PermView).All {
		return
	}
	wait := time.NewTimer(levelStep - time.Since(c.began)%levelStep)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// callerKey is the context key of the caller.
type callerKey struct{}

// admittedCaller is a caller with the applications that it may view.
type admittedCaller struct {
	access.Caller
	view        deploy.Scope
	administers bool
	policy      *access.Policy // that admitted the caller
}

func withCaller(ctx context.Context, c access.Caller, p *access.Policy) context.Context {
	return context.WithValue(ctx, callerKey{}, admittedCaller{c, p.Scope(c, deploy.PermView), p.Allows(c, deploy.PermAdminister), p})
}

// permitted reports whether the caller has a further permission in a visible application.
func permitted(ctx context.Context, s Store, permission deploy.Permission, applicationID string) (bool, error) {
	c, _ := ctx.Value(callerKey{}).(admittedCaller)
	if c.policy == nil {
		return false, nil
	}
	scope := c.policy.Scope(c.Caller, permission)
	if scope.All {
		return true, nil
	}
	app, err := s.Application(ctx, applicationID)
	return err == nil && scope.Contains(app), err
}

// callerOf returns the caller, which the guard put into ctx.
func callerOf(ctx context.Context) access.Caller {
	c, _ := ctx.Value(callerKey{}).(admittedCaller)
	return c.Caller
}

// viewOf returns the applications that the caller may view: none without a caller.
func viewOf(ctx context.Context) deploy.Scope {
	c, _ := ctx.Value(callerKey{}).(admittedCaller)
	return c.view
}

// scopeOf returns the applications in which the caller has a permission: none without a caller.
func scopeOf(ctx context.Context, permission deploy.Permission) deploy.Scope {
	c, _ := ctx.Value(callerKey{}).(admittedCaller)
	if c.policy == nil {
		return deploy.Scope{}
	}
	return c.policy.Scope(c.Caller, permission)
}

// administers reports whether the caller may administer the agent.
func administers(ctx context.Context) bool {
	c, _ := ctx.Value(callerKey{}).(admittedCaller)
	return c.administers
}

// scopeKey returns a text that is equal for callers who may view the same applications.
func scopeKey(ctx context.Context) string {
	scope := viewOf(ctx)
	if scope.All {
		return ""
	}
	text, err := json.Marshal(scope)
	if err != nil { // no value of a scope can cause this
		panic(fmt.Sprintf("marshal a scope: %v", err))
	}
	return string(text) + "\n"
}

// errRolesChanged ends the streams that began under other roles.
var errRolesChanged = deploy.Errorf(deploy.Unavailable, "the roles have changed: call again")

// roles is the policy in force. Replacing it ends the streams that it admitted.
type roles struct {
	mu      sync.Mutex
	current *access.Policy
	streams context.Context // ends when the policy is replaced
	replace context.CancelCauseFunc
}

// set puts a policy into force; nil is the one without configured roles.
func (r *roles) set(p *access.Policy) {
	if p == nil {
		p = access.NewPolicy(nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.replace != nil {
		r.replace(errRolesChanged)
	}
	r.current = p
	r.streams, r.replace = context.WithCancelCause(context.Background())
}

func (r *roles) policy() *access.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// hold returns a context that is cancelled with cause errRolesChanged when the policy is
// replaced. Release it afterwards.
func (r *roles) hold(ctx context.Context) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	streams := r.streams
	r.mu.Unlock()
	stop := context.AfterFunc(streams, func() { end(context.Cause(streams)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// Authenticator returns what recognises callers, also those of other servers.
func (s *Server) Authenticator() *access.Authenticator { return s.guard.auth }

// SetPolicy replaces the roles. Streams that were admitted under other roles end with
// UNAVAILABLE, so that clients call again.
func (s *Server) SetPolicy(p *access.Policy) { s.guard.roles.set(p) }
