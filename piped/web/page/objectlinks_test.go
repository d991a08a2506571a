package page

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// liveNames returns a live state of objects, each written as `group/Kind/namespace/name`.
func liveNames(names ...string) *modelv1.LiveState {
	state := &modelv1.LiveState{}
	for _, name := range names {
		p := strings.SplitN(name, "/", 4)
		state.Objects = append(state.Objects, &modelv1.LiveObject{Object: &modelv1.ObjectRef{Group: p[0], Kind: p[1], Namespace: p[2], Name: p[3]}})
	}
	return state
}

// shopLinks finds the objects of an application; the address of each is its kind and name.
func shopLinks() *objectLinks {
	state := liveNames("apps/Deployment/shop/web", "apps/Deployment/shop/web-api", "/Service/shop/web", "rbac.authorization.k8s.io/ClusterRole//system:web",
		"/Namespace//shop", "gateway.networking.k8s.io/HTTPRoute/shop/web.example.com", "a.example.com/Thing/shop/same", "b.example.com/Thing/shop/same", "/ConfigMap/shop/a&b\"<")
	return newObjectLinks(state, func(o *modelv1.ObjectRef) string { return "/" + o.Kind + "?" + o.Name })
}

// marked returns runs as text: links in brackets with their address, colours in braces.
func marked(runs []textRun) string {
	var out strings.Builder
	for _, r := range runs {
		text := ""
		for _, p := range r.parts {
			if p.class != "" {
				text += "{" + p.class + " " + p.text + "}"
			} else {
				text += p.text
			}
		}
		if r.path != "" {
			text = "[" + r.path + " " + text + "]"
		}
		out.WriteString(text)
	}
	return out.String()
}

