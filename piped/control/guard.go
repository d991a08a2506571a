package control

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
)

// guard stands before every method: it finds out who calls, asks the table
// whether they may, checks the request, and afterwards turns errors and panics
// into gRPC statuses. Nothing reaches a handler around it.
type guard struct {
	keys   keyStore
	log    *slog.Logger
	now    func() time.Time
	access map[string]deploy.Role
}

func (g guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	call := g.begin(info.FullMethod)
	defer func() { err = call.end(ctx, recover(), err) }()
	admitted, err := call.admit(ctx)
	if err != nil {
		return nil, err
	}
	if err := validate(req); err != nil {
		return nil, err
	}
	return handler(admitted, req)
}

func (g guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	call := g.begin(info.FullMethod)
	defer func() { err = call.end(ctx, recover(), err) }()
	admitted, err := call.admit(ctx)
	if err != nil {
		return err
	}
	return handler(srv, admittedStream{ServerStream: stream, ctx: admitted})
}

// admittedStream is a stream whose context knows the caller. A stream's request
// is read by its handler, so it is checked when it arrives.
type admittedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s admittedStream) Context() context.Context { return s.ctx }

func (s admittedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return validate(m)
}

// call is one call on its way through the guard.
type call struct {
	guard
	method string
	start  time.Time
	caller deploy.APIKey
}

func (g guard) begin(method string) *call {
	return &call{guard: g, method: method, start: g.now()}
}

// admit authenticates and authorises. The checks, their order and their
// messages are PipeCD's.
func (c *call) admit(ctx context.Context) (context.Context, error) {
	need, known := c.access[c.method]
	if known && need == anyone {
		return ctx, nil
	}
	caller, err := c.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	c.caller = caller
	if err := permit(caller.Role, need, known); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, callerKey{}, caller), nil
}

func (c *call) authenticate(ctx context.Context) (deploy.APIKey, error) {
	key, err := credentialsOf(ctx)
	if err != nil {
		return deploy.APIKey{}, err
	}
	refused := status.Error(codes.Unauthenticated, "Unauthenticated")
	id, ok := keyID(key)
	if !ok {
		return deploy.APIKey{}, refused
	}
	record, err := c.keys.APIKey(ctx, id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		return deploy.APIKey{}, refused
	case err != nil:
		return deploy.APIKey{}, err
	case !matches(record, key) || record.Disabled:
		return deploy.APIKey{}, refused
	}
	return record, nil
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
func (c *call) end(ctx context.Context, panicked any, err error) error {
	if panicked != nil {
		c.log.ErrorContext(ctx, "a handler of the control API panicked", "method", c.method, "panic", panicked, "stack", string(debug.Stack()))
		err = status.Errorf(codes.Internal, "%s failed by a defect of the agent; its log holds the details", path.Base(c.method))
	} else if err != nil {
		err = c.answer(ctx, err)
	}
	c.log.DebugContext(ctx, "control API call", "method", c.method, "code", status.Code(err).String(),
		"key", c.caller.ID, "subject", c.caller.Subject, "duration", c.now().Sub(c.start))
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
