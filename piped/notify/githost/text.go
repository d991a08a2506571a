package githost

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// rolloutTime describes how long the rollouts of a deployment took, from the start of
// the first to the end of the last.
func (c Config) rolloutTime(ctx context.Context, deploymentID string) (string, error) {
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
	return "rollout took " + duration(ended.Sub(began)), nil
}

// causeFirst moves the part of a failure reason that concerns a pod to the front, since
// hosts truncate long descriptions.
func causeFirst(reason string) string {
	const part = "; pod "
	at := strings.Index(reason, part)
	if at < 0 {
		return reason
	}
	cause := strings.TrimRight(reason[at+len("; "):], ". ")
	return cause + ". " + reason[:at]
}

// duration formats d for readers, such as "42 s" or "3 min 5 s".
func duration(d time.Duration) string {
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

// maxCode limits inline code, in bytes.
const maxCode = 500

// code returns text as inline code that is safe in a table cell: it contains no markup
// and mentions no user.
func code(text string) string {
	text = strings.NewReplacer("`", "'", "|", "¦").Replace(strings.Join(strings.Fields(text), " "))
	if text == "" {
		return ""
	}
	return "`" + clip(text, maxCode) + "`"
}

// linked returns Markdown that links to a page's address, or the Markdown itself for "".
func linked(markdown, page string) string {
	if page == "" {
		return markdown
	}
	return "[" + markdown + "](" + page + ")"
}

// fenced returns text as a code block, with a fence longer than any in the text.
func fenced(language, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + language + "\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

// clip truncates text to at most limit bytes, at a line end if it has several lines.
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
