package preview

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestBounded: every result fits into one message, which says what is left out.
func TestBounded(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("0123456\n", n/8) }
	total := func(results []deploy.ApplicationPreview) (n int) {
		for _, r := range results {
			n += perResult + len(r.Details) + len(r.Summary) + len(r.Error)
		}
		return n
	}
	t.Run("what fits stays", func(t *testing.T) {
		got := bounded([]deploy.ApplicationPreview{{Details: lines(1 << 20)}, {Details: lines(1 << 20), Error: "e", Summary: "s"}})
		if len(got) != 2 || got[0].Details != lines(1<<20) || got[1].Error != "e" || got[1].Summary != "s" {
			t.Errorf("changed: %d bytes", total(got))
		}
	})
	t.Run("the longest are cut", func(t *testing.T) {
		got := bounded([]deploy.ApplicationPreview{{Details: lines(8 << 20)}, {Details: "short\n"}, {Details: lines(6 << 20)}})
		if total(got) > maxAll || total(got) < maxAll-1<<14 || got[1].Details != "short\n" {
			t.Errorf("%d bytes of %d, the short one %q", total(got), maxAll, got[1].Details)
		}
		for _, i := range []int{0, 2} {
			_, last, _ := strings.Cut(got[i].Details, "...")
			if !strings.HasSuffix(last, "bytes are not shown\n") || !strings.Contains(got[i].Details, "0123456\n... cut: ") {
				t.Errorf("%d ends with %q", i, last)
			}
		}
	})
	t.Run("errors and summaries are cut", func(t *testing.T) {
		got := bounded([]deploy.ApplicationPreview{{Error: lines(1 << 20), Summary: strings.Repeat("ü", 1<<20)}})
		if total(got) > 2*maxText+perResult || !strings.HasSuffix(got[0].Error, "not shown\n") || strings.ContainsRune(got[0].Summary, '\uFFFD') {
			t.Errorf("%d bytes", total(got))
		}
	})
	t.Run("the longest diffs are cut, and changes beyond the limit left out", func(t *testing.T) {
		diffs := func(n, size int) (out []deploy.PlannedChange) {
			for range n {
				out = append(out, deploy.PlannedChange{Object: deploy.ObjectRef{Kind: "ConfigMap", Name: "some"}, Diff: lines(size)})
			}
			return out
		}
		got := bounded([]deploy.ApplicationPreview{{Changes: append(diffs(1, 8<<20), diffs(1, 64)...)}, {Changes: diffs(100_000, 64), Warnings: make([]string, 1000)}})
		size := 0
		for _, r := range got {
			for _, c := range r.Changes {
				size += len(c.Diff) + perChange
			}
		}
		first, second := got[0].Changes, got[1]
		if size > maxAll || size < maxAll-1<<16 || !strings.HasSuffix(first[0].Diff, "bytes are not shown\n") || first[1].Diff != lines(64) || got[0].LeftOut != 0 {
			t.Errorf("%d bytes; the first diff has %d, the second is %q, %d left out", size, len(first[0].Diff), first[1].Diff, got[0].LeftOut)
		}
		if len(second.Changes)+second.LeftOut != 100_000 || second.LeftOut == 0 || len(second.Warnings) != maxWarnings {
			t.Errorf("%d changes, %d left out, %d warnings", len(second.Changes), second.LeftOut, len(second.Warnings))
		}
	})
	t.Run("attributes count, and go before the diff that shows the same", func(t *testing.T) {
		large := []deploy.PlannedAttribute{{Path: "text", After: lines(4 << 20)}}
		few := []deploy.PlannedAttribute{{Path: "size", Before: "1", After: "2"}}
		got := bounded([]deploy.ApplicationPreview{{Changes: []deploy.PlannedChange{{Diff: lines(64), Attributes: large}, {Diff: lines(64), Attributes: few}}}})
		first, second := got[0].Changes[0], got[0].Changes[1]
		if first.Attributes != nil || first.Diff != lines(64) || len(second.Attributes) != 1 || second.Diff != lines(64) || got[0].LeftOut != 0 {
			t.Errorf("the first has %d attributes and a diff of %d bytes, the second %d attributes", len(first.Attributes), len(first.Diff), len(second.Attributes))
		}
	})
	t.Run("too many applications", func(t *testing.T) {
		many := make([]deploy.ApplicationPreview, 10_000)
		for i := range many {
			many[i] = deploy.ApplicationPreview{Name: "app", Details: lines(1 << 10), Labels: map[string]string{"a": "b"}}
		}
		got := bounded(many)
		if len(got) < 1000 || total(got) > maxAll+maxText || !strings.Contains(got[len(got)-1].Error, "concerns 10000 applications") {
			t.Errorf("%d applications, %d bytes, the last says %q", len(got), total(got), got[len(got)-1].Error)
		}
	})
	if got := bounded(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
