package script

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// bounds of a script's output in the stage's log.
const (
	maxLine   = 64<<10 - 64 // bytes of one line, with room for the truncation mark
	maxOutput = 4 << 20     // total bytes
	maxLines  = 10_000
)

// output copies a script's output to the stage's log, line by line, up to the bounds.
// It discards the rest, so that the script never blocks.
type output struct {
	log   deploy.StageLog
	lines int
	bytes int
	cut   bool
}

// copy reads r until its end, which comes when all processes of the script have closed the
// pipe or the caller closes r.
func (o *output) copy(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 {
			o.line(line, long)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // discard the rest of the line
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// line logs one line, with a mark if it was truncated (long). Beyond the bounds it logs
// once that the output is cut.
func (o *output) line(line []byte, long bool) {
	if o.cut {
		return
	}
	o.lines++
	o.bytes += len(line)
	if o.cut = o.lines > maxLines || o.bytes > maxOutput; o.cut {
		o.log.Infof("output cut: only the first %d lines and %d MiB are kept", maxLines, maxOutput>>20)
		return
	}
	text := strings.TrimRight(string(line), "\r\n")
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if long {
		text += " … (cut)"
	}
	o.log.Infof("%s", text)
}
