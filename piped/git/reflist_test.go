package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/c785c783/piped/piped/git/gittest"
)

// TestOnlyRef compares what is left of the list that git itself sends with git's own reading of it.
func TestOnlyRef(t *testing.T) {
	up := gittest.New(t)
	head := up.Push(t, "first", map[string]string{"a": "1"})
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-C", up.Dir}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	git("tag", "-a", "v1", "-m", "v1", head)
	var refs strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&refs, "create refs/pull/%d/head %s\n", i, head)
	}
	update := exec.Command("git", "-C", up.Dir, "update-ref", "--stdin")
	update.Stdin = strings.NewReader(refs.String())
	if err := update.Run(); err != nil {
		t.Fatal(err)
	}
	list := git("upload-pack", "--advertise-refs", up.Dir)
	rest := "what follows the list"
	for _, name := range []string{"refs/heads/main", "refs/tags/v1", "refs/pull/7/head", "refs/heads/absent"} {
		in := strings.NewReader(list + rest)
		var read bytes.Buffer
		got := packp.NewAdvRefs()
		if err := got.Decode(io.TeeReader(newRefList(onlyRef(t.Context(), plumbing.ReferenceName(name)), in), &read)); err != nil {
			t.Fatal(err)
		}
		want := ""
		if out, err := exec.Command("git", "-C", up.Dir, "rev-parse", "--verify", "-q", name).Output(); err == nil {
			want = strings.TrimSpace(string(out))
		}
		if h := got.References[name]; h.String() != want && (want != "" || h != plumbing.ZeroHash) {
			t.Errorf("%s is %s, git says %q", name, h, want)
		}
		if got.Capabilities.IsEmpty() || read.Len() > 1000 {
			t.Errorf("%s: %d bytes were decoded, with the capabilities %v", name, read.Len(), got.Capabilities)
		}
		if left, err := io.ReadAll(in); err != nil || string(left) != rest {
			t.Errorf("%s: %q follows the list, %v", name, left, err)
		}
	}
	all := packp.NewAdvRefs()
	if err := all.Decode(newRefList(t.Context(), strings.NewReader(list))); err != nil || len(all.References) != 2002 {
		t.Errorf("without a restriction: %d references, %v", len(all.References), err)
	}
}

// TestListsThatAreNone: what is no list reaches the decoder as it is.
func TestListsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "<html>sign in</html>", "00", "0000", "0009ERR x", "000dhello\nthere", "0005", "ffff and no more"} {
		read, err := io.ReadAll(newRefList(onlyRef(t.Context(), "refs/heads/main"), strings.NewReader(text)))
		if err == nil && string(read) != text {
			t.Errorf("of %q, %q is left", text, read)
		}
	}
}

// endless writes references until the reader goes.
func endless(w io.Writer) {
	_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
	for i := 0; ; i++ {
		ref := fmt.Sprintf("%040x refs/heads/%060000d", i+1, i) // so that the limit comes soon
		if i == 0 {
			ref += "\x00multi_ack side-band-64k ofs-delta"
		}
		if _, err := fmt.Fprintf(w, "%04x%s\n", len(ref)+5, ref); err != nil {
			return
		}
	}
}

// TestEndlessAnswers: an answer that a server never ends is an error with its cause, and does not
// stay in memory.
func TestEndlessAnswers(t *testing.T) {
	up := gittest.New(t)
	up.Push(t, "first", map[string]string{"a": "1"})
	page := bytes.Repeat([]byte("<p>busy</p>"), 1000)
	for name, c := range map[string]struct {
		fault gittest.Fault
		want  string
	}{
		"list of references": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			endless(w)
		}, "too many references"},
		"error page": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			w.WriteHeader(http.StatusBadGateway)
			for err := error(nil); err == nil; {
				_, err = w.Write(page)
			}
		}, "502"},
	} {
		t.Run(name, func(t *testing.T) {
			server := up.HTTP(t, gittest.HTTPOptions{})
			server.SetFault(c.fault)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := open(t, server.URL).Sync(t.Context())
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if grown := int64(after.Sys) - int64(before.Sys); grown > 64<<20 {
				t.Errorf("the memory has grown by %d MiB", grown>>20)
			}
		})
	}
}

// TestEndlessList: over SSH, the same reader has the same limit.
func TestEndlessList(t *testing.T) {
	r, w := io.Pipe()
	go endless(w)
	defer r.Close()
	if n, err := io.Copy(io.Discard, newRefList(t.Context(), r)); !errors.Is(err, ErrBeyond) || n > maxListing {
		t.Errorf("%d bytes are read, then %v", n, err)
	}
}
