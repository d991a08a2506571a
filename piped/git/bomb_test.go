package git

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/git/gittest"
)

// bombMemory is how much a process may ever take that reads a repository which was made
// to take as much as possible.
const bombMemory = 400 << 20

// bombs are commits on the commit parent, each with the pack that brings it.
var bombs = []struct {
	name string
	make func(p *gittest.Pack, parent string) (commit string)
	want []string // parts of the error; nil: the commit is good
}{
	{"a thousand million paths", func(p *gittest.Pack, parent string) string {
		return p.Commit(p.Tree(gittest.Entry{Mode: "40000", Name: "vendor", Hash: p.Nested(9, 10)}), parent)
	}, []string{"vendor/n00/n00", "more than 500000 files and directories"}},
	{"few long paths", func(p *gittest.Pack, parent string) string {
		blob, _ := p.Blob([]byte("x"))
		below := p.Tree(gittest.Entry{Mode: "100644", Name: strings.Repeat("x", 200<<10), Hash: blob})
		for range 9 {
			below = p.Tree(gittest.Entry{Mode: "40000", Name: "a", Hash: below}, gittest.Entry{Mode: "40000", Name: "b", Hash: below})
		}
		return p.Commit(below, parent)
	}, []string{"the paths of the commit's files have more than"}},
	{"directories without end", func(p *gittest.Pack, parent string) string { return p.Commit(p.Nested(20_000, 1), parent) },
		[]string{"n00/n00", "nested more than 256 deep"}},
	{"a file of more than 1 GiB", func(p *gittest.Pack, parent string) string {
		p.Zeros(1088)
		dir := p.Tree(gittest.Entry{Mode: "100644", Name: "disk.img", Hash: strings.Repeat("ab", 20)})
		return p.Commit(p.Tree(gittest.Entry{Mode: "40000", Name: "images", Hash: dir}), parent)
	}, []string{"images/disk.img", "more than 1073741824 bytes"}},
	{"a file of more than 1 GiB that the next commit removes", func(p *gittest.Pack, parent string) string {
		p.Zeros(1088)
		before := p.Commit(p.Tree(gittest.Entry{Mode: "100644", Name: "disk.img", Hash: strings.Repeat("ab", 20)}), parent)
		return p.Commit(p.Tree(), before)
	}, nil},
	{"a file of 600 MiB", func(p *gittest.Pack, parent string) string {
		p.Zeros(600)
		return p.Commit(p.Tree(gittest.Entry{Mode: "100644", Name: "disk.img", Hash: zeros600}), parent)
	}, nil},
	{"a delta that makes 2 GiB", func(p *gittest.Pack, parent string) string {
		_, base := p.Blob(make([]byte, 1<<20))
		p.Delta(base, 1<<20, 2<<30, gittest.CopyMiB(2<<10))
		return p.Commit(p.Tree(gittest.Entry{Mode: "100644", Name: "disk.img", Hash: strings.Repeat("cd", 20)}), parent)
	}, []string{"disk.img", "or a change of so large a one"}},
	{"a small file that is a delta of 600 MiB", func(p *gittest.Pack, parent string) string {
		_, base := p.Blob(make([]byte, 1<<20))
		large := p.Delta(base, 1<<20, 600<<20, gittest.CopyMiB(600))
		p.Delta(large, 600<<20, 1<<20, gittest.CopyMiB(1))
		p.Delta(base, 1<<20, 1<<20, gittest.CopyMiB(1))
		return p.Commit(p.Tree(gittest.Entry{Mode: "100644", Name: "small.txt", Hash: strings.Repeat("ef", 20)}), parent)
	}, []string{"small.txt", "or a change of so large a one"}},
	{"deltas that inflate to 600 GiB", func(p *gittest.Pack, parent string) string {
		_, base := p.Blob(make([]byte, 1<<20))
		for range 600 {
			p.Delta(base, 1<<20, 1<<30, gittest.CopyMiB(1<<10))
		}
		return p.Commit(p.Tree(), parent)
	}, []string{"inflates to far more than its size"}},
	{"a directory of 40 MiB", func(p *gittest.Pack, parent string) string {
		blob, _ := p.Blob([]byte("x"))
		var entries []gittest.Entry
		for n := range 1 << 20 {
			entries = append(entries, gittest.Entry{Mode: "100644", Name: fmt.Sprintf("f%07d", n), Hash: blob})
		}
		return p.Commit(p.Tree(entries...), parent)
	}, []string{"a tree of", "expected at most 8388608"}},
	{"a pack that announces four thousand million objects", func(p *gittest.Pack, parent string) string {
		p.Announce = 4_000_000_000
		return p.Commit(p.Tree(), parent)
	}, []string{"expected at most 3000000"}},
	{"half a million objects", func(p *gittest.Pack, parent string) string {
		for n := range 500_000 {
			p.Stored(strconv.AppendInt(nil, int64(n), 10))
		}
		return p.Commit(p.Tree(), parent)
	}, nil},
}

