package clustertest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Recorder records the requests to a cluster, and can fail or answer some.
type Recorder struct {
	// Fail and Answer, set before the first request, replace the cluster's response if
	// they return a value.
	Fail   func(r *http.Request) error
	Answer func(r *http.Request) *http.Response
	// Conflicts are the requests that the cluster refused because the object had changed.
	Conflicts []string

	mu   sync.Mutex
	seen []string
}

// Wrap returns a transport whose requests are recorded.
func (r *Recorder) Wrap(next http.RoundTripper) http.RoundTripper {
	return &recordingTransport{recorder: r, next: next}
}

// Take returns the requests since its last call: method and path, and a mark for dry runs
// and for patches other than an apply.
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}

func (r *Recorder) record(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, requestLine(req))
}

func (r *Recorder) refused(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Conflicts = append(r.Conflicts, requestLine(req))
}

func requestLine(req *http.Request) string {
	line := req.Method + " " + req.URL.Path
	if req.URL.Query().Has("dryRun") {
		line += " dryRun"
	}
	if kind := req.Header.Get("Content-Type"); req.Method == http.MethodPatch && !strings.Contains(kind, "apply-patch") {
		line += " " + kind
	}
	return line
}

type recordingTransport struct {
	recorder *Recorder
	next     http.RoundTripper
}

func (r *recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	r.recorder.record(req)
	if fail := r.recorder.Fail; fail != nil {
		if err := fail(req); err != nil {
			return nil, err
		}
	}
	if answer := r.recorder.Answer; answer != nil {
		if resp := answer(req); resp != nil {
			return resp, nil
		}
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusConflict {
		r.recorder.refused(req)
	}
	return resp, err
}

// Refusal returns the answer of an API server that refuses a request.
func Refusal(r *http.Request, s metav1.Status, header ...string) *http.Response {
	s.TypeMeta, s.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	resp := answer(r, int(s.Code), s)
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// WrappedRoundTripper lets client-go find the connections to close.
func (r *recordingTransport) WrappedRoundTripper() http.RoundTripper { return r.next }

// RefuseConnections fails the first n requests of a method as a server that is down would.
func RefuseConnections(method string, n int) func(*http.Request) error {
	var left atomic.Int32
	left.Store(int32(n))
	return func(r *http.Request) error {
		if r.Method != method || left.Add(-1) < 0 {
			return nil
		}
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
}
