package analysis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// maxLine bounds the displayed part of a log line, in characters.
const maxLine = 200

// logCheck fails if a query finds log lines.
type logCheck struct {
	analysis.Log
	providers Providers
	query     string // rendered
}

// evaluate implements check.evaluate.
func (l *logCheck) evaluate(ctx context.Context, at instant) (outcome, error) {
	from, err := l.providers.Logs(l.Provider)
	if err != nil {
		return outcome{}, err
	}
	interval := time.Duration(l.Interval)
	found, err := from.Find(ctx, l.query, provider.Window{From: at.now.Add(-interval), To: at.now, Step: interval})
	if err != nil {
		return outcome{}, err
	}
	out := outcome{verdict: deploy.AnalysisOK, values: []float64{float64(len(found.Lines))}, text: "no line found (expected none)", warnings: found.Warnings}
	if n := len(found.Lines); n > 0 {
		count := fmt.Sprint(n)
		if found.More {
			count += " or more"
		}
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("lines found: %s (expected none), the last one: %s", count, shortLine(found.Lines[0]))
	}
	return out, nil
}

// shortLine truncates a line for display.
func shortLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if runes := []rune(text); len(runes) > maxLine {
		return string(runes[:maxLine]) + "..."
	}
	return text
}
