package sandbox

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
)

// programVariable is an environment variable with a Program that is built already.
const programVariable = "PIPED_TEST_LAUNCH"

// TestMain builds a launcher without the race detector, which starts the scripts of all tests that do not
// call observed.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if Program = os.Getenv(programVariable); Program != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("/tmp", "launch-") // where TestWithoutPrivileges has its own, to link it there
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if Program, err = sandboxtest.BuildLauncher(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// observed makes the test program the launcher of a test's scripts, so that the race detector observes how it
// ends them. When the tests run again as another user, it does nothing.
func observed(t *testing.T) {
	program := Program
	if os.Getenv(programVariable) == "" {
		Program = "/proc/self/exe"
	}
	t.Cleanup(func() { Program = program })
}
