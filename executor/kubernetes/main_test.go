package kubernetes

import (
	"testing"

	"github.com/c785c783/piped/piped/kubernetes/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }
