package ansi_test

import (
	"testing"

	"github.com/c785c783/piped/piped/ansi"
)

func TestStrip(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"plain\ttext\n":                       "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m and \x1b[Kmore": "red and more",
		"\x1b]0;title\x07text":                "text",
		"\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1b]0;never ended\nthe next line":         "\nthe next line",
		"\x1bMup":                                   "up",
		"[31m is no sequence":                       "[31m is no sequence",
	} {
		if got := ansi.Strip(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
