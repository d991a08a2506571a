package git

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/git/gittest"
)

func TestNewest(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"f": "1"})
	second := up.Push(t, "second", map[string]string{"f": "2"})
	r := open(t, up.Dir)
	mustSync(t, r, up.Push(t, "lost", map[string]string{"f": "3"}), true)
	lost := up.Head()
	if err := up.Reset(second); err != nil {
		t.Fatal(err)
	}
	head := up.Push(t, "head", map[string]string{"f": "4"})
	mustSync(t, r, head, true)

	unknown := strings.Repeat("0123456789", 4)
	for name, c := range map[string]struct {
		of   []string
		want string // "" for none
	}{
		"of nothing":                    {nil, ""},
		"the head":                      {[]string{first, head}, head},
		"the newer of two":              {[]string{first, second}, second},
		"an old one":                    {[]string{first}, first},
		"one the branch has lost":       {[]string{lost}, ""},
		"one lost and one it still has": {[]string{lost, first}, first},
		"unknown and malformed ones":    {[]string{unknown, "main", "", first[:10]}, ""},
	} {
		got, ok, err := r.Newest(t.Context(), head, c.of)
		if err != nil || ok != (c.want != "") || got.Hash != c.want {
			t.Errorf("%s: %q, %t, %v; want %q", name, got.Hash, ok, err, c.want)
		}
	}
}
