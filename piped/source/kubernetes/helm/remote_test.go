package helm

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

func remoteChart(repository, name, version string) Request {
	return Request{Tree: fstest.MapFS{}, Dir: "app", Chart: kubernetes.HelmChart{Repository: repository, Name: name, Version: version}, ReleaseName: "web"}
}

func rendererOf(t *testing.T, cfg Config) *Renderer {
	cfg.AllowedHosts = append(cfg.AllowedHosts, "127.0.0.1", "localhost") // where the tests' servers are
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func versionOf(t *testing.T, r *Renderer, req Request) string {
	t.Helper()
	result, err := r.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Remote {
		t.Error("the result is said to depend on the request alone")
	}
	return result.Version
}

func TestChartsOfARepository(t *testing.T) {
	s := newSite(t, false)
	s.user, s.password = "reader", "s3cret"
	s.publish(t, "web", "1.10.0", "1.2.0", "1.9.1", "2.0.0-rc.1")
	dir := t.TempDir()
	r := rendererOf(t, Config{Dir: dir, Repositories: []config.ChartRepository{{
		Type: config.ChartRepositoryHTTP, Name: "ours", Address: s.URL + "/charts", Username: "reader", Password: strict.NewSecret("s3cret"),
	}}})
	for _, c := range []struct {
		repository, want, chosen string
		asked                    []string
	}{
		{"ours", "1.9.1", "1.9.1", []string{"/charts/index.yaml", "/charts/files/web-1.9.1.tgz"}},
		{"ours", "1.9.1", "1.9.1", nil},
		{"@ours", "1.9.1", "1.9.1", nil},
		{s.URL + "/charts/", "1.9.1", "1.9.1", nil},
		{"alias:ours", "~1.9", "1.9.1", []string{"/charts/index.yaml"}},
		{"ours", ">=1.0.0", "1.10.0", []string{"/charts/index.yaml", "/charts/files/web-1.10.0.tgz"}},
		{"ours", "1.10.0", "1.10.0", nil},
		{"ours", "2.0.0-rc.1", "2.0.0-rc.1", []string{"/charts/index.yaml", "/charts/files/web-2.0.0-rc.1.tgz"}},
	} {
		if got := versionOf(t, r, remoteChart(c.repository, "web", c.want)); got != c.chosen {
			t.Errorf("%s of %s: got %s", c.want, c.repository, got)
		}
		if diff := cmp.Diff(c.asked, s.requests()); diff != "" {
			t.Errorf("%s of %s: asked (-want +got):\n%s", c.want, c.repository, diff)
		}
	}
	s.Close() // what is kept needs no server, in another process neither
	again := rendererOf(t, Config{Dir: dir, Repositories: r.remotes.Load().repositories})
	if got := versionOf(t, again, remoteChart("ours", "web", "1.10.0")); got != "1.10.0" {
		t.Errorf("got %s", got)
	}
}

func TestChartsOfARegistry(t *testing.T) {
	g := newRegistry(t)
	g.user, g.password = "reader", "s3cret"
	for _, version := range []string{"1.2.0", "1.10.0", "1.11.0-beta"} {
		g.push(t, "team/web", version, chartLayer, chartArchive(t, "web", version, ""))
	}
	g.push(t, "team/web", "1.0.0_build.7", legacyChartLayer, chartArchive(t, "web", "1.0.0+build.7", ""))
	r := rendererOf(t, Config{Dir: t.TempDir(), Registries: []config.ChartRegistry{
		{Address: g.host(), Username: "other", Password: strict.NewSecret("x")},
		{Address: "oci://" + g.host() + "/team/", Username: "reader", Password: strict.NewSecret("s3cret")},
	}})
	for _, c := range []struct{ want, chosen string }{{"1.2.0", "1.2.0"}, {"^1.0.0", "1.10.0"}, {"1.0.0+build.7", "1.0.0+build.7"}} {
		if got := versionOf(t, r, remoteChart("oci://"+g.host()+"/team", "web", c.want)); got != c.chosen {
			t.Errorf("%s: got %s", c.want, got)
		}
	}
	g.requests()
	if got := versionOf(t, r, remoteChart("oci://"+g.host()+"/team", "web", "1.10.0")); got != "1.10.0" || g.requests() != nil {
		t.Errorf("got %s, not from the disk", got)
	}
}

// TestChartsOfARegistryByDigest: the digest is that of the manifest, and what comes
// must have it.
func TestChartsOfARegistryByDigest(t *testing.T) {
	g := newRegistry(t)
	g.push(t, "team/web", "1.2.0", chartLayer, chartArchive(t, "web", "1.2.0", ""))
	g.push(t, "team/web", "1.3.0", chartLayer, chartArchive(t, "web", "1.3.0", ""))
	digest := g.tags["team/web:1.2.0"]
	r := rendererOf(t, Config{})
	if got := versionOf(t, r, remoteChart("oci://"+g.host()+"/team", "web", digest)); got != "1.2.0" {
		t.Errorf("got %s", got)
	}
	g.blobs[digest] = bytes.Replace(g.blobs[digest], []byte("schemaVersion"), []byte("SchemaVersion"), 1)
	for _, version := range []string{digest, "1.2.0"} {
		_, err := r.Render(t.Context(), remoteChart("oci://"+g.host()+"/team", "web", version))
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "is not what its digest says") {
			t.Errorf("%s: got %v", version, err)
		}
	}
	for _, version := range []string{"sha256:", "sha256:12", strings.Replace(digest, "sha256:", "sha256:0", 1)} {
		_, err := r.Render(t.Context(), remoteChart("oci://"+g.host()+"/team", "web", version))
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "not the name of a chart in a registry") {
			t.Errorf("%s: got %v", version, err)
		}
	}
}

