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

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// guard intercepts every call: it authenticates the caller, checks the role and the rate
// limits, validates the request, and afterwards converts errors and panics into gRPC
// statuses and audits changes.
type guard struct {
	keys    *keyring
	audit   *audit
	log     *slog.Logger
	now     func() time.Time
	metrics Metrics
	access  map[string]access

	calls    *limiter // by API key
	attempts *limiter // with rejected credentials, by network
	warnings *limiter // logged warnings about these, by network
}

// newGuard returns the guard of a server. The server must run keys.run.
func newGuard(cfg Config) (*guard, error) {
	log := cfg.Logger.With("component", "control")
	g := &guard{
		keys: newKeyring(cfg.Store, log, cfg.Now), log: log, now: cfg.Now, metrics: cfg.Metrics, access: methodAccess(),
		calls:    newLimiter(rate.Inf, 0, cfg.Now),
		attempts: newLimiter(attemptsPerSecond, attemptsAtOnce, cfg.Now),
		warnings: newLimiter(rate.Every(warningsEvery), warningsAtOnce, cfg.Now),
	}
	g.calls.set(cfg.RateLimit)
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
	if err := call.check(req); err != nil {
		return nil, err
	}
	return handler(admitted, req)
}

func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	call := g.begin(ctx, info.FullMethod)
	call.streams = true
	defer func() { err = call.end(ctx, recover(), nil, err) }()
	held, release := g.keys.hold(ctx, claimedID(ctx))
	defer release()
	admitted, err := call.admit(held)
	if err != nil {
		return err
	}
	err = handler(srv, &admittedStream{ServerStream: stream, ctx: admitted, call: call})
	if errors.Is(context.Cause(held), errRefused) { // the key was disabled
		return errRefused
	}
	return err
}

// admittedStream is a stream whose context contains the caller's key and ends when the key is
// disabled. It validates the request when the handler receives it.
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
	return s.call.check(m)
}

// call is one call that passes the guard.
type call struct {
	*guard
	method  string
	start   time.Time
	remote  string // client address
	streams bool
	request any // nil until received
	caller  deploy.APIKey
}

func (g *guard) begin(ctx context.Context, method string) *call {
	return &call{guard: g, method: method, start: g.now(), remote: remoteOf(ctx)}
}

// admit authenticates and authorizes. The checks, their order and their messages are
// PipeCD's; the rate limits are our own.
func (c *call) admit(ctx context.Context) (context.Context, error) {
	need, known := c.access[c.method]
	if known && need.role == anyone {
		return ctx, nil
	}
	caller, err := c.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	c.caller = caller
	if wait, ok := c.calls.take(caller.ID); !ok {
		return nil, exhausted("this API key (api.rateLimit)", wait)
	}
	if err := permit(caller.Role, need.role, known); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

// check validates a request.
func (c *call) check(req any) error {
	limit := maxRequest
	if c.method == apiservice.APIService_Encrypt_FullMethodName {
		limit = maxEncryptRequest
	}
	if m, ok := req.(proto.Message); ok {
		if size := proto.Size(m); size > limit {
			return status.Errorf(codes.ResourceExhausted, "the request has %d bytes, and %s takes up to %d: send less", size, path.Base(c.method), limit)
		}
	}
	return validate(req)
}

// authenticate returns the record of the caller's key. A caller with too many failures is
// rejected without reading the store, unless its key is cached as valid.
func (c *call) authenticate(ctx context.Context) (deploy.APIKey, error) {
	from := network(c.remote)
	key, err := credentialsOf(ctx)
	if err == nil {
		var record deploy.APIKey
		record, err = c.keys.find(ctx, key, func() error {
			if wait, spent := c.attempts.spent(from); spent {
				return tooManyAttempts(wait)
			}
			return nil
		})
		if err == nil {
			return record, nil
		}
	}
	if status.Code(err) != codes.Unauthenticated {
		return deploy.APIKey{}, err
	}
	if _, ok := c.warnings.take(from); ok {
		c.log.WarnContext(ctx, "call rejected: invalid credentials", "method", c.method, "remote", c.remote, "reason", status.Convert(err).Message())
	}
	if wait, ok := c.attempts.take(from); !ok {
		return deploy.APIKey{}, tooManyAttempts(wait)
	}
	return deploy.APIKey{}, err
}

func tooManyAttempts(wait time.Duration) error {
	return exhausted("invalid credentials from this address", wait)
}

// claimedID returns the ID of the call's key, valid or not, or "".
func claimedID(ctx context.Context) string {
	key, err := credentialsOf(ctx)
	if err != nil {
		return ""
	}
	id, _ := keyID(key)
	return id
}

// credentialsOf returns the API key of a call.
func credentialsOf(ctx context.Context) (string, error) {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "missing credentials")
	}
	values := md.Get("authorization")
	if len(values) == 0 {
		return "", status.Error(codes.Unauthenticated, "missing credentials in authorization")
	}
	parts := strings.Split(values[0], " ")
	if len(parts) != 2 || parts[1] == "" {
		return "", status.Error(codes.Unauthenticated, "credentials is malformed")
	}
	switch parts[0] {
	case "API-KEY":
		return parts[1], nil
	case "ID-TOKEN", "PIPED-TOKEN":
		return "", status.Error(codes.Unauthenticated, "Unauthenticated")
	default:
		return "", status.Error(codes.Unauthenticated, "unsupported credentials type")
	}
}

// permit returns an error unless role is sufficient for need. A method that is not known is
// denied.
func permit(role, need deploy.Role, known bool) error {
	if role != deploy.ReadOnly && role != deploy.ReadWrite {
		return status.Error(codes.PermissionDenied, "Invalid role")
	}
	if known && (need == role || need == deploy.ReadOnly) {
		return nil
	}
	return status.Error(codes.PermissionDenied, "Permission denied")
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
	c.log.DebugContext(ctx, "control API call", "method", c.method, "code", code.String(),
		"key", c.caller.ID, "subject", c.caller.Subject, "duration", duration)
	c.metrics.Called(strings.TrimPrefix(c.method, "/"), code.String(), c.streams, duration)
	if c.access[c.method].writes && c.caller.ID != "" && code != codes.ResourceExhausted {
		c.audit.record(ctx, c.start,
			slog.String("method", strings.TrimPrefix(c.method, "/")), slog.String("code", code.String()),
			slog.String("key", c.caller.ID), slog.String("subject", c.caller.Subject), slog.String("remote", c.remote),
			slog.Duration("duration", duration), slog.Group("target", audited(c.request)...), slog.Group("result", audited(resp)...))
	}
	return err
}

// answer maps errors to gRPC statuses. Internal causes are logged but not returned.
func (c *call) answer(ctx context.Context, err error) error {
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
	case deploy.Unavailable, deploy.Stopping:
		return codes.Unavailable
	case deploy.Denied:
		return codes.PermissionDenied
	default:
		return codes.Internal
	}
}

// callerKey is the context key of the caller's API key record.
type callerKey struct{}

// callerOf returns the caller's API key record, which the guard put into ctx.
func callerOf(ctx context.Context) deploy.APIKey {
	key, _ := ctx.Value(callerKey{}).(deploy.APIKey)
	return key
}
