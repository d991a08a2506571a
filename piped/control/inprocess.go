package control

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// inProcess is a connection to the services of the same process. It calls the handlers of the
// gRPC service descriptions through the guard's interceptors, so that a call means the same as
// over gRPC: the outgoing metadata of a call contains the credentials. The peer of the context
// is the client for whom the caller acts. It is safe for concurrent use after registration.
type inProcess struct {
	guard   *guard
	open    *openCalls
	unary   map[string]unaryCall
	streams map[string]streamCall
}

type unaryCall struct {
	service any
	handler grpc.MethodHandler
}

type streamCall struct {
	service any
	handler grpc.StreamHandler
}

func newInProcess(g *guard, open *openCalls) *inProcess {
	return &inProcess{guard: g, open: open, unary: map[string]unaryCall{}, streams: map[string]streamCall{}}
}

// Conn returns a connection to the services within the process, for clients that act for a
// user, such as the page. Calls wait until Run serves, and fail once it stops.
func (s *Server) Conn() grpc.ClientConnInterface { return s.conn }

// RegisterService implements grpc.ServiceRegistrar.
func (c *inProcess) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		c.unary["/"+desc.ServiceName+"/"+m.MethodName] = unaryCall{service, m.Handler}
	}
	for _, m := range desc.Streams {
		if !m.ClientStreams {
			c.streams["/"+desc.ServiceName+"/"+m.StreamName] = streamCall{service, m.Handler}
		}
	}
}

// Invoke implements grpc.ClientConnInterface. It ignores the options.
func (c *inProcess) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	call, ok := c.unary[method]
	if !ok {
		return errNoMethod(method)
	}
	ctx, done, ok := c.open.begin(received(ctx))
	if !ok {
		return errStopping
	}
	defer done()
	response, err := call.handler(call.service, ctx, func(request any) error { return copyMessage(request, args) }, c.guard.unary)
	if err != nil {
		return err
	}
	return copyMessage(reply, response)
}

// NewStream implements grpc.ClientConnInterface for streams with one request. It ignores the
// options. The caller must end the context, or receive until an error.
func (c *inProcess) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	call, ok := c.streams[method]
	if !ok {
		return nil, errNoMethod(method)
	}
	ctx, done, ok := c.open.begin(received(ctx))
	if !ok {
		return nil, errStopping
	}
	s := &localStream{ctx: ctx, requests: make(chan any, 1), wanted: make(chan any), delivered: make(chan error), ended: make(chan struct{})}
	info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
	go func() { // openCalls awaits and aborts it
		defer done()
		defer close(s.ended)
		s.err = c.guard.stream(call.service, servedStream{localStream: s}, info, call.handler)
	}()
	return s, nil
}

// received turns the outgoing metadata of a client's context into the incoming one of a server's.
func received(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), nil)
}

// copyMessage copies a message, so that the client and the handler share none.
func copyMessage(to, from any) error {
	dst, ok := to.(proto.Message)
	if !ok {
		return errNoMessage(to)
	}
	src, ok := from.(proto.Message)
	if !ok {
		return errNoMessage(from)
	}
	if dst.ProtoReflect().Descriptor() != src.ProtoReflect().Descriptor() {
		return status.Errorf(codes.Internal, "copy a %T to a %T", from, to)
	}
	proto.Reset(dst)
	proto.Merge(dst, src)
	return nil
}

var errStopping = status.Error(codes.Unavailable, "the agent is shutting down: call again once it is back")

func errNoMethod(method string) error {
	return status.Errorf(codes.Unimplemented, "there is no method %s", method)
}

// localStream is the client's side of a stream.
type localStream struct {
	ctx       context.Context
	requests  chan any      // the request
	wanted    chan any      // messages that the client wants to be filled
	delivered chan error    // answers each of these
	ended     chan struct{} // closed when the handler has returned err
	err       error
}

// SendMsg implements grpc.ClientStream. It must be called once.
func (s *localStream) SendMsg(m any) error {
	select {
	case s.requests <- m:
		return nil
	default:
		return status.Error(codes.Internal, "a stream takes one request")
	}
}

// CloseSend implements grpc.ClientStream.
func (s *localStream) CloseSend() error { return nil }

// RecvMsg implements grpc.ClientStream.
func (s *localStream) RecvMsg(m any) error {
	select {
	case s.wanted <- m:
		return <-s.delivered
	case <-s.ended:
		if s.err == nil {
			return io.EOF
		}
		return s.err
	}
}

// Context implements grpc.ClientStream.
func (s *localStream) Context() context.Context { return s.ctx }

// Header implements grpc.ClientStream. There are no headers.
func (s *localStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer implements grpc.ClientStream. There are no trailers.
func (s *localStream) Trailer() metadata.MD { return nil }

// servedStream is the server's side of a stream.
type servedStream struct{ *localStream }

// RecvMsg implements grpc.ServerStream. It must be called once.
func (s servedStream) RecvMsg(m any) error {
	select {
	case request := <-s.requests:
		return copyMessage(m, request)
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// SendMsg implements grpc.ServerStream. It returns when the client has received the message.
func (s servedStream) SendMsg(m any) error {
	select {
	case into := <-s.wanted:
		s.delivered <- copyMessage(into, m)
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// SetHeader implements grpc.ServerStream. It has no effect.
func (s servedStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream. It has no effect.
func (s servedStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream. It has no effect.
func (s servedStream) SetTrailer(metadata.MD) {}