// TestAnIndexIsReadAnewWhenItChanges: one with an entity tag is kept on disk, once.
func TestAnIndexIsReadAnewWhenItChanges(t *testing.T) {
	s := newSite(t, false)
	s.tags = true
	s.publish(t, "web", "1.0.0")
	dir := t.TempDir()
	for i, want := range []struct {
		version string
		same    int
	}{{"1.0.0", 0}, {"1.0.0", 1}, {"1.1.0", 1}, {"1.1.0", 2}} {
		if i == 2 {
			s.publish(t, "web", "1.0.0", "1.1.0")
		}
		r := rendererOf(t, Config{Dir: dir}) // as after a restart
		if got := versionOf(t, r, remoteChart(s.URL+"/charts", "web", "^1.0.0")); got != want.version || s.same != want.same {
			t.Errorf("rendering %d: got %s after %d indexes that were the same, want %v", i, got, s.same, want)
		}
	}
	contents, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(contents) != 3 {
		t.Errorf("on disk are %v, %v; want two charts and the last index", contents, err)
	}
	s.tags = false
	if got := versionOf(t, rendererOf(t, Config{Dir: dir}), remoteChart(s.URL+"/charts", "web", "^1.0.0")); got != "1.1.0" {
		t.Errorf("without tags: got %s", got)
	}
}

// trees is a Git host: files by remote and ref.
type trees map[string]fs.FS

func (s trees) At(_ context.Context, remote, ref string) (fs.FS, string, error) {
	if files, ok := s[remote+"@"+ref]; ok {
		return files, "0123456789abcdef", nil
	}
	return nil, "", deploy.Errorf(deploy.Unavailable, "%s cannot be reached", remote)
}

