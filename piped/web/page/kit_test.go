package page

import (
	stdcmp "cmp"
	"context"
	"flag"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "renew the golden files")

// ActionNames returns the names of all actions, for the tests from outside.
func ActionNames() []string { return slices.Sorted(maps.Keys(actions())) }

// noon is the time of the tests.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// minutesAgo returns a time before noon as the API does.
func minutesAgo(n int) int64 { return noon.Add(-time.Duration(n) * time.Minute).UnixMilli() }

// fakeAPI is a connection to an API that answers from a table. A call that is not in it fails.
type fakeAPI struct {
	t       *testing.T
	answers map[string]func(proto.Message) (proto.Message, error)   // by method
	streams map[string]func(proto.Message) ([]proto.Message, error) // by method: what comes, and how it ends; nil is EOF
	calls   []string
}

// newFake returns an API with a caller who has some permissions everywhere.
func newFake(t *testing.T, permissions ...string) *fakeAPI {
	f := &fakeAPI{t: t, answers: map[string]func(proto.Message) (proto.Message, error){}, streams: map[string]func(proto.Message) ([]proto.Message, error){}}
	caller := &controlv1.GetCallerResponse{Subject: "ana@example.com", Issuer: "corp"}
	for _, p := range permissions {
		caller.Permissions = append(caller.Permissions, &controlv1.CallerPermission{Permission: p, Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE})
	}
	f.on("GetCaller", caller)
	return f
}

// on makes a method return a message.
func (f *fakeAPI) on(method string, m proto.Message) *fakeAPI {
	f.answers[method] = func(proto.Message) (proto.Message, error) { return m, nil }
	return f
}

// fails makes a method return an error.
func (f *fakeAPI) fails(method string, code codes.Code, text string) *fakeAPI {
	f.answers[method] = func(proto.Message) (proto.Message, error) { return nil, status.Error(code, text) }
	return f
}

// Invoke implements grpc.ClientConnInterface.
func (f *fakeAPI) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	name := filepath.Base(method)
	f.calls = append(f.calls, name)
	if md, _ := metadata.FromOutgoingContext(ctx); len(md["authorization"]) != 1 || md["authorization"][0] != "SESSION token" {
		f.t.Errorf("%s was called with the credentials %q", name, md["authorization"])
	}
	answer, ok := f.answers[name]
	if !ok {
		return status.Errorf(codes.Unimplemented, "the test has no answer of %s", name)
	}
	m, err := answer(args.(proto.Message))
	if err == nil {
		proto.Merge(reply.(proto.Message), m)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (f *fakeAPI) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	open, ok := f.streams[filepath.Base(method)]
	if !ok {
		return nil, status.Error(codes.Unavailable, "the test has no such stream")
	}
	return &fakeStream{open: open}, nil
}

// fakeStream is a stream of prepared messages.
type fakeStream struct {
	grpc.ClientStream
	open func(proto.Message) ([]proto.Message, error)
	rest []proto.Message
	end  error
}

// SendMsg implements grpc.ClientStream.
func (s *fakeStream) SendMsg(m any) error {
	s.rest, s.end = s.open(m.(proto.Message))
	return nil
}

// CloseSend implements grpc.ClientStream.
func (s *fakeStream) CloseSend() error { return nil }

// RecvMsg implements grpc.ClientStream.
func (s *fakeStream) RecvMsg(m any) error {
	if len(s.rest) == 0 {
		return stdcmp.Or(s.end, io.EOF)
	}
	proto.Merge(m.(proto.Message), s.rest[0])
	s.rest = s.rest[1:]
	return nil
}

// page returns the handler in front of the API.
func (f *fakeAPI) page() *Handler {
	return New(Config{Conn: f, Token: func(r *http.Request) string {
		if r.Header.Get("Cookie") == "" {
			return ""
		}
		return "token"
	}, Now: func() time.Time { return noon }, LiveWait: time.Hour})
}

// request returns a request of a browser that is signed in.
func request(method, target, body string) *http.Request {
	r := httptest.NewRequest(method, "http://piped.example.com"+target, strings.NewReader(body))
	r.Header.Set("Cookie", "piped-session=token")
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// get returns the answer to a request for a path.
func (f *fakeAPI) get(target string) *http.Response {
	return answerOf(f.page(), request(http.MethodGet, target, ""))
}

func answerOf(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// golden compares a page with a golden file. Names of assets have no fingerprint in it.
func golden(t *testing.T, name string, resp *http.Response) string {
	t.Helper()
	body := bodyOf(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	text := readable(body)
	file := filepath.Join("testdata", name+".html")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs (-golden +got); if that is intended, run with -update:\n%s", file, diff)
	}
	return body
}

// readable writes an element per line and removes fingerprints, so that differences are short.
func readable(body string) string {
	body = fingerprints.ReplaceAllString(body, "$1.")
	body = froms.ReplaceAllString(body, "from=KEY")
	body = drawings.ReplaceAllString(body, "<svg/>")
	return strings.ReplaceAll(body, "><", ">\n<") + "\n"
}

// signedIn returns a context with the session that fakeAPI expects.
func signedIn(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "SESSION token")
}

// errOf returns an error of the API.
func errOf(code codes.Code, text string) error { return status.Error(code, text) }
