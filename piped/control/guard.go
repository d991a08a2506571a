package control

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ratelimit"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// guard intercepts every call: it authenticates the caller, checks the permission and the rate
// limits, validates the request, and afterwards converts errors and panics into gRPC
// statuses and audits changes.
type guard struct {
	auth    *access.Authenticator
	roles   roles
	store   Store
	audit   *audit
	trail   *trail
	log     *slog.Logger
	now     func() time.Time
	metrics Metrics
	methods map[string]methodAccess

	calls    *ratelimit.Limiter // by user or API key
	attempts *ratelimit.Limiter // with rejected credentials, by network
	warnings *ratelimit.Limiter // logged warnings about these, by network
}

// newGuard returns the guard of a server. The server must run its authenticator.
func newGuard(cfg Config) (*guard, error) {
	log := cfg.Logger.With("component", "control")
	g := &guard{
		auth: access.NewAuthenticator(cfg.Store, cfg.SessionIdle, log, cfg.Now), store: cfg.Store, log: log, now: cfg.Now, metrics: cfg.Metrics, methods: accessOfMethods(),
		calls:    ratelimit.New(cfg.RateLimit.rate(), cfg.RateLimit.Burst, cfg.Now),
		attempts: ratelimit.New(attemptsPerSecond, attemptsAtOnce, cfg.Now),
		warnings: ratelimit.New(rate.Every(warningsEvery), warningsAtOnce, cfg.Now),
	}
	g.roles.set(cfg.Policy)
	g.trail = newTrail(cfg.Store, log)
	var err error
	g.audit, err = newAudit(cfg.AuditFile, cfg.Logger)
	return g, err
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	call := g.begin(ctx, info.FullMethod)
	call.request = req
	defer func() { err = call.end(ctx, recover(), resp, err) }()
	admitted, err := call.admit(ctx)
	if err != nil {
		return nil, err
	}
	if err := call.check(admitted, req); err != nil {
		return nil, err
	}
	return handler(admitted, req)
}

func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	call := g.begin(ctx, info.FullMethod)
	call.streams = true
	defer func() { err = call.end(ctx, recover(), nil, err) }()
	scheme, token, _ := credentialsOf(ctx) // admit reports the error
	held, release := g.auth.Hold(ctx, scheme, token)
	defer release()
	held, unhold := g.roles.hold(held)
	defer unhold()
	call.policy = g.roles.policy() // read after hold, so that no replacement is missed
	admitted, err := call.admit(held)
	if err != nil {
		return err
	}
	err = handler(srv, &admittedStream{ServerStream: stream, ctx: admitted, call: call})
	if cause := context.Cause(held); errors.Is(cause, access.ErrRefused) || errors.Is(cause, errRolesChanged) {
		return cause
	}
	return err
}

// admittedStream is a stream whose context contains the caller and ends with the caller's
// credential and when the roles change. It validates the request when the handler receives it.
type admittedStream struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
}

func (s *admittedStream) Context() context.Context { return s.ctx }

func (s *admittedStream) SendMsg(m any) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return s.ServerStream.SendMsg(m)
}

func (s *admittedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.call.request = m
	return s.call.check(s.ctx, m)
}

// call is one call that passes the guard.
type call struct {
	*guard
	method  string
	start   time.Time
	began   time.Time // start, by the clock of the machine
	remote  string    // client address
	streams bool
	request any // nil until received
	caller  access.Caller
	policy  *access.Policy
}

func (g *guard) begin(ctx context.Context, method string) *call {
	return &call{guard: g, method: method, start: g.now(), began: time.Now(), remote: remoteOf(ctx), policy: g.roles.policy()}
}

// admit authenticates and authorizes. The checks and their order are PipeCD's; the rate
// limits are our own.
func (c *call) admit(ctx context.Context) (context.Context, error) {
	need, known := c.methods[c.method]
	if known && need.open() {
		return ctx, nil
	}
	caller, err := c.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	c.caller = caller
	if wait, ok := c.calls.Take(caller.Account()); !ok {
		return nil, exhausted("these credentials (api.rateLimit)", wait)
	}
	if err := c.permit(need, known); err != nil {
		return nil, err
	}
	return withCaller(ctx, caller, c.policy), nil
}

// check validates a request, and whether the caller has the permission in its application.
func (c *call) check(ctx context.Context, req any) error {
	limit := maxRequest
	if c.method == apiservice.APIService_Encrypt_FullMethodName {
		limit = maxEncryptRequest
	}
	if m, ok := req.(proto.Message); ok {
		if size := proto.Size(m); size > limit {
			return status.Errorf(codes.ResourceExhausted, "the request has %d bytes, and %s takes up to %d: send less", size, path.Base(c.method), limit)
		}
	}
	if err := validate(req); err != nil {
		return err
	}
	return c.permitIn(ctx, req)
}

