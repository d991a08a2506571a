package control_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"

	docs "github.com/c785c783/piped/docs/reference"
	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// httpPeer calls an agent over HTTP.
type httpPeer struct {
	t      testing.TB
	url    string
	client *http.Client
}

// overHTTP serves the agent's HTTP API until the test ends.
func overHTTP(t testing.TB, agent *controltest.Agent) httpPeer {
	t.Helper()
	server := httptest.NewServer(agent.Server.Handler())
	t.Cleanup(server.Close)
	return httpPeer{t, server.URL, server.Client()}
}

// do sends a request with a key, if there is one.
func (p httpPeer) do(method, path, key, contentType, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "API-KEY "+key)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post sends a request in JSON and returns the decoded response.
func (p httpPeer) post(path, key, body string) (code int, answer any) {
	p.t.Helper()
	resp := p.do("POST", path, key, "application/json", body)
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		p.t.Errorf("%s: content type %q", path, got)
	}
	return resp.StatusCode, answer
}

func pathOf(m protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

// protocols are those that Connect's client speaks over HTTP/1.1.
func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"Connect with JSON":    {connect.WithProtoJSON()},
		"Connect":              nil,
		"gRPC-Web":             {connect.WithGRPCWeb()},
		"gRPC-Web with JSON":   {connect.WithGRPCWeb(), connect.WithProtoJSON()},
		"Connect, compressing": {connect.WithSendGzip()},
	}
}

// method returns Connect's client of a method.
func (p httpPeer) method(m protoreflect.MethodDescriptor, options ...connect.ClientOption) *connect.Client[dynamicpb.Message, dynamicpb.Message] {
	options = append(options, connect.WithSchema(m), connect.WithResponseInitializer(func(_ connect.Spec, message any) error {
		*message.(*dynamicpb.Message) = *dynamicpb.NewMessage(m.Output()) //nolint:govet // as Connect documents
		return nil
	}))
	return connect.NewClient[dynamicpb.Message, dynamicpb.Message](p.client, p.url+pathOf(m), options...)
}

// call calls a method with a request and returns the first message and the error.
func (p httpPeer) call(m protoreflect.MethodDescriptor, key string, request *dynamicpb.Message, options ...connect.ClientOption) (proto.Message, error) {
	client := p.method(m, options...)
	req := connect.NewRequest(request)
	if key != "" {
		req.Header().Set("Authorization", "API-KEY "+key)
	}
	if !m.IsStreamingServer() {
		resp, err := client.CallUnary(p.t.Context(), req)
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	ctx, end := context.WithCancel(p.t.Context())
	defer end()
	stream, err := client.CallServerStream(ctx, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if !stream.Receive() {
		return nil, stream.Err()
	}
	return stream.Msg(), nil
}

// TestEveryMethodOverHTTP: with each protocol, each method of both services returns the
// message, or the code and the text of the error, that it returns over gRPC.
func TestEveryMethodOverHTTP(t *testing.T) {
	env := newFuzzEnv(t)
	peer := overHTTP(t, env.agent)
	for _, m := range allMethods(t) {
		env.agent.Tick(time.Second) // for the limit of wrong credentials
		for _, key := range []string{"", env.agent.ReadOnly, env.key} {
			want, wantErr := overGRPC(t, env, m, key)
			for name, options := range protocols() {
				got, err := peer.call(m, key, dynamicpb.NewMessage(m.Input()), options...)
				if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" && wantErr == nil {
					t.Errorf("%s of %s (-gRPC +HTTP):\n%s", name, pathOf(m), diff)
				}
				if code := status.Code(wantErr); code != codes.OK && (connect.CodeOf(err) != connect.Code(code) || messageOf(err) != strings.TrimSpace(status.Convert(wantErr).Message())) {
					t.Errorf("%s of %s: error %v, gRPC's is %v", name, pathOf(m), err, wantErr)
				}
			}
		}
	}
}

func messageOf(err error) string {
	var c *connect.Error
	if !errors.As(err, &c) {
		return ""
	}
	return strings.TrimSpace(c.Message()) // as headers of gRPC-Web are
}

// overGRPC calls a method with an empty request and returns the first message.
func overGRPC(t *testing.T, env *fuzzEnv, m protoreflect.MethodDescriptor, key string) (proto.Message, error) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+key)
	}
	stream, err := env.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pathOf(m))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(stream.SendMsg(dynamicpb.NewMessage(m.Input())), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	response := dynamicpb.NewMessage(m.Output())
	if err := stream.RecvMsg(response); err != nil {
		return nil, err
	}
	return response, nil
}

