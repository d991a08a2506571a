package app

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/opentofu/opentofutest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// listing returns the files and directories below a directory, with their modes and digests.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		out[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			out[name] += fmt.Sprintf(" %x", sha256.Sum256(data))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOpenTofuSharedPlugins: applications that run at once use the plugins of one directory, which
// is the only place that has them, and which they leave as it is.
func TestOpenTofuSharedPlugins(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	plugins := t.TempDir()
	const version = "1.2.3"
	at := filepath.Join(plugins, filepath.FromSlash(opentofutest.Source), version, runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	plugin, err := os.ReadFile(filepath.Join(filepath.Dir(opentofutest.Program(t)), "terraform-provider-sample"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "terraform-provider-sample_v"+version), plugin, 0o500); err != nil {
		t.Fatal(err)
	}
	i.rc = i.file("tofurc") // says nothing of plugins
	if err := os.WriteFile(i.rc, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	i.moreConfig = fmt.Sprintf(", pluginCacheDir: %q", plugins)
	before := listing(t, plugins)
	files := map[string]string{}
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		files[name+"/app.pipecd.yaml"] = strings.Replace(i.app(""), "name: net", "name: "+name, 1)
		files[name+"/main.tf"] = strings.Replace(i.code(i.resource(name, "one", "")), "state.tfstate", name+".tfstate", 1)
	}
	commit := i.repo.Push(t, "add", files)
	i.start()
	for _, name := range names {
		d := i.c.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		i.holds(name, "one")
		mustContain(t, i.c.logs(d.GetId()), "v"+version)
	}
	if diff := cmp.Diff(before, listing(t, plugins)); diff != "" {
		t.Errorf("the runs have changed the plugins (-before +after):\n%s", diff)
	}
}

// TestOpenTofuWithoutPlugins: a directory of plugins that does not exist is an error that says what
// to do, and is not made.
func TestOpenTofuWithoutPlugins(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	missing := i.file("missing")
	i.moreConfig = fmt.Sprintf(", pluginCacheDir: %q", missing)
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.resource("a", "one", ""))})
	i.start()
	d := i.c.mustEnd(appID("net"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "pluginCacheDir: there is no directory "+missing, "providers mirror")
	if _, err := os.Stat(missing); err == nil {
		t.Error("the directory was made")
	}
}
