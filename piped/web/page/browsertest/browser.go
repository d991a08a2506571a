// Package browsertest drives a real Chromium, for tests and benchmarks of the page. It owns the
// browser's process, which ends with the process that started it, and its profile. It connects
// to loopback addresses only, and installs nothing.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// programs are the names of the browser, in the order in which they are tried.
func programs() []string { return []string{"chromium", "chromium-browser", "google-chrome"} }

// Browser is a running Chromium without a window. It is safe for concurrent use.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc // in the order of their creation
	home   string
}

// Start starts a browser with an empty profile. The caller must Close it.
func Start() (*Browser, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "browser-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the browser: %w", err)
	}
	b := &Browser{home: home}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.Env("HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
		chromedp.DisableGPU, chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-domain-reliability", true),
		// Nothing but this machine is reached, whatever a page refers to.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx, b.cancel = ctx, []context.CancelFunc{stop, cancel}
	if err := chromedp.Do(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), b.Close())
	}
	return b, nil
}

// find returns the path of the browser's program.
func find() (string, error) {
	for _, name := range programs() {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find a browser: none of %q is in PATH: install the Debian package chromium (apt-get install --no-install-recommends chromium)", programs())
}

// Close ends the browser and removes its files.
func (b *Browser) Close() error {
	err := chromedp.Cancel(b.ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	for i := len(b.cancel) - 1; i >= 0; i-- {
		b.cancel[i]()
	}
	return errors.Join(err, os.RemoveAll(b.home))
}