const (
	getApplication   = "/grpc.service.apiservice.APIService/GetApplication"
	followLogs       = "/piped.control.v1.ControlService/FollowStageLogs"
	watchDeployments = "/piped.control.v1.ControlService/WatchDeployments"
)

// TestJSONForm: names are in camel case, enums are their names, 64-bit numbers are strings,
// and defaults are written.
func TestJSONForm(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", map[string]string{"env": "prod"}), "")
	code, got := overHTTP(t, agent).post("/grpc.service.apiservice.APIService/GetDeployment", agent.ReadOnly, `{"deploymentId": "d1"}`)
	d, ok := got.(map[string]any)["deployment"].(map[string]any)
	if code != 200 || !ok {
		t.Fatalf("%d %v", code, got)
	}
	want := map[string]any{
		"id": "d1", "applicationName": "web", "kind": "KUBERNETES", "status": "DEPLOYMENT_PENDING", "statusReason": "A new commit",
		"labels": map[string]any{"env": "prod"}, "createdAt": fmt.Sprint(controltest.Epoch.Unix() + 2), "completedAt": "0", "stages": []any{},
	}
	for name, value := range want {
		if diff := cmp.Diff(value, d[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// Names of the .proto file are accepted, too.
	if code, got := overHTTP(t, agent).post("/grpc.service.apiservice.APIService/GetDeployment", agent.ReadOnly, `{"deployment_id": "d1"}`); code != 200 {
		t.Errorf("snake case: %d %v", code, got)
	}
}

// TestHTTPErrors: errors have Connect's form and HTTP status, whatever is wrong with a call.
func TestHTTPErrors(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	peer := overHTTP(t, agent)
	syncApplication := "/grpc.service.apiservice.APIService/SyncApplication"
	for name, tc := range map[string]struct {
		path, key, body string
		status          int
		code, message   string
	}{
		"no key":                   {getApplication, "", `{"applicationId":"x"}`, 401, "unauthenticated", "missing credentials in authorization"},
		"a wrong key":              {getApplication, agent.ReadWrite + "x", `{"applicationId":"x"}`, 401, "unauthenticated", "Unauthenticated"},
		"a key that may only read": {syncApplication, agent.ReadOnly, `{"applicationId":"x"}`, 403, "permission_denied", `Permission denied: this needs the permission "sync", which no role of watcher grants`},
		"an empty field":           {getApplication, agent.ReadOnly, `{}`, 400, "invalid_argument", "invalid request: invalid GetApplicationRequest.ApplicationId: value length must be at least 1 runes"},
		"nothing of that name":     {getApplication, agent.ReadOnly, `{"applicationId":"x"}`, 404, "not_found", ""},
		"a misspelled field":       {getApplication, agent.ReadOnly, `{"applicationID":"x"}`, 400, "invalid_argument", `the request is no GetApplicationRequest in json: (line 1:2): unknown field "applicationID"`},
		"a wrong type":             {getApplication, agent.ReadOnly, `{"applicationId":1}`, 400, "invalid_argument", "the request is no GetApplicationRequest in json: (line 1:18): invalid value for string field applicationId: 1"},
		"no JSON":                  {getApplication, agent.ReadOnly, `x`, 400, "invalid_argument", "the request is no GetApplicationRequest in json: syntax error (line 1:1): invalid value x"},
		"no body":                  {getApplication, agent.ReadOnly, ``, 400, "invalid_argument", "the request is no GetApplicationRequest in json: syntax error (line 1:1): unexpected token "},
		"no such method":           {"/piped.control.v1.ControlService/Nothing", agent.ReadOnly, `{}`, 404, "unimplemented", "there is no such method; see openapi.json for those that there are"},
		"no such service":          {"/nothing/at/all", "", `{}`, 404, "unimplemented", "there is no such method; see openapi.json for those that there are"},
		"a service of gRPC alone":  {"/grpc.health.v1.Health/Check", "", `{}`, 404, "unimplemented", "there is no such method; see openapi.json for those that there are"},
		"a stream, no key":         {watchDeployments, "", `{}`, 401, "unauthenticated", "missing credentials in authorization"},
		"a stream, a wrong field":  {watchDeployments, agent.ReadOnly, `{"x":1}`, 400, "invalid_argument", `the request is no WatchDeploymentsRequest in json: (line 1:2): unknown field "x"`},
		"a stream of nothing":      {followLogs, agent.ReadOnly, `{"deploymentId":"x"}`, 404, "not_found", ""},
		"a request that is too large": {getApplication, agent.ReadOnly, `{"applicationId":"` + strings.Repeat("x", 4<<20) + `"}`, 429, "resource_exhausted",
			"message size 4194324 is larger than configured max 4194304"},
		"a stream's that is too large": {followLogs, agent.ReadOnly, `{"deploymentId":"` + strings.Repeat("x", 4<<20) + `"}`, 429, "resource_exhausted",
			"the request is larger than 4194304 bytes: send less"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := peer.post(tc.path, tc.key, tc.body)
			got, _ := answer.(map[string]any)
			if status != tc.status || got["code"] != tc.code || tc.message != "" && got["message"] != tc.message || got["message"] == "" {
				t.Errorf("got %d %v, want %d %s: %s", status, answer, tc.status, tc.code, tc.message)
			}
		})
	}
	if resp := peer.do("GET", getApplication, agent.ReadOnly, "", ""); resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s, Allow %q", resp.Status, resp.Header.Get("Allow"))
	}
	for _, contentType := range []string{"text/plain", "", "application/x-www-form-urlencoded"} {
		if resp := peer.do("POST", getApplication, agent.ReadOnly, contentType, "{}"); resp.StatusCode != 415 || !strings.Contains(resp.Header.Get("Accept-Post"), "application/json") {
			t.Errorf("content type %q: %s, Accept-Post %q", contentType, resp.Status, resp.Header.Get("Accept-Post"))
		}
	}
}

// TestCompressedRequestsAreBounded: a small body that becomes a large request is rejected.
func TestCompressedRequestsAreBounded(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	peer := overHTTP(t, agent)
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	if _, err := io.WriteString(w, `{"applicationId":"`+strings.Repeat("x", 64<<20)+`"}`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", peer.url+getApplication, &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}, "Authorization": {"API-KEY " + agent.ReadOnly}}
	resp, err := peer.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 429 {
		t.Errorf("got %s", resp.Status)
	}
}

// TestHTTPIsAsProtectedAsGRPC: from other machines it needs TLS, and where gRPC demands
// certificates of clients, it does, too.
func TestHTTPIsAsProtectedAsGRPC(t *testing.T) {
	cert, key := certificatetest.Write(t, t.TempDir())
	const local, remote = "127.0.0.1:4321", "192.0.2.7:4321"
	encrypted, mutual := &tls.ConnectionState{}, &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
	for name, tc := range map[string]struct {
		from    string
		tls     *tls.ConnectionState
		change  func(*control.Config)
		message string // of the refusal
	}{
		"plaintext from this machine":            {local, nil, nil, ""},
		"plaintext from this machine, IPv6":      {"[::1]:4321", nil, nil, ""},
		"plaintext from another machine":         {remote, nil, nil, "set web.tlsCertFile and web.tlsKeyFile, or web.insecure: true"},
		"plaintext from another, written out":    {remote, nil, func(c *control.Config) { c.InsecureHTTP = true }, ""},
		"TLS from another machine":               {remote, encrypted, nil, ""},
		"mutual TLS of gRPC, plaintext":          {local, nil, func(c *control.Config) { c.ClientCAFile = cert }, "set web.clientCAFile"},
		"mutual TLS of gRPC, TLS":                {remote, encrypted, func(c *control.Config) { c.ClientCAFile = cert }, "set web.clientCAFile"},
		"mutual TLS of both":                     {remote, mutual, func(c *control.Config) { c.ClientCAFile = cert }, ""},
		"mutual TLS of gRPC, plaintext, allowed": {local, nil, func(c *control.Config) { c.ClientCAFile, c.InsecureHTTP = cert, true }, "set web.clientCAFile"},
	} {
		t.Run(name, func(t *testing.T) {
			agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
				c.CertFile, c.KeyFile = cert, key
				if tc.change != nil {
					tc.change(c)
				}
			})
			req := must(http.NewRequestWithContext(t.Context(), "POST", "/grpc.service.apiservice.APIService/ListApplications", nil)).withJSON(agent.ReadOnly, "{}")
			req.RemoteAddr, req.TLS = tc.from, tc.tls
			resp := httptest.NewRecorder()
			agent.Server.Handler().ServeHTTP(resp, req)
			if tc.message == "" && resp.Code == 200 {
				return
			}
			if tc.message == "" || resp.Code != 400 || !strings.Contains(resp.Body.String(), `"code":"failed_precondition"`) || !strings.Contains(resp.Body.String(), tc.message) {
				t.Errorf("got %d %s, want a refusal that says %q", resp.Code, resp.Body, tc.message)
			}
		})
	}
}

