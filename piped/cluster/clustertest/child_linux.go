package clustertest

import "syscall"

// childAttributes make the child end with this process, and shield it from the terminal's
// Ctrl-C: the parent stops it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
