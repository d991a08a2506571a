package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/ansi"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// logWindow is the number of entries of a stage's log that the view shows at first, and that it
// adds when one scrolls to their place.
const logWindow = 500

// logLine is an entry of a stage's log, or a line of a container's.
type logLine struct {
	number   int64 // 0 for none
	linked   bool  // the address names its number
	severity modelv1.LogSeverity
	at       string // time since the stage began, or of day
	text     string
	coloured []coloured // the text in parts; nil without colours
	runs     []textRun  // the text with links; nil without any
	times    int        // how often it follows itself, beyond the first time
}

// shownLog is the part of a log that the view shows.
type shownLog struct {
	title   string
	whole   string // address of all of it as text
	link    string // address of a line, without its number; "" for lines without numbers
	lines   []logLine
	level   logLevel
	earlier *moreLines // nil at the beginning
	later   *moreLines // nil at the end
	stream  string     // address of what is added; "" unless the end is shown and more may come
}

// moreLines leads to the lines next to those that are shown.
type moreLines struct {
	label string
	view  string // address of the view with them, for browsers without scripts
	lines string // address of the lines alone
}

// stageLog is a window of the log of a stage.
type stageLog struct {
	shownLog
	running bool // more may come
	find    string
	found   *controlv1.SearchStageLogResponse // nil unless find is set; of the level
}

// readLogTab reads the log of the selected stage.
func readLogTab(v *visit, d *deploymentView) (templ.Component, string, error) {
	if d.stage == nil {
		return empty("No stages yet", "The planner has not decided yet what this deployment does."), "none", nil
	}
	log, err := v.readLog(d.d, d.stage, d.query)
	if err != nil {
		return nil, "", err
	}
	if err := v.findInLog(d.d, d.stage, log, d.query); err != nil {
		return nil, "", err
	}
	return logTab(d.d, d.stage, log), "log", nil
}

// readLog reads the window of a log that an address names.
func (v *visit) readLog(d *modelv1.Deployment, s *modelv1.PipelineStage, q url.Values) (*stageLog, error) {
	req, line, err := windowOf(q)
	if err != nil {
		return nil, err
	}
	level := logLevelOf(q)
	req.DeploymentId, req.StageId = d.Id, s.Id
	read, err := v.readWindow(req, level)
	if err != nil {
		return nil, err
	}
	log := &stageLog{running: !read.completed}
	// The number of a line leads to it among the lines of all levels.
	log.shownLog = shownLog{title: s.Name, whole: withQuery(logPath(d, s), level.set(url.Values{})), link: logView(d, s, "line", ""), level: level}
	links := v.objectLinks(d, nil)
	for _, b := range read.blocks {
		entry := entryOf(b, s)
		entry.runs = links.runs(entry.text, entry.coloured)
		entry.linked = entry.number == line
		log.lines = append(log.lines, entry)
	}
	if read.earlier {
		log.earlier = moreOf("Earlier lines", d, s, level, "before", read.first)
	}
	switch {
	case read.later:
		log.later = moreOf("Later lines", d, s, level, "after", read.last)
	case log.running:
		log.stream = logPath(d, s) + "?after=" + strconv.FormatInt(read.last, 10) + level.param()
	}
	return log, nil
}

// windowOf returns the request for the window that an address names: around a line, before or
// after an index, or else the end. line is the number of the line, 0 for none.
func windowOf(q url.Values) (req *controlv1.GetStageLogRequest, line int64, err error) {
	req = &controlv1.GetStageLogRequest{}
	switch {
	case q.Has("line"):
		line, err = indexOf(q, "line")
		req.BeforeIndex = proto.Int64(max(0, min(line, math.MaxInt64-logWindow)-1+logWindow/2))
	case q.Has("before"):
		req.BeforeIndex = new(int64)
		*req.BeforeIndex, err = indexOf(q, "before")
	case q.Has("after"):
		req.AfterIndex = new(int64)
		*req.AfterIndex, err = indexOf(q, "after")
	}
	return req, line, err
}

// indexOf returns a number of an address.
func indexOf(q url.Values, name string) (int64, error) {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%s=%s in the address is not a number", name, q.Get(name))
	}
	return n, nil
}

// moreOf returns the way to what is before or after an index.
func moreOf(label string, d *modelv1.Deployment, s *modelv1.PipelineStage, level logLevel, side string, index int64) *moreLines {
	at := strconv.FormatInt(index, 10)
	return &moreLines{label: label, view: logView(d, s, side, at) + level.param(), lines: withQuery(stagePath(d, s)+"/lines", level.set(url.Values{side: {at}}))}
}

