package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// cluster is a running control plane, owned by one "up".
type cluster struct {
	dir        dir
	options    options
	components []*supervised // in starting order
	downOnce   sync.Once
	downAsked  chan struct{}
}

// up runs a cluster until ctx ends or a client requests its end, both of
// which are successes. All children are gone when it returns.
func up(ctx context.Context, d dir, o options, stdout, stderr io.Writer) error {
	if err := d.create(); err != nil {
		return err
	}
	lock, err := d.lock()
	if errors.Is(err, errLocked) {
		return fmt.Errorf("a cluster is up in %s already; use it with --kubeconfig %s, end it with \"devcluster down --dir %s\", or choose another --dir", d, d.kubeconfig(), d)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := prepare(d, o, stderr)
	if err != nil {
		return err
	}
	return c.run(ctx, stdout)
}

// prepare writes everything the children need.
func prepare(d dir, o options, stderr io.Writer) (*cluster, error) {
	p, err := loadPorts(d)
	if err != nil {
		return nil, err
	}
	if err := p.checkFree(d); err != nil {
		return nil, err
	}
	if err := ensureCerts(d, time.Now()); err != nil {
		return nil, err
	}
	if err := writeKubeconfig(d, p); err != nil {
		return nil, err
	}
	if err := writeStages(d.path("data", "stages.yaml"), o.podReadyDelay); err != nil {
		return nil, err
	}
	c := &cluster{dir: d, options: o, downAsked: make(chan struct{})}
	spawner := newSpawner()
	for _, comp := range components(d, p, o) {
		c.components = append(c.components, &supervised{
			component: comp, dir: d, spawner: spawner, stderr: stderr, state: stateStopped,
		})
	}
	return c, nil
}

// run starts the cluster, announces it, and stays until it is to end.
func (c *cluster) run(ctx context.Context, stdout io.Writer) error {
	l, err := listenControl(c.dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.downAsked:
			cancel()
		case <-ctx.Done():
		}
	}()
	server := &http.Server{Handler: c.controlHandler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Close()
		<-served
	}()

	defer c.stop()
	if err := c.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	fmt.Fprintln(stdout, c.dir.kubeconfig())
	<-ctx.Done()
	return nil
}

func (c *cluster) requestDown() { c.downOnce.Do(func() { close(c.downAsked) }) }

func (c *cluster) component(name string) *supervised {
	for _, s := range c.components {
		if s.name == name {
			return s
		}
	}
	return nil
}

// start brings up storage, then the API, then everything that uses it.
func (c *cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.readyTimeout)
	defer cancel()
	for _, s := range c.components[:2] {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	rest := c.components[2:]
	errs := make(chan error, len(rest)+1)
	for _, s := range rest {
		go func() { errs <- s.start(ctx) }()
	}
	go func() { errs <- c.awaitReady(ctx) }()
	var err error
	for range cap(errs) {
		if e := <-errs; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	return err
}

// awaitReady creates the nodes and waits for the cluster to take pods.
func (c *cluster) awaitReady(ctx context.Context) error {
	config, err := clientConfig(c.dir.kubeconfig())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := ensureNodes(ctx, client, c.options, c.component("kwok").port); err != nil {
		return fmt.Errorf("preparing the nodes: %w; look into %s", err, c.dir.log("apiserver"))
	}
	for {
		err := clusterReady(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready after %s: %w; look into %s, or give a longer --ready-timeout",
				c.options.readyTimeout, err, c.dir.path("logs"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the components in the reverse order: the users of the API
// together, then the API, then storage.
func (c *cluster) stop() {
	var users sync.WaitGroup
	for _, s := range c.components[2:] {
		users.Go(s.stop)
	}
	users.Wait()
	c.components[1].stop()
	c.components[0].stop()
}