// authenticate returns the caller. One with too many failures is rejected without reading the
// store, unless its credential is cached as valid.
func (c *call) authenticate(ctx context.Context) (access.Caller, error) {
	from := ratelimit.Network(c.remote)
	scheme, token, err := credentialsOf(ctx)
	if err == nil {
		var caller access.Caller
		caller, err = c.auth.Find(ctx, scheme, token, func() error {
			if wait, spent := c.attempts.Spent(from); spent {
				return tooManyAttempts(wait)
			}
			return nil
		})
		if err == nil {
			return caller, nil
		}
	}
	if errors.Is(err, access.ErrRefused) {
		err = errRefused
	}
	if status.Code(err) != codes.Unauthenticated {
		return access.Caller{}, err
	}
	if _, ok := c.warnings.Take(from); ok {
		c.log.WarnContext(ctx, "call rejected: invalid credentials", "method", c.method, "remote", c.remote, "reason", status.Convert(err).Message())
	}
	if wait, ok := c.attempts.Take(from); !ok {
		return access.Caller{}, tooManyAttempts(wait)
	}
	return access.Caller{}, err
}

// errRefused is returned for any invalid or disabled key and any session that has ended.
var errRefused = status.Error(codes.Unauthenticated, "Unauthenticated")

func tooManyAttempts(wait time.Duration) error {
	return exhausted("invalid credentials from this address", wait)
}

// credentialsOf returns the API key or session token of a call.
func credentialsOf(ctx context.Context) (scheme access.Scheme, token string, err error) {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return "", "", status.Error(codes.Unauthenticated, "missing credentials")
	}
	values := md.Get("authorization")
	if len(values) == 0 {
		return "", "", status.Error(codes.Unauthenticated, "missing credentials in authorization")
	}
	parts := strings.Split(values[0], " ")
	if len(parts) != 2 || parts[1] == "" {
		return "", "", status.Error(codes.Unauthenticated, "credentials is malformed")
	}
	switch parts[0] {
	case string(access.SchemeKey), string(access.SchemeSession):
		return access.Scheme(parts[0]), parts[1], nil
	case "ID-TOKEN", "PIPED-TOKEN":
		return "", "", status.Error(codes.Unauthenticated, "Unauthenticated")
	default:
		return "", "", status.Error(codes.Unauthenticated, "unsupported credentials type")
	}
}

// end converts a panic or an error into a status, logs it, and records the call in metrics and
// audit.
func (c *call) end(ctx context.Context, panicked, resp any, err error) error {
	if panicked != nil {
		c.log.ErrorContext(ctx, "a handler of the control API panicked", "method", c.method, "panic", panicked, "stack", string(debug.Stack()))
		err = status.Errorf(codes.Internal, "%s failed because of a bug in the agent; see the agent's log", path.Base(c.method))
	} else if err != nil {
		err = c.answer(ctx, err)
	}
	code, duration := status.Code(err), c.now().Sub(c.start)
	if code == codes.NotFound && !c.streams {
		c.level(ctx)
	}
	c.log.DebugContext(ctx, "control API call", "method", c.method, "code", code.String(),
		"key", c.caller.ID, "subject", c.caller.Subject, "duration", duration)
	c.metrics.Called(strings.TrimPrefix(c.method, "/"), code.String(), c.streams, duration)
	if c.audited(code) {
		c.audit.record(ctx, c.start,
			slog.String("method", strings.TrimPrefix(c.method, "/")), slog.String("code", code.String()),
			slog.String("key", c.caller.ID), slog.String("subject", c.caller.Subject), slog.String("remote", c.remote),
			slog.Duration("duration", duration), slog.Group("target", audited(c.request)...), slog.Group("result", audited(resp)...))
		c.trail.add(c.record(ctx, resp, err))
	}
	return err
}

// audited reports whether the call is recorded: those of known callers that change something
// or are denied.
func (c *call) audited(code codes.Code) bool {
	return c.caller.ID != "" && code != codes.ResourceExhausted && (c.methods[c.method].writes || code == codes.PermissionDenied)
}

// answer maps errors to gRPC statuses. Internal causes are logged but not returned.
func (c *call) answer(ctx context.Context, err error) error {
	if errors.Is(err, access.ErrRefused) {
		return errRefused
	}
	var e *deploy.Error
	if s, ok := status.FromError(err); ok && !errors.As(err, &e) {
		if s.Code() == codes.Unimplemented {
			return status.Errorf(codes.Unimplemented, "%s is not served by this version of the agent", path.Base(c.method))
		}
		return err
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if code := codeOf(deploy.KindOf(err)); code != codes.Internal {
		return status.Error(code, text(err.Error()))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return status.Errorf(codes.Unavailable, "%s did not end within its time limit; the agent or a cluster is busy, so try again", path.Base(c.method))
	}
	c.log.ErrorContext(ctx, "control API call failed", "method", c.method, "error", err)
	return status.Errorf(codes.Internal, "%s failed with an internal error; see the agent's log", path.Base(c.method))
}

func codeOf(kind deploy.Kind) codes.Code {
	switch kind {
	case deploy.Invalid:
		return codes.InvalidArgument
	case deploy.NotFound:
		return codes.NotFound
	case deploy.Exists:
		return codes.AlreadyExists
	case deploy.Conflict:
		return codes.Aborted
	case deploy.Illegal:
		return codes.FailedPrecondition
	case deploy.Unavailable, deploy.Stopping, deploy.Fenced:
		return codes.Unavailable
	case deploy.Denied:
		return codes.PermissionDenied
	default:
		return codes.Internal
	}
}