// findInLog finds the text that an address has, in all of the log.
func (v *visit) findInLog(d *modelv1.Deployment, s *modelv1.PipelineStage, log *stageLog, q url.Values) (err error) {
	if log.find = q.Get("find"); log.find == "" {
		return nil
	}
	req := &controlv1.SearchStageLogRequest{DeploymentId: d.Id, StageId: s.Id, Text: log.find}
	if q.Has("found") {
		req.AfterIndex = new(int64)
		if *req.AfterIndex, err = indexOf(q, "found"); err != nil {
			return err
		}
	}
	if log.level.keeps != nil {
		req.Limit = levelRead
	}
	if log.found, err = v.control.SearchStageLog(v.ctx, req); err != nil {
		return err
	}
	log.found.Matches = slices.DeleteFunc(log.found.Matches, func(m *controlv1.StageLogMatch) bool {
		begins := "" // the block; the text of the match is a line of it
		if m.Warning {
			begins = warning
		}
		return log.level.drops(m.Severity, begins)
	})
	return nil
}

// foundHeadline says how many lines were found.
func (log *stageLog) foundHeadline() string {
	text := "No " + log.level.one + " has “" + log.find + "”"
	if n := len(log.found.Matches); n > 0 {
		text = plural(n, log.level.one+" has", log.level.many+" have") + " “" + log.find + "”"
	}
	if log.found.More {
		return fmt.Sprintf("%s, up to line %d.", text, log.found.SearchedIndex+1)
	}
	return text + "."
}

// foundPath returns the address of a line that was found, next to the list of all that were.
func foundPath(d *modelv1.Deployment, s *modelv1.PipelineStage, log *stageLog, line int64) string {
	at := strconv.FormatInt(line, 10)
	return findPath(d, s, log, "line", at) + "#line-" + at
}

// findPath returns the address of the search with a further parameter.
func findPath(d *modelv1.Deployment, s *modelv1.PipelineStage, log *stageLog, name, value string) string {
	return logView(d, s, "find", log.find) + log.level.param() + "&" + name + "=" + value
}

// showLogLines returns a window of a log, which a script adds to the others.
func showLogLines(v *visit) (*screen, error) {
	d, s, err := v.stageOf(map[string][]string{"deployment": {v.r.PathValue("id")}, "stage": {v.r.PathValue("stage")}})
	if err != nil {
		return nil, err
	}
	log, err := v.readLog(d, s, v.query())
	if err != nil {
		return nil, err
	}
	added := log.shownLog
	if v.query().Has("after") {
		added.earlier = nil
	} else {
		added.later, added.stream = nil, ""
	}
	return &screen{title: s.Name, nav: "Applications", body: logTab(d, s, log), part: logEntries(&added)}, nil
}

