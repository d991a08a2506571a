package git

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestAbbreviatedCommits states which commit the beginning of a hash names, of
// objects copied one by one and of those fetched as packs.
func TestAbbreviatedCommits(t *testing.T) {
	t.Run("loose", func(t *testing.T) {
		up := gittest.New(t)
		testAbbreviations(t, up, up.Dir)
	})
	t.Run("packed", func(t *testing.T) {
		up := gittest.New(t)
		testAbbreviations(t, up, up.HTTP(t, gittest.HTTPOptions{}).URL)
	})
}

func testAbbreviations(t *testing.T, up *gittest.Repo, remote string) {
	up.Now = func() time.Time { return time.Unix(1_700_000_000, 0).UTC() }
	base := up.Push(t, "base", map[string]string{"a": "1"})
	r := open(t, remote)
	mustSync(t, r, base, true)
	one, two := collision(t, r, base)
	var twins []string
	for _, message := range []string{one, two} {
		if err := up.Reset(base); err != nil {
			t.Fatal(err)
		}
		twins = append(twins, up.Push(t, message, nil))
		mustSync(t, r, up.Head(), true)
	}
	begins := 0
	for begins < 40 && twins[0][begins] == twins[1][begins] {
		begins++
	}
	root, err := r.commit(base)
	if err != nil {
		t.Fatal(err)
	}
	tree := root.TreeHash.String()
	for name, c := range map[string]struct {
		hash, want string
		kind       deploy.Kind
		text       string
	}{
		"a full hash":             {hash: base, want: base},
		"seven digits":            {hash: base[:7], want: base},
		"an odd number of them":   {hash: base[:9], want: base},
		"all but one":             {hash: base[:39], want: base},
		"upper case":              {hash: strings.ToUpper(base[:8]), want: base},
		"as far as it is one's":   {hash: twins[1][:begins+1], want: twins[1]},
		"the beginning of two":    {hash: twins[1][:begins], kind: deploy.Invalid, text: "give more digits"},
		"too short":               {hash: base[:6], kind: deploy.NotFound, text: "not a full commit hash"},
		"no hash":                 {hash: "feature/x", kind: deploy.NotFound, text: "not a full commit hash"},
		"of no object":            {hash: "01234567", kind: deploy.NotFound, text: "begins with 01234567"},
		"of what is not a commit": {hash: tree[:12], kind: deploy.NotFound, text: "begins with " + tree[:12]},
		"a full hash of nothing":  {hash: strings.Repeat("01", 20), kind: deploy.NotFound, text: "is not in the mirror"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Commit(t.Context(), c.hash)
			if c.want != "" {
				if err != nil || got.Hash != c.want {
					t.Errorf("%s names %s, %v; want %s", c.hash, got.Hash, err, c.want)
				}
				return
			}
			if !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s, %v; want kind %s and %q", c.hash, got.Hash, err, c.kind, c.text)
			}
		})
	}
}

// collision returns the messages of two children of base, with its tree, whose
// hashes begin with the same seven digits.
func collision(t *testing.T, r *Repo, base string) (string, string) {
	t.Helper()
	parent, err := r.commit(base)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for i := range 1_000_000 {
		message := fmt.Sprint("twin ", i)
		c := &object.Commit{Author: parent.Author, Committer: parent.Committer, Message: message, TreeHash: parent.TreeHash,
			ParentHashes: []plumbing.Hash{parent.Hash}}
		var o plumbing.MemoryObject
		if err := c.Encode(&o); err != nil {
			t.Fatal(err)
		}
		begin := o.Hash().String()[:MinAbbreviation]
		if other, ok := seen[begin]; ok {
			return other, message
		}
		seen[begin] = message
	}
	t.Fatal("found no two hashes that begin alike")
	return "", ""
}
