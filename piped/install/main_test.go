package install

import (
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }
