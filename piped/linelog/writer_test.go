package linelog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// lines is a log that keeps its lines.
type lines []string

func (l *lines) Infof(format string, args ...any)    { *l = append(*l, fmt.Sprintf(format, args...)) }
func (l *lines) Successf(format string, args ...any) { l.Infof(format, args...) }
func (l *lines) Errorf(format string, args ...any)   { l.Infof(format, args...) }

func TestWriter(t *testing.T) {
	long := strings.Repeat("z", MaxLine)
	tests := map[string]struct {
		in   []string
		want []string
	}{
		"lines":                  {[]string{"a\nb\r\n\nc"}, []string{"a", "b", "", "c"}},
		"a line in parts":        {[]string{"a", "b", "\nc\n"}, []string{"ab", "c"}},
		"a line of the length":   {[]string{long + "\nnext"}, []string{long, "next"}},
		"a longer line":          {[]string{long, "z", "zz\nnext\n"}, []string{long + " … (cut)", "next"}},
		"bytes that are no text": {[]string{"a\x00b\xff\n"}, []string{"a\uFFFDb\uFFFD"}},
		"nothing":                {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got lines
			w := New(&got)
			for _, part := range test.in {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Errorf("Write returned %d, %v", n, err)
				}
			}
			w.Flush()
			if !slices.Equal(got, test.want) {
				t.Errorf("got %.60q, want %.60q", got, test.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	for name, line := range map[string]string{"many lines": "x\n", "many bytes": strings.Repeat("x", 1<<15) + "\n"} {
		t.Run(name, func(t *testing.T) {
			var got lines
			Copy(&got, strings.NewReader(strings.Repeat(line, 2*maxLines)[:min(2*maxLines*len(line), 2*maxOutput)]))
			last := got[len(got)-1]
			if len(got) > maxLines+1 || !strings.HasPrefix(last, "output cut: ") || strings.HasPrefix(got[len(got)-2], "output cut") {
				t.Errorf("%d lines were written, the last is %.60q", len(got), last)
			}
		})
	}
}
