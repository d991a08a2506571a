package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// window returns what a response has: the first and last line, and on which sides there are more.
func window(r *controlv1.GetStageLogResponse) string {
	text := "none"
	if n := len(r.Blocks); n > 0 {
		text = fmt.Sprintf("%s to %s", r.Blocks[0].Log, r.Blocks[n-1].Log)
	}
	for i, b := range r.Blocks {
		if b.Index != r.Blocks[0].Index+int64(i) {
			text += fmt.Sprintf(", index %d at %d", b.Index, i)
		}
	}
	if r.Earlier {
		text += " <"
	}
	if r.Later {
		text += " >"
	}
	return text
}

// TestWindowsOfAStageLog reads a log of 1,500 lines from any position.
func TestWindowsOfAStageLog(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	var lines []string
	for i := range 1500 {
		lines = append(lines, fmt.Sprint("l", i))
	}
	agent.Log("d", controltest.SyncStage, lines...)
	for name, tc := range map[string]struct {
		before, after *int64
		limit         int32
		want          string
	}{
		"the end":                   {want: "l1000 to l1499 <"},
		"a shorter end":             {limit: 3, want: "l1497 to l1499 <"},
		"the most":                  {limit: 5000, want: "l500 to l1499 <"},
		"before the end":            {before: proto.Int64(1000), want: "l500 to l999 < >"},
		"up to the start":           {before: proto.Int64(500), want: "l0 to l499 >"},
		"less than a window":        {before: proto.Int64(2), want: "l0 to l1 >"},
		"before the start":          {before: proto.Int64(0), want: "none >"},
		"before what is to come":    {before: proto.Int64(9999), limit: 2, want: "l1498 to l1499 <"},
		"the start":                 {after: proto.Int64(-1), want: "l0 to l499 >"},
		"after a line":              {after: proto.Int64(499), want: "l500 to l999 < >"},
		"up to the end":             {after: proto.Int64(999), want: "l1000 to l1499 <"},
		"after the end":             {after: proto.Int64(1499), want: "none <"},
		"after the first, few":      {after: proto.Int64(0), limit: 1, want: "l1 to l1 < >"},
		"exactly as many as it has": {after: proto.Int64(499), limit: 1000, want: "l500 to l1499 <"},
	} {
		resp, err := client.GetStageLog(ctx, &controlv1.GetStageLogRequest{DeploymentId: "d", StageId: controltest.SyncStage, BeforeIndex: tc.before, AfterIndex: tc.after, Limit: tc.limit})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := window(resp); got != tc.want || resp.Completed || resp.StageId != controltest.SyncStage {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	agent.Move("d", deploy.Success, "")
	if resp, err := client.GetStageLog(ctx, &controlv1.GetStageLogRequest{DeploymentId: "d", StageId: controltest.SyncStage}); err != nil || !resp.Completed {
		t.Errorf("after its end: %v, %v", resp.GetCompleted(), err)
	}
}

// TestWindowsOfLargeEntries: a window has at most a MiB of text and at least one entry, and windows
// that follow each other have every entry once.
func TestWindowsOfLargeEntries(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	large := strings.Repeat("x", 300<<10)
	agent.Log("d", controltest.SyncStage, "a"+large, "b"+large, "c", "d"+large, "e"+strings.Repeat(large, 4), "f", "g\xff"+large)
	var sizes []int
	var got string
	for before := proto.Int64(7); *before > 0; {
		resp, err := client.GetStageLog(ctx, &controlv1.GetStageLogRequest{DeploymentId: "d", StageId: controltest.SyncStage, BeforeIndex: before})
		if err != nil || len(resp.Blocks) == 0 {
			t.Fatal(err, "or nothing came")
		}
		sizes, before = append(sizes, len(resp.Blocks)), &resp.Blocks[0].Index
		slices.Reverse(resp.Blocks)
		for _, b := range resp.Blocks {
			got += b.Log[:1]
		}
	}
	if diff := cmp.Diff([]int{2, 1, 4}, sizes); diff != "" || got != "gfedcba" {
		t.Errorf("%s, in windows of (-want +got):\n%s", got, diff)
	}
}

// TestSearchStageLog: the text is found in any case and without colours, each entry once with the
// line that has it.
func TestSearchStageLog(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	agent.Log("d", controltest.SyncStage, "applying", "the IMAGE Größe", "first\nan \x1b[31mima\x1b[0mge\r\nimage", strings.Repeat("ä", 900)+"image"+strings.Repeat("z", 900), "100 % [a-z]*", "password: [redacted]")
	search := func(text string, more func(*controlv1.SearchStageLogRequest)) *controlv1.SearchStageLogResponse {
		t.Helper()
		req := &controlv1.SearchStageLogRequest{DeploymentId: "d", StageId: controltest.SyncStage, Text: text}
		if more != nil {
			more(req)
		}
		resp, err := client.SearchStageLog(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range resp.Matches {
			if m.CreatedAtMs == 0 || m.Line != m.Index+1 {
				t.Errorf("%v", m)
			}
			m.CreatedAtMs = 0
		}
		return resp
	}
	match := func(index int64, text string) *controlv1.StageLogMatch {
		return &controlv1.StageLogMatch{Index: index, Line: index + 1, Text: text}
	}
	for text, want := range map[string][]*controlv1.StageLogMatch{
		"image": {
			match(1, "the IMAGE Größe"), match(2, "an image"),
			match(3, "…"+strings.Repeat("ä", 100)+"image"+strings.Repeat("z", 395)+"…"),
		},
		"GRÖSSE": nil, "größe": {match(1, "the IMAGE Größe")}, "GRÖßE": {match(1, "the IMAGE Größe")},
		"%": {match(4, "100 % [a-z]*")}, "[a-z]*": {match(4, "100 % [a-z]*")}, "_": nil, "31m": nil,
		"hunter2": nil, "[REDACTED]": {match(5, "password: [redacted]")},
	} {
		got := search(text, nil)
		if diff := cmp.Diff(&controlv1.SearchStageLogResponse{StageId: controltest.SyncStage, Matches: want, SearchedIndex: 5}, got, protocmp.Transform()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	paged := search("image", func(r *controlv1.SearchStageLogRequest) { r.Limit = 2 })
	if len(paged.Matches) != 2 || !paged.More || paged.SearchedIndex != 2 {
		t.Errorf("the first page: %v", paged)
	}
	paged = search("image", func(r *controlv1.SearchStageLogRequest) { r.Limit, r.AfterIndex = 2, proto.Int64(2) })
	if len(paged.Matches) != 1 || paged.Matches[0].Index != 3 || paged.More {
		t.Errorf("the second page: %v", paged)
	}
}

// TestSearchOfALongLogIsPaged: one call searches at most 16 MiB; the next goes on after it.
func TestSearchOfALongLogIsPaged(t *testing.T) {
	ctx, client, agent := streaming(t)
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	lines := slices.Repeat([]string{strings.Repeat("x", 64<<10)}, 300) // 18.75 MiB
	lines[299] = "the needle"
	agent.Log("d", controltest.SyncStage, lines...)
	req := &controlv1.SearchStageLogRequest{DeploymentId: "d", StageId: controltest.SyncStage, Text: "needle"}
	resp, err := client.SearchStageLog(ctx, req)
	if err != nil || len(resp.Matches) != 0 || !resp.More || resp.SearchedIndex < 255 || resp.SearchedIndex >= 299 {
		t.Fatalf("the first call: %v, %v", resp, err)
	}
	req.AfterIndex = &resp.SearchedIndex
	resp, err = client.SearchStageLog(ctx, req)
	if err != nil || len(resp.Matches) != 1 || resp.More || resp.Matches[0].Line != 300 || resp.Matches[0].Severity != modelv1.LogSeverity_INFO {
		t.Errorf("the second call: %v, %v", resp, err)
	}
}

func TestWindowsRefuseWhatIsNotPossible(t *testing.T) {
	ctx, client, agent := streaming(t)
	watched(agent)
	get := func(req *controlv1.GetStageLogRequest) error {
		_, err := client.GetStageLog(ctx, req)
		return err
	}
	search := func(req *controlv1.SearchStageLogRequest) error {
		_, err := client.SearchStageLog(ctx, req)
		return err
	}
	const stage = controltest.SyncStage
	for name, tc := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"no deployment":      {get(&controlv1.GetStageLogRequest{StageId: stage}), codes.InvalidArgument, "DeploymentId"},
		"no stage":           {get(&controlv1.GetStageLogRequest{DeploymentId: "d3"}), codes.InvalidArgument, "StageId"},
		"both sides":         {get(&controlv1.GetStageLogRequest{DeploymentId: "d3", StageId: stage, BeforeIndex: proto.Int64(1), AfterIndex: proto.Int64(1)}), codes.InvalidArgument, "AfterIndex"},
		"negative before":    {get(&controlv1.GetStageLogRequest{DeploymentId: "d3", StageId: stage, BeforeIndex: proto.Int64(-1)}), codes.InvalidArgument, "BeforeIndex"},
		"negative after":     {get(&controlv1.GetStageLogRequest{DeploymentId: "d3", StageId: stage, AfterIndex: proto.Int64(-2)}), codes.InvalidArgument, "AfterIndex"},
		"negative limit":     {get(&controlv1.GetStageLogRequest{DeploymentId: "d3", StageId: stage, Limit: -1}), codes.InvalidArgument, "Limit"},
		"unknown deployment": {get(&controlv1.GetStageLogRequest{DeploymentId: "d9", StageId: stage}), codes.NotFound, "d9"},
		"unknown stage":      {get(&controlv1.GetStageLogRequest{DeploymentId: "d3", StageId: "x"}), codes.NotFound, stage + " (K8S_SYNC)"},

		"search without text":         {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: stage}), codes.InvalidArgument, "Text"},
		"search for much text":        {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: stage, Text: strings.Repeat("ä", 201)}), codes.InvalidArgument, "Text"},
		"search for as much as can":   {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: stage, Text: strings.Repeat("ä", 200)}), codes.OK, ""},
		"search after nothing":        {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: stage, Text: "x", AfterIndex: proto.Int64(-2)}), codes.InvalidArgument, "AfterIndex"},
		"search with negative limit":  {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: stage, Text: "x", Limit: -1}), codes.InvalidArgument, "Limit"},
		"search of no stage":          {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", Text: "x"}), codes.InvalidArgument, "StageId"},
		"search of no deployment":     {search(&controlv1.SearchStageLogRequest{StageId: stage, Text: "x"}), codes.InvalidArgument, "DeploymentId"},
		"search of an unknown one":    {search(&controlv1.SearchStageLogRequest{DeploymentId: "d9", StageId: stage, Text: "x"}), codes.NotFound, "d9"},
		"search of a stage not there": {search(&controlv1.SearchStageLogRequest{DeploymentId: "d3", StageId: "x", Text: "x"}), codes.NotFound, stage},
	} {
		if status.Code(tc.err) != tc.code || !strings.Contains(fmt.Sprint(tc.err), tc.says) {
			t.Errorf("%s: got %v, want %s with %q", name, tc.err, tc.code, tc.says)
		}
	}
}
