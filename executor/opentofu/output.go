package opentofu

import (
	"bytes"
	"strings"
	"sync"

	"github.com/c785c783/piped/piped/ansi"
	"github.com/c785c783/piped/piped/deploy"
)

// maxLine and maxLines bound what one command writes to the log.
const (
	maxLine  = 64 << 10
	maxLines = 20_000
)

// output writes the output of commands to the log of a stage, line by line.
type output struct {
	log deploy.StageLog

	mu    sync.Mutex
	rest  []byte // of an incomplete line
	lines int
}

// Write implements io.Writer. It never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = append(o.rest, p...)
	for {
		i := bytes.IndexByte(o.rest, '\n')
		if i < 0 && len(o.rest) < maxLine {
			return len(p), nil
		}
		next := i + 1
		if i < 0 {
			i, next = maxLine, maxLine
		}
		o.line(string(o.rest[:i]))
		o.rest = o.rest[next:]
	}
}

// flush writes an incomplete line.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rest) > 0 {
		o.line(string(o.rest))
		o.rest = nil
	}
}

func (o *output) line(text string) {
	text = strings.TrimRight(ansi.Strip(text), " \r")
	if o.lines++; text == "" || o.lines > maxLines {
		return
	}
	if o.lines == maxLines {
		text = "The output is longer; the rest is left out"
	}
	o.log.Infof("%s", text)
}
