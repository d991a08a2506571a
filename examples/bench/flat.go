package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
)

// writes counts the requests that change an object of a namespace.
type writes struct {
	namespace string

	mu      sync.Mutex
	perPath map[string]int
}

func (w *writes) saw(r *http.Request) {
	if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/namespaces/"+w.namespace+"/") || r.URL.Query().Has("dryRun") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.perPath == nil {
		w.perPath = map[string]int{}
	}
	w.perPath[r.Method+" "+r.URL.Path]++
}

// take returns how many there were, of how many kinds, and forgets them.
func (w *writes) take() (n int, paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, count := range w.perPath {
		n += count
		paths = append(paths, path)
	}
	w.perPath = nil
	return n, paths
}

// measureFlat deploys applications of four objects each for the first time, 50
// and 1,000, passes over them again when nothing has changed, and changes one
// image. The second pass is a commit that changes a comment in the manifests of
// all: each is deployed again, and nothing may be written.
func measureFlat(ctx context.Context, e *environment) error {
	few, err := e.flat(ctx, 50)
	if err != nil {
		return err
	}
	many, err := e.flat(ctx, 1000)
	if err != nil {
		return err
	}
	e.atMost("flat.first_sync", seconds(many.first), "s", 60)
	e.atMost("flat.peak_rss", many.peak, "MiB", 200)
	e.info("flat.first_sync.cpu", seconds(many.cpu), "s")
	e.atMost("flat.second_pass", seconds(many.second), "s", 5)
	e.info("flat.second_pass.cpu", seconds(many.secondCPU), "s")
	perFew, perMany := milliseconds(few.first)/50, milliseconds(many.first)/1000
	e.info("flat.per_application.50", perFew, "ms")
	e.info("flat.per_application.1000", perMany, "ms")
	e.ratio("flat.per_application.1000_to_50", perMany, perFew, 1.2)
	e.info("flat.cpu_per_application.50", milliseconds(few.cpu)/50, "ms")
	e.info("flat.cpu_per_application.1000", milliseconds(many.cpu)/1000, "ms")
	e.exactly("flat.writes.nothing_changed", few.idleWrites+many.idleWrites, 0)
	e.exactly("flat.writes.one_image_changed", many.imageWrites, 1)
	return nil
}

// flatTimes are what one number of applications took.
type flatTimes struct {
	first, cpu, second, secondCPU time.Duration
	peak                          float64
	idleWrites, imageWrites       int
}

func (e *environment) flat(ctx context.Context, n int) (t flatTimes, err error) {
	name := fmt.Sprintf("flat-%d", n)
	if _, err := e.client(ctx, "bench-"+name); err != nil {
		return t, err
	}
	counted := writes{namespace: "bench-" + name}
	proxy, err := agenttest.ServeAPI(e.cluster.Kubeconfig(), counted.saw)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	s, err := e.newScene(ctx, name, agenttest.Options{Interval: 50 * time.Millisecond})
	if err != nil {
		return t, err
	}
	defer s.agent.Close()
	f := fleet{dir: "apps", namespace: "bench-" + name, count: n, template: scaled}
	first, err := s.pass(ctx, "all", f.files("v1", "one"), n)
	if err != nil {
		return t, err
	}
	t.first, t.cpu = first.took, first.cpu
	if t.peak, err = memory(s.agent.PID(), "VmHWM"); err != nil {
		return t, err
	}
	second, err := s.pass(ctx, "a comment in all", f.files("v1", "two"), n)
	if err != nil {
		return t, err
	}
	t.second, t.secondCPU = second.took, second.cpu
	if err := s.countWrites(ctx, e, proxy, &counted, f, &t); err != nil {
		return t, err
	}
	return t, s.agent.Close()
}

// countWrites starts the agent again, behind a proxy that counts what it writes,
// passes over all applications once more, and then changes one image.
func (s *scene) countWrites(ctx context.Context, e *environment, proxy *agenttest.APIProxy, counted *writes, f fleet, t *flatTimes) (err error) {
	if err := s.agent.Stop(); err != nil {
		return err
	}
	if err := s.moveTo(e, proxy); err != nil {
		return err
	}
	if err := s.agent.Restart(ctx); err != nil {
		return err
	}
	if _, err := s.pass(ctx, "another comment in all", f.files("v1", "three"), f.count); err != nil {
		return err
	}
	var paths []string
	t.idleWrites, paths = counted.take()
	if t.idleWrites > 0 {
		fmt.Fprintf(os.Stderr, "flat: a commit that changes no object wrote %s\n", strings.Join(paths, ", "))
	}
	if _, err := s.pass(ctx, "one image", f.filesOf(0, "v2", "three"), 1); err != nil {
		return err
	}
	t.imageWrites, paths = counted.take()
	if t.imageWrites == 1 && !strings.HasSuffix(paths[0], "/deployments/"+f.name(0)) {
		return fmt.Errorf("a commit that changes one image wrote something else: %s", paths[0])
	}
	return nil
}

// moveTo lets the agent, which is stopped, go through a proxy.
func (s *scene) moveTo(e *environment, proxy *agenttest.APIProxy) error {
	kubeconfig, err := proxy.Kubeconfig(e.dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.agent.Config)
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(e.cluster.Kubeconfig()), []byte(kubeconfig))
	return os.WriteFile(s.agent.Config, text, 0o600)
}
