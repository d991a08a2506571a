package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Bounds of a preview in bytes: clients reject messages of 4 MiB.
const (
	maxAll      = 3 << 20
	maxText     = 32 << 10 // of an error or a summary
	maxWarning  = 1 << 10
	maxWarnings = 20      // of an application
	perResult   = 1 << 10 // around the texts: IDs, branch, commit
	perChange   = 1 << 8  // around the diff and the names
)

// bounded truncates the texts of results so that they fit in one message with the details, and in
// one with the changes by object: the longest details and diffs first, each with a line that
// contains the number of missing bytes. If there are too many applications, the rest is omitted;
// the first omitted one is replaced by an error that explains this.
func bounded(results []deploy.ApplicationPreview) []deploy.ApplicationPreview {
	left := maxAll
	for i := range results {
		r := &results[i]
		r.Error, r.Summary = cut(r.Error, maxText), cut(r.Summary, maxText)
		r.Warnings = r.Warnings[:min(len(r.Warnings), maxWarnings)]
		for n, w := range r.Warnings {
			r.Warnings[n] = cut(w, maxWarning)
		}
		if left -= fixed(*r); left < 0 {
			r.Labels, r.Strategy, r.Summary, r.Details, r.Changes, r.Warnings = nil, deploy.StrategyAuto, "", "", nil, nil
			r.Error = fmt.Sprintf("the change concerns %d applications, more than fit into one message: this one and those after it are left out", len(results))
			results, left = results[:i+1], 0
			break
		}
	}
	var lengths []int
	for _, r := range results {
		lengths = append(lengths, len(r.Details))
	}
	limit := cutRoom + share(lengths, left)
	for i := range results {
		results[i].Details = cut(results[i].Details, limit)
	}
	boundChanges(results, left)
	return results
}

// boundChanges leaves out changes and truncates diffs, so that they fit into total bytes. The names
// of objects take at most half of it. A change whose diff and attributes are too long together
// loses its attributes, since the diff shows the same.
func boundChanges(results []deploy.ApplicationPreview, total int) {
	var lengths []int
	used := 0
	for i := range results {
		r := &results[i]
		for n, c := range r.Changes {
			used += perChange + len(c.Object.Name) + len(c.Object.Namespace) + len(c.Address) + min(c.Size(), cutRoom)
			if used > total/2 {
				r.Changes, r.LeftOut = r.Changes[:n], len(r.Changes)-n
				break
			}
			lengths = append(lengths, c.Size())
		}
	}
	limit := cutRoom + share(lengths, max(0, total-used))
	for _, r := range results {
		for i := range r.Changes {
			if r.Changes[i].Size() > limit {
				r.Changes[i].Attributes = nil
			}
			r.Changes[i].Diff = cut(r.Changes[i].Diff, limit)
		}
	}
}

// fixed returns the size of a result without its details.
func fixed(r deploy.ApplicationPreview) int {
	n := perResult + len(r.Name) + len(r.Dir) + len(r.Error) + len(r.Summary) + min(len(r.Details), cutRoom)
	for _, w := range r.Warnings {
		n += len(w) + 8
	}
	for key, value := range r.Labels {
		n += len(key) + len(value) + 8
	}
	return n
}

// share returns the limit for each text, in addition to cutRoom, so that the sum does not exceed
// total. lengths are those of the texts.
func share(lengths []int, total int) int {
	for i, n := range lengths {
		lengths[i] = max(0, n-cutRoom)
	}
	slices.Sort(lengths)
	for i, n := range lengths {
		if each := total / (len(lengths) - i); n > each {
			return each
		}
		total -= n
	}
	return maxAll // all texts fit
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
