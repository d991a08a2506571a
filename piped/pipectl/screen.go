package pipectl

import (
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// screen is the output for users: a terminal, or a file with plain lines of any length.
type screen struct {
	out   io.Writer
	tty   bool
	color bool
	fd    int
}

// newScreen detects a terminal. It enables colours unless the terminal lacks them or
// NO_COLOR is set.
func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.tty, s.fd = true, int(f.Fd())
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return s
}

// width returns the current width of the terminal, 0 for no limit.
func (s *screen) width() int {
	if !s.tty {
		return 0
	}
	width, _, err := term.GetSize(s.fd)
	if err != nil {
		return 0
	}
	return width
}

// color is the SGR number of a foreground colour; 0 is the terminal's default.
type color string

const (
	plain  color = ""
	red    color = "31"
	green  color = "32"
	yellow color = "33"
	cyan   color = "36"
	faint  color = "2"
)

// paint colours text if colours are enabled.
func (s *screen) paint(c color, text string) string {
	if !s.color || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// clean makes external text safe for one line of a terminal: it removes characters that
// move the cursor or change the terminal's state.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return printable(r)
	}, text)
}

// cleanLines is like clean, but retains line breaks and tabs.
func cleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, text)
}

// printable returns r, or -1 for control characters.
func printable(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return -1
	}
	return r
}

// cut truncates text to a width in terminal cells, including the ellipsis.
func cut(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var b strings.Builder
	used := 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		if used+g.Width() > width-1 {
			break
		}
		used += g.Width()
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}
