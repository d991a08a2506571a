package kustomize

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// watched reports requested names that no file of a tree can have.
type watched struct {
	fs.FS
	t *testing.T
}

func (w watched) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		w.t.Errorf("%q was opened", name)
	}
	return w.FS.Open(name)
}

// none is a Remotes that has nothing.
type none struct{}

func (none) At(_ context.Context, remote, _ string) (fs.FS, string, error) {
	return nil, "", deploy.Errorf(deploy.Invalid, "%s is none of the hosts that may be asked", remote)
}

func (none) File(_ context.Context, address string, _ int64) ([]byte, error) {
	return nil, deploy.Errorf(deploy.Invalid, "%s is none of the hosts that may be asked", address)
}

// FuzzBuild: whatever a kustomization and the files it names hold, the build ends
// within its time, with objects that are complete or with an error that says that
// the commit must be changed, and reads nothing but the commit.
func FuzzBuild(f *testing.F) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		kustomization, file := "", ""
		for _, each := range archive.Files {
			switch dir, base := path.Split(each.Name); {
			case dir == "app/" && isKustomization(base):
				kustomization = string(each.Data)
			case dir == "app/":
				file = string(each.Data)
			}
		}
		f.Add(kustomization, file, false)
	}
	f.Add("resources: [\"https://host/org/repo//base?ref=v1\"]\n", "", true)
	limits := DefaultLimits()
	limits.Time, limits.Objects, limits.Output = 20*time.Second, 200, 1<<20
	f.Fuzz(func(t *testing.T, kustomization, file string, anyFile bool) {
		fsys := fstest.MapFS{
			"app/kustomization.yaml":  {Data: []byte(kustomization)},
			"base/kustomization.yaml": {Data: []byte("resources: [a.yaml]\n")},
			"base/a.yaml":             {Data: []byte(service)},
		}
		for _, name := range []string{"a.yaml", "deployment.yaml", "service.yaml", "p.yaml", "patch.yaml", "t.yaml", "generator.yaml", "file.txt"} {
			fsys["app/"+name] = &fstest.MapFile{Data: []byte(file)}
		}
		r, err := New(none{}, limits).Build(t.Context(), Request{Tree: watched{fsys, t}, Dir: "app", Options: kubernetes.KustomizeBuild{AnyFile: anyFile}})
		if err != nil && (!deploy.IsKind(err, deploy.Invalid) || strings.Contains(err.Error(), "internal error")) {
			t.Errorf("of kind %s: %v", deploy.KindOf(err), err)
		}
		for _, o := range r.Objects {
			if o.GetName() == "" || o.GetKind() == "" {
				t.Errorf("an object without name or kind: %v", o.Object)
			}
		}
	})
}
