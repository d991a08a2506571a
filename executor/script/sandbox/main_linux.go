package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The names under which the program starts itself: outside of the sandbox, as the first
// process of new namespaces, and to restrict itself before it becomes the shell.
const (
	outerName = "piped-script"
	innerName = "piped-script-init"
	shellName = "piped-script-shell"
)

// File descriptors of a launcher, in addition to the standard ones.
const (
	controlFD = 3
	reportFD  = 4
	lockFD    = 5
)

// init turns this program into the launcher of a script if the agent started it as one. Go
// initializes packages as soon as what they import is ready. This one imports little, so that
// most of the agent is not initialized for a script, which starts this program up to three times.
func init() {
	if run := map[string]func(Command) error{outerName: outer, innerName: inner, shellName: shell}[os.Args[0]]; run != nil {
		launch(run)
	}
}

// launch plays a part of the launcher, and does not return.
func launch(run func(Command) error) {
	runtime.LockOSThread()                                                  // privileges are per thread
	_ = unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // before Linux 5.11 the loop below does this
	for fd := controlFD; fd <= lockFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // only the agent ends it
	var c Command
	err := json.NewDecoder(os.Stdin).Decode(&c)
	if err == nil {
		err = run(c)
	}
	if err != nil {
		send(report{Error: fmt.Sprintf("the script cannot be isolated (%s): %v", c.Mode, err)})
		os.Exit(1)
	}
	os.Exit(0)
}

// ownEnv is the environment of this program when it starts itself: nothing of the
// agent's environment except options of the race detector.
func ownEnv() []string {
	env := []string{"LANG=C.UTF-8"}
	if options, ok := os.LookupEnv("GORACE"); ok {
		env = append(env, "GORACE="+options)
	}
	return env
}

// again returns the command that starts this program under another name.
func again(name string, spec []byte, out *os.File, extra ...*os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = []string{name}, ownEnv()
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(spec), out, out, extra
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// send reports the end to the agent. It ignores errors, since the agent may be gone.
func send(r report) {
	if text, err := json.Marshal(r); err == nil {
		_, _ = os.NewFile(reportFD, "report").Write(text)
	}
}

// outer is the launcher that the agent starts, outside of the sandbox. It starts inner
// in new namespaces, or in the other modes supervises the script, which shell executes.
func outer(c Command) error {
	if c.Mode == Namespaces {
		return startInit(c)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	f := family{signal: signalScript, kill: func() { signalDescendants(syscall.SIGKILL) }, finish: func() {}}
	if c.Mode == OtherUser {
		if err := prepareUser(c); err != nil {
			return err
		}
		f.finish = func() { endUser(c.UID) }
	}
	switch {
	case c.EndedBy == ByCgroup:
		return superviseGroup(c, f)
	case c.Mode == None:
		return supervise(c, "", f)
	}
	return supervise(c, shellName, f)
}

// superviseGroup runs the script in a control group.
func superviseGroup(c Command, f family) error {
	g, err := enterGroup()
	if err != nil {
		return err
	}
	finish := f.finish
	f.started, f.kill = g.leave, func() { g.kill(); signalDescendants(syscall.SIGKILL) }
	f.finish = func() { finish(); g.end() }
	if err := supervise(c, shellName, f); err != nil { // the script could not be started
		if left := g.leave(); left != nil {
			return errors.Join(err, left)
		}
		g.end()
		return err
	}
	return nil
}

// startInit starts the first process of new namespaces and waits for it. Until then
// this process is dumpable, unlike the agent, as required to write the user ID maps.
func startInit(c Command) error {
	spec, err := json.Marshal(c)
	if err != nil {
		return err
	}
	cmd := again(innerName, spec, os.Stdout, os.NewFile(controlFD, "control"), os.NewFile(reportFD, "report"))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		// For mounts and to drop capabilities. Without it other users than root lose
		// the capabilities of the new namespace when the program starts.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	_ = cmd.Wait() // the process reports the end itself
	return nil
}

// inner is the first process of the namespaces. When it ends, the kernel kills all
// others.
func inner(c Command) error {
	if err := buildRoot(c); err != nil {
		return err
	}
	if err := errors.Join(Hide(), shed()); err != nil {
		return err
	}
	all := func(sig syscall.Signal) { _ = unix.Kill(-1, sig) } // there may be none
	return supervise(c, "", family{signal: func(_ int, sig syscall.Signal) { all(sig) }, kill: func() { all(syscall.SIGKILL) }, finish: func() {}})
}

// shell restricts this process and executes the shell.
func shell(c Command) error {
	steps := []func(Command) error{func(Command) error { return shed() }, restrict}
	if c.Mode == OtherUser {
		steps = []func(Command) error{becomeUser, checkUser}
	}
	for _, step := range steps {
		if err := step(c); err != nil {
			return err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return err
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	return os.NewSyscallError("start /bin/sh", unix.Exec("/bin/sh", []string{"/bin/sh", "-c", c.Script}, c.Env))
}
