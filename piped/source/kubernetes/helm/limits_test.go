package helm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// chartOf returns a request for a chart with one template.
func chartOf(template string) Request {
	return requestFor(fstest.MapFS{"app/chart/templates/x.yaml": {Data: []byte(template)}})
}

func requestFor(files fstest.MapFS) Request {
	if files["app/chart/Chart.yaml"] == nil {
		files["app/chart/Chart.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: v2\nname: web\nversion: 1.0.0\n")}
	}
	return Request{Tree: files, Dir: "app", Chart: kubernetes.HelmChart{Path: "chart"}, ReleaseName: "web"}
}

// TestTemplatesAreBounded: a template that would take the agent's time, memory or
// stack is the error of its application alone.
func TestTemplatesAreBounded(t *testing.T) {
	doubled := func(grow string) string {
		return `{{ $x := "0123456789abcdef" }}{{ $d := dict }}{{ $l := list 1 2 }}{{ range until 60 }}` + grow + `{{ end }}`
	}
	for name, c := range map[string]struct{ template, want string }{
		"loop without end":           {`{{ range 1000000000000000 }}{{ end }}`, "templates were stopped after 300ms"},
		"loops in loops":             {`{{ $n := until 900000 }}{{ range $n }}{{ range $n }}{{ $x := . }}{{ end }}{{ end }}`, "templates were stopped"},
		"loop in tpl":                {`{{ tpl "{{ range 1000000000000000 }}{{ end }}" . }}`, "templates were stopped"},
		"loop that writes":           {`{{ range 1000000000000000 }}` + strings.Repeat("0123456789", 200) + `{{ end }}`, "make more than 16777216 bytes"},
		"loop in a definition":       {`{{ define "a" }}{{ range 1000000000000000 }}{{ end }}{{ end }}{{ include "a" . }}`, "templates were stopped"},
		"loop in an else":            {`{{ if false }}{{ else }}{{ with 0 }}{{ else }}{{ range 1000000000000000 }}{{ else }}{{ end }}{{ end }}{{ end }}`, "templates were stopped"},
		"template calls itself":      {`{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`, "more than 1000 deep"},
		"template includes itself":   {`{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`, "more than 1000 deep"},
		"templates call each other":  {`{{ define "a" }}{{ include "b" . }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ include "a" . }}`, "more than 1000 deep"},
		"tpl calls itself":           {`{{ define "a" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ include "a" . }}`, "more than 1000 deep"},
		"recursion that fans out":    {`{{ define "a" }}{{ if gt (int .) 0 }}{{ template "a" (sub . 1) }}{{ template "a" (sub . 1) }}{{ end }}{{ end }}{{ template "a" 200 }}`, "templates were stopped"},
		"blocks nested deep":         {strings.Repeat(`{{ if true }}`, 300) + strings.Repeat(`{{ end }}`, 300), "nested more than 200 deep"},
		"parentheses nested deep":    {`{{ ` + strings.Repeat(`(`, 300) + `1` + strings.Repeat(`)`, 300) + ` }}`, "nested more than 200 deep"},
		"template too long":          {strings.Repeat(" ", maxTemplate+1), "expected at most 1048576"},
		"tpl too long":               {`{{ tpl (repeat 1100000 "x") . }}`, "tpl is given a template"},
		"list too long":              {`{{ range until 2000000000 }}{{ end }}`, "until is called with 2000000000"},
		"list of steps too long":     {`{{ untilStep 0 2000000000 1 }}`, "untilStep is called with 2000000000"},
		"sequence too long":          {`{{ seq 2000000000 }}`, "seq is called with 2000000000"},
		"random text too long":       {`{{ randAlphaNum 2000000000 }}`, "randAlphaNum is called with"},
		"text repeated":              {`{{ repeat 1000000000 "abc" }}`, "repeat would make up to"},
		"text indented":              {`{{ nindent 1000000000 "abc" }}`, "nindent would make up to"},
		"text replaced":              {`{{ $x := repeat 1000000 "x" }}{{ replace "x" $x $x }}`, "replace would make up to"},
		"text replaced by a pattern": {`{{ $x := repeat 1000000 "x" }}{{ regexReplaceAll "x" $x $x }}`, "regexReplaceAll would make up to"},
		"text doubled by printf":     {doubled(`{{ $x = printf "%s%s" $x $x }}`), "make more than 16777216"},
		"text doubled by cat":        {doubled(`{{ $x = cat $x $x }}`), "make more than"},
		"text doubled by include":    {`{{ define "d" }}{{ . }}{{ . }}{{ end }}` + doubled(`{{ $x = include "d" $x }}`), "make more than"},
		"list doubled":               {doubled(`{{ $l = concat $l $l }}`), "make more than"},
		"value with copies":          {doubled(`{{ $d = dict "a" $d "b" $d }}`) + `{{ toYaml $d }}`, "toYaml is called with a value of more than 1000000 parts"},
		"value nested deep":          {`{{ $d := dict }}{{ range until 5000 }}{{ $d = dict "a" $d }}{{ end }}{{ toJson $d }}`, "toJson is called with a value of more than"},
		"map in itself":              {`{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ $d }}`, "set would put a value into itself"},
		"map in itself by a list":    {`{{ $d := dict }}{{ $_ := set $d "a" (list (dict "b" $d)) }}{{ $d }}`, "set would put a value into itself"},
		"map merged into itself":     {`{{ $d := dict }}{{ $_ := merge $d (dict "a" $d) }}{{ $d }}`, "merge would put a value into itself"},
		"result too large":           {`{{ $x := repeat 10000000 "abcdef" }}`, "a function makes 60000000 bytes at once"},
		"panic":                      {`{{ index (list 1) 5 }}`, "x.yaml:1"},
		"aliases that grow": {"a: &a [x,x,x,x,x,x,x,x,x]\n" + func() (out string) {
			for i := range 12 {
				out += fmt.Sprintf("%c: &%c [%s*%c]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 8), 'a'+i)
			}
			return out
		}(), "not valid YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := Limits{Time: time.Minute, Output: 1 << 20}
			if strings.Contains(c.want, "stopped") {
				limits.Time = 300 * time.Millisecond
			}
			r, err := New(Config{Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Render(t.Context(), chartOf(c.template))
			if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %.400v", err)
			}
			if slow := strings.Contains(err.Error(), "were stopped"); slow != errors.Is(err, ErrSlow) {
				t.Errorf("slow: %t", !slow)
			}
			if !strings.Contains(err.Error(), "web/templates/x.yaml") {
				t.Errorf("the file is not named: %.400v", err)
			}
		})
	}
}

// TestRenderingEndsWithItsCaller: who asked may go before the end.
func TestRenderingEndsWithItsCaller(t *testing.T) {
	r := newRenderer(t)
	gone := errors.New("the agent stops")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(gone)
	for range 2 * r.limits.Concurrent {
		if _, err := r.Render(ctx, chartOf(`{{ range 1000000000000000 }}{{ end }}`)); !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
	}
}

// TestSlowDownloadHoldsUpNoOther: charts are rendered while one waits for its server.
func TestSlowDownloadHoldsUpNoOther(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan error, 1)
	first := sync.OnceFunc(func() { close(asked) })
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first()
		<-r.Context().Done()
	}))
	defer server.Close()
	r := rendererOf(t, Config{Limits: Limits{Concurrent: 1}})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, err := r.Render(ctx, remoteChart(server.URL+"/charts", "web", "1.0.0"))
		ended <- err
	}()
	<-asked
	if _, err := r.Render(t.Context(), chartOf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the download ended with %v, want that its caller has gone", err)
	}
}

// TestChartsAreBounded: what a chart consists of has bounds, too.
func TestChartsAreBounded(t *testing.T) {
	many := fstest.MapFS{}
	for i := range 30 {
		many[fmt.Sprintf("app/chart/files/%d", i)] = &fstest.MapFile{Data: []byte("x")}
	}
	bomb := packed(t, map[string]string{"web/Chart.yaml": "name: web", "web/big": strings.Repeat("0", 1<<20)})
	small := packed(t, map[string]string{"web/Chart.yaml": "name: web"})
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  string
	}{
		"many files":            {many, "too many files"},
		"many bytes":            {fstest.MapFS{"app/chart/big": {Data: make([]byte, 1<<20)}}, "too many bytes"},
		"packed bytes":          {fstest.MapFS{"app/chart/charts/b.tgz": {Data: bomb}}, "too many bytes"},
		"packed in packed":      {fstest.MapFS{"app/chart/charts/b.tgz": {Data: packed(t, map[string]string{"b/Chart.yaml": "{}", "b/charts/c.tgz": string(bomb)})}}, "too many bytes"},
		"packed, no archive":    {fstest.MapFS{"app/chart/charts/b.tgz": {Data: []byte("text")}}, "not a gzipped archive"},
		"packed, broken":        {fstest.MapFS{"app/chart/charts/b.tgz": {Data: small[:len(small)-20]}}, "the archive is broken"},
		"packed, leads out":     {fstest.MapFS{"app/chart/charts/b.tgz": {Data: packed(t, map[string]string{"b/../../x": "x"})}}, "not inside a chart's directory"},
		"packed, absolute":      {fstest.MapFS{"app/chart/charts/b.tgz": {Data: packed(t, map[string]string{"/b/x": "x"})}}, "not inside a chart's directory"},
		"packed, empty":         {fstest.MapFS{"app/chart/charts/b.tgz": {Data: packed(t, nil)}}, "the archive is empty"},
		"directories nested":    {fstest.MapFS{"app/chart/" + strings.Repeat("d/", 40) + "x": {Data: []byte("x")}}, "nested more than 32 deep"},
		"values too large":      {fstest.MapFS{"app/values.yaml": {Data: make([]byte, maxValues+1)}}, "more than 4194304 bytes"},
		"ignore file is broken": {fstest.MapFS{"app/chart/.helmignore": {Data: []byte("**/x\n")}}, ".helmignore: double-star"},
		"link to nothing":       {fstest.MapFS{"app/chart/x": {Data: []byte("nowhere"), Mode: fs.ModeSymlink}}, "app/chart/x"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := Limits{Files: 20, Bytes: 256 << 10}
			if name == "directories nested" {
				limits.Files = 100 // directories count, too
			}
			r, err := New(Config{Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			req := requestFor(c.files)
			if c.files["app/values.yaml"] != nil {
				req.Options.ValueFiles = []string{"values.yaml"}
			}
			_, err = r.Render(t.Context(), req)
			if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestObjectsAreBounded: what a chart renders to has a bound of its own.
func TestObjectsAreBounded(t *testing.T) {
	r, err := New(Config{Limits: Limits{Output: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Render(t.Context(), chartOf(strings.Repeat("# comment\n", 101)))
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "renders to more than 1000 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestAChartMayBePacked: helmChart.path may name an archive of the repository.
func TestAChartMayBePacked(t *testing.T) {
	data := packed(t, map[string]string{
		"web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "web/templates/x.yaml": "{apiVersion: v1, kind: Secret, metadata: {name: x}}",
	})
	req := requestFor(fstest.MapFS{"charts/web-1.0.0.tgz": {Data: data}})
	req.Chart.Path = "../charts/web-1.0.0.tgz"
	result, err := newRenderer(t).Render(t.Context(), req)
	if err != nil || len(result.Objects) != 1 || result.Version != "1.0.0" || result.Remote {
		t.Errorf("got %+v, %v", result, err)
	}
}

func FuzzRender(f *testing.F) {
	f.Add("a: {{ .Values.a }}\n", "a: 1\n", "b=2")
	f.Add("{{ range .Values.list }}---\n{{ toYaml . }}\n{{ end }}", "list: [{apiVersion: v1, kind: Pod, metadata: {name: x}}]", "list[0].kind=Job")
	f.Add("{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ include \"a\" $ }}", "", "a.b[3]=x")
	f.Add("{{ tpl .Values.t . }}", "t: '{{ .Release.Name }}'", "t={{ .Chart }}")
	f.Fuzz(func(t *testing.T, template, values, set string) {
		req := requestFor(fstest.MapFS{
			"app/chart/templates/x.yaml": {Data: []byte(template)}, "app/chart/values.yaml": {Data: []byte(values)}, "app/values.yaml": {Data: []byte(values)},
		})
		req.Options.ValueFiles = []string{"values.yaml"}
		key, value, _ := strings.Cut(set, "=")
		req.Options.SetValues = map[string]string{key: value}
		r, err := New(Config{Limits: Limits{Time: time.Second, Output: 1 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := r.Render(t.Context(), req)
		if err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of kind %s: %v", deploy.KindOf(err), err)
		}
		if err != nil && strings.Contains(err.Error(), "internal error") {
			t.Error(err)
		}
		for _, o := range result.Objects {
			if o.GetName() == "" || o.GetKind() == "" {
				t.Errorf("an object without name or kind: %v", o.Object)
			}
		}
	})
}

// FuzzChart: the files next to the templates may be anything, too.
func FuzzChart(f *testing.F) {
	const head = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
	f.Add(head, "", "", "{}")
	f.Add(head+"type: library\nkubeVersion: '>=1.20'\n", "name: db\nversion: 1.0.0", "dependencies: []", `{"type": "object", "required": ["a"]}`)
	f.Add(head+"dependencies: [{name: db, version: 1.x, repository: 'file://../db', condition: db.enabled, tags: [x], alias: y, import-values: [public, {child: a, parent: b}]}]",
		"name: db\nversion: 1.0.0", "dependencies: [{name: db, version: 1.0.0, repository: 'file://../db'}]", `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}`)
	f.Add(head+"dependencies: [{name: db, version: '>0', repository: 'file://../../..'}]", "", "", `{"$ref": "file:///etc/passwd"}`)
	f.Add(head+"dependencies: [null]", "dependencies: [{name: web, version: 1.0.0, repository: 'file://../chart'}]", "dependencies: [null]", `{"pattern": "(a+)+$"}`)
	f.Fuzz(func(t *testing.T, chart, below, lock, schema string) {
		files := fstest.MapFS{
			"app/chart/Chart.yaml": {Data: []byte(chart)}, "app/chart/Chart.lock": {Data: []byte(lock)}, "app/chart/values.schema.json": {Data: []byte(schema)},
			"app/chart/values.yaml":      {Data: []byte("a: b\ndb: {enabled: true, exports: {public: {c: d}}}\n")},
			"app/chart/templates/x.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: {{ toJson .Chart | quote }}}\n")},
			"app/db/Chart.yaml":          {Data: []byte(below)}, "app/db/templates/x.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n")},
		}
		r, err := New(Config{Transport: unreachableNetwork{}, Limits: Limits{Time: time.Second, Download: time.Second, Output: 1 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Render(t.Context(), requestFor(files))
		if err != nil && (!deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.Unavailable) || strings.Contains(err.Error(), "internal error")) {
			t.Errorf("of kind %s: %v", deploy.KindOf(err), err)
		}
	})
}

// unreachableNetwork is a network without any server.
type unreachableNetwork struct{}

func (unreachableNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

func FuzzUnpack(f *testing.F) {
	f.Add(packed(f, map[string]string{"web/Chart.yaml": "name: web", "web/templates/x.yaml": "a: b"}))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		left := budget{files: 10, bytes: 1 << 16}
		files, err := unpack(data, &left)
		if err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("of kind %s: %v", deploy.KindOf(err), err)
		}
		for _, f := range files {
			if !fs.ValidPath(f.Name) || bytes.HasPrefix([]byte(f.Name), []byte("..")) {
				t.Errorf("file %q", f.Name)
			}
		}
	})
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
