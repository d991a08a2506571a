package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Bounds of a preview in bytes: clients reject messages of 4 MiB.
const (
	maxAll    = 3 << 20
	maxText   = 32 << 10 // of an error or a summary
	perResult = 1 << 10  // around the texts: IDs, branch, commit
)

// bounded truncates the texts of results so that they fit in one message: the longest details
// first, each with a line that contains the number of missing bytes. If there are too many
// applications, the rest is omitted; the first omitted one is replaced by an error that
// explains this.
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

// fixed returns the size of a result without its details.
func fixed(r deploy.ApplicationPreview) int {
	n := perResult + len(r.Name) + len(r.Dir) + len(r.Error) + len(r.Summary) + min(len(r.Details), cutRoom)
	for key, value := range r.Labels {
		n += len(key) + len(value) + 8
	}
	return n
}

// share returns the limit for the details of each result, in addition to cutRoom, so that the
// sum does not exceed total.
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
	return maxAll // all details fit
}

// cutRoom is the size of the line about missing bytes.
const cutRoom = 100

// cut truncates a text to at most limit bytes, if possible at the end of a line.
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
