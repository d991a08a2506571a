//go:build !linux

package sandbox

import (
	"os"
	"os/exec"
)

const outerName = "piped-script"

// Hide does nothing: other systems have no such protection.
func Hide() error { return nil }

func again(name string, _ []byte, _ *os.File, _ ...*os.File) *exec.Cmd { return exec.Command(name) }

func endLeft(Command, int) {}
