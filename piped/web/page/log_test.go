package page

import (
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestBlockWindow adds blocks of no, one and three lines: the last lines remain, the others are
// counted.
func TestBlockWindow(t *testing.T) {
	texts := []string{"", "one", "one\n", "one\ntwo\nthree"}
	counts := []int{0, 1, 1, 3}
	var w blockWindow
	lines := 0
	for i := range 10 * logWindow {
		w.add(&modelv1.LogBlock{Index: int64(i), Log: texts[i%len(texts)]})
		lines += counts[i%len(texts)]
		if i%97 != 0 { // counting takes time
			continue
		}
		held := 0
		for _, b := range w.blocks {
			held += len(linesOf(b, &modelv1.PipelineStage{}))
		}
		if held != w.lines || held+w.omitted != lines {
			t.Fatalf("after %d lines, %d are held, as %d, and %d are omitted", lines, held, w.lines, w.omitted)
		}
		if held < min(lines, logWindow) || held > logWindow+2 {
			t.Fatalf("after %d lines, %d are held", lines, held)
		}
		if last := w.blocks[len(w.blocks)-1].Index; last != int64(i) {
			t.Fatalf("the last block is %d, expected %d", last, i)
		}
	}
}
