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
	perResult = 1 << 10  // around the texts: IDs, branch, commit
)

// bounded cuts the texts of results so that all of them can be told: the longest
// details first, each with a line that says how much is missing. What is left over
// of too many applications is dropped, and said in place of the first of them.
func bounded(results []deploy.ApplicationPreview) []deploy.ApplicationPreview {
	left := maxAll
	for i := range results {
		r := &results[i]
		r.Error, r.Summary = cut(r.Error, maxText), cut(r.Summary, maxText)
		if left -= fixed(*r); left < 0 {
			r.Labels, r.Strategy, r.Summary, r.Details = nil, deploy.StrategyAuto, "", ""
			r.Error = fmt.Sprintf("the change concerns %d applications, more than fit into one message: this one and those after it are left out", len(results))
			results, left = results[:i+1], 0
			break
		}
	}
	limit := cutRoom + share(results, left)
	for i := range results {
		results[i].Details = cut(results[i].Details, limit)
	}
	return results
}

// fixed is what a result takes however much of its details is told.
func fixed(r deploy.ApplicationPreview) int {
	n := perResult + len(r.Name) + len(r.Dir) + len(r.Error) + len(r.Summary) + min(len(r.Details), cutRoom)
	for key, value := range r.Labels {
		n += len(key) + len(value) + 8
	}
	return n
}

// share returns how much of each one's details may be told beyond cutRoom, so that
// all together are not above total.
func share(results []deploy.ApplicationPreview, total int) int {
	var lengths []int
	for _, r := range results {
		lengths = append(lengths, max(0, len(r.Details)-cutRoom))
	}
	slices.Sort(lengths)
	for i, n := range lengths {
		if each := total / (len(lengths) - i); n > each {
			return each
		}
		total -= n
	}
	return maxAll // all of them
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
