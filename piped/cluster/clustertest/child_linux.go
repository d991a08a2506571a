package clustertest

import "syscall"

// childAttributes let the child end with this process, and keep the terminal's
// Ctrl-C away from it: it is stopped in its turn.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
