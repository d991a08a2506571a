package trace

import (
	"context"
	"crypto/tls"
	"slices"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
)

// sendTimeout limits one request to the collector.
const sendTimeout = 10 * time.Second

// exporter sends spans to a collector.
type exporter struct {
	endpoint string
	conn     *grpc.ClientConn
	client   collector.TraceServiceClient
	headers  metadata.MD
	resource *resource.Resource
}

func newExporter(c Config) (*exporter, error) {
	creds := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	if c.Insecure {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(c.Endpoint, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "create the client for traces to %q (telemetry.otlpEndpoint): %w", c.Endpoint, err)
	}
	return &exporter{
		endpoint: c.Endpoint, conn: conn, client: collector.NewTraceServiceClient(conn), headers: metadata.New(c.Headers),
		resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "piped"), text("service.version", c.Version), text("service.instance.id", c.PipedID),
		}},
	}, nil
}

func (e *exporter) close() error { return e.conn.Close() }

// send sends spans in one request and returns how many the collector rejected. An error
// of kind Invalid is permanent, one of kind Unavailable is worth a retry.
func (e *exporter) send(ctx context.Context, spans []*otlp.Span) (rejected int64, err error) {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, e.headers), sendTimeout)
	defer cancel()
	resp, err := e.client.Export(ctx, &collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{{
		Resource:   e.resource,
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "github.com/c785c783/piped"}, Spans: spans}},
	}}})
	if err == nil {
		return resp.GetPartialSuccess().GetRejectedSpans(), nil
	}
	kind := deploy.Invalid
	if retryable(status.Convert(err)) {
		kind = deploy.Unavailable
	}
	return 0, deploy.Errorf(kind, "send traces to %s: %w: check telemetry.otlpEndpoint, .insecure and .headers, and that the collector accepts OTLP over gRPC", e.endpoint, err)
}

// retryable reports whether a failed request is worth a retry: the codes that the OTLP
// specification (OTLP/gRPC, Failures) calls retryable, RESOURCE_EXHAUSTED only with a
// RetryInfo. Unlike the specification it also retries errors caused by configuration
// rather than by the spans, since they end when a user corrects it.
func retryable(s *status.Status) bool {
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		return slices.ContainsFunc(s.Details(), func(detail any) bool {
			_, ok := detail.(*errdetails.RetryInfo)
			return ok
		})
	}
	return false
}

// maxRequest limits the spans of a request, in bytes. gRPC servers accept 4 MiB by
// default.
const maxRequest = 1 << 20

// requests splits spans into requests, in order.
func requests(spans []*otlp.Span) [][]*otlp.Span {
	var out [][]*otlp.Span
	begin, size := 0, 0
	for i, s := range spans {
		n := proto.Size(s)
		if i > begin && size+n > maxRequest {
			out = append(out, spans[begin:i])
			begin, size = i, 0
		}
		size += n
	}
	if begin < len(spans) {
		out = append(out, spans[begin:])
	}
	return out
}
