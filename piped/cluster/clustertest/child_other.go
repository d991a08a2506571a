//go:build !linux

package clustertest

import "syscall"

// childAttributes are empty where a process cannot be bound to its parent.
func childAttributes() *syscall.SysProcAttr { return nil }
