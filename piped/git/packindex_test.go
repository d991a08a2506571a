package git

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/git/gittest"
)

// packOf returns a pack as git makes it, with many deltas.
func packOf(t *testing.T, options ...string) string {
	t.Helper()
	upstream := gittest.New(t)
	random := rand.New(rand.NewPCG(1, 2))
	var lines []string
	for range 400 {
		lines = append(lines, fmt.Sprintf("line %d", random.Int64()))
	}
	for n := range 40 {
		lines[random.IntN(len(lines))] = fmt.Sprint("changed ", n)
		files := map[string]string{"a/b/long.txt": strings.Join(lines, "\n"), fmt.Sprintf("c/%d.yaml", n): "x", "copy.txt": strings.Join(lines[:300], "\n")}
		upstream.Push(t, "commit", files)
	}
	base := filepath.Join(t.TempDir(), "pack")
	args := append([]string{"-C", upstream.Dir, "pack-objects", "--revs", "--all", "--quiet", "--depth=30"}, options...)
	cmd := exec.Command("git", append(args, base)...)
	cmd.Stdin = strings.NewReader("")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return base + "-" + strings.TrimSpace(string(out))
}

// TestAPackIsIndexedAsGitDoes compares the index with git's own, byte for byte.
func TestAPackIsIndexedAsGitDoes(t *testing.T) {
	for name, options := range map[string][]string{"deltas by hash": nil, "deltas by offset": {"--delta-base-offset"}} {
		t.Run(name, func(t *testing.T) {
			pack := packOf(t, options...)
			want, err := os.ReadFile(pack + ".idx")
			if err != nil {
				t.Fatal(err)
			}
			index := filepath.Join(t.TempDir(), "index")
			sum, whole, err := indexPack(t.Context(), pack+".pack", index, defaultBounds())
			if err != nil || !whole || !strings.HasSuffix(pack, sum.String()) {
				t.Fatalf("got pack %s, whole %v, %v, want %s", sum, whole, err, filepath.Base(pack))
			}
			got, err := os.ReadFile(index)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the index has %d bytes and is not as git's of %d", len(got), len(want))
			}
			verify, err := exec.Command("git", "verify-pack", "-v", pack+".idx").Output()
			if err != nil || !strings.Contains(string(verify), "chain length = 5") {
				t.Errorf("the pack has no chains of deltas, so that nothing was shown: %v", err)
			}
		})
	}
}

// FuzzIndexPack holds what is indexed against what git takes.
func FuzzIndexPack(f *testing.F) {
	good := &gittest.Pack{}
	_, base := good.Blob([]byte(strings.Repeat("base ", 40)))
	good.Delta(base, 200, 20, []byte{0x90, 15, 5, 'm', 'o', 'r', 'e', '!'})
	good.Commit(good.Tree())
	f.Add(good.Bytes())
	for _, instructions := range [][]byte{{}, {0}, {0x7f}, {0xff}, {0x91, 200, 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		bad := &gittest.Pack{}
		_, base := bad.Blob([]byte("base"))
		bad.Delta(base, 4, 20, instructions)
		f.Add(bad.Bytes())
	}
	f.Add([]byte("PACK"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		pack := filepath.Join(dir, "tmp.pack")
		if err := os.WriteFile(pack, data, 0o600); err != nil {
			t.Fatal(err)
		}
		limits := defaultBounds()
		limits.inflated, limits.objects = 16<<20, 1000
		if _, whole, err := indexPack(t.Context(), pack, filepath.Join(dir, "tmp.idx"), limits); err != nil || !whole {
			return
		}
		if out, err := exec.Command("git", "index-pack", pack).CombinedOutput(); err != nil {
			t.Errorf("git refuses what is indexed here: %v: %s", err, out)
		}
	})
}
