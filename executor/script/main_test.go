package script

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/executor/script/sandbox"
)

var launcher sandbox.Launcher

func TestMain(m *testing.M) {
	launcher = sandbox.Main()
	goleak.VerifyTestMain(m)
}
