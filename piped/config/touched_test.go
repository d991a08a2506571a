package config

import "testing"

func TestTouched(t *testing.T) {
	cases := []struct {
		name           string
		dir            string
		paths, ignores []string
		changed        []string
		want           string // the file that counts, "" for none
	}{
		{name: "a file below the directory", dir: "app/demo", changed: []string{"app/demo/d.yaml"}, want: "app/demo/d.yaml"},
		{name: "a file deep below the directory", dir: "app/demo", changed: []string{"app/demo/base/x/d.yaml"}, want: "app/demo/base/x/d.yaml"},
		{name: "a file of a directory with the same beginning", dir: "app/demo", changed: []string{"app/demo2/x"}},
		{name: "a file with the directory's name", dir: "app/demo", changed: []string{"app/demo"}},
		{name: "a file above the directory", dir: "app/demo", changed: []string{"app/x.yaml", "x.yaml"}},
		{name: "the directory's name elsewhere", dir: "demo", changed: []string{"app/demo/d.yaml"}},
		{name: "other letters in upper case", dir: "app/demo", changed: []string{"app/Demo/d.yaml"}},
		{name: "an application in the root", dir: ".", changed: []string{"x.yaml"}, want: "x.yaml"},
		{name: "an application in the root, a file below", dir: ".", changed: []string{"deep/down/x.yaml"}, want: "deep/down/x.yaml"},
		{name: "an application in the root that ignores a directory", dir: ".", ignores: []string{"docs"}, changed: []string{"docs/a/b.md"}},
		{name: "a name that is not ASCII", dir: "app/デモ", changed: []string{"app/デモ/設定.yaml"}, want: "app/デモ/設定.yaml"},
		{name: "a pattern that is not ASCII", dir: "app/demo", paths: []string{"共有/*.yaml"}, changed: []string{"共有/設定.yaml"}, want: "共有/設定.yaml"},
		{name: "an ignored name that is not ASCII", dir: "app/größe", ignores: []string{"app/größe/*.md"}, changed: []string{"app/größe/Überblick.md"}},
		{name: "paths add to the directory", dir: "app/demo", paths: []string{"charts/demo"}, changed: []string{"charts/demo/a/b.yaml"}, want: "charts/demo/a/b.yaml"},
		{name: "paths do not take the directory away", dir: "app/demo", paths: []string{"charts/demo"}, changed: []string{"app/demo/d.yaml"}, want: "app/demo/d.yaml"},
		{name: "a pattern matches in its directory", dir: "app/demo", paths: []string{"charts/bar/*"}, changed: []string{"charts/bar/x.yaml"}, want: "charts/bar/x.yaml"},
		{name: "a pattern covers what lies below", dir: "app/demo", paths: []string{"charts/bar/*"}, changed: []string{"charts/bar/s/x.yaml"}, want: "charts/bar/s/x.yaml"},
		{name: "paths that match nothing", dir: "app/demo", paths: []string{"charts/foo"}, changed: []string{"charts/bar/x.yaml"}},
		{name: "an exclusion among paths has no effect, as in PipeCD", dir: "app/demo", paths: []string{"docs", "!docs/README.md"}, changed: []string{"docs/README.md"}, want: "docs/README.md"},
		{name: "an ignored file does not count", dir: "app/demo", ignores: []string{"app/demo/README.md"}, changed: []string{"app/demo/README.md"}},
		{name: "an ignored file vetoes no other", dir: "app/demo", ignores: []string{"*/hello.txt"}, changed: []string{"app/hello.txt", "app/demo/d.yaml"}, want: "app/demo/d.yaml"},
		{name: "all files of the application ignored", dir: "app/demo", ignores: []string{"app/demo/*.md"}, changed: []string{"app/demo/a.md", "app/demo/b.md", "x"}},
		{name: "ignores hold for paths too", dir: "app/demo", paths: []string{"lib"}, ignores: []string{"lib/*.md"}, changed: []string{"lib/a.md"}},
		{name: "an exclusion among ignores neither", dir: "app/demo", ignores: []string{"app/demo/*.md", "!app/demo/plan.md"}, changed: []string{"app/demo/plan.md"}},
		{name: "nothing changed", dir: "app/demo"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := OnCommit{Paths: patterns(t, c.paths...), Ignores: patterns(t, c.ignores...)}.Touched(c.dir, c.changed)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("Touched = %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}
