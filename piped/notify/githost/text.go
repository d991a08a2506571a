package githost

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// took says how long the rollouts of a deployment took, from the beginning of the
// first to the end of the last, as they were recorded.
func (c Config) took(ctx context.Context, deploymentID string) (string, error) {
	rollouts, err := c.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: deploymentID})
	if err != nil {
		return "", err
	}
	var began, ended time.Time
	for _, r := range rollouts {
		if r.Phase != deploy.RolloutComplete {
			continue
		}
		if began.IsZero() || r.StartedAt.Before(began) {
			began = r.StartedAt
		}
		if r.CompletedAt.After(ended) {
			ended = r.CompletedAt
		}
	}
	if began.IsZero() {
		return "no pod had to be replaced", nil
	}
	return "rollout took " + inWords(ended.Sub(began)), nil
}

// causeFirst returns the reason of a failure with what is wrong with the pods at its
// beginning, where it has such a part: hosts cut off the end of what they are told.
func causeFirst(reason string) string {
	const part = "; pod "
	at := strings.Index(reason, part)
	if at < 0 {
		return reason
	}
	cause := strings.TrimRight(reason[at+len("; "):], ". ")
	return cause + ". " + reason[:at]
}

// inWords returns a time as people say it, such as 42 s or 3 min 5 s.
func inWords(d time.Duration) string {
	seconds := int(d.Round(time.Second) / time.Second)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%d h %d min", seconds/3600, seconds%3600/60)
}

// maxCode bounds, in bytes, a text that stands within a line.
const maxCode = 500

// code returns a text as code within a line or the cell of a table, where it mentions
// nobody and marks nothing up.
func code(text string) string {
	text = strings.NewReplacer("`", "'", "|", "¦").Replace(strings.Join(strings.Fields(text), " "))
	if text == "" {
		return ""
	}
	return "`" + clip(text, maxCode) + "`"
}

// fenced returns a text as a block of code, which ends where the text does and not
// before.
func fenced(language, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + language + "\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

// clip returns a text of at most limit bytes, and whole lines where it has several.
func clip(text string, limit int) string {
	const more = "..."
	if len(text) <= limit {
		return text
	}
	kept := strings.ToValidUTF8(text[:max(0, limit-len(more))], "")
	if end := strings.LastIndexByte(kept, '\n'); end > 0 {
		kept = kept[:end+1]
	}
	return kept + more
}
