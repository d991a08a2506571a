package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// maxCapability is above the number of every capability.
const maxCapability = 63

// Hide keeps other processes of the same user from reading this one's memory and
// environment. It is for the whole process, until it starts another program.
func Hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process unreadable for others (PR_SET_DUMPABLE): %w", err)
	}
	return nil
}

// dropBounds gives up the right to gain capabilities by starting programs.
func dropBounds() error {
	for c := range uintptr(maxCapability) {
		_, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		switch {
		case errors.Is(e, syscall.EINVAL): // there is no such capability
		case errors.Is(e, syscall.EPERM): // without the right to drop it there is none that could be gained: see below
		case e != 0:
			return fmt.Errorf("drop capability %d: %w", c, e)
		}
	}
	return nil
}

// shed gives up every privilege of this process, for good: no program that it
// starts gets one back, regardless of its owner and of the user that runs it.
func shed() error {
	if err := dropBounds(); err != nil {
		return err
	}
	if _, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("drop ambient capabilities: %w", e)
	}
	if _, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("renounce new privileges: %w", e)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, e := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); e != 0 {
		return fmt.Errorf("drop capabilities: %w", e)
	}
	return nil
}
