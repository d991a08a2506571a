package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// maxCapability is above every capability number.
const maxCapability = 63

// Hide prevents other processes of the same user from reading the memory and
// environment of this process, until it executes another program.
func Hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process unreadable for others (PR_SET_DUMPABLE): %w", err)
	}
	return nil
}

// dropBounds drops the capability bounding set, so that started programs cannot gain
// capabilities.
func dropBounds() error {
	for c := range uintptr(maxCapability) {
		_, _, e := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		switch {
		case errors.Is(e, syscall.EINVAL): // no such capability
		case errors.Is(e, syscall.EPERM): // without the right to drop, none can be gained: see shed
		case e != 0:
			return fmt.Errorf("drop capability %d: %w", c, e)
		}
	}
	return nil
}

// shed drops every privilege of this process permanently. No program that it starts regains
// one, regardless of set-user-ID bits and of its user.
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