// TestNamesOfObjects: names as stages write them are links if the application has such an object,
// and nothing else is; colours stay, and a name in several of them is one link.
func TestNamesOfObjects(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"alone":                    {"Deployment shop/web", "[/Deployment?web Deployment shop/web]"},
		"in a sentence":            {"Applied Deployment shop/web.", "Applied [/Deployment?web Deployment shop/web]."},
		"before a colon":           {"Deployment shop/web: rollout complete after 2s", "[/Deployment?web Deployment shop/web]: rollout complete after 2s"},
		"in a list":                {"(Service shop/web, Deployment shop/web-api)", "([/Service?web Service shop/web], [/Deployment?web-api Deployment shop/web-api])"},
		"without a namespace":      {"Namespace shop is there", "[/Namespace?shop Namespace shop] is there"},
		"a colon in the name":      {"ClusterRole system:web: updated", "[/ClusterRole?system:web ClusterRole system:web]: updated"},
		"dots in the name":         {"HTTPRoute shop/web.example.com...", "[/HTTPRoute?web.example.com HTTPRoute shop/web.example.com]..."},
		"another object":           {"Deployment shop/other", "Deployment shop/other"},
		"another namespace":        {"Deployment core/web", "Deployment core/web"},
		"a longer name":            {"Deployment shop/web-2 Deployment shop/web:v2", "Deployment shop/web-2 Deployment shop/web:v2"},
		"a longer kind":            {"MyDeployment shop/web éDeployment shop/web", "MyDeployment shop/web éDeployment shop/web"},
		"no name follows":          {"Deployment  shop/web and Deployment", "Deployment  shop/web and Deployment"},
		"a kind as a name":         {"Deployment Service shop/web", "Deployment [/Service?web Service shop/web]"},
		"of two API groups":        {"Thing shop/same", "Thing shop/same"},
		"several lines":            {"Deployment\nshop/web\nService shop/web", "Deployment\nshop/web\n[/Service?web Service shop/web]"},
		"coloured":                 {"\x1b[32mApplied Deployment shop/web\x1b[0m now", "{ansi-green Applied }[/Deployment?web {ansi-green Deployment shop/web}] now"},
		"begins in a colour":       {"\x1b[1mDeployment\x1b[0m shop/web", "[/Deployment?web {ansi-bold Deployment} shop/web]"},
		"a colour within the name": {"a Deployment sh\x1b[31mop/w\x1b[0meb b", "a [/Deployment?web Deployment sh{ansi-red op/w}eb] b"},
		"a sequence within":        {"Deployment sh\x1b[2Kop/web", "[/Deployment?web Deployment shop/web]"},
		"control characters":       {"Deployment shop/\u202eweb", "Deployment shop/\uFFFDweb"},
		"empty":                    {"", ""},
	} {
		plain, parts := colours(tc.line)
		if got := marked(shopLinks().runs(plain, parts)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := marked((*objectLinks)(nil).runs("Deployment shop/web", nil)); got != "Deployment shop/web" {
		t.Errorf("without live objects: %q", got)
	}
}

// TestTextOfLinks: what a name or an address contains stays text.
func TestTextOfLinks(t *testing.T) {
	got, err := html(t.Context(), logText(logLine{text: "x", runs: []textRun{{parts: []coloured{{"", "<b> & "}}}, {`/a?b="&c`, []coloured{{"ansi-red", "<i>"}, {"", "'"}}}}}))
	if want := `&lt;b&gt; &amp; <a href="/a?b=&#34;&amp;c"><span class="ansi-red">&lt;i&gt;</span>&#39;</a>`; got != want || err != nil {
		t.Errorf("%s, want %s; %v", got, want, err)
	}
}

// FuzzNamesOfObjects: with links a line has the same text in the same colours.
func FuzzNamesOfObjects(f *testing.F) {
	for _, line := range []string{"Deployment shop/web", "\x1b[1mDeployment\x1b[0m shop/web.", "Deployment shop/web Service shop/web", "é Namespace shop:"} {
		f.Add(line)
	}
	links := shopLinks()
	f.Fuzz(func(t *testing.T, line string) {
		plain, parts := colours(line)
		if parts == nil {
			parts = []coloured{{"", plain}}
		}
		var joined []coloured
		for _, r := range links.runs(plain, parts) {
			for _, p := range r.parts {
				if n := len(joined); n > 0 && joined[n-1].class == p.class {
					joined[n-1].text += p.text
				} else {
					joined = append(joined, p)
				}
			}
		}
		if diff := cmp.Diff(parts, joined, cmp.AllowUnexported(coloured{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	})
}

// naming returns the API of a deployment whose log names an object of the application, one of
// another, and each line of many.
func naming(t *testing.T) *fakeAPI {
	f := logged(t, 0).on("GetLiveState", &controlv1.GetLiveStateResponse{LiveState: liveNames("apps/Deployment/shop/web")})
	block := func(i int64, text string) *modelv1.LogBlock {
		return &modelv1.LogBlock{Index: i, Log: text, CreatedAtMs: minutesAgo(5)}
	}
	blocks := []*modelv1.LogBlock{block(0, "Applied Deployment shop/web, Deployment core/web"), block(1, "\x1b[1mDeployment\x1b[0m shop/web: rollout complete")}
	f.on("GetStageLog", &controlv1.GetStageLogResponse{StageId: "sync", Blocks: blocks})
	f.streams["FollowStageLogs"] = func(proto.Message) ([]proto.Message, error) {
		return []proto.Message{&controlv1.FollowStageLogsResponse{Blocks: blocks[:1]}, &controlv1.FollowStageLogsResponse{Blocks: blocks[1:]}}, nil
	}
	return f
}

// TestLinksInLogs: the view, the windows that are added and the stream of a log have the same links,
// and each reads the live state once.
func TestLinksInLogs(t *testing.T) {
	f := naming(t)
	body := golden(t, "log-links", f.get("/deployments/d1"))
	const first = `Applied <a href="/applications/checkout~0000chec?object=apps%2FDeployment%2Fshop%2Fweb&amp;tab=objects">Deployment shop/web</a>, Deployment core/web<`
	const second = `<a href="/applications/checkout~0000chec?object=apps%2FDeployment%2Fshop%2Fweb&amp;tab=objects"><span class="ansi-bold">Deployment</span> shop/web</a>: rollout complete<`
	f = naming(t)
	h := f.page()
	window := request(http.MethodGet, "/deployments/d1/stages/sync/lines?before=2", "")
	window.Header.Set("HX-Request", "true")
	for name, text := range map[string]string{
		"the view": body, "a window": bodyOf(t, answerOf(h, window)), "the stream": bodyOf(t, answerOf(h, request(http.MethodGet, "/deployments/d1/stages/sync/log?after=-1", ""))),
	} {
		if strings.Count(text, first) != 1 || strings.Count(text, second) != 1 {
			t.Errorf("%s has not just the two links: %s", name, text)
		}
	}
	if n := callsOf(f, "GetLiveState"); n != 2 {
		t.Errorf("the live state was read %d times for a window and the two blocks of the stream", n)
	}
}

// TestLogsWithoutLinks: without the cluster, and for callers who may not open objects, names are text.
func TestLogsWithoutLinks(t *testing.T) {
	may := naming(t)
	mayNot := naming(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ben", Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE}}})
	for name, f := range map[string]*fakeAPI{"without the cluster": may.fails("GetLiveState", codes.Unavailable, "the cluster does not answer"), "without the permission": mayNot} {
		body := bodyOf(t, f.get("/deployments/d1"))
		if strings.Contains(body, "Fweb") || !strings.Contains(body, "Applied Deployment shop/web, Deployment core/web") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// longLine is as long as a line of a script may be.
const longLine = 64 << 10

// TestLongWords: what is longer than all names is not looked up, but for the name that it begins with.
func TestLongWords(t *testing.T) {
	links := shopLinks()
	for _, mark := range []string{"-", ".", "/", ":"} {
		text := "Deployment " + strings.Repeat(mark, longLine)
		n := 0
		for range links.endsOfName(text, 0, len("Deployment ")) {
			n++
		}
		if n > len("HTTPRoute shop/web.example.com") { // the longest name
			t.Errorf("%d names are looked up in %d times %q", n, longLine, mark)
		}
	}
	dots := strings.Repeat(".", longLine)
	if got, want := marked(links.runs("Deployment shop/web"+dots, nil)), "[/Deployment?web Deployment shop/web]"+dots; got != want {
		t.Errorf("the name before %d dots is no link", longLine)
	}
}

// TestLongLines: the memory that the links of a line need grows with its length, and not with the
// square of it, whatever its colours. What the line had before stays.
func TestLongLines(t *testing.T) {
	links := shopLinks()
	allocated := func(names int) uint64 {
		text, parts := colours(strings.Repeat("\x1b[31mon Service shop/web\x1b[0m ", names))
		before := slices.Clone(parts)
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		runs := links.runs(text, parts)
		runtime.ReadMemStats(&to)
		if len(runs) != 2*names+1 || !slices.Equal(before, parts) {
			t.Errorf("%d names have %d runs, or the parts of the line were changed", names, len(runs))
		}
		return to.TotalAlloc - from.TotalAlloc
	}
	one, four := allocated(500), allocated(2000)
	if four > 8*one {
		t.Errorf("%d bytes for 500 names, %d for four times as many", one, four)
	}
}

// BenchmarkLinksOfAWindow finds the names of 5,000 objects in a window of 500 lines.
func BenchmarkLinksOfAWindow(b *testing.B) {
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("apps/Deployment/shop/web-%d", i))
	}
	state := liveNames(names...)
	for b.Loop() {
		links := newObjectLinks(state, func(o *modelv1.ObjectRef) string { return "/" + o.Name })
		for i := range logWindow {
			links.runs(fmt.Sprintf("Applied Deployment shop/web-%d: 2 of 4 pods are available, 1 is not ready for 12 s", i), nil)
		}
	}
}
