package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// logged returns the API of a deployment whose stage runs and has logged some lines, "line 1" and so
// on. It answers as the API is documented.
func logged(t *testing.T, lines int) *fakeAPI {
	d := waitingDeployment()
	d.Id = "d1"
	d.Stages = []*modelv1.PipelineStage{{Id: "sync", Name: "K8S_SYNC", Status: modelv1.StageStatus_STAGE_RUNNING, StartedAtMs: minutesAgo(5)}}
	f := newFake(t, "view", "view-logs").on("SearchApplications", &controlv1.SearchApplicationsResponse{}).on("GetStatus", &controlv1.GetStatusResponse{}).
		on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: d})
	f.answers["GetStageLog"] = func(m proto.Message) (proto.Message, error) {
		req, resp := m.(*controlv1.GetStageLogRequest), &controlv1.GetStageLogResponse{StageId: "sync"}
		if req.DeploymentId != "d1" || req.StageId != "sync" {
			return nil, errOf(codes.NotFound, "no such log")
		}
		to := int64(lines)
		if req.BeforeIndex != nil {
			to = min(to, *req.BeforeIndex)
		}
		from := max(0, to-int64(req.Limit))
		if req.AfterIndex != nil {
			from = *req.AfterIndex + 1
			to = min(int64(lines), from+int64(req.Limit))
		}
		for i := from; i < to; i++ {
			resp.Blocks = append(resp.Blocks, &modelv1.LogBlock{Index: i, Log: fmt.Sprintf("line %d", i+1), CreatedAtMs: minutesAgo(5)})
		}
		resp.Earlier, resp.Later = from > 0, to < int64(lines)
		return resp, nil
	}
	return f
}

// TestLog: the view has the end of the log, the way to earlier lines, the stream of later ones, and
// the search.
func TestLog(t *testing.T) {
	body := golden(t, "log", logged(t, 501).get("/deployments/d1"))
	for _, want := range []string{
		`hx-get="/deployments/d1/stages/sync/lines?before=1"`, `href="/deployments/d1?stage=sync&amp;before=1"`,
		`hx-sse:connect="/deployments/d1/stages/sync/log?after=500"`, `href="/deployments/d1/stages/sync/log"`, `<input type="search" name="find"`, "data-log-follow",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %s", want)
		}
	}
}