// TestRateLimitOverHTTP: calls over HTTP and gRPC count together, and the error says when to
// try again.
func TestRateLimitOverHTTP(t *testing.T) {
	ctx, client, agent := api(t, func(c *control.Config) { c.RateLimit = control.RateLimit{PerSecond: 1, Burst: 2} })
	peer := overHTTP(t, agent)
	if _, err := client.ListApplications(ctx, &apiservice.ListApplicationsRequest{}); err != nil {
		t.Fatal(err)
	}
	list := connect.NewClient[apiservice.ListApplicationsRequest, apiservice.ListApplicationsResponse](peer.client, peer.url+"/grpc.service.apiservice.APIService/ListApplications", connect.WithProtoJSON())
	call := func() error {
		req := connect.NewRequest(&apiservice.ListApplicationsRequest{})
		req.Header().Set("Authorization", "API-KEY "+agent.ReadWrite)
		_, err := list.CallUnary(t.Context(), req)
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	var limited *connect.Error
	if err := call(); !errors.As(err, &limited) || limited.Code() != connect.CodeResourceExhausted || len(limited.Details()) != 1 {
		t.Fatalf("the third call: %v", err)
	}
	if detail, err := limited.Details()[0].Value(); err != nil || detail.(*errdetails.RetryInfo).RetryDelay.AsDuration() != time.Second {
		t.Errorf("detail %v, %v", detail, err)
	}
}

// TestHTTPCallsAreAudited with the address of the client.
func TestHTTPCallsAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.AuditFile = path })
	app := agent.Application("web", nil)
	handler := agent.Server.Handler()
	for _, remote := range []string{"192.0.2.7:4321", "[2001:db8::1]:4321"} {
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/grpc.service.apiservice.APIService/SyncApplication", strings.NewReader(`{"applicationId":"`+app.ID+`"}`))
		req.RemoteAddr, req.TLS = remote, &tls.ConnectionState{}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"API-KEY " + agent.ReadWrite}, "X-Forwarded-For": {"203.0.113.9"}}
		resp := httptest.NewRecorder()
		handler.ServeHTTP(resp, req)
		if resp.Code != 200 {
			t.Fatalf("%d %s", resp.Code, resp.Body)
		}
	}
	var got []string
	for _, r := range audited(t, path) {
		got = append(got, strings.Join([]string{r["method"], r["code"], r["subject"], r["remote"], r["target: application_id"]}, " "))
	}
	method := "grpc.service.apiservice.APIService/SyncApplication OK owner "
	if diff := cmp.Diff([]string{method + "192.0.2.7 " + app.ID, method + "2001:db8::1 " + app.ID}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// ended records the codes of calls that have ended.
type ended chan string

func (e ended) Called(method, code string, stream bool, _ time.Duration) {
	e <- fmt.Sprint(method, " ", code, " ", stream)
}

// httpStreams opens WatchDeployments with each protocol and calls test with the function that
// reads the next message; it returns nil at the end of the stream.
func httpStreams(t *testing.T, test func(t *testing.T, agent *controltest.Agent, key string, next func() (*controlv1.WatchDeploymentsResponse, error), cut func(), calls ended)) {
	for name, options := range protocols() {
		t.Run(name, func(t *testing.T) {
			calls := make(ended, 100)
			agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Metrics, c.Grace = calls, time.Hour })
			peer, key := overHTTP(t, agent), agent.Key("leaver", deploy.ReadOnly)
			client := connect.NewClient[controlv1.WatchDeploymentsRequest, controlv1.WatchDeploymentsResponse](peer.client, peer.url+watchDeployments, options...)
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			req := connect.NewRequest(&controlv1.WatchDeploymentsRequest{})
			req.Header().Set("Authorization", "API-KEY "+key)
			stream, err := client.CallServerStream(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			test(t, agent, key, func() (*controlv1.WatchDeploymentsResponse, error) {
				if stream.Receive() {
					return stream.Msg(), nil
				}
				return nil, stream.Err()
			}, cut, calls)
		})
	}
}

