package sandbox

import (
	"os"
	"testing"
)

var launcher Launcher

func TestMain(m *testing.M) {
	launcher = Main()
	os.Exit(m.Run())
}
