package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/c785c783/piped/examples/programs"
	"github.com/c785c783/piped/examples/release/build"
	"github.com/c785c783/piped/examples/release/image"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/git/gittest"
)

const moduleRoot = "../.."

// host is what this machine runs.
var host = build.Target{OS: "linux", Arch: runtime.GOARCH}

// builtPrograms returns piped and pipectl for this machine.
func builtPrograms(t *testing.T) []string {
	t.Helper()
	dir := programs.Dir(t)
	return []string{filepath.Join(dir, agent), filepath.Join(dir, client)}
}

// container is an unpacked image.
type container struct {
	root   string
	config v1.Config
}

// unpackImage makes the image of this machine's architecture, writes it as a layout, and
// unpacks what it reads from there.
func unpackImage(t *testing.T) container {
	t.Helper()
	source, err := build.ReadSource(t.Context(), moduleRoot, "v0.0.0-test")
	if err != nil {
		t.Fatal(err)
	}
	made, err := image.Make(t.Context(), source, []image.Platform{{Target: host, Programs: builtPrograms(t)}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := made.WriteLayout(filepath.Join(dir, "layout")); err != nil {
		t.Fatal(err)
	}
	read := readLayout(t, filepath.Join(dir, "layout"))
	config, err := read.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := container{filepath.Join(dir, "root"), config.Config}
	if err := c.extract(read); err != nil {
		t.Fatal(err)
	}
	return c
}

// readLayout returns the only image of a layout.
func readLayout(t *testing.T, dir string) v1.Image {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // index.json names the index, which names the image
		manifest, err := top.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		digest := manifest.Manifests[0].Digest
		if read, err := top.Image(digest); err == nil {
			return read
		}
		if top, err = top.ImageIndex(digest); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s has no image", dir)
	return nil
}

// extract writes the files of the image below the root, with their modes, and with their
// owners where this process may do that.
func (c container) extract(from v1.Image) (err error) {
	if err := os.Mkdir(c.root, 0o755); err != nil {
		return err
	}
	r := mutate.Extract(from)
	defer func() { err = errors.Join(err, r.Close()) }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.write(h, in); err != nil {
			return err
		}
	}
}

func (c container) write(h *tar.Header, content io.Reader) error {
	name := filepath.Join(c.root, h.Name)
	if h.Typeflag == tar.TypeDir {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
	} else {
		text, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	mode := os.FileMode(h.Mode & 0o777)
	if h.Mode&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return os.Chmod(name, mode)
}

// command prepares a program of the container with the unpacked files as its root and
// as the user of the image. That needs root, or permission to make user namespaces, which
// Linux gives by default; the test fails without either.
func (c container) command(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	var uid, gid int
	if _, err := fmt.Sscanf(c.config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.config.WorkingDir, c.config.Env
	attributes := &syscall.SysProcAttr{Chroot: c.root, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	} else {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attributes
	return cmd
}

// run runs a program of the container and returns what it prints.
func (c container) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.command(t, t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v in the image (it needs root, or user namespaces): %v\n%s", args, err, out)
	}
	return string(out)
}

// add writes a file of the container that anyone may read.
func (c container) add(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(c.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

const containerConfig = `apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  pipedID: contained
  dataDir: /var/lib/piped
  api: {address: "%s"}
  web: {address: "%s"}
  repositories:
    - {repoId: apps, remote: /srv/apps.git, branch: main, discover: {}}
  platformProviders:
    - {name: away, type: KUBERNETES, config: {masterURL: "https://127.0.0.1:1"}}
`

// The programs of the image run with nothing but the image: the agent prints its version,
// checks an application and its own configuration, and serves until it is stopped.
func TestImageRunsInARootOfItsOwn(t *testing.T) {
	c := unpackImage(t)
	if got := c.run(t, "/usr/local/bin/piped", "version"); !strings.HasPrefix(got, "Version: ") {
		t.Errorf("piped version prints %q", got)
	}
	if got := c.run(t, "/usr/local/bin/pipectl", "version"); !strings.Contains(got, "ersion") {
		t.Errorf("pipectl version prints %q", got)
	}
	api, web, err := agenttest.FreeAddresses()
	if err != nil {
		t.Fatal(err)
	}
	c.add(t, "etc/piped/piped.yaml", fmt.Sprintf(containerConfig, api, web))
	simple := os.DirFS(filepath.Join(moduleRoot, "examples/apps/simple"))
	if err := os.CopyFS(filepath.Join(c.root, "srv/simple"), simple); err != nil {
		t.Fatal(err)
	}
	if got := c.run(t, "/usr/local/bin/piped", "check", "/etc/piped/piped.yaml", "/srv/simple"); !strings.Contains(got, "no problems") {
		t.Errorf("piped check prints\n%s", got)
	}
	repo, err := gittest.NewRepo(filepath.Join(c.root, "srv/apps.git"))
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.CopyDir(simple, "simple"); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit("Begin"); err != nil {
		t.Fatal(err)
	}
	c.serve(t, web)
}

// serve runs what the image runs by default until it is ready, and stops it as a kubelet
// does.
func (c container) serve(t *testing.T, web string) {
	t.Helper()
	cmd := c.command(t, t.Context(), append(append([]string{}, c.config.Entrypoint...), c.config.Cmd...)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	runtime.LockOSThread() // the kernel sends Pdeathsig when this thread ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running, gone := context.WithCancel(t.Context())
	defer gone()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); gone() }()
	ready := c.awaitReady(running, web)
	stopped := cmd.Process.Signal(syscall.SIGTERM)
	if err := errors.Join(ready, stopped, <-ended); err != nil {
		t.Fatalf("%v\nthe agent's log:\n%s", err, &log)
	}
	key, err := os.Stat(filepath.Join(c.root, "var/lib/piped/owner.key"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := key.Sys().(*syscall.Stat_t).Uid; os.Geteuid() == 0 && owner != 65532 {
		t.Errorf("the agent runs as user %d", owner)
	}
}

// awaitReady waits until the agent is ready.
func (c container) awaitReady(ctx context.Context, web string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+web+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := plain.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
