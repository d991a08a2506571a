package helm

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// site is a web server of files, which counts what is asked of it.
type site struct {
	*httptest.Server
	user, password string // "" wants no credentials

	mu    sync.Mutex
	files map[string][]byte
	fail  int // answers 503 this many times
	asked []string
	seen  []string // the authorization of each request
	moved map[string]string
	tags  bool // it names contents by entity tags
	same  int  // answers that the content is still the same
}

func newSite(t *testing.T, secure bool) *site {
	t.Helper()
	s := &site{files: map[string][]byte{}, moved: map[string]string{}}
	if secure {
		s.Server = httptest.NewTLSServer(s)
	} else {
		s.Server = httptest.NewServer(s)
	}
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.Path)
	s.seen = append(s.seen, r.Header.Get("Authorization"))
	user, password, _ := r.BasicAuth()
	data, ok := s.files[r.URL.Path]
	to, moved := s.moved[r.URL.Path]
	switch {
	case s.fail > 0:
		s.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
	case moved:
		http.Redirect(w, r, to, http.StatusFound)
	case s.user != "" && (user != s.user || password != s.password):
		w.WriteHeader(http.StatusUnauthorized)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case s.tags:
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256(data))
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			s.same++
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(data)
	default:
		_, _ = w.Write(data)
	}
}

func (s *site) put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
}

// requests returns what was asked since the last call.
func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// publish puts charts of one name into the repository at /charts.
func (s *site) publish(t *testing.T, name string, versions ...string) {
	t.Helper()
	var index strings.Builder
	fmt.Fprintf(&index, "apiVersion: v1\nentries:\n  another:\n  - name: another\n    version: 9.9.9\n    urls: [none.tgz]\n  %s:\n", name)
	for _, version := range versions {
		data := chartArchive(t, name, version, "")
		file := fmt.Sprintf("%s-%s.tgz", name, version)
		s.put("/charts/files/"+file, data)
		fmt.Fprintf(&index, "  - name: %s\n    version: %s\n    digest: %x\n    urls:\n    - files/%s\n", name, version, sha256.Sum256(data), file)
	}
	index.WriteString("  zebra:\n  - name: zebra\n    version: 0.0.1\n    urls: [none.tgz]\ngenerated: \"2026-01-01T00:00:00Z\"\n")
	s.put("/charts/index.yaml", []byte(index.String()))
}

// chartArchive is a chart with one ConfigMap, which contains the version.
func chartArchive(t *testing.T, name, version, more string) []byte {
	t.Helper()
	return packed(t, map[string]string{
		name + "/Chart.yaml":       fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n%s", name, version, more),
		name + "/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {version: {{ .Chart.Version }}}\n",
	})
}

// registry is as much of an OCI registry as a chart is read from, with the token
// service that such a one has.
type registry struct {
	*httptest.Server
	user, password string

	mu     sync.Mutex
	blobs  map[string][]byte // by digest
	tags   map[string]string // name:tag to digest
	asked  []string
	tokens int
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}, tags: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *registry) host() string { return strings.TrimPrefix(r.URL, "http://") }

func (r *registry) blob(data []byte) string {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	r.blobs[digest] = data
	return digest
}

// push publishes a chart.
func (r *registry) push(t *testing.T, name, tag, mediaType string, chart []byte) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor{"application/vnd.cncf.helm.config.v1+json", r.blob([]byte("{}")), 2},
		"layers": []descriptor{{"application/vnd.cncf.helm.chart.provenance.v1.prov", r.blob([]byte("prov")), 4}, {mediaType, r.blob(chart), len(chart)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.tags[name+":"+tag] = r.blob(manifest)
	r.tags[name+":"+r.tags[name+":"+tag]] = r.tags[name+":"+tag] // by its digest, too
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	user, password, _ := req.BasicAuth()
	if req.URL.Path == "/token" {
		r.tokens++
		if user != r.user || password != r.password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"token": "good"}`))
		return
	}
	r.asked = append(r.asked, req.URL.Path)
	if r.user != "" && req.Header.Get("Authorization") != "Bearer good" {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:x:pull"`, r.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	rest := strings.TrimPrefix(req.URL.Path, "/v2/")
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		tags := []string{}
		for tag := range r.tags {
			if version, ok := strings.CutPrefix(tag, name+":"); ok && !strings.HasPrefix(version, "sha256:") {
				tags = append(tags, version)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags})
		return
	}
	if name, ref, ok := strings.Cut(rest, "/manifests/"); ok {
		digest, known := r.tags[name+":"+ref]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Docker-Content-Digest", digest)
		_, _ = w.Write(r.blobs[digest])
		return
	}
	_, digest, _ := strings.Cut(rest, "/blobs/")
	data, ok := r.blobs[digest]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(data)
}

func (r *registry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	return asked
}
