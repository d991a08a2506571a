package pipectl

import (
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// screen is where text for a person goes: a terminal, or a file that takes
// plain lines of any length.
type screen struct {
	out   io.Writer
	tty   bool
	color bool
	fd    int
}

// newScreen finds out what out is. Colours are for terminals that can show them
// and whose owner did not refuse them with NO_COLOR.
func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.tty, s.fd = true, int(f.Fd())
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return s
}

// width is the terminal's at this moment, and 0 for no limit.
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

// color is the number of a foreground colour; 0 leaves the terminal's own.
type color string

const (
	plain  color = ""
	red    color = "31"
	green  color = "32"
	yellow color = "33"
	cyan   color = "36"
	faint  color = "2"
)

// paint colours text where colours are shown.
func (s *screen) paint(c color, text string) string {
	if !s.color || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// clean makes text from elsewhere fit for one line of a terminal: what could
// move its cursor or change its state is left out.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return printable(r)
	}, text)
}

// cleanLines does the same for text of several lines, whose tabs stay.
func cleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, text)
}

// printable is r, or -1 for what is no text but an order to the terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return -1
	}
	return r
}

// cut shortens text to a width in terminal cells; the ellipsis is part of it.
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
