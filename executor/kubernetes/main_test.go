package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestMain runs more tests at a time than there are cores: they wait for pods.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	clustertest.Main(m)
}
