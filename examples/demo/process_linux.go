package main

import "syscall"

// childAttributes let a program end with the demo, and keep the terminal's
// Ctrl-C away from it: it is stopped in its turn.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