// TestStreamsOverHTTP: a stream sends what changes, and ends when the client is gone.
func TestStreamsOverHTTP(t *testing.T) {
	httpStreams(t, func(t *testing.T, agent *controltest.Agent, _ string, next func() (*controlv1.WatchDeploymentsResponse, error), cut func(), calls ended) {
		if got, err := next(); err != nil || !got.CaughtUp {
			t.Fatalf("got %v, %v", got, err)
		}
		agent.Deployment("d1", agent.Application("web", nil), "")
		if got, err := next(); err != nil || got.Deployment.GetId() != "d1" {
			t.Fatalf("got %v, %v", got, err)
		}
		cut()
		if got := <-calls; got != "piped.control.v1.ControlService/WatchDeployments Canceled true" {
			t.Errorf("the call ended as %q", got)
		}
	})
}

// TestStreamsOverHTTPEndWithTheirKey: disabling the key ends the stream with an error.
func TestStreamsOverHTTPEndWithTheirKey(t *testing.T) {
	httpStreams(t, func(t *testing.T, agent *controltest.Agent, key string, next func() (*controlv1.WatchDeploymentsResponse, error), _ func(), _ ended) {
		if _, err := next(); err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(key, ".")
		if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got, err := next(); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// TestStreamsOverHTTPEndWithTheAgent: an agent that stops ends streams at once with a clear
// error, and refuses calls.
func TestStreamsOverHTTPEndWithTheAgent(t *testing.T) {
	httpStreams(t, func(t *testing.T, agent *controltest.Agent, _ string, next func() (*controlv1.WatchDeploymentsResponse, error), _ func(), _ ended) {
		if _, err := next(); err != nil {
			t.Fatal(err)
		}
		stopped := overHTTP(t, agent)
		agent.Restart() // returns when no call is open
		if got, err := next(); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(messageOf(err), "shutting down: call again") {
			t.Errorf("got %v, %v", got, err)
		}
		status, answer := stopped.post(getApplication, agent.ReadOnly, `{"applicationId":"x"}`)
		if got, _ := answer.(map[string]any); status != 503 || got["code"] != "unavailable" {
			t.Errorf("a call of the stopped agent: %d %v", status, answer)
		}
	})
}

// waiting is a Planner that waits until its call is aborted.
type waiting struct {
	previews
	begun chan struct{}
}

func (w waiting) Preview(ctx context.Context, _ deploy.Application, _ string, _ deploy.Strategy, _ string) (deploy.Deployment, string, error) {
	close(w.begun)
	<-ctx.Done()
	return deploy.Deployment{}, "", ctx.Err()
}

// TestStopAbortsHTTPCalls: Run ends though a call goes on, and not before the call.
func TestStopAbortsHTTPCalls(t *testing.T) {
	calls, planner := make(ended, 1), waiting{begun: make(chan struct{})}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Planner, c.Metrics, c.Grace = planner, calls, 50*time.Millisecond
	})
	app, peer := agent.Application("web", nil), overHTTP(t, agent)
	answered := make(chan string, 1)
	go func() {
		resp, err := peer.client.Do(must(http.NewRequestWithContext(t.Context(), "POST", peer.url+"/piped.control.v1.ControlService/GetPlan", nil)).withJSON(agent.ReadOnly, `{"applicationId":"`+app.ID+`"}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- resp.Status + " " + string(body)
	}()
	<-planner.begun
	agent.Restart()
	select {
	case got := <-calls:
		if got != "piped.control.v1.ControlService/GetPlan Canceled false" {
			t.Errorf("the call ended as %q", got)
		}
	default:
		t.Error("Run returned before the call")
	}
	if got := <-answered; !strings.Contains(got, "canceled") {
		t.Errorf("the client got %q", got)
	}
}

// request is an HTTP request under construction.
type request struct{ *http.Request }

func must(r *http.Request, err error) request {
	if err != nil {
		panic(err) // unreachable: the method and the URL are valid
	}
	return request{r}
}

func (r request) withJSON(key, body string) *http.Request {
	r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"API-KEY " + key}}
	r.Body = io.NopCloser(strings.NewReader(body))
	return r.Request
}

// TestStreamsAsLines: with plain JSON a stream has one line per message, and the error that
// ends it is the last line.
func TestStreamsAsLines(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	peer, key := overHTTP(t, agent), agent.Key("leaver", deploy.ReadOnly)
	watched(agent)
	agent.Log("d1", controltest.SyncStage, "one", "two")

	resp := peer.do("POST", followLogs, key, "application/json; charset=utf-8", `{"deploymentId":"d1","stageId":"`+controltest.SyncStage+`"}`)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s %v %s", resp.Status, resp.Header, body)
	}
	var logged []string
	for line := range strings.Lines(string(body)) {
		var message struct{ Blocks []struct{ Index, Log string } }
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		for _, b := range message.Blocks {
			logged = append(logged, b.Index+" "+b.Log)
		}
	}
	if diff := cmp.Diff([]string{"0 one", "1 two"}, logged); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}

	lines := json.NewDecoder(peer.do("POST", watchDeployments, key, "application/json", `{"deploymentIds":["d3"]}`).Body)
	type line struct {
		Deployment *struct{ ID, Status string }
		CaughtUp   bool
		Error      *struct{ Code, Message string }
	}
	next := func() (l line) {
		t.Helper()
		if err := lines.Decode(&l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := next(); l.Deployment == nil || l.Deployment.ID != "d3" || l.Deployment.Status != "DEPLOYMENT_RUNNING" {
		t.Errorf("first line: %+v", l)
	}
	if l := next(); !l.CaughtUp {
		t.Errorf("second line: %+v", l)
	}
	agent.Move("d3", deploy.Success, "")
	for l := next(); l.Deployment.Status != "DEPLOYMENT_SUCCESS"; l = next() {
	}
	id, _, _ := strings.Cut(key, ".")
	if err := agent.Store.DisableAPIKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if l := next(); l.Error == nil || l.Error.Code != "unauthenticated" {
		t.Errorf("last line: %+v", l)
	}
	if err := lines.Decode(&line{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
}

// TestOpenAPIDocument is served without a key, compressed if the client wants that, and again
// only if it has changed.
func TestOpenAPIDocument(t *testing.T) {
	peer := overHTTP(t, controltest.Start(t, t.TempDir()))
	resp := peer.do("GET", "/openapi.json", "", "", "") // the client decompresses
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || !resp.Uncompressed || !bytes.Equal(body, docs.OpenAPI) {
		t.Errorf("%s %v, uncompressed %v, %d bytes, %v", resp.Status, resp.Header, resp.Uncompressed, len(body), err)
	}
	for _, encoding := range []string{"identity", "gzip"} {
		ask := func(etag string) *http.Response {
			req, err := http.NewRequestWithContext(t.Context(), "GET", peer.url+"/openapi.json", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Accept-Encoding": {encoding}, "If-None-Match": {etag}}
			resp, err := peer.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		first := ask(`"none"`)
		if again := ask(first.Header.Get("ETag")); first.StatusCode != 200 || again.StatusCode != 304 {
			t.Errorf("%s: first %s, then %s", encoding, first.Status, again.Status)
		}
	}
	if resp := peer.do("POST", "/openapi.json", "", "application/json", "{}"); resp.StatusCode == 200 {
		t.Errorf("POST: %s", resp.Status)
	}
}

// TestResponsesMatchTheOpenAPIDocument: real responses have the described form, by an
// independent implementation of OpenAPI.
func TestResponsesMatchTheOpenAPIDocument(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	env := newFuzzEnv(t)
	peer := overHTTP(t, env.agent)
	for _, m := range allMethods(t) {
		item := doc.Paths.Find("/api/v1" + pathOf(m))
		if item == nil || item.Post == nil {
			t.Errorf("%s is not described", pathOf(m))
			continue
		}
		if streams, _ := item.Post.Extensions["x-stream"].(bool); streams != m.IsStreamingServer() {
			t.Errorf("%s is described as a stream: %v", m.Name(), streams)
		}
		if m.IsStreamingServer() {
			continue
		}
		for _, request := range []string{`{}`, `{"applicationId":"app-web"}`, `{"deploymentId":"d-web"}`, `{"deploymentId":"x"}`} {
			status, answer := peer.post(pathOf(m), env.key, request)
			described := item.Post.Responses.Default()
			if status == 200 {
				described = item.Post.Responses.Status(200)
			}
			if err := described.Value.Content["application/json"].Schema.Value.VisitJSON(answer, openapi3.MultiErrors()); err != nil {
				t.Errorf("%s %s: %d: %v", m.Name(), request, status, err)
			}
			assertDescribed(t, doc, string(m.Output().FullName()), answer, status)
		}
	}
	if n := doc.Paths.Len(); n != len(allMethods(t)) {
		t.Errorf("%d paths are described, want %d", n, len(allMethods(t)))
	}
}

// assertDescribed checks that no field of a response is missing in its schema, which permits
// further fields.
func assertDescribed(t *testing.T, doc *openapi3.T, name string, answer any, status int) {
	t.Helper()
	if status != 200 {
		name = "Error"
	}
	for field := range answer.(map[string]any) {
		if doc.Components.Schemas[name].Value.Properties[field] == nil {
			t.Errorf("%s.%s is not described", name, field)
		}
	}
}

// FuzzHTTPRequests sends bodies from the fuzzer to methods that read much of their request. The
// response is JSON, does not indicate a bug, and nothing is logged as an error.
func FuzzHTTPRequests(f *testing.F) {
	env := newFuzzEnv(f)
	peer := overHTTP(f, env.agent)
	paths := []string{
		getApplication, followLogs, watchDeployments,
		"/grpc.service.apiservice.APIService/AddApplication", "/grpc.service.apiservice.APIService/ListDeployments",
		"/grpc.service.apiservice.APIService/RegisterEvent", "/piped.control.v1.ControlService/ListRollouts", "/piped.control.v1.ControlService/GetDeliveryFigures",
	}
	for _, body := range []string{
		``, `{}`, `{"applicationId":"app-web"}`, `{"deploymentId":"d-web","afterIndex":{"stage-sync":"1"}}`, `[]`, `null`, `{"labels":{"team":"web"},"limit":3}`,
		`{"deploymentIds":["d-web",""],"completedLimit":1e3}`, `{"name":"\u0000","data":"\ud800"}`, `{"fromMs":"-9223372036854775808"}`,
		`{"gitPath":{"repo":{"id":"apps"},"path":"../..","configFilename":"app.pipecd.yaml"},"kind":"KUBERNETES","name":"x","pipedId":"piped-1"}`,
	} {
		for i := range paths {
			f.Add(i, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, n int, body []byte) {
		if n < 0 || n >= len(paths) {
			return
		}
		streams, patience := paths[n] == followLogs || paths[n] == watchDeployments, time.Minute
		if streams {
			patience = 30 * time.Millisecond // a stream may stay silent
		}
		ctx, end := context.WithTimeout(t.Context(), patience)
		defer end()
		resp, err := peer.client.Do(must(http.NewRequestWithContext(ctx, "POST", peer.url+paths[n], nil)).withJSON(env.key, string(body)))
		if streams && errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var first any
		if err := json.NewDecoder(resp.Body).Decode(&first); err != nil && !errors.Is(err, io.EOF) && !(streams && ctx.Err() != nil) {
			t.Errorf("%s answers %q with %s: %v", paths[n], body, resp.Status, err)
		}
		if resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusNotImplemented {
			t.Errorf("%s answers %q with %s %v", paths[n], body, resp.Status, first)
		}
		if log := env.log.take(); strings.Contains(log, "level=ERROR") {
			t.Errorf("%s logs an error of %q:\n%s", paths[n], body, log)
		}
	})
}

// BenchmarkRead measures a unary read with one client, by protocol.
func BenchmarkRead(b *testing.B) {
	ctx, client, agent := api(b)
	app, peer := agent.Application("web", map[string]string{"env": "prod"}), overHTTP(b, agent)
	b.Run("gRPC", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.GetApplication(ctx, &apiservice.GetApplicationRequest{ApplicationId: app.ID}); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, options := range protocols() {
		http := connect.NewClient[apiservice.GetApplicationRequest, apiservice.GetApplicationResponse](peer.client, peer.url+getApplication, options...)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				req := connect.NewRequest(&apiservice.GetApplicationRequest{ApplicationId: app.ID})
				req.Header().Set("Authorization", "API-KEY "+agent.ReadWrite)
				if _, err := http.CallUnary(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