func TestChartsOfAnotherGitRepository(t *testing.T) {
	files := fstest.MapFS{
		"charts/web/Chart.yaml":       {Data: []byte("apiVersion: v2\nname: web\nversion: 3.0.0\ndependencies: [{name: db, version: 1.x, repository: 'file://../db'}]")},
		"charts/web/templates/x.yaml": {Data: []byte("{apiVersion: v1, kind: Secret, metadata: {name: a}}")},
		"charts/db/Chart.yaml":        {Data: []byte("apiVersion: v2\nname: db\nversion: 1.0.0")},
	}
	r := rendererOf(t, Config{Git: trees{"https://git.example.com/charts@v3": files}})
	req := Request{Tree: fstest.MapFS{"app/values.yaml": {Data: []byte("a: b")}}, Dir: "app", ReleaseName: "web", Chart: kubernetes.HelmChart{
		GitRemote: "https://git.example.com/charts", Ref: "v3", Path: "./charts/web/",
	}, Options: kubernetes.HelmOptions{ValueFiles: []string{"values.yaml"}}}
	if got := versionOf(t, r, req); got != "3.0.0" {
		t.Errorf("got %s", got)
	}
	for ref, c := range map[string]struct {
		path string
		kind deploy.Kind
		want string
	}{
		"v4": {"charts/web", deploy.Unavailable, "get Helm chart charts/web at v4: https://git.example.com/charts cannot be reached"},
		"v3": {"charts/none", deploy.Invalid, "charts/none at v3 (commit 0123456): there is no such directory"},
	} {
		req.Chart.Ref, req.Chart.Path = ref, c.path
		result, err := r.Render(t.Context(), req)
		if !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.want) || !result.Remote {
			t.Errorf("%s: got %v, remote %t", ref, err, result.Remote)
		}
	}
	_, err := newRenderer(t).Render(t.Context(), req)
	if !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("without Git: %v", err)
	}
}

// TestDependenciesAreFetched: what charts/ lacks comes from where Chart.yaml
// says, in the version of Chart.lock.
func TestDependenciesAreFetched(t *testing.T) {
	s, g := newSite(t, false), newRegistry(t)
	s.publish(t, "db", "1.0.0", "1.5.0")
	g.push(t, "libs/cache", "2.0.0", chartLayer, chartArchive(t, "cache", "2.0.0",
		fmt.Sprintf("dependencies: [{name: db, version: 1.5.0, repository: '%s/charts', condition: never}]\n", s.URL)))
	r := rendererOf(t, Config{Repositories: []config.ChartRepository{{Type: config.ChartRepositoryHTTP, Name: "ours", Address: s.URL + "/charts"}}})
	req := requestFor(fstest.MapFS{
		"app/chart/Chart.yaml": {Data: fmt.Appendf(nil, `
apiVersion: v2
name: web
version: 1.0.0
dependencies:
- {name: db, version: ^1.0.0, repository: '@ours', alias: first}
- {name: db, version: ^1.0.0, repository: '@ours', alias: second}
- {name: cache, version: '>=2', repository: 'oci://%s/libs'}
`, g.host())},
		"app/chart/Chart.lock": {Data: fmt.Appendf(nil, "dependencies: [{name: db, version: 1.0.0, repository: '@ours'}, {name: cache, version: 2.0.0, repository: 'oci://%s/libs'}]", g.host())},
	})
	result, err := r.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range result.Objects {
		version, _, _ := unstructuredString(o.Object, "data", "version")
		got = append(got, o.GetName()+" "+version+" "+o.Origin.File)
	}
	want := []string{
		"cache 2.0.0 web/charts/cache/templates/x.yaml", "db 1.5.0 web/charts/cache/charts/db/templates/x.yaml",
		"first 1.0.0 web/charts/first/templates/x.yaml", "second 1.0.0 web/charts/second/templates/x.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if asked := len(s.requests()); asked != 3 {
		t.Errorf("%d requests; the index is read once and each chart once", asked)
	}
}

func unstructuredString(object map[string]any, path ...string) (string, bool, error) {
	var v any = object
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return "", false, errors.New("not a mapping")
		}
		v = m[key]
	}
	text, ok := v.(string)
	return text, ok, nil
}

