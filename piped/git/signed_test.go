package git

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/git/signature"
)

// TestCommitObjectIsWhatWasSigned: in a history with signed and unsigned
// commits, each is verified by its own signature.
func TestCommitObjectIsWhatWasSigned(t *testing.T) {
	repo, signer := gittest.New(t), gittest.NewSSHSigner(t, "dave")
	keys, err := signature.Load(nil, []string{gittest.KeyFile(t, signer)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, sign := range []bool{true, false, true} {
		repo.Sign = nil
		if sign {
			repo.Sign = signer.Sign
		}
		want[repo.Push(t, "a commit\n\nwith a body\n", map[string]string{"f": "x"})] = sign
	}
	r := open(t, repo.Dir)
	mustSync(t, r, repo.Head(), true)
	got := map[string]bool{}
	for hash := range want {
		object, err := r.CommitObject(hash)
		if err != nil {
			t.Fatal(err)
		}
		_, err = keys.Verify(object)
		got[hash] = err == nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signed: -want +got:\n%s", diff)
	}
	for _, hash := range []string{"", "main", "1111111111111111111111111111111111111111"} {
		if _, err := r.CommitObject(hash); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("%q: got %v, want not found", hash, err)
		}
	}
}
