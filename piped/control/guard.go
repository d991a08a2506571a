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

// guard stands before every method: it finds out who calls, asks the table
// whether they may and the limits whether now, checks the request, and afterwards
// turns errors and panics into gRPC statuses and records what was changed. Nothing
// reaches a handler around it.
type guard struct {
	keys   *keyring
	audit  *audit
	log    *slog.Logger
	now    func() time.Time
	told   Observer
	access map[string]access

	calls    *limiter // by API key
	attempts *limiter // that are refused because of their credentials, by network
	warnings *limiter // of these, by network
}

// newGuard makes the guard of a server; keys.run is for the server to run.
func newGuard(cfg Config) (*guard, error) {
	log := cfg.Logger.With("component", "control")
	g := &guard{
		keys: newKeyring(cfg.Store, log, cfg.Now), log: log, now: cfg.Now, told: cfg.Observer, access: methodAccess(),
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
	if errors.Is(context.Cause(held), errRefused) { // its key was disabled
		return errRefused
	}
	return err
}

// admittedStream is a stream whose context knows the caller and ends with the
// caller's key. A stream's request is read by its handler, so it is checked when
// it arrives.
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

// call is one call on its way through the guard.
type call struct {
	*guard
	method  string
	start   time.Time
	remote  string // where it comes from
	streams bool
	request any // nil until it is known
	caller  deploy.APIKey
}

func (g *guard) begin(ctx context.Context, method string) *call {
	return &call{guard: g, method: method, start: g.now(), remote: remoteOf(ctx)}
}

// admit authenticates and authorises. The checks, their order and their
// messages are PipeCD's; the limits are our own.
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

// check checks a request.
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

// authenticate returns the record of the caller's key. Who fails too often is
// told to wait, and is not looked up any more, unless with a key that is known.
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
		c.log.WarnContext(ctx, "a call was refused because of its credentials", "method", c.method, "remote", c.remote, "reason", status.Convert(err).Message())
	}
	if wait, ok := c.attempts.take(from); !ok {
		return deploy.APIKey{}, tooManyAttempts(wait)
	}
	return deploy.APIKey{}, err
}

func tooManyAttempts(wait time.Duration) error {
	return exhausted("credentials that are not accepted from this address", wait)
}

// claimedID returns the ID of the key a call carries, whether it is valid or not:
// "" when there is none.
func claimedID(ctx context.Context) string {
	key, err := credentialsOf(ctx)
	if err != nil {
		return ""
	}
	id, _ := keyID(key)
	return id
}

// credentialsOf returns the API key a call carries.
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

// permit denies unless role is known to suffice.
func permit(role, need deploy.Role, known bool) error {
	if role != deploy.ReadOnly && role != deploy.ReadWrite {
		return status.Error(codes.PermissionDenied, "Invalid role")
	}
	if known && (need == role || need == deploy.ReadOnly) {
		return nil
	}
	return status.Error(codes.PermissionDenied, "Permission denied")
}

// end turns a panic or an error into what the caller is told, and logs.
func (c *call) end(ctx context.Context, panicked, resp any, err error) error {
	if panicked != nil {
		c.log.ErrorContext(ctx, "a handler of the control API panicked", "method", c.method, "panic", panicked, "stack", string(debug.Stack()))
		err = status.Errorf(codes.Internal, "%s failed by a defect of the agent; its log holds the details", path.Base(c.method))
	} else if err != nil {
		err = c.answer(ctx, err)
	}
	code, duration := status.Code(err), c.now().Sub(c.start)
	c.log.DebugContext(ctx, "control API call", "method", c.method, "code", code.String(),
		"key", c.caller.ID, "subject", c.caller.Subject, "duration", duration)
	c.told.Called(strings.TrimPrefix(c.method, "/"), code.String(), c.streams, duration)
	if c.access[c.method].writes && c.caller.ID != "" && code != codes.ResourceExhausted {
		c.audit.record(ctx, c.start,
			slog.String("method", strings.TrimPrefix(c.method, "/")), slog.String("code", code.String()),
			slog.String("key", c.caller.ID), slog.String("subject", c.caller.Subject), slog.String("remote", c.remote),
			slog.Duration("duration", duration), slog.Group("target", audited(c.request)...), slog.Group("result", audited(resp)...))
	}
	return err
}

// answer is the one mapping of errors to gRPC statuses. What lies inside the
// agent is logged and not told.
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
	return status.Errorf(codes.Internal, "%s failed inside the agent; its log holds the cause", path.Base(c.method))
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

// callerOf returns the API key record of who calls; the guard put it there.
func callerOf(ctx context.Context) deploy.APIKey {
	key, _ := ctx.Value(callerKey{}).(deploy.APIKey)
	return key
}
