package page

import (
	"context"
	"io"
	"strings"

	"github.com/a-h/templ"

	"github.com/c785c783/piped/piped/ansi"
)

// coloured is a part of a line in one colour.
type coloured struct {
	class string // "" for the colour of the line
	text  string
}

// ansiColours are the classes of the eight colours of terminals, in their order. Black and white
// are shown as the text is: one of them cannot be read in each theme.
var ansiColours = [8]string{"", "ansi-red", "ansi-green", "ansi-yellow", "ansi-blue", "ansi-magenta", "ansi-cyan", ""}

// colours splits a line at the escape sequences that select colours (ECMA-48, SGR), and removes all
// others. plain is the text without them; parts is nil if all of it has the colour of the line.
func colours(line string) (plain string, parts []coloured) {
	if !strings.ContainsRune(line, '\x1b') {
		return withoutEscapes(line), nil
	}
	var now style
	var text strings.Builder
	any := false
	add := func(piece string) {
		if piece = withoutEscapes(piece); piece == "" {
			return
		}
		text.WriteString(piece)
		class := now.class()
		any = any || class != ""
		if n := len(parts); n > 0 && parts[n-1].class == class {
			parts[n-1].text += piece
		} else {
			parts = append(parts, coloured{class, piece})
		}
	}
	for {
		at := ansi.Sequence.FindStringIndex(line)
		if at == nil {
			break
		}
		add(line[:at[0]])
		now.apply(line[at[0]:at[1]])
		line = line[at[1]:]
	}
	if add(line); !any {
		parts = nil
	}
	return text.String(), parts
}

// style is what the last sequences have selected.
type style struct {
	colour string
	bold   bool
}

func (s style) class() string {
	if s.bold {
		return strings.TrimSpace(s.colour + " ansi-bold")
	}
	return s.colour
}

// apply applies a sequence; one that is no SGR changes nothing.
func (s *style) apply(sequence string) {
	inner, csi := strings.CutPrefix(sequence, "\x1b[")
	inner, sgr := strings.CutSuffix(inner, "m")
	if !csi || !sgr || strings.ContainsFunc(inner, func(r rune) bool { return (r < '0' || r > '9') && r != ';' }) {
		return
	}
	codes := strings.Split(inner, ";")
	for i := 0; i < len(codes); i++ {
		switch code := strings.TrimLeft(codes[i], "0"); {
		case code == "":
			*s = style{}
		case code == "1":
			s.bold = true
		case code == "2":
			s.colour = "ansi-grey"
		case code == "22":
			s.bold = false
		case code == "39":
			s.colour = ""
		case code == "90":
			s.colour = "ansi-grey"
		case len(code) == 2 && (code[0] == '3' || code[0] == '9') && code[1] <= '7':
			s.colour = ansiColours[code[1]-'0']
		case code == "38" || code == "48":
			i += s.extended(code == "38", codes[i+1:])
		}
	}
}

// extended applies a colour out of 256 or 16 million, of which only the first 8 have a class, and
// returns how many of the following codes belong to it.
func (s *style) extended(foreground bool, rest []string) (used int) {
	switch {
	case len(rest) >= 2 && rest[0] == "5":
		if n := rest[1]; foreground && len(n) == 1 && n[0] <= '7' {
			s.colour = ansiColours[n[0]-'0']
		} else if foreground {
			s.colour = ""
		}
		return 2
	case len(rest) >= 4 && rest[0] == "2":
		if foreground {
			s.colour = ""
		}
		return 4
	}
	return len(rest)
}

// logText writes the text of a line. White space in it counts, so that no template writes it.
func logText(l logLine) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		runs := l.runs
		if runs == nil {
			runs = (*objectLinks)(nil).runs(l.text, l.coloured)
		}
		var out strings.Builder
		for _, r := range runs {
			if r.path == "" {
				writeParts(&out, r.parts)
				continue
			}
			out.WriteString(`<a href="` + templ.EscapeString(r.path) + `">`)
			writeParts(&out, r.parts)
			out.WriteString(`</a>`)
		}
		_, err := io.WriteString(w, out.String())
		return err
	})
}

// writeParts writes parts in their colours.
func writeParts(out *strings.Builder, parts []coloured) {
	for _, c := range parts {
		if c.class == "" {
			out.WriteString(templ.EscapeString(c.text))
		} else {
			out.WriteString(`<span class="` + c.class + `">` + templ.EscapeString(c.text) + `</span>`)
		}
	}
}

// folded joins lines that follow themselves. A line that the address names stays alone.
func folded(lines []logLine) []logLine {
	var out []logLine
	for _, l := range lines {
		if n := len(out); n > 0 && out[n-1].text == l.text && out[n-1].severity == l.severity && l.text != "" && !l.linked && !out[n-1].linked && out[n-1].precedes(l) {
			out[n-1].times++
			continue
		}
		out = append(out, l)
	}
	return out
}

// precedes reports whether no line of another level is between two lines.
func (l logLine) precedes(next logLine) bool {
	return next.number == 0 || next.number == l.number+int64(l.times)+1
}
