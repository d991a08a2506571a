package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// spec is the configuration of an agent that reloads it, as a test writes it.
type spec struct {
	dataDir      string
	repositories map[string]string // remotes by ID
	providers    map[string]string // kubeconfigs by name
	more         string            // further lines of spec
}

// text returns the configuration for a test.
func (s spec) text(test string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: test\n  pipedID: %s\n  dataDir: %s\n  web: {address: \"127.0.0.1:0\"}\n  repositories:\n", testID(test), s.dataDir)
	for id, remote := range s.repositories {
		fmt.Fprintf(&b, "    - {repoId: %s, remote: %q, branch: main, discover: {}}\n", id, remote)
	}
	b.WriteString("  platformProviders:\n")
	for name, kubeconfig := range s.providers {
		fmt.Fprintf(&b, "    - {name: %s, type: KUBERNETES, config: {kubeConfigPath: %q}}\n", name, kubeconfig)
	}
	if !strings.Contains(s.more, "syncInterval") {
		b.WriteString("  syncInterval: 200ms\n")
	}
	if !strings.Contains(s.more, "api:") {
		b.WriteString("  api: {address: \"127.0.0.1:0\"}\n")
	}
	b.WriteString(s.more)
	return b.String()
}

// reloading is an agent that watches its configuration file, and its log.
type reloading struct {
	*client
	app    *App
	path   string
	signal chan os.Signal
	log    *logText
}

// runReloading runs an agent inside the test process until the test ends.
func runReloading(t *testing.T, s spec, every time.Duration) *reloading {
	t.Helper()
	return runReloadingWith(t, s, Options{ReloadEvery: every})
}

// runReloadingWith is runReloading with additional options.
func runReloadingWith(t *testing.T, s spec, o Options) *reloading {
	t.Helper()
	r := &reloading{path: filepath.Join(t.TempDir(), "piped.yaml"), signal: make(chan os.Signal), log: &logText{}}
	replaceFile(t, r.path, s.text(t.Name()))
	cfg, _, err := Kinds().LoadPiped(r.path)
	if err != nil {
		t.Fatal(err)
	}
	createStore(t, s.dataDir)
	ctx, stop := context.WithCancel(context.Background())
	o.LeaseEvery = cmp.Or(o.LeaseEvery, -1)
	o.Version, o.Logger, o.ConfigFile, o.Reload = "test", slog.New(slog.NewTextHandler(r.log, nil)), r.path, r.signal
	r.app, err = New(ctx, cfg, o)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.app.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the agent did not stop cleanly: %v", err)
		}
	})
	r.client = dial(t, r.app.APIAddr(), s.dataDir)
	return r
}

// write changes the configuration and waits until the log contains the texts.
func (r *reloading) write(s spec, said ...string) {
	r.t.Helper()
	replaceFile(r.t, r.path, s.text(r.t.Name()))
	r.awaitLog(said...)
}

// awaitLog waits until the log contains each text, and clears it.
func (r *reloading) awaitLog(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		for end := time.Now().Add(patience); !r.log.contains(text); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				r.t.Fatalf("the log does not contain %q:\n%s", text, r.log.String())
			}
		}
	}
	r.log.Reset()
}

// logText is a log that can be read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logText) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *logText) contains(text string) bool { return strings.Contains(l.String(), text) }

// replaceFile replaces a file atomically.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := writeSecret(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

const inEffect = "the changed configuration is in effect"
