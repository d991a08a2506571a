// Package linelog writes the output of a program to the log of a stage, line by line and up to
// bounds.
package linelog

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// The bounds of the output.
const (
	MaxLine   = 64<<10 - 64 // bytes of one line, with room for the truncation mark
	maxOutput = 4 << 20     // total bytes
	maxLines  = 10_000
)

// Writer writes lines to a log. It discards what is beyond the bounds, so that the program never
// blocks. It is safe for concurrent use.
type Writer struct {
	log deploy.StageLog

	mu      sync.Mutex
	line    []byte // the incomplete line
	skip    bool   // the rest of the line is discarded
	pending bool   // line has to be written, even if it is empty
	lines   int
	bytes   int
	cut     bool
}

// New returns a Writer that writes to a log.
func New(log deploy.StageLog) *Writer { return &Writer{log: log} }

// Write implements io.Writer. It never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := p; len(rest) > 0; {
		part, after, ends := bytes.Cut(rest, []byte("\n"))
		rest = after
		w.add(part)
		if ends {
			w.pending = true
			w.end()
		}
	}
	return len(p), nil
}

// Flush writes an incomplete line.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

// add appends to the line, and writes it with a mark once it is too long.
func (w *Writer) add(part []byte) {
	if w.skip || w.cut || len(part) == 0 {
		return
	}
	w.pending = true
	free := MaxLine - len(w.line)
	w.line = append(w.line, part[:min(free, len(part))]...)
	if len(part) > free {
		w.write(" … (cut)")
		w.skip = true
	}
}

// end ends the line.
func (w *Writer) end() {
	if !w.skip && w.pending && !w.cut {
		w.write("")
	}
	w.skip, w.pending = false, false
}

// write writes the line with a mark. Beyond the bounds it writes once that the output is cut.
func (w *Writer) write(mark string) {
	w.lines++
	w.bytes += len(w.line) + 1
	if w.cut = w.lines > maxLines || w.bytes > maxOutput; w.cut {
		w.log.Infof("output cut: only the first %d lines and %d MiB are kept", maxLines, maxOutput>>20)
	} else {
		text := strings.TrimRight(string(w.line), "\r\n")
		w.log.Infof("%s", strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")+mark)
	}
	w.line = w.line[:0]
}

// Copy writes what it reads to a log, until the end or an error of the reader.
func Copy(log deploy.StageLog, r io.Reader) {
	w := New(log)
	_, _ = io.Copy(w, r) // a reader that its owner closes ends, too
	w.Flush()
}