// TestWhatFailsRemotely: each failure has its kind, says what to do, and contains
// no credential.
func TestWhatFailsRemotely(t *testing.T) {
	s, g := newSite(t, false), newRegistry(t)
	s.publish(t, "web", "1.0.0", "1.1.0")
	s.put("/charts/files/web-1.1.0.tgz", []byte("something else"))
	s.put("/broken/index.yaml", []byte("entries: ["))
	s.put("/huge/index.yaml", make([]byte, 2000))
	s.put("/nowhere/index.yaml", []byte("entries:\n  web:\n  - version: 1.0.0\n    urls: [ftp://x/y]\n  - version: 1.0.1\n"))
	locked := newSite(t, false)
	locked.user, locked.password = "a", "b"
	const gone = "127.0.0.1:1" // the address of a closed server may be that of another test meanwhile
	down := newSite(t, false)
	down.fail = 1 << 20
	encrypted := newSite(t, true)
	g.push(t, "team/image", "1.0.0", "application/vnd.oci.image.layer.v1.tar+gzip", []byte("x"))
	closed := newRegistry(t)
	closed.user, closed.password = "reader", "s3cret"
	wrong := []config.ChartRegistry{{Address: closed.host(), Username: "reader", Password: strict.NewSecret("hunter2")}}
	index := fmt.Sprintf("%s has more than 1000 bytes", s.URL+"/huge/index.yaml")
	for name, c := range map[string]struct {
		repository, chart, version string
		registries                 []config.ChartRegistry
		kind                       deploy.Kind
		want                       string
	}{
		"unknown repository":   {"theirs", "web", "1.0.0", nil, deploy.Invalid, `there is no chart repository "theirs": add it to chartRepositories`},
		"unknown chart":        {s.URL + "/charts", "nothing", "1.0.0", nil, deploy.Invalid, `has no chart "nothing"`},
		"unknown version":      {s.URL + "/charts", "web", "3.0.0", nil, deploy.Invalid, "none of its 2 versions is 3.0.0"},
		"no version":           {s.URL + "/charts", "web", "newest", nil, deploy.Invalid, `"newest" is neither a version nor a constraint`},
		"other digest":         {s.URL + "/charts", "web", "1.1.0", nil, deploy.Invalid, "is not what the index of its repository lists"},
		"no index":             {s.URL + "/none", "web", "1.0.0", nil, deploy.Invalid, "/none/index.yaml does not exist (404)"},
		"broken index":         {s.URL + "/broken", "web", "1.0.0", nil, deploy.Invalid, "is not the index of a chart repository"},
		"huge index":           {s.URL + "/huge", "web", "1.0.0", nil, deploy.Invalid, index},
		"other scheme":         {s.URL + "/nowhere", "web", "1.0.0", nil, deploy.Invalid, "expected an address that begins with https://"},
		"no address":           {s.URL + "/nowhere", "web", "1.0.1", nil, deploy.Invalid, "names no address of version 1.0.1"},
		"credentials wanted":   {locked.URL, "web", "1.0.0", nil, deploy.Invalid, "set username and password in chartRepositories"},
		"credentials in name":  {"http://me:hunter2@" + gone + "?token=hunter2", "web", "1.0.0", nil, deploy.Unavailable, "cannot be reached"},
		"unreachable":          {"http://" + gone, "web", "1.0.0", nil, deploy.Unavailable, "cannot be reached"},
		"unavailable":          {down.URL, "web", "1.0.0", nil, deploy.Unavailable, "answers 503"},
		"unknown authority":    {encrypted.URL, "web", "1.0.0", nil, deploy.Unavailable, "certificate"},
		"registry unreachable": {"oci://" + gone, "web", "1.0.0", nil, deploy.Unavailable, "cannot be reached"},
		"registry, no chart":   {"oci://" + g.host() + "/team", "none", "1.0.0", nil, deploy.Invalid, "does not exist"},
		"registry, no version": {"oci://" + g.host() + "/team", "image", ">=2", nil, deploy.Invalid, "none of its 1 versions is >=2"},
		"registry, an image":   {"oci://" + g.host() + "/team", "image", "1.0.0", nil, deploy.Invalid, "is no Helm chart"},
		"registry, no name":    {"oci://" + g.host() + "/TEAM", "x", "1.0.0", nil, deploy.Invalid, "not the name of a chart in a registry"},
		"registry, closed":     {"oci://" + closed.host(), "web", "1.0.0", nil, deploy.Invalid, "chartRegistries of the piped configuration"},
		"registry, refused":    {"oci://" + closed.host(), "web", "1.0.0", wrong, deploy.Invalid, "chartRegistries of the piped configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rendererOf(t, Config{Registries: c.registries, Limits: Limits{Index: 1000}})
			result, err := r.Render(context.Background(), remoteChart(c.repository, c.chart, c.version))
			if !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.want) || !result.Remote {
				t.Errorf("got %s: %v", deploy.KindOf(err), err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it contains a secret: %v", err)
			}
		})
	}
}

