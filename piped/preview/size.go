package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Bounds of what one preview tells, in bytes: clients take no message of 4 MiB.
const (
	maxAll    = 3 << 20
	maxText   = 32 << 10 // of an error or a summary
	perResult = 1 << 10  // around the texts: names, labels
)

// bounded cuts the texts of results so that all of them can be told: the longest
// details first, each with a line that says how much is missing. What is left over
// of too many applications is dropped, and said in place of the first of them.
func bounded(results []deploy.ApplicationPreview) []deploy.ApplicationPreview {
	left := maxAll
	for i := range results {
		r := &results[i]
		r.Error, r.Summary = cut(r.Error, maxText), cut(r.Summary, maxText)
		need := perResult + len(r.Error) + len(r.Summary) + labelBytes(r.Labels)
		if left -= need; left < 0 {
			r.Labels, r.Strategy, r.Summary, r.Details = nil, deploy.StrategyAuto, "", ""
			r.Error = fmt.Sprintf("the change concerns %d applications, more than can be told: this one and those after it are left out", len(results))
			return results[:i+1]
		}
	}
	limit := share(results, left)
	for i := range results {
		results[i].Details = cut(results[i].Details, limit)
	}
	return results
}

// share returns how long details may be so that all together are not above total.
func share(results []deploy.ApplicationPreview, total int) int {
	var lengths []int
	for _, r := range results {
		lengths = append(lengths, len(r.Details))
	}
	slices.Sort(lengths)
	for i, n := range lengths {
		if each := total / (len(lengths) - i); n > each {
			return each
		}
		total -= n
	}
	return total
}

func labelBytes(labels map[string]string) int {
	n := 0
	for key, value := range labels {
		n += len(key) + len(value) + 8
	}
	return n
}

// cutRoom is what the line takes that says how much is missing.
const cutRoom = 100

// cut returns a text of at most limit bytes, whole lines where it has some.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	kept := strings.ToValidUTF8(text[:max(0, limit-cutRoom)], "")
	if end := strings.LastIndexByte(kept, '\n'); end >= 0 {
		kept = kept[:end+1]
	}
	return kept + fmt.Sprintf("... cut: %d of %d bytes are not shown\n", len(text)-len(kept), len(text))
}
