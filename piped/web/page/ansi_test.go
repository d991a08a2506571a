package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestColoursOfLogs: colours as ECMA-48 selects them are kept as classes, and nothing else of an
// escape sequence reaches the browser.
func TestColoursOfLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		line, plain string
		parts       []coloured
	}{
		"none":             {"plain", "plain", nil},
		"red":              {"a \x1b[31merror\x1b[0m b", "a error b", []coloured{{"", "a "}, {"ansi-red", "error"}, {"", " b"}}},
		"bright":           {"\x1b[92mok", "ok", []coloured{{"ansi-green", "ok"}}},
		"bold":             {"\x1b[1;33mwarn\x1b[22m on\x1b[39m off", "warn on off", []coloured{{"ansi-yellow ansi-bold", "warn"}, {"ansi-yellow", " on"}, {"", " off"}}},
		"empty is a reset": {"\x1b[34mblue\x1b[mplain", "blueplain", []coloured{{"ansi-blue", "blue"}, {"", "plain"}}},
		"256 colours":      {"\x1b[38;5;1mred\x1b[38;5;200;1mbold", "redbold", []coloured{{"ansi-red", "red"}, {"ansi-bold", "bold"}}},
		"true colour":      {"\x1b[38;2;31;31;31mtext\x1b[48;5;31m more", "text more", nil},
		"cut off":          {"\x1b[38;5mtext\x1b[38mmore", "textmore", nil},
		"background":       {"\x1b[41mtext", "text", nil},
		"title":            {"\x1b]0;title\x07text", "text", nil},
		"hyperlink":        {"\x1b]8;;https://evil.example.com\x1b\\click\x1b]8;;\x1b\\", "click", nil},
		"cursor":           {"\x1b[2J\x1b[31;1Htext", "text", nil},
		"private":          {"\x1b[?31mtext", "text", nil},
		"not finished":     {"text\x1b[31", "text31", nil},
		"control":          {"\x1b[31ma\x00\u202e\x1b[0m", "a\uFFFD\uFFFD", []coloured{{"ansi-red", "a\uFFFD\uFFFD"}}},
	} {
		plain, parts := colours(tc.line)
		if plain != tc.plain {
			t.Errorf("%s: %q, want %q", name, plain, tc.plain)
		}
		if diff := cmp.Diff(tc.parts, parts, cmp.AllowUnexported(coloured{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// FuzzColours: the text of the parts is the plain text, which has no control characters.
func FuzzColours(f *testing.F) {
	f.Add("a \x1b[38;5;1mred\x1b[0m")
	f.Fuzz(func(t *testing.T, line string) {
		plain, parts := colours(line)
		joined := ""
		for _, p := range parts {
			joined += p.text
		}
		if parts != nil && joined != plain {
			t.Errorf("the parts are %q, the text %q", joined, plain)
		}
		for _, r := range plain {
			if isControl(r) {
				t.Errorf("%q has a control character", plain)
			}
		}
	})
}

// TestFoldedLogsHaveTheLinkedLine: the line that the address names is there by itself.
func TestFoldedLogsHaveTheLinkedLine(t *testing.T) {
	var got []string
	for _, l := range folded([]logLine{{text: "a", number: 1}, {text: "a", number: 2}, {text: "a", number: 3, linked: true}, {text: "a", number: 4}, {text: "a", number: 5}}) {
		got = append(got, fmt.Sprintf("%d+%d", l.number, l.times))
	}
	if diff := cmp.Diff([]string{"1+1", "3+0", "4+1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFoldedLogs: lines that follow themselves are counted, others keep their order.
func TestFoldedLogs(t *testing.T) {
	var got []string
	var times []int
	for _, l := range folded([]logLine{{text: "a"}, {text: "a"}, {text: "b"}, {text: "a"}, {text: "a"}, {text: "a"}, {}, {}}) {
		got, times = append(got, l.text), append(times, l.times)
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 0, 2, 0, 0}, times); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestControlCharactersInHTML: no component writes a control character, and none ends the field of
// an event in a stream.
func TestControlCharactersInHTML(t *testing.T) {
	got, err := html(t.Context(), empty("a\x1b[31mb\u202ec\x00", "x\r\ny\rid: forged\tz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">a\uFFFD[31mb\uFFFDc\uFFFD<", ">x\ny\nid: forged\tz<"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "one": "one", "one\r\ntwo": "one", "\x1b[31mred\x1b[0m \u202egnp\n": "red \uFFFDgnp"} {
		if got := firstLine(text); got != want {
			t.Errorf("the first line of %q is %q, want %q", text, got, want)
		}
	}
}