// TestWindowsOfTheLog: every address shows its lines, and says where the others are.
func TestWindowsOfTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		path        string
		lines       int
		first, last int
		earlier     int // index; 0 for none
		later       int // index; 0 for none
		stream      string
	}{
		"the end":             {path: "", lines: 2000, first: 1501, last: 2000, earlier: 1500, stream: "1999"},
		"a short log":         {path: "", lines: 3, first: 1, last: 3, stream: "2"},
		"an empty log":        {path: "", lines: 0, stream: "-1"},
		"before":              {path: "&before=1500", lines: 2000, first: 1001, last: 1500, earlier: 1000, later: 1499},
		"before, the start":   {path: "&before=500", lines: 2000, first: 1, last: 500, later: 499},
		"after":               {path: "&after=999", lines: 2000, first: 1001, last: 1500, earlier: 1000, later: 1499},
		"after, the end":      {path: "&after=1499", lines: 2000, first: 1501, last: 2000, earlier: 1500, stream: "1999"},
		"after the end":       {path: "&after=1999", lines: 2000, earlier: 2000, stream: "1999"},
		"around a line":       {path: "&line=1000", lines: 2000, first: 750, last: 1249, earlier: 749, later: 1248},
		"around the first":    {path: "&line=1", lines: 2000, first: 1, last: 250, later: 249},
		"around the last":     {path: "&line=2000", lines: 2000, first: 1501, last: 2000, earlier: 1500, stream: "1999"},
		"around none":         {path: "&line=9223372036854775807", lines: 2000, first: 1501, last: 2000, earlier: 1500, stream: "1999"},
		"around a negative":   {path: "&line=-9223372036854775808", lines: 2000, later: -1},
		"before the very end": {path: "&before=9223372036854775807", lines: 3, first: 1, last: 3, stream: "2"},
	} {
		body := bodyOf(t, logged(t, tc.lines).get("/deployments/d1?tab=log&stage=sync"+tc.path))
		link := func(side string, index int) string {
			return fmt.Sprintf(`<li class="log-more" hx-get="/deployments/d1/stages/sync/lines?%s=%d"`, side, index)
		}
		if got := strings.Count(body, `<li class="log-more"`); got != btoi(tc.earlier > 0)+btoi(tc.later != 0) || tc.earlier > 0 && !strings.Contains(body, link("before", tc.earlier)) || tc.later != 0 && !strings.Contains(body, link("after", tc.later)) {
			t.Errorf("%s: %d ways to other lines, or wrong ones", name, got)
		}
		if got := strings.Contains(body, "log-stream"); got != (tc.stream != "") || got && !strings.Contains(body, `/log?after=`+tc.stream+`"`) {
			t.Errorf("%s: it has a stream: %v, or a wrong one", name, got)
		}
		count := 0
		if tc.last > 0 {
			count = tc.last - tc.first + 1
		}
		if got := strings.Count(body, ` id="line-`); got != count || count > 0 && (!strings.Contains(body, fmt.Sprintf(` id="line-%d"`, tc.first)) || !strings.Contains(body, fmt.Sprintf(` id="line-%d"`, tc.last))) {
			t.Errorf("%s: %d lines, want %d from %d to %d", name, got, count, tc.first, tc.last)
		}
	}
	if body := bodyOf(t, logged(t, 2000).get("/deployments/d1?line=1000")); !strings.Contains(body, `<li class="" id="line-1000" aria-current="true">`) {
		t.Error("the linked line is not marked")
	}
	if body := bodyOf(t, logged(t, 3).get("/deployments/d1?line=x")); !strings.Contains(body, "line=x in the address is not a number") {
		t.Error("a wrong number is not named:", body)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLinesThatAreAdded: a script gets lines alone, with the way to more of them in its direction, and
// at the end the stream.
func TestLinesThatAreAdded(t *testing.T) {
	get := func(f *fakeAPI, path string) (int, string) {
		r := request(http.MethodGet, "/deployments/d1/stages/sync/lines"+path, "")
		r.Header.Set("HX-Request", "true")
		resp := answerOf(f.page(), r)
		return resp.StatusCode, bodyOf(t, resp)
	}
	const more = `<li class="log-more" hx-get="/deployments/d1/stages/sync/lines?`
	for path, want := range map[string]struct {
		begins, ends string
		lines        int
	}{
		"?before=1500": {more + `before=1000"`, `line 1500</span> </li>`, 500},
		"?before=500":  {`<li class="" id="line-1">`, `line 500</span> </li>`, 500},
		"?before=9999": {more + `before=1500"`, `line 2000</span> </li>`, 500}, // what follows is there already
		"?after=999":   {`<li class="" id="line-1001">`, `Later lines</a></li>`, 500},
		"?after=1899":  {`<li class="" id="line-1901">`, `hx-trigger="load, retry"></li>`, 100},
	} {
		_, body := get(logged(t, 2000), path)
		if !strings.HasPrefix(body, want.begins) || !strings.HasSuffix(body, want.ends) || strings.Count(body, ` id="line-`) != want.lines {
			t.Errorf("%s: begins with %.80s, ends with %s, has %d lines", path, body, body[max(0, len(body)-80):], strings.Count(body, ` id="line-`))
		}
	}
	if code, _ := get(logged(t, 3), "?before=x"); code != http.StatusBadRequest {
		t.Errorf("a wrong number: %d", code)
	}
	if code, _ := get(logged(t, 3).fails("GetStageLog", codes.Unavailable, "the agent stops"), "?before=2"); code != http.StatusServiceUnavailable {
		t.Errorf("an agent that stops: %d", code)
	}
	if body := bodyOf(t, logged(t, 3).get("/deployments/d1/stages/sync/lines?before=2")); !strings.Contains(body, "<title>") || !strings.Contains(body, "line 1</span>") {
		t.Error("without a script, it is no page:", body)
	}
}

// TestFindInTheLog: what the API finds is listed as text, with links to the lines.
func TestFindInTheLog(t *testing.T) {
	f := logged(t, 2000)
	var asked []string
	f.answers["SearchStageLog"] = func(m proto.Message) (proto.Message, error) {
		req := m.(*controlv1.SearchStageLogRequest)
		asked = append(asked, fmt.Sprint(req.Text, " after ", req.AfterIndex != nil, req.GetAfterIndex()))
		if req.AfterIndex != nil {
			return &controlv1.SearchStageLogResponse{SearchedIndex: 1999}, nil
		}
		return &controlv1.SearchStageLogResponse{More: true, SearchedIndex: 99, Matches: []*controlv1.StageLogMatch{
			{Index: 6, Line: 7, Text: "an <b>image</b>"}, {Index: 99, Line: 100, Text: "\x1b[31mimages\u202e"},
		}}, nil
	}
	body := bodyOf(t, f.get("/deployments/d1?stage=sync&find=%3Ci%3E+%26"))
	for _, want := range []string{
		"2 lines have “&lt;i&gt; &amp;”, up to line 100.", `href="/deployments/d1?stage=sync&amp;find=%3Ci%3E+%26&amp;line=7#line-7"`, "an &lt;b&gt;image&lt;/b&gt;", ">images\uFFFD<",
		`href="/deployments/d1?stage=sync&amp;find=%3Ci%3E+%26&amp;found=99"`, `value="&lt;i&gt; &amp;"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %s", want)
		}
	}
	if body := bodyOf(t, f.get("/deployments/d1?stage=sync&find=x&found=99&line=2")); !strings.Contains(body, "No line has “x”.") || !strings.Contains(body, `<li class="" id="line-2" aria-current="true">`) {
		t.Error("the rest of the search, with a line, is wrong")
	}
	if got := strings.Join(asked, ", "); got != "<i> & after false 0, x after true 99" {
		t.Error("the API was asked for", got)
	}
}

// levelled returns the API of a log whose every 100th line is an error, and every 50th other one a
// warning. It is the same in a stream.
func levelled(t *testing.T, lines int) *fakeAPI {
	f := logged(t, lines)
	change := func(blocks []*modelv1.LogBlock) {
		for _, b := range blocks {
			switch {
			case (b.Index+1)%100 == 0:
				b.Severity = modelv1.LogSeverity_ERROR
			case (b.Index+1)%50 == 0:
				b.Log = "Warning: " + b.Log
			}
		}
	}
	window := f.answers["GetStageLog"]
	f.answers["GetStageLog"] = func(m proto.Message) (proto.Message, error) {
		resp, err := window(m)
		if err == nil {
			change(resp.(*controlv1.GetStageLogResponse).Blocks)
		}
		return resp, err
	}
	f.streams["FollowStageLogs"] = func(m proto.Message) ([]proto.Message, error) {
		after, ok := m.(*controlv1.FollowStageLogsRequest).AfterIndex["sync"]
		resp := &controlv1.FollowStageLogsResponse{StageId: "sync"}
		for i := after + int64(btoi(ok)); i < int64(lines); i++ {
			resp.Blocks = append(resp.Blocks, &modelv1.LogBlock{Index: i, Log: fmt.Sprintf("line %d", i+1), CreatedAtMs: minutesAgo(5)})
		}
		change(resp.Blocks)
		return []proto.Message{resp}, nil
	}
	return f
}

// TestLevelsOfTheLog: a level of the log is read until a window is full or enough was read, and all
// that leads on has the level.
func TestLevelsOfTheLog(t *testing.T) {
	for path, want := range map[string]struct {
		lines, shown, reads int
		has                 []string
	}{
		"":                                  {2000, 500, 1, []string{`aria-current="true">All</a>`, ">Whole log</a>"}},
		"&level=nonsense":                   {2000, 500, 1, []string{`aria-current="true">All</a>`}},
		"&level=error":                      {2000, 20, 2, []string{`aria-current="true">Errors</a>`, `id="line-100"`, `id="line-2000"`, `/log?after=1999&amp;level=error"`, `href="/deployments/d1/stages/sync/log?level=error">Errors as text</a>`}},
		"&level=warning":                    {2000, 40, 2, []string{`aria-current="true">Warnings and errors</a>`, "Warning: line 50<", `<input type="hidden" name="level" value="warning">`}},
		"&level=error&before=1100":          {30_000, 11, 2, []string{`id="line-100"`, `id="line-1100"`, `/lines?after=1099&amp;level=error"`}},
		"&level=error&after=28099":          {30_000, 19, 2, []string{`id="line-28200"`, `id="line-30000"`, `?stage=sync&amp;before=28100&amp;level=error"`}},
		"&level=error#rare":                 {30_000, 200, 20, []string{`id="line-10100"`, `/lines?before=10000&amp;level=error"`}},
		"&level=warning&line=1000":          {2000, 24, 2, []string{`id="line-1000" aria-current="true"`, `href="/deployments/d1?stage=sync&amp;line=1000#line-1000"`}},
		"&level=error#none":                 {99, 0, 1, []string{"No line of this log is an error yet.", `/log?after=98&amp;level=error"`}},
		"&level=error&find=line&stage=sync": {200, 2, 1, []string{"1 error has “line”", `href="/deployments/d1?stage=sync&amp;find=line&amp;level=error&amp;line=100#line-100"`, `href="/deployments/d1?find=line&amp;level=warning&amp;stage=sync"`}},
	} {
		f := levelled(t, want.lines)
		f.on("SearchStageLog", &controlv1.SearchStageLogResponse{SearchedIndex: 199, Matches: []*controlv1.StageLogMatch{
			{Index: 98, Line: 99, Text: "line 99"}, {Index: 99, Line: 100, Text: "line 100", Severity: modelv1.LogSeverity_ERROR},
		}})
		address, _, _ := strings.Cut(path, "#")
		body := bodyOf(t, f.get("/deployments/d1?stage=sync"+address))
		reads := 0
		for _, call := range f.calls {
			reads += btoi(call == "GetStageLog")
		}
		if got := strings.Count(body, ` id="line-`); got != want.shown || reads != want.reads {
			t.Errorf("%s: %d lines by %d reads, want %d by %d", path, got, reads, want.shown, want.reads)
		}
		for _, has := range want.has {
			if !strings.Contains(body, has) {
				t.Errorf("%s: the view lacks %s", path, has)
			}
		}
	}
}

// TestLevelsOfTheStream: lines that arrive, and the log as text, are of the level that the address names.
func TestLevelsOfTheStream(t *testing.T) {
	f := levelled(t, 300)
	streamed := bodyOf(t, f.get("/deployments/d1/stages/sync/log?after=149&level=error"))
	if got := strings.Count(streamed, ` id="line-`); got != 2 || !strings.Contains(streamed, "id: 299\n") || !strings.Contains(streamed, ">line 200<") {
		t.Errorf("%d lines are streamed: %s", got, streamed)
	}
	resp := f.get("/deployments/d1/stages/sync/log?level=warning")
	if text := bodyOf(t, resp); strings.Count(text, "\n") != 6 || !strings.Contains(text, "Warning: line 150\n") || !strings.Contains(resp.Header.Get("Content-Disposition"), "d1-K8S_SYNC-warning.log") {
		t.Errorf("the text, %s: %s", resp.Header.Get("Content-Disposition"), text)
	}
	if text := bodyOf(t, f.get("/deployments/d1/stages/sync/log")); strings.Count(text, "\n") != 300 {
		t.Error("the whole log:", text)
	}
}

// TestRefreshReadsNoLog: changes of the deployment do not read its log again, which has a stream of
// its own.
func TestRefreshReadsNoLog(t *testing.T) {
	f := logged(t, 2000)
	v, err := f.page().visit(nil, request(http.MethodGet, "/deployments/d1/live?find=x", ""))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := (&deploymentSource{id: "d1"}).parts(v)
	if err != nil || len(parts) == 0 || parts[0].id != "summary" {
		t.Fatal(parts, err)
	}
	for _, call := range f.calls {
		if strings.Contains(call, "Log") {
			t.Error("it calls", call)
		}
	}
}
