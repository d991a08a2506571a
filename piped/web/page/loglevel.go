package page

import (
	"net/url"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/ansi"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of what is read for a view of one level, whose blocks may be rare.
const (
	levelRead  = 1000 // blocks at once, the most that the API returns
	levelReads = 20
)

// logLevel is a filter of the blocks of a log. The zero value keeps all.
type logLevel struct {
	name      string // in the address
	label     string
	one, many string // nouns for what it keeps
	noun      string // of one of them, with its article
	download  string // label of the link to all of it as text
	keeps     func(severity modelv1.LogSeverity, text string) bool
}

// logLevels are the filters that the view offers.
func logLevels() []logLevel {
	return []logLevel{
		{label: "All", one: "line", many: "lines", download: "Whole log"},
		{"warning", "Warnings and errors", "warning or error", "warnings and errors", "a warning or an error", "Warnings and errors as text", func(severity modelv1.LogSeverity, text string) bool {
			return isError(severity, text) || isWarning(text)
		}},
		{"error", "Errors", "error", "errors", "an error", "Errors as text", isError},
	}
}

func isError(severity modelv1.LogSeverity, _ string) bool {
	return severity == modelv1.LogSeverity_ERROR
}

// isWarning reports whether a text is a warning. Warnings have no severity of their own, because the
// API of PipeCD has none: stages begin them with this word.
func isWarning(text string) bool { return strings.HasPrefix(ansi.Strip(text), warning) }

const warning = "Warning: "

// logLevelOf returns the level that an address names.
func logLevelOf(q url.Values) logLevel {
	levels := logLevels()
	i := slices.IndexFunc(levels, func(l logLevel) bool { return l.name == q.Get("level") })
	return levels[max(0, i)]
}

// param returns what is added to an address, so that its view has the level.
func (l logLevel) param() string {
	if l.name == "" {
		return ""
	}
	return "&level=" + l.name
}

// set adds the level to the query of an address.
func (l logLevel) set(q url.Values) url.Values {
	if l.name != "" {
		q.Set("level", l.name)
	}
	return q
}

// drops reports whether the level leaves out a block.
func (l logLevel) drops(severity modelv1.LogSeverity, text string) bool {
	return l.keeps != nil && !l.keeps(severity, text)
}

// of returns the blocks of the level.
func (l logLevel) of(blocks []*modelv1.LogBlock) []*modelv1.LogBlock {
	return slices.DeleteFunc(slices.Clone(blocks), func(b *modelv1.LogBlock) bool { return l.drops(b.Severity, b.Log) })
}

// logRead is a window of a log: the blocks of a level between two indices.
type logRead struct {
	blocks         []*modelv1.LogBlock
	first, last    int64 // indices of what was read, also of other levels
	earlier, later bool  // there are blocks on that side
	completed      bool
}

// readWindow reads a window of a log. Of a level it reads on, up to a limit, until it has as many
// blocks as a window has.
func (v *visit) readWindow(req *controlv1.GetStageLogRequest, level logLevel) (*logRead, error) {
	w := &logRead{last: req.GetBeforeIndex() - 1}
	if req.AfterIndex != nil {
		w.last = *req.AfterIndex
	}
	w.first = w.last + 1
	reads := 1
	req.Limit = logWindow
	if level.keeps != nil {
		reads, req.Limit = levelReads, levelRead
	}
	for n := range reads {
		resp, err := v.control.GetStageLog(v.ctx, req)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			w.begin(resp)
		}
		if req.AfterIndex != nil {
			w.addLater(resp, level)
			req.AfterIndex = &w.last
		} else {
			w.addEarlier(resp, level)
			req.BeforeIndex = &w.first
		}
		if more := req.AfterIndex != nil && w.later || req.AfterIndex == nil && w.earlier; !more || len(w.blocks) >= logWindow {
			break
		}
	}
	return w, nil
}

func (w *logRead) begin(resp *controlv1.GetStageLogResponse) {
	w.earlier, w.later, w.completed = resp.Earlier, resp.Later, resp.Completed
	if n := len(resp.Blocks); n > 0 {
		w.first, w.last = resp.Blocks[0].Index, resp.Blocks[n-1].Index
	}
}

func (w *logRead) addLater(resp *controlv1.GetStageLogResponse, level logLevel) {
	w.later, w.completed = resp.Later, resp.Completed
	if n := len(resp.Blocks); n > 0 {
		w.last = resp.Blocks[n-1].Index
	}
	w.blocks = append(w.blocks, level.of(resp.Blocks)...)
}

func (w *logRead) addEarlier(resp *controlv1.GetStageLogResponse, level logLevel) {
	w.earlier = resp.Earlier
	if len(resp.Blocks) > 0 {
		w.first = resp.Blocks[0].Index
	}
	w.blocks = append(level.of(resp.Blocks), w.blocks...)
}

// levelTabs are links to the levels of a log, with the same search.
func (log *stageLog) levelTabs(d *modelv1.Deployment, s *modelv1.PipelineStage) []tab {
	var out []tab
	for _, l := range logLevels() {
		q := l.set(url.Values{"stage": {s.Id}})
		if log.find != "" {
			q.Set("find", log.find)
		}
		out = append(out, tab{label: l.label, path: withQuery(deploymentPath(d.Id), q), current: l.name == log.level.name})
	}
	return out
}
