package trigger

import (
	"testing"

	"github.com/c785c783/piped/piped/config"
)

func patterns(t *testing.T, texts ...string) config.Patterns {
	t.Helper()
	var out config.Patterns
	for _, text := range texts {
		var p config.Pattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestTouched(t *testing.T) {
	cases := []struct {
		name           string
		dir            string
		paths, ignores []string
		changed        []string
		want           string // the file that counts, "" for none
	}{
		{name: "a file below the directory", dir: "app/demo", changed: []string{"app/demo/d.yaml"}, want: "app/demo/d.yaml"},
		{name: "a file of a directory with the same beginning", dir: "app/demo", changed: []string{"app/demo2/x"}},
		{name: "an application in the root", dir: ".", changed: []string{"x.yaml"}, want: "x.yaml"},
		{name: "a name that is not ASCII", dir: "app/デモ", changed: []string{"app/デモ/設定.yaml"}, want: "app/デモ/設定.yaml"},
		{name: "paths add to the directory", dir: "app/demo", paths: []string{"charts/demo"}, changed: []string{"charts/demo/a/b.yaml"}, want: "charts/demo/a/b.yaml"},
		{name: "a pattern covers what lies below", dir: "app/demo", paths: []string{"charts/bar/*"}, changed: []string{"charts/bar/s/x.yaml"}, want: "charts/bar/s/x.yaml"},
		{name: "an ignored file does not count", dir: "app/demo", ignores: []string{"app/demo/README.md"}, changed: []string{"app/demo/README.md"}},
		{name: "an ignored file vetoes no other", dir: "app/demo", ignores: []string{"*/hello.txt"}, changed: []string{"app/hello.txt", "app/demo/d.yaml"}, want: "app/demo/d.yaml"},
		{name: "ignores hold for paths too", dir: "app/demo", paths: []string{"lib"}, ignores: []string{"lib/*.md"}, changed: []string{"lib/a.md"}},
		{name: "nothing changed", dir: "app/demo"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := touched(c.dir, patterns(t, c.paths...), patterns(t, c.ignores...), c.changed)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("touched = %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}
