package script

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
)

// TestMain runs more tests at a time than there are cores: they wait for scripts. A program without
// the race detector starts these; package sandbox tests the end of scripts with it.
func TestMain(m *testing.M) {
	code, err := run(m)
	if code == 0 {
		err = errors.Join(err, goleak.Find())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "launch-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if sandbox.Program, err = sandboxtest.BuildLauncher(dir); err != nil {
		return 0, err
	}
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
