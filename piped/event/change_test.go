package event

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestTitleOfAPullRequest: the title respects the hosts' limit of 255 characters, and the
// body has the full text.
func TestTitleOfAPullRequest(t *testing.T) {
	long := strings.Repeat("ü", 300)
	for name, c := range map[string]struct{ message, title, body string }{
		"short":   {"Set v1\n\nPiped-Event-Id: e", "Set v1", "Piped-Event-Id: e"},
		"at most": {long[:2*maxTitle] + "\n\nbody", long[:2*maxTitle], "body"},
		"long":    {long + "\n\nbody", long[:2*maxTitle] + "…", long + "\n\nbody"},
		"alone":   {"Set v1", "Set v1", ""},
	} {
		if title, body := splitTitle(c.message); title != c.title || body != c.body {
			t.Errorf("%s: %q, %q; want %q, %q", name, title, body, c.title, c.body)
		}
	}
	text, err := message(nil, deploy.RegisteredEvent{ID: "e", Name: "image-pushed", Data: long})
	if err != nil {
		t.Fatal(err)
	}
	if title, body := splitTitle(text); len([]rune(title)) > 255 || !strings.Contains(body, long) {
		t.Errorf("of a long value: %q, %q", title, body)
	}
}
