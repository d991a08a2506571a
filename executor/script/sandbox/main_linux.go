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

// The names under which the program is started again: outside of the sandbox, as
// the first process of new namespaces, and to restrict itself and become the shell.
const (
	outerName = "piped-script"
	innerName = "piped-script-init"
	shellName = "piped-script-shell"
)

// What a launcher has open, beside its standard input and outputs.
const (
	controlFD = 3
	reportFD  = 4
	lockFD    = 5
)

// Main makes this program the launcher of a script, and does not return, if the
// agent started it as one. Otherwise it returns what the agent starts scripts with.
// It is the first statement of main, and of TestMain where tests run scripts.
func Main() Launcher {
	run := map[string]func(Command) error{outerName: outer, innerName: inner, shellName: shell}[os.Args[0]]
	if run == nil {
		return Launcher{ready: true}
	}
	runtime.LockOSThread()                                                  // privileges are a thread's own
	_ = unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // before Linux 5.11 the loop has to do
	for fd := controlFD; fd <= lockFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // the agent decides when it ends
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
	return Launcher{}
}

// ownEnv is the environment of this program when it starts again: nothing of the agent's
// but what a program with the race detector is told about its own run.
func ownEnv() []string {
	env := []string{"LANG=C.UTF-8"}
	if options, ok := os.LookupEnv("GORACE"); ok {
		env = append(env, "GORACE="+options)
	}
	return env
}

// again returns the command that starts this very program under another name.
func again(name string, spec []byte, out *os.File, extra ...*os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = []string{name}, ownEnv()
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = bytes.NewReader(spec), out, out, extra
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// send reports the end to the agent. Nobody reads it when the agent is gone.
func send(r report) {
	if text, err := json.Marshal(r); err == nil {
		_, _ = os.NewFile(reportFD, "report").Write(text)
	}
}

// outer is the launcher that the agent starts.
func outer(c Command) error {
	if c.Mode == Namespaces {
		return startInit(c)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	f := family{signal: signalDescendants, kill: func() { signalDescendants(syscall.SIGKILL) }, finish: func() {}}
	if c.Mode == OtherUser {
		if err := prepareUser(c); err != nil {
			return err
		}
		f.finish = func() { endUser(c.UID) }
	}
	if c.EndedBy == ByCgroup {
		return superviseGroup(c, f)
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
	if err := supervise(c, shellName, f); err != nil { // it could not be started
		if left := g.leave(); left != nil {
			return errors.Join(err, left)
		}
		g.end()
		return err
	}
	return nil
}

// startInit starts the first process of new namespaces and waits for it. This
// process can be dumped until then, unlike the agent: writing the maps of users
// needs it.
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
		// To mount, and to drop capabilities: without it a user other than root loses
		// those of the new namespace when the program starts.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	_ = cmd.Wait() // it reports the end itself
	return nil
}

// inner is the first process of the namespaces. When it ends, the kernel kills
// every other one.
func inner(c Command) error {
	if err := buildRoot(c); err != nil {
		return err
	}
	if err := errors.Join(Hide(), shed()); err != nil {
		return err
	}
	all := func(sig syscall.Signal) { _ = unix.Kill(-1, sig) } // there may be none
	return supervise(c, "", family{signal: all, kill: func() { all(syscall.SIGKILL) }, finish: func() {}})
}

// shell restricts this process and makes it the shell.
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
