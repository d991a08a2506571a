//go:build !linux

package sandbox

import (
	"os"
	"os/exec"
)

const outerName = "piped-script"

// Main returns a launcher that can start nothing: only Linux isolates scripts.
func Main() Launcher { return Launcher{} }

// Hide does nothing where there is no such protection.
func Hide() error { return nil }

func again(name string, _ []byte, _ *os.File, _ ...*os.File) *exec.Cmd { return exec.Command(name) }

func endLeft(Command, int) {}
