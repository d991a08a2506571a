package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// withSocket calls use with a short name of DIR/control.sock: a socket's name
// may have 107 bytes only, a folder's more.
func withSocket[T any](d dir, use func(name string) (T, error)) (T, error) {
	f, err := os.Open(string(d))
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/control.sock", f.Fd()))
}

// listenControl opens the socket, replacing what a killed parent left. The
// caller holds the folder's lock.
func listenControl(d dir) (net.Listener, error) {
	if err := os.Remove(d.path("control.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old control socket: %w", err)
	}
	l, err := withSocket(d, func(name string) (net.Listener, error) { return net.Listen("unix", name) })
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	// Go would remove the short name, which is no longer valid by then.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// controlHandler serves the commands that talk to a running cluster.
func (c *cluster) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		all := []status{}
		for _, s := range c.components {
			all = append(all, s.status())
		}
		json.NewEncoder(w).Encode(all)
	})
	mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { c.requestDown() })
	mux.HandleFunc("POST /components/{name}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		if err := c.control(r.Context(), r.PathValue("name"), r.PathValue("verb")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	return mux
}

// control stops or starts one component.
func (c *cluster) control(ctx context.Context, name, verb string) error {
	if err := known(name); err != nil {
		return err
	}
	s := c.component(name)
	switch verb {
	case "start":
		return s.start(ctx)
	case "stop":
		s.stop()
		return nil
	}
	return fmt.Errorf("a component cannot %q; use start or stop", verb)
}

// controlClient talks to the parent of a running cluster.
type controlClient struct {
	dir  dir
	http *http.Client
}

func newControlClient(d dir) *controlClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return withSocket(d, func(name string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", name)
		})
	}
	return &controlClient{dir: d, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// do sends a request and returns the body of a successful answer.
func (c *controlClient) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://devcluster"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking the cluster: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no cluster answers in %s; start it with \"devcluster up --dir %s\": %w", c.dir, c.dir, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

func (c *controlClient) post(ctx context.Context, path string) error {
	_, err := c.do(ctx, http.MethodPost, path)
	return err
}

func (c *controlClient) status(ctx context.Context, out io.Writer) error {
	body, err := c.do(ctx, http.MethodGet, "/status")
	if err != nil {
		return err
	}
	var all []status
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("reading the cluster's answer: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", s.Name, s.State, s.PID, s.Port)
	}
	return w.Flush()
}

// down asks a running cluster to end and waits until it has let go of the
// folder. A cluster that is not up is no error.
func down(ctx context.Context, d dir, stderr io.Writer) error {
	if _, err := os.Stat(string(d)); err != nil {
		return fmt.Errorf("there is no cluster in %s: %w; check --dir", d, err)
	}
	asked := false
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		lock, err := d.lock()
		if err == nil {
			lock.Close()
			if !asked {
				fmt.Fprintf(stderr, "devcluster: the cluster in %s is not up\n", d)
			}
			return nil
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		if !asked {
			asked = newControlClient(d).post(ctx, "/down") == nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster to end: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("the cluster in %s has not ended in 30s; look into %s, or kill the \"devcluster up\" process: its children go with it", d, d.path("logs"))
}
