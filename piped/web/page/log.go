package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// logWindow is the number of the last lines of a log that the view shows.
const logWindow = 2000

// escapes are the escape sequences of terminals.
var escapes = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[@-_])")

// logLine is one line of a stage's log.
type logLine struct {
	severity modelv1.LogSeverity
	at       string // time since the stage began, or of day
	text     string
	coloured []coloured // the text in parts; nil without colours
	times    int        // how often it follows itself, beyond the first time
}

// stageLog is the end of a log.
type stageLog struct {
	lines   []logLine
	omitted int   // earlier lines
	last    int64 // index of the last block; -1 before the first
	more    bool  // the stage runs: more may come
}

// readLogTab reads the log of the selected stage.
func readLogTab(v *visit, d *deploymentView) (templ.Component, string, error) {
	if d.stage == nil {
		return empty("No stages yet", "The planner has not decided yet what this deployment does."), "none", nil
	}
	log, err := v.readLog(d.d, d.stage)
	if err != nil {
		return nil, "", err
	}
	return logTab(v, d, log), "log", nil
}

// readLog reads what a stage has logged so far. Only the lines of the window are converted, and
// only their blocks are kept in memory.
func (v *visit) readLog(d *modelv1.Deployment, s *modelv1.PipelineStage) (*stageLog, error) {
	log := &stageLog{last: -1, more: s.CompletedAtMs == 0}
	var kept blockWindow
	err := v.followLog(d.Id, s.Id, -1, true, func(m *controlv1.FollowStageLogsResponse) error {
		for _, b := range m.Blocks {
			kept.add(b)
			log.last = b.Index
		}
		return nil
	})
	for _, b := range kept.blocks {
		log.lines = append(log.lines, linesOf(b, s)...)
	}
	log.omitted = kept.omitted
	if n := len(log.lines) - logWindow; n > 0 {
		log.omitted += n
		log.lines = log.lines[n:]
	}
	return log, err
}

// blockWindow holds the last blocks of a log that have at least logWindow lines together.
type blockWindow struct {
	blocks  []*modelv1.LogBlock
	lines   int // of the blocks
	omitted int // lines of earlier blocks
}

func (w *blockWindow) add(b *modelv1.LogBlock) {
	w.blocks, w.lines = append(w.blocks, b), w.lines+countLines(b.Log)
	for {
		n := countLines(w.blocks[0].Log)
		if w.lines-n < logWindow {
			return
		}
		w.blocks[0] = nil
		w.blocks, w.lines, w.omitted = w.blocks[1:], w.lines-n, w.omitted+n
	}
}

// countLines returns the number of lines that strings.Lines splits a text into.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
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

// linesOf splits a block into lines.
func linesOf(b *modelv1.LogBlock, s *modelv1.PipelineStage) []logLine {
	var out []logLine
	for line := range strings.Lines(b.Log) {
		l := logLine{severity: b.Severity, at: elapsed(max(0, b.CreatedAtMs-s.StartedAtMs))}
		l.text, l.coloured = colours(strings.TrimRight(line, "\r\n"))
		out = append(out, l)
	}
	return out
}

// withoutEscapes removes the escape sequences of terminals, and shows other control characters
// as a replacement.
func withoutEscapes(line string) string {
	if !strings.ContainsFunc(line, isControl) {
		return line
	}
	line = escapes.ReplaceAllString(line, "")
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return '\uFFFD'
		}
		return r
	}, line)
}

// isControl reports control characters, and those that change the direction of text.
func isControl(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// elapsed returns the time of a line as minutes, seconds and tenths.
func elapsed(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	return fmt.Sprintf("%02d:%04.1f", int(d/time.Minute), math.Floor((d%time.Minute).Seconds()*10)/10)
}

// logPath returns the address of the log of a stage.
func logPath(d *modelv1.Deployment, s *modelv1.PipelineStage) string {
	return deploymentPath(d.Id) + "/stages/" + s.Id + "/log"
}

// showLog returns the whole log of a stage as text, or, to a script, what is added to it.
func showLog(v *visit) (*screen, error) {
	d, s, err := v.stageOf(map[string][]string{"deployment": {v.r.PathValue("id")}, "stage": {v.r.PathValue("stage")}})
	if err != nil {
		return nil, err
	}
	if v.query().Has("after") {
		return nil, v.streamLog(d, s)
	}
	return nil, v.downloadLog(d, s)
}

// downloadLog writes the log as text while it is read.
func (v *visit) downloadLog(d *modelv1.Deployment, s *modelv1.PipelineStage) error {
	began := false
	err := v.followLog(d.Id, s.Id, -1, true, func(m *controlv1.FollowStageLogsResponse) error {
		if !began {
			began = true
			v.startText(short(d.Id) + "-" + s.Name + ".log")
		}
		for _, b := range m.Blocks {
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
func (v *visit) streamLog(d *modelv1.Deployment, s *modelv1.PipelineStage) error {
	after, err := strconv.ParseInt(v.r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		after, err = strconv.ParseInt(v.query().Get("after"), 10, 64)
	}
	if err != nil {
		after = -1
	}
	out := &events{v: v}
	v.startStream()
	err = v.followLog(d.Id, s.Id, after, false, func(m *controlv1.FollowStageLogsResponse) error {
		var lines []logLine
		for _, b := range m.Blocks {
			lines = append(lines, linesOf(b, s)...)
			after = b.Index
		}
		return out.appendLog(strconv.FormatInt(after, 10), lines)
	})
	return out.endLog(err)
}

// appendLog sends lines to the log that the browser shows. The ID names the last of them.
func (e *events) appendLog(id string, lines []logLine) error {
	if len(lines) == 0 {
		return nil
	}
	text, err := html(e.v.r.Context(), logLines(lines))
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

// logStream returns the address of the stream that continues a log; "" if the stage has ended.
func logStream(d *deploymentView, log *stageLog) string {
	if !log.more {
		return ""
	}
	return logPath(d.d, d.stage) + "?after=" + strconv.FormatInt(log.last, 10)
}