// zeros600 is what `head -c 629145600 /dev/zero | git hash-object --stdin` prints.
const zeros600 = "a7ce5b5de3da8e5e069bf72b9f425b99dc5360ff"

// TestBombs reads repositories that were made to take memory and time, as the branch
// that is followed and as one that a preview merges, in a process of their own.
func TestBombs(t *testing.T) {
	program := withoutRaceDetector(t)
	for _, b := range bombs {
		t.Run(b.name, func(t *testing.T) {
			first := &gittest.Pack{}
			good := first.Commit(first.Tree(gittest.Entry{Mode: "40000", Name: "a", Hash: first.Nested(2, 3)}))
			p := &gittest.Pack{}
			bomb := b.make(p, good)
			server := gittest.ServePacks(t, map[string][]byte{good: first.Bytes(), bomb: p.Bytes()})
			server.Set(gittest.Branch, good)
			server.Set("feature", bomb)
			got := inChild(t, program, server.URL, bomb)
			if got.Memory > bombMemory {
				t.Errorf("it took %d MiB, want at most %d", got.Memory>>20, bombMemory>>20)
			}
			for what, text := range map[string]string{"sync": got.Sync, "the next sync": got.Again, "merge": got.Merge} {
				for _, part := range b.want {
					if !strings.Contains(text, part) {
						t.Errorf("%s: got %q, want it to hold %q", what, text, part)
					}
				}
				if b.want == nil && text != "" {
					t.Errorf("%s: %s", what, text)
				}
			}
			want, sent := good, 2 // for the merge and for the sync, and not again
			if b.want == nil {
				want = bomb
			}
			if got.Head != want || server.Sent(bomb) != sent {
				t.Errorf("head is %s after the bomb was sent %d times, want %s and %d", got.Head, server.Sent(bomb), want, sent)
			}
			t.Logf("%d MiB in %s", got.Memory>>20, got.Took)
		})
	}
}

// bombed is what a child reports.
type bombed struct {
	Merge, Sync, Again string // errors
	Head               string
	Memory             int64 // bytes, at the most
	Took               time.Duration
}

const bombVariable = "PIPED_TEST_BOMB"

// withoutRaceDetector builds these tests as the agent is built: the memory of the race
// detector is not the agent's.
func withoutRaceDetector(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "git.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	return program
}

func inChild(t *testing.T, program, url, bomb string) (got bombed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "GOGC=100", bombVariable+"="+url+" "+bomb+" "+t.TempDir())
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; it printed %s", err, out)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// bombChild follows a good head, previews the bomb, and then finds it at the branch.
func bombChild(url, bomb, dir string) error {
	began := time.Now()
	ctx := context.Background()
	r, err := Open(Config{ID: "repo-1", Remote: url, Branch: gittest.Branch, Dir: dir, Timeout: 5 * time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, _, err := r.Sync(ctx); err != nil {
		return err
	}
	var out bombed
	m, err := r.Merge(ctx, "feature", bomb)
	if out.Merge = text(err); err == nil {
		_, err = m.Changed(ctx, m.Base.Hash)
		out.Merge += text(err) + text(m.Close())
	}
	res, err := http.Get(url + "/set?branch=" + gittest.Branch + "&commit=" + bomb)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	_, _, err = r.Sync(ctx)
	out.Sync = text(err)
	_, _, err = r.Sync(ctx)
	out.Again = text(err)
	head, _ := r.Head()
	out.Head, out.Took = head.Hash, time.Since(began)
	if out.Memory, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// peakMemory returns the most memory that this process ever had.
func peakMemory() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kib, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, io.ErrUnexpectedEOF
}
