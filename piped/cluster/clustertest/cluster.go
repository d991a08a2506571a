// Package clustertest starts real Kubernetes clusters with simulated nodes for
// tests, the demo and benchmarks. It owns one child process per cluster, the
// devcluster program, which ends with the process that started it. It builds
// nothing, and downloads nothing but the definitions of the Gateway API's kinds, by
// the go command, if they are not there.
//
// A test package that needs a cluster calls Main from its TestMain and Shared
// from its tests; each test works in a Namespace of its own.
package clustertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds the start of a cluster on a busy machine; stopTimeout how
// long it may take to end before it is killed.
const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Options configure the start of a cluster. The zero value is valid.
type Options struct {
	// Dir keeps the cluster's data. "" is a new directory that Stop removes; a
	// directory used before brings the cluster back with its data.
	Dir string
	// Args are further arguments of `devcluster up`.
	Args []string
	// Log receives the cluster's own output. By default it goes to the file
	// devcluster.log in Dir.
	Log io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	dir       string
	temporary bool
	program   string
	process   *os.Process
	ended     chan struct{} // closed when the child process has ended
	err       error         // how it ended; read after ended is closed
}

// Start starts a cluster and returns when its API answers. The caller must Stop it; it
// also ends when this process does.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	program, err := findProgram()
	if err != nil {
		return nil, err
	}
	c := &Cluster{program: program, ended: make(chan struct{}), temporary: o.Dir == ""}
	if c.temporary {
		c.dir, err = os.MkdirTemp("", "devcluster-")
	} else {
		c.dir, err = filepath.Abs(o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("choose a directory for the cluster: %w", err)
	}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Dir returns the directory with the cluster's data and logs.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig returns the path of the cluster's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// start runs the program and waits until it prints the kubeconfig's path.
func (c *Cluster) start(ctx context.Context, o Options) error {
	output, printed, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	log := o.Log
	if log == nil {
		file, err := os.OpenFile(filepath.Join(c.dir, "devcluster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return errors.Join(fmt.Errorf("start the cluster: %w", err), output.Close(), printed.Close())
		}
		defer file.Close()
		log = file
	}
	cmd := exec.Command(c.program, append([]string{"up", "--dir", c.dir}, o.Args...)...)
	cmd.Stdout, cmd.Stderr = printed, log
	cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go c.run(cmd, started)
	err = <-started
	printed.Close()
	if err != nil {
		close(c.ended)
		return errors.Join(fmt.Errorf("start %s: %w", c.program, err), output.Close())
	}
	ready := make(chan bool, 1)
	go c.await(output, ready)
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case ok := <-ready:
		if ok {
			return nil
		}
		<-c.ended
		return fmt.Errorf("the cluster in %s ended before it was ready: %w\n%s", c.dir, c.err, c.tail())
	case <-timeout.C:
		return fmt.Errorf("the cluster in %s was not ready after %s\n%s", c.dir, startTimeout, c.tail())
	case <-ctx.Done():
		return fmt.Errorf("start the cluster in %s: %w", c.dir, context.Cause(ctx))
	}
}

// run starts the child and waits for it. It keeps its thread: the kernel sends
// the parent-death signal when the thread that started the child ends.
func (c *Cluster) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	c.process = cmd.Process
	started <- err
	if err != nil {
		return
	}
	c.err = cmd.Wait()
	close(c.ended)
}

// await reads the child's output until it ends, and reports once whether the kubeconfig
// was printed.
func (c *Cluster) await(output io.ReadCloser, ready chan<- bool) {
	defer output.Close()
	lines := bufio.NewScanner(output)
	reported := false
	for lines.Scan() {
		if !reported && strings.Contains(lines.Text(), c.Kubeconfig()) {
			reported = true
			ready <- true
		}
	}
	if !reported {
		ready <- false
	}
}

// tail returns the end of the cluster's log.
func (c *Cluster) tail() string {
	data, err := os.ReadFile(filepath.Join(c.dir, "devcluster.log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Stop ends the cluster, waits for it and removes a temporary directory. A
// second Stop does nothing.
func (c *Cluster) Stop() error {
	var errs []error
	if c.process != nil {
		if err := c.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("stop the cluster in %s: %w", c.dir, err))
		}
		timeout := time.NewTimer(stopTimeout)
		defer timeout.Stop()
		select {
		case <-c.ended:
		case <-timeout.C:
			errs = append(errs, fmt.Errorf("the cluster in %s did not stop within %s and was killed", c.dir, stopTimeout), c.process.Kill())
			<-c.ended
		}
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// StopComponent stops one component, such as apiserver or controller-manager,
// and returns when it has ended.
func (c *Cluster) StopComponent(ctx context.Context, name string) error {
	return c.component(ctx, "stop", name)
}

// StartComponent starts a stopped component again and returns when it is ready.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	return c.component(ctx, "start", name)
}

func (c *Cluster) component(ctx context.Context, verb, name string) error {
	out, err := exec.CommandContext(ctx, c.program, verb, name, "--dir", c.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s of the cluster in %s: %w: %s", verb, name, c.dir, err, strings.TrimSpace(string(out)))
	}
	return nil
}