// followLog passes the blocks of a log after an index to a function.
func (v *visit) followLog(deployment, stage string, after int64, once bool, each func(*controlv1.FollowStageLogsResponse) error) error {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	req := &controlv1.FollowStageLogsRequest{DeploymentId: deployment, StageId: stage, NoFollow: once}
	if after >= 0 {
		req.AfterIndex = map[string]int64{stage: after}
	}
	stream, err := v.control.FollowStageLogs(ctx, req)
	for err == nil {
		var m *controlv1.FollowStageLogsResponse
		if m, err = stream.Recv(); err == nil {
			err = each(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// entryOf returns a block as an entry. Its lines stay together: the number of a line is that of
// its block.
func entryOf(b *modelv1.LogBlock, s *modelv1.PipelineStage) logLine {
	l := logLine{number: b.Index + 1, severity: b.Severity, at: elapsed(max(0, b.CreatedAtMs-s.StartedAtMs))}
	l.text, l.coloured = colours(strings.TrimRight(strings.ReplaceAll(b.Log, "\r\n", "\n"), "\r\n"))
	return l
}

// withoutEscapes removes the escape sequences of terminals, and shows other control characters
// as a replacement.
func withoutEscapes(line string) string {
	if !strings.ContainsFunc(line, isControl) {
		return line
	}
	return withoutControls(ansi.Strip(strings.ReplaceAll(line, "\r\n", "\n")))
}

// withoutControls shows control characters as a replacement.
func withoutControls(text string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// isControl reports control characters, and those that change the direction of text.
func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// elapsed returns the time of a line as minutes, seconds and tenths.
func elapsed(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	return fmt.Sprintf("%02d:%04.1f", int(d/time.Minute), math.Floor((d%time.Minute).Seconds()*10)/10)
}

// stagePath returns the address of a stage, below which its log is.
func stagePath(d *modelv1.Deployment, s *modelv1.PipelineStage) string {
	return deploymentPath(d.Id) + "/stages/" + url.PathEscape(s.Id)
}

// logPath returns the address of the whole log of a stage.
func logPath(d *modelv1.Deployment, s *modelv1.PipelineStage) string { return stagePath(d, s) + "/log" }

// logView returns the address of the view with a part of the log of a stage.
func logView(d *modelv1.Deployment, s *modelv1.PipelineStage, name, value string) string {
	return deploymentPath(d.Id) + "?stage=" + url.QueryEscape(s.Id) + "&" + name + "=" + url.QueryEscape(value)
}

// showLog returns the whole log of a stage as text, or, to a script, what is added to it; of the
// level that the address names.
func showLog(v *visit) (*screen, error) {
	d, s, err := v.stageOf(map[string][]string{"deployment": {v.r.PathValue("id")}, "stage": {v.r.PathValue("stage")}})
	if err != nil {
		return nil, err
	}
	if v.query().Has("after") {
		return nil, v.streamLog(d, s, logLevelOf(v.query()))
	}
	return nil, v.downloadLog(d, s, logLevelOf(v.query()))
}

// downloadLog writes the log as text while it is read.
func (v *visit) downloadLog(d *modelv1.Deployment, s *modelv1.PipelineStage, level logLevel) error {
	began := false
	file := strings.TrimSuffix(short(d.Id)+"-"+s.Name+"-"+level.name, "-") + ".log"
	err := v.followLog(d.Id, s.Id, -1, true, func(m *controlv1.FollowStageLogsResponse) error {
		if !began {
			began = true
			v.startText(file)
		}
		for _, b := range level.of(m.Blocks) {
			stamp := time.UnixMilli(b.CreatedAtMs).UTC().Format(stampLayout)
			for line := range strings.Lines(b.Log) {
				if _, err := fmt.Fprintf(v.w, "%s %s\n", stamp, strings.TrimRight(line, "\r\n")); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if began {
		return errWritten
	}
	return err
}

// stampLayout is the time of a line in a log that is read as text.
const stampLayout = "2006-01-02T15:04:05.000Z"

// startText begins an answer that the browser shows as text.
func (v *visit) startText(file string) {
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", file))
}

// streamLog appends to the log that the browser shows. The ID of an event is the index of the
// last block, so that no line is lost or doubled after a reconnect.
func (v *visit) streamLog(d *modelv1.Deployment, s *modelv1.PipelineStage, level logLevel) error {
	after, err := strconv.ParseInt(v.r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		after, err = strconv.ParseInt(v.query().Get("after"), 10, 64)
	}
	if err != nil {
		after = -1
	}
	out := &events{v: v}
	v.startStream()
	var links *objectLinks
	err = v.followLog(d.Id, s.Id, after, false, func(m *controlv1.FollowStageLogsResponse) error {
		var lines []logLine
		blocks := level.of(m.Blocks)
		if len(blocks) > 0 {
			links = v.objectLinks(d, links)
		}
		for _, b := range blocks {
			entry := entryOf(b, s)
			entry.runs = links.runs(entry.text, entry.coloured)
			lines = append(lines, entry)
		}
		if n := len(m.Blocks); n > 0 {
			after = m.Blocks[n-1].Index
		}
		return out.appendLog(strconv.FormatInt(after, 10), logView(d, s, "line", ""), lines)
	})
	return out.endLog(err)
}

// appendLog sends lines to the log that the browser shows. The ID names the last of them, link is
// that of shownLog.
func (e *events) appendLog(id, link string, lines []logLine) error {
	if len(lines) == 0 { // an ID without data is where a reconnect continues
		return e.write("id: " + id + "\n\n")
	}
	text, err := html(e.v.r.Context(), logLines(link, lines))
	if err != nil {
		return err
	}
	return e.send(id, `<hx-partial hx-target="#log-lines" hx-swap="beforeend">`+text+`</hx-partial>`)
}

// endLog ends the stream of a log. Without an error the log is complete.
func (e *events) endLog(err error) error {
	if err != nil {
		e.end(err)
	} else {
		_ = e.write("event: end\ndata:\n\n") // fails if the client is gone
	}
	return errWritten
}

// logClass returns the class of a line.
func logClass(l logLine) string {
	switch l.severity {
	case modelv1.LogSeverity_SUCCESS:
		return "is-done"
	case modelv1.LogSeverity_ERROR:
		return "is-error"
	}
	return ""
}
