package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	docs "github.com/c785c783/piped/docs/reference"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// httpAPI serves the methods of gRPC services over HTTP at /<service>/<method>: the Connect
// protocol and gRPC-Web, with JSON or binary messages, and streams also as lines of JSON. It
// calls the handlers of the gRPC service descriptions through the guard's interceptors, so
// that a call means the same as over gRPC, and a new method needs no code here.
type httpAPI struct {
	guard  *guard
	mux    *http.ServeMux
	errors *connect.ErrorWriter
	open   *openCalls
	refuse func(*http.Request) error // why a call is not served, or nil
}

func newHTTPAPI(g *guard, refuse func(*http.Request) error) *httpAPI {
	a := &httpAPI{guard: g, refuse: refuse, mux: http.NewServeMux(), errors: connect.NewErrorWriter(), open: newOpenCalls()}
	a.mux.Handle("GET /openapi.json", newDocument(docs.OpenAPI))
	a.mux.HandleFunc("/", unknownMethod)
	return a
}

// Handler returns the HTTP API. Calls wait until Run serves, and fail once it stops.
func (s *Server) Handler() http.Handler { return s.http }

// registrars registers a service with several servers.
type registrars []grpc.ServiceRegistrar

// RegisterService implements grpc.ServiceRegistrar.
func (r registrars) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, registrar := range r {
		registrar.RegisterService(desc, service)
	}
}

// RegisterService implements grpc.ServiceRegistrar. Methods with a stream of requests are not
// served, because HTTP/1.1 cannot carry them.
func (a *httpAPI) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		a.mux.Handle(name, a.unary(name, service, m.Handler))
	}
	for _, m := range desc.Streams {
		name := "/" + desc.ServiceName + "/" + m.StreamName
		if !m.ClientStreams {
			a.mux.Handle(name, a.stream(name, service, m.Handler))
		}
	}
}

func (a *httpAPI) unary(name string, service any, handler grpc.MethodHandler) http.Handler {
	return connect.NewUnaryHandler(name, func(ctx context.Context, req *connect.Request[frame]) (*connect.Response[frame], error) {
		response, err := handler(service, ctx, req.Msg.decode, a.guard.unary)
		if err != nil {
			return nil, connectError(err)
		}
		return connect.NewResponse(&frame{response: response}), nil
	}, handlerOptions(name)...)
}

func (a *httpAPI) stream(name string, service any, handler grpc.StreamHandler) http.Handler {
	info := &grpc.StreamServerInfo{FullMethod: name, IsServerStream: true}
	call := func(ctx context.Context, request *frame, send func(any) error) error {
		err := a.guard.stream(service, &httpStream{ctx: ctx, request: request, send: send}, info, handler)
		return connectError(err)
	}
	framed := connect.NewServerStreamHandler(name, func(ctx context.Context, req *connect.Request[frame], out *connect.ServerStream[frame]) error {
		return call(ctx, req.Msg, out.Conn().Send)
	}, handlerOptions(name)...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isJSON(r) {
			a.serveLines(w, r, requestLimit(name), call)
			return
		}
		framed.ServeHTTP(w, r)
	})
}

// minCompressed is the size from which responses are compressed if the client accepts that.
const minCompressed = 1 << 10

func handlerOptions(method string) []connect.HandlerOption {
	options := []connect.HandlerOption{connect.WithReadMaxBytes(requestLimit(method)), connect.WithCompressMinBytes(minCompressed)}
	for _, c := range encodings() {
		options = append(options, connect.WithCodec(c))
	}
	return options
}

// requestLimit returns how many bytes the body of a request may have, in JSON and binary.
func requestLimit(method string) int {
	if method == apiservice.APIService_Encrypt_FullMethodName {
		return maxEncryptRequest
	}
	return maxRequest
}

// ServeHTTP implements http.Handler.
func (a *httpAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.refuse(r); err != nil {
		_ = a.errors.Write(w, r, err) // fails if the client is gone
		return
	}
	ctx, done, ok := a.open.begin(r.Context())
	if !ok {
		_ = a.errors.Write(w, r, connect.NewError(connect.CodeUnavailable, errors.New("the agent is shutting down: call again once it is back"))) // fails if the client is gone
		return
	}
	defer done()
	a.mux.ServeHTTP(w, r.WithContext(incoming(ctx, r)))
}

// incoming adds what the guard reads of a gRPC call: the headers as metadata, and the
// client's address.
func incoming(ctx context.Context, r *http.Request) context.Context {
	md := make(metadata.MD, len(r.Header))
	for name, values := range r.Header {
		md[strings.ToLower(name)] = values
	}
	ctx = metadata.NewIncomingContext(ctx, md)
	p := &peer.Peer{Addr: &net.TCPAddr{}}
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		p.Addr = net.TCPAddrFromAddrPort(address)
	}
	return peer.NewContext(ctx, p)
}

// unknownMethod answers in Connect's form of errors; its clients take status 404 for
// Unimplemented.
func unknownMethod(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	writeJSON(w, wireError{Code: connect.CodeUnimplemented.String(), Message: "there is no such method; see openapi.json for those that there are"})
}

// connectError converts the error of a call, with the same code, message and details.
func connectError(err error) error {
	var converted *connect.Error
	if err == nil || errors.As(err, &converted) {
		return err
	}
	s := status.Convert(err)
	converted = connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	for _, any := range s.Proto().GetDetails() {
		if detail, err := connect.NewErrorDetail(any); err == nil {
			converted.AddDetail(detail)
		}
	}
	return converted
}

// httpStream is the server's side of a stream with one request.
type httpStream struct {
	ctx     context.Context
	request *frame
	send    func(any) error
}

// Context implements grpc.ServerStream.
func (s *httpStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream. It must be called once.
func (s *httpStream) RecvMsg(m any) error { return s.request.decode(m) }

// SendMsg implements grpc.ServerStream.
func (s *httpStream) SendMsg(m any) error {
	switch err := s.send(m); {
	case err == nil:
		return nil
	case s.ctx.Err() != nil:
		return status.FromContextError(s.ctx.Err()).Err()
	default:
		return status.Errorf(codes.Canceled, "send to the client: %v", err)
	}
}

var errNoHeaders = errors.New("HTTP calls have no metadata in responses")

// SetHeader implements grpc.ServerStream.
func (s *httpStream) SetHeader(metadata.MD) error { return errNoHeaders }

// SendHeader implements grpc.ServerStream.
func (s *httpStream) SendHeader(metadata.MD) error { return errNoHeaders }

// SetTrailer implements grpc.ServerStream. It has no effect.
func (s *httpStream) SetTrailer(metadata.MD) {}
