package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

const head = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n"

// files makes a tree from pairs of path and text.
func files(pairs ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

func TestCandidates(t *testing.T) {
	fsys := files(
		"app.pipecd.yaml", head+"  name: root\n",
		"apps/web/app.pipecd.yaml", head+"  name: web\n",
		"apps/web/canary.pipecd.yaml", head+"  name: web-canary\n",
		"apps/web/deployment.yaml", "not: {even yaml",
		"apps/bad/app.pipecd.yaml", head+"  nam: bad\n",
		"apps/huge/app.pipecd.yaml", strings.Repeat("#", strict.MaxSize+10),
		"infra/app.pipecd.yaml", "apiVersion: pipecd.dev/v1beta1\nkind: TerraformApp\nspec: {name: infra}\n",
		".git/app.pipecd.yaml", head+"  name: hidden\n",
		"apps/old/.pipe.yaml", head+"  name: old\n",
		"apps/dir/app.pipecd.yaml/file", "a directory of that name is none",
	)
	found, err := Candidates(t.Context(), fsys, kinds)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range found {
		if (c.Config == nil) == (c.Err == nil) {
			t.Errorf("%s: got %v and %v, want one of them", c.Path(), c.Config, c.Err)
		}
		var unsupported *config.UnsupportedKind
		switch {
		case errors.As(c.Err, &unsupported):
			got = append(got, c.Dir+" "+c.ConfigFile+" unsupported "+unsupported.Kind)
		case c.Err != nil:
			got = append(got, c.Dir+" "+c.ConfigFile+" "+deploy.KindOf(c.Err).String()+": "+c.Err.Error())
		default:
			got = append(got, c.Dir+" "+c.ConfigFile+" "+c.Config.Name)
		}
	}
	want := []string{
		". app.pipecd.yaml root",
		`apps/bad app.pipecd.yaml invalid: apps/bad/app.pipecd.yaml:4: spec.nam: unknown field; did you mean "name"?`,
		"apps/huge app.pipecd.yaml invalid: apps/huge/app.pipecd.yaml: the file has 1048577 bytes; expected at most 1048576",
		"apps/old .pipe.yaml old",
		"apps/web app.pipecd.yaml web",
		"apps/web canary.pipecd.yaml web-canary",
		"infra app.pipecd.yaml unsupported TerraformApp",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// opened counts the files that are opened.
type opened struct {
	fstest.MapFS
	files *int
}

func (o opened) Open(name string) (fs.File, error) {
	f, err := o.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.IsDir() {
		*o.files++
	}
	return f, nil
}

func TestCandidatesOpensOnlyConfigurations(t *testing.T) {
	fsys := files("apps/web/app.pipecd.yaml", head+"  name: web\n")
	for i := range 8000 {
		fsys[fmt.Sprintf("dir%d/file%d.yaml", i%100, i)] = &fstest.MapFile{}
	}
	count := 0
	found, err := Candidates(t.Context(), opened{fsys, &count}, kinds)
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one candidate", found, err)
	}
	if count != 1 {
		t.Errorf("%d files were opened, want 1", count)
	}
}

// broken fails to list one directory.
type broken struct{ fstest.MapFS }

func (b broken) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "apps" {
		return nil, errors.New("object is missing")
	}
	return b.MapFS.ReadDir(name)
}

// TestCandidatesNextToNamesThatAreNotUTF8: Git has such names, and io/fs refuses them.
func TestCandidatesNextToNamesThatAreNotUTF8(t *testing.T) {
	const text = head + "  name: web\n"
	tree := files("web/app.pipecd.yaml", text, "caf\xe9/app.pipecd.yaml", text, "web/caf\xe9/in/app.pipecd.yaml", text, "web/caf\xe9.yaml", text)
	got, err := Candidates(t.Context(), tree, kinds)
	if err != nil || len(got) != 1 || got[0].Path() != "web/app.pipecd.yaml" || got[0].Err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCandidatesOfATreeThatCannotBeWalked(t *testing.T) {
	_, err := Candidates(t.Context(), broken{files("apps/web/app.pipecd.yaml", head+"  name: web\n")}, kinds)
	want := "find application configurations: list apps: object is missing"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// explosive is a tree in which one file cannot be opened without a panic.
type explosive struct {
	fs.FS
	file string
}

func (e explosive) Open(name string) (fs.File, error) {
	if name == e.file {
		panic("boom")
	}
	return e.FS.Open(name)
}

// TestPanicSpoilsOneCandidate: whatever a file does to its reader, the others are
// found.
func TestPanicSpoilsOneCandidate(t *testing.T) {
	good := []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web}\n")
	tree := explosive{fstest.MapFS{"a/app.pipecd.yaml": {Data: good}, "b/app.pipecd.yaml": {Data: good}}, "a/app.pipecd.yaml"}
	found, err := Candidates(t.Context(), tree, kinds)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %v, %v", found, err)
	}
	if !deploy.IsKind(found[0].Err, deploy.Invalid) || found[0].Config != nil {
		t.Errorf("the bad one: %v", found[0].Err)
	}
	if found[1].Err != nil || found[1].Config.Name != "web" {
		t.Errorf("the good one: %v", found[1].Err)
	}
}

func TestWhatCandidatesTakeIsBounded(t *testing.T) {
	large := head + "  name: x\n" + strings.Repeat("# a comment\n", 80_000)
	many, bytes := fstest.MapFS{}, fstest.MapFS{}
	for n := range maxCandidates + 1 {
		many[fmt.Sprintf("a%05d/app.pipecd.yaml", n)] = &fstest.MapFile{}
	}
	for n := range maxCandidateBytes/len(large) + 1 {
		bytes[fmt.Sprintf("b%05d/app.pipecd.yaml", n)] = &fstest.MapFile{Data: []byte(large)}
	}
	for want, tree := range map[string]fstest.MapFS{
		"a10000/app.pipecd.yaml: one of more than 10000 such files":                                          many,
		"b00034/app.pipecd.yaml: the application configurations of the commit have more than 33554432 bytes": bytes,
	} {
		if _, err := Candidates(t.Context(), tree, kinds); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Candidates(ended, many, kinds); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: got %v", err)
	}
}
