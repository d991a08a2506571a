package script

import (
	"flag"
	"log"
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/executor/script/sandbox"
)

var launcher sandbox.Launcher

// TestMain runs more tests at a time than there are cores: they wait for scripts.
func TestMain(m *testing.M) {
	launcher = sandbox.Main()
	if err := flag.Set("test.parallel", "8"); err != nil {
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m)
}
