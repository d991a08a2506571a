package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/c785c783/piped/examples/leftovers"
)

// leftoverTimeout is how long what the agent and the cluster started may take to end
// after them.
const leftoverTimeout = 5 * time.Second

// temporary is where everything that the demo starts has its temporary files, by
// which its processes are known, too.
func (d *demo) temporary() string { return filepath.Join(d.dir, "tmp") }

func (d *demo) ownTemporaryFiles() error {
	return errors.Join(os.Mkdir(d.temporary(), 0o700), os.Setenv("TMPDIR", d.temporary()))
}

// leftovers ends the processes that should have ended by themselves, and names them
// and the temporary files that remain.
func (d *demo) leftovers() []error {
	var errs []error
	for _, p := range leftovers.End("TMPDIR="+d.temporary(), leftoverTimeout) {
		errs = append(errs, fmt.Errorf("still running after the agent and the cluster had ended, and ended now: %s", p))
	}
	files, err := os.ReadDir(d.temporary())
	for _, f := range files {
		errs = append(errs, fmt.Errorf("left behind by what was started here: temporary file %s", f.Name()))
	}
	return append(errs, err)
}