// TestFailuresThatPass: a server may stumble.
func TestFailuresThatPass(t *testing.T) {
	s := newSite(t, false)
	s.publish(t, "web", "1.0.0")
	s.fail = 2
	if got := versionOf(t, newRenderer(t), remoteChart(s.URL+"/charts", "web", "1.0.0")); got != "1.0.0" {
		t.Errorf("got %s", got)
	}
	if diff := cmp.Diff([]string{"/charts/index.yaml", "/charts/index.yaml", "/charts/index.yaml", "/charts/files/web-1.0.0.tgz"}, s.requests()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestCredentialsStayWithTheirHost: neither redirects nor the addresses in an
// index take them elsewhere.
func TestCredentialsStayWithTheirHost(t *testing.T) {
	s, other := newSite(t, false), newSite(t, false)
	s.user, s.password = "reader", "s3cret"
	s.publish(t, "web", "1.0.0", "1.1.0", "1.2.0")
	for _, version := range []string{"1.0.0", "1.1.0"} {
		other.put("/web-"+version+".tgz", s.files["/charts/files/web-"+version+".tgz"])
	}
	s.moved["/charts/files/web-1.0.0.tgz"] = other.URL + "/web-1.0.0.tgz"
	s.moved["/charts/files/web-1.2.0.tgz"] = "ftp://example.com/x"
	index := strings.Replace(string(s.files["/charts/index.yaml"]), "- files/web-1.1.0.tgz", "- "+other.URL+"/web-1.1.0.tgz", 1)
	s.put("/charts/index.yaml", []byte(index))
	r := rendererOf(t, Config{Repositories: []config.ChartRepository{{
		Name: "ours", Address: s.URL + "/charts", Username: "reader", Password: strict.NewSecret("s3cret"),
	}}})
	for _, version := range []string{"1.0.0", "1.1.0"} {
		if got := versionOf(t, r, remoteChart("ours", "web", version)); got != version {
			t.Errorf("got %s", got)
		}
	}
	if diff := cmp.Diff([]string{"", ""}, other.seen); diff != "" {
		t.Errorf("the other host saw (-want +got):\n%s", diff)
	}
	_, err := r.Render(t.Context(), remoteChart("ours", "web", "1.2.0"))
	if err == nil || !strings.Contains(err.Error(), `redirects to an address of scheme "ftp"`) {
		t.Errorf("got %v", err)
	}
}

// TestInsecureRepositories: only where it is configured is any certificate taken.
func TestInsecureRepositories(t *testing.T) {
	s := newSite(t, true)
	s.publish(t, "web", "1.0.0")
	r := rendererOf(t, Config{Repositories: []config.ChartRepository{{Name: "ours", Address: s.URL + "/charts", Insecure: true}}})
	if got := versionOf(t, r, remoteChart("ours", "web", "1.0.0")); got != "1.0.0" {
		t.Errorf("got %s", got)
	}
}

// TestOtherCredentialsAreUsed: a changed configuration counts for what is
// rendered next.
func TestOtherCredentialsAreUsed(t *testing.T) {
	s := newSite(t, false)
	s.user, s.password = "reader", "second"
	s.publish(t, "web", "1.0.0")
	repo := config.ChartRepository{Name: "ours", Address: s.URL + "/charts", Username: "reader", Password: strict.NewSecret("first")}
	r := rendererOf(t, Config{Repositories: []config.ChartRepository{repo}})
	before := r.Fingerprint()
	if _, err := r.Render(t.Context(), remoteChart("ours", "web", "1.0.0")); !deploy.IsKind(err, deploy.Invalid) {
		t.Fatalf("got %v", err)
	}
	repo.Password = strict.NewSecret("second")
	r.Use([]config.ChartRepository{repo}, nil, []string{"127.0.0.1"})
	if got := versionOf(t, r, remoteChart("ours", "web", "1.0.0")); got != "1.0.0" {
		t.Errorf("got %s", got)
	}
	if r.Fingerprint() != before {
		t.Error("credentials change the fingerprint")
	}
	repo.Address += "/other"
	r.Use([]config.ChartRepository{repo}, nil, []string{"127.0.0.1"})
	if r.Fingerprint() == before {
		t.Error("an address does not change the fingerprint")
	}
}

// TestValuesOfTheWeb: values and schemas may come from a server.
func TestValuesOfTheWeb(t *testing.T) {
	s := newSite(t, false)
	s.put("/values.yaml", []byte("name: remote\n"))
	s.put("/schema.json", []byte(`{"properties": {"name": {"type": "string"}}}`))
	req := requestFor(fstest.MapFS{
		"app/chart/templates/x.yaml":   {Data: []byte("{apiVersion: v1, kind: Secret, metadata: {name: {{ .Values.name }}}}")},
		"app/chart/values.schema.json": {Data: []byte(`{"$ref": "` + s.URL + `/schema.json"}`)},
	})
	req.Options.ValueFiles = []string{s.URL + "/values.yaml"}
	result, err := newRenderer(t).Render(t.Context(), req)
	if err != nil || result.Objects[0].GetName() != "remote" || !result.Remote {
		t.Fatalf("got %+v, %v", result, err)
	}
	s.put("/values.yaml", []byte("name: 5\n"))
	if _, err := newRenderer(t).Render(t.Context(), req); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "at '/name': got number, want string") {
		t.Errorf("got %v", err)
	}
	req.Options.ValueFiles = []string{s.URL + "/none.yaml?token=hunter2"}
	if _, err := newRenderer(t).Render(t.Context(), req); !deploy.IsKind(err, deploy.Invalid) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestTheCache: what is broken on disk is fetched again, and the oldest goes
// when there is no room.
func TestTheCache(t *testing.T) {
	dir := t.TempDir()
	c, err := newCache(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	first, second := []byte(strings.Repeat("a", 400)), []byte(strings.Repeat("b", 400))
	c.put(first, "repo", "web", "1")
	if got, ok := c.get("repo", "web", "1"); !ok || string(got) != string(first) {
		t.Fatal("what was put is not there")
	}
	if _, ok := c.get("repo", "web1"); ok {
		t.Error("another key has it, too")
	}
	if err := os.WriteFile(filepath.Join(dir, hexSum(first)+".tgz"), second, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.get("repo", "web", "1"); ok {
		t.Error("a broken file is given out")
	}
	for i := range 10 {
		c.put([]byte(strings.Repeat(fmt.Sprint(i), 300)), "repo", "web", fmt.Sprint(i))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 1000 {
		t.Errorf("%d bytes are kept", size)
	}
	if _, ok := c.get("repo", "web", "9"); !ok {
		t.Error("the newest is gone")
	}
	c.put(make([]byte, 2000), "repo", "large")
	if _, ok := c.get("repo", "large"); ok {
		t.Error("what is larger than the cache is kept")
	}
}

// TestExcerpt: of a large index only what is asked for is read.
func TestExcerpt(t *testing.T) {
	head := "apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n    description: |\n      text\n\n      b:\n    urls: [x]\n"
	tail := "  b:\n  - version: 2.0.0\n  c:\n    - version: 3.0.0\ngenerated: now\n"
	for name, want := range map[string]string{
		"a": "entries:\n  a:\n  - version: 1.0.0\n    description: |\n      text\n\n      b:\n    urls: [x]\n",
		"b": "entries:\n  b:\n  - version: 2.0.0\n", "c": "entries:\n  c:\n    - version: 3.0.0\n", "d": head + tail,
	} {
		if diff := cmp.Diff(want, string(excerpt([]byte(head+tail), name))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, other := range []string{"{entries: {a: []}}", head + "  d: *x\n  e: &x []\n", ""} {
		if got := string(excerpt([]byte(other), "a")); got != other {
			t.Errorf("of %q only %q is read", other, got)
		}
	}
}

func TestBasicAuthorizationIsNotShown(t *testing.T) {
	s := newSite(t, false)
	s.user, s.password = "me", "hunter2"
	r := newRenderer(t)
	address := strings.Replace(s.URL, "http://", "http://me:hunter2@", 1)
	_, err := r.Render(t.Context(), remoteChart(address, "web", "1.0.0"))
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte("me:hunter2"))) {
		t.Errorf("got %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "404") {
		t.Errorf("the credentials of the address were not used: %v", err)
	}
}
