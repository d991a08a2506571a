//go:build !linux

package main

import "syscall"

// childAttributes keep the terminal's Ctrl-C away from a program: it is stopped
// in its turn. Elsewhere than on Linux no process can be bound to its parent.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
