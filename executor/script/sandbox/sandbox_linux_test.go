package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
)

// isolated returns the ways that this machine should offer to the tests' user.
func isolated(t *testing.T) []Way {
	t.Helper()
	ways := []Way{{Namespaces, ByPIDNamespace}, {Landlock, BySupervisor}}
	if os.Geteuid() == 0 {
		ways = append(ways, Way{OtherUser, ByUser})
	}
	if err := grouping(); err != nil {
		t.Logf("not tested: processes that end with their control group: %v", err)
		return ways
	}
	for _, mode := range []Mode{Landlock, OtherUser} {
		if mode != OtherUser || os.Geteuid() == 0 {
			ways = append(ways, Way{mode, ByCgroup})
		}
	}
	return ways
}

// grouping returns why this user cannot create control groups.
func grouping() error {
	g, err := groupOf(os.Getpid())
	if err != nil {
		return err
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(g.dir, "cgroup.kill"))
	return errors.Join(err, os.Remove(g.dir))
}

// testUser is the first of the users that are reserved for scripts of this test run.
func testUser() int { return 100_000 + 8*os.Getpid() }

// env is the directory of an agent with secrets, and a script's directory, below it or,
// with OtherUser, next to it.
type env struct {
	t      *testing.T
	secret string // a file of the agent
	cmd    Command
}

func newEnv(t *testing.T, way Way) *env {
	t.Helper()
	data := t.TempDir()
	scripts := filepath.Join(data, "scripts")
	c := Command{Way: way, Env: []string{"PATH=/usr/bin:/bin", "MINE=yes"}}
	if way.Mode == OtherUser {
		scripts, c.UID, c.GID, c.Hidden = sandboxtest.PublicDir(t), testUser(), testUser(), []string{data}
		if err := os.Chmod(data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.Own = filepath.Join(scripts, "run")
	c.Dir, c.Tmp, c.Root = c.Own, filepath.Join(c.Own, "tmp"), filepath.Join(c.Own, "root")
	e := &env{t: t, secret: filepath.Join(data, "owner.key"), cmd: c}
	if err := errors.Join(os.MkdirAll(scripts, 0o700), os.Mkdir(c.Own, 0o700), os.Mkdir(c.Tmp, 0o700), os.Mkdir(c.Root, 0o700), os.WriteFile(e.secret, []byte("hunter2\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs a script and returns its output.
func (e *env) run(script string) (string, error) {
	e.t.Helper()
	p, out := e.start(script)
	err := p.Wait()
	text, readErr := io.ReadAll(out)
	if readErr != nil {
		e.t.Fatal(readErr)
	}
	return string(text), err
}

func (e *env) start(script string) (*Process, io.Reader) {
	e.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		e.t.Fatal(err)
	}
	defer w.Close()
	e.t.Cleanup(func() { r.Close() })
	e.cmd.Script = script
	p, err := Start(e.cmd, w, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.Kill)
	return p, r
}

func inWays(t *testing.T, test func(t *testing.T, e *env)) { in(t, isolated(t), test) }

// inAllWays is inWays, and without isolation.
func inAllWays(t *testing.T, test func(t *testing.T, e *env)) {
	in(t, append(isolated(t), Way{None, BySupervisor}), test)
}

func in(t *testing.T, ways []Way, test func(t *testing.T, e *env)) {
	for _, way := range ways {
		t.Run(fmt.Sprintf("%s, %s", way.Mode, way.EndedBy), func(t *testing.T) { test(t, newEnv(t, way)) })
	}
}

// TestOrdinaryScripts: ordinary scripts work in the sandbox.
func TestOrdinaryScripts(t *testing.T) {
	inAllWays(t, func(t *testing.T, e *env) {
		allowed := sandboxtest.PublicDir(t)
		if e.cmd.UID != 0 {
			if err := os.Chown(allowed, e.cmd.UID, e.cmd.GID); err != nil {
				t.Fatal(err)
			}
		}
		e.cmd.Allow = []string{allowed}
		for script, want := range map[string]string{
			"echo $MINE; pwd":                   "yes\n" + e.cmd.Own + "\n",
			"echo a > f; mv f tmp/g; cat tmp/g": "a\n",
			"echo x | sed s/x/y/ | tr y z":      "z\n",
			"echo out; echo err >&2":            "out\nerr\n",
			"echo err > /dev/stderr":            "err\n",
			"cat":                               "",
			"echo lost > /dev/null; head -c 3 /dev/zero | wc -c":                                   "3\n",
			"echo a >> " + allowed + "/count; cat " + allowed + "/count":                           "a\n",
			"bash -c 'cat <(echo substituted)'":                                                    "substituted\n",
			"getent hosts localhost >/dev/null && test -r /etc/ssl/certs && awk 'BEGIN {print 1}'": "1\n",
			"ls /proc/self/fd | wc -l":                                                             "4\n", // the usual three and the directory
		} {
			if got, err := e.run(script); got != want || err != nil {
				t.Errorf("%s: printed %q (%v), want %q", script, got, err, want)
			}
		}
	})
}

// TestSecretsAreOutOfReach: a script cannot access files, the environment or the memory
// of the agent.
func TestSecretsAreOutOfReach(t *testing.T) {
	t.Setenv("GIT_PASSWORD", "hunter2")
	inWays(t, func(t *testing.T, e *env) {
		link := filepath.Join(e.cmd.Own, "link")
		if err := os.Symlink(e.secret, link); err != nil {
			t.Fatal(err)
		}
		agent := os.Getpid()
		for _, attack := range []string{
			"cat " + e.secret,
			"cat ../../owner.key",
			"cat " + filepath.Dir(e.secret) + "/*",
			"cat " + link,
			"ln " + e.secret + " stolen; cat stolen",
			"cp " + e.secret + " stolen; cat stolen",
			"mv " + e.secret + " stolen; cat stolen",
			fmt.Sprintf("cat /proc/%d/environ /proc/%d/root%s /proc/%d/cwd/sandbox.go", agent, agent, e.secret, agent),
			"cat /proc/$PPID/environ /proc/1/environ",
			"for p in /proc/[0-9]*; do cat $p/environ $p/root" + e.secret + " $p/mem $p/fd/* ; done < /dev/null & sleep 1; kill $!",
			"cat /proc/$PPID/root" + e.secret + " /proc/1/root" + e.secret + " /proc/1/cwd/../../owner.key",
			"unshare -Ur cat " + e.secret,
			"unshare -Urm sh -c 'umount -l /tmp; mount -t tmpfs x /tmp; umount -a; cat " + e.secret + "'",
			"mount --bind / tmp; cat tmp" + e.secret,
			"mknod disk b 254 0; head -c 512 disk | base64 -w0 | sed 's/.*/hunter2/;t;d' | head -c 20 && test -s disk && echo hunter2",
			"chroot / cat " + e.secret,
		} {
			out, _ := e.run("exec 2>/dev/null; " + attack) // the error differs by attack
			if strings.Contains(out, "hunter2") || strings.Contains(out, "package sandbox") {
				t.Errorf("%s: read the secret", attack)
			}
		}
		if text, err := os.ReadFile(e.secret); string(text) != "hunter2\n" {
			t.Errorf("the secret is changed to %q: %v", text, err)
		}
	})
}

// TestNothingIsWrittenOutside: a script can only write to its own directories.
func TestNothingIsWrittenOutside(t *testing.T) {
	inWays(t, func(t *testing.T, e *env) {
		outside := filepath.Join(filepath.Dir(e.secret), "outside")
		for _, target := range []string{"/usr/piped-test", "/etc/piped-test", "/piped-test", "/dev/piped-test", "/etc/hosts", "/proc/sys/kernel/core_pattern"} {
			if out, err := e.run(": >> " + target); err == nil {
				t.Errorf("a script wrote to %s: %s", target, out)
			}
		}
		for _, attack := range []string{
			"rm -f " + e.secret, "touch " + outside, "mkdir " + outside, "echo x > " + outside,
			"mount -o remount,rw /usr && touch /usr/piped-test", "unshare -Um sh -c 'mount -o remount,bind,rw /usr && touch /usr/piped-test'",
			"unshare -Umpf sh -c 'mount -t proc x /proc && : >> /proc/sys/kernel/core_pattern && touch " + outside + "'",
			"echo x > /tmp/piped-sandbox-outside", "echo x > /var/tmp/piped-sandbox-outside", "echo x > /dev/shm/piped-sandbox-outside",
		} {
			_, _ = e.run(attack) // some succeed within the script's own directories
			ours := []string{outside, "/usr/piped-test"}
			if public := []string{"/tmp/piped-sandbox-outside", "/var/tmp/piped-sandbox-outside", "/dev/shm/piped-sandbox-outside"}; e.cmd.Mode != OtherUser {
				ours = append(ours, public...)
			} else { // world-writable directories
				for _, path := range public {
					_ = os.Remove(path) // it may be missing
				}
			}
			for _, path := range ours {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s made %s", attack, path)
				}
			}
		}
		if text, err := os.ReadFile(e.secret); string(text) != "hunter2\n" {
			t.Errorf("the secret is changed to %q: %v", text, err)
		}
	})
}

// TestProcessesAreOutOfReach: a script can neither signal nor trace processes of the
// agent.
func TestProcessesAreOutOfReach(t *testing.T) {
	inWays(t, func(t *testing.T, e *env) {
		agent := os.Getpid()
		for _, attack := range []string{
			fmt.Sprintf("kill -0 %d", agent),
			fmt.Sprintf("kill -CONT %d", agent),
			fmt.Sprintf("python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).ptrace(16, %d, 0, 0) != 0)'", agent), // PTRACE_ATTACH
			"python3 -c 'import ctypes,os,sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(os.environ[\"SHELL_PARENT\"]), 0, 0) != 0)'",
		} {
			if _, err := e.run("export SHELL_PARENT=$PPID; " + attack); err == nil {
				t.Errorf("%s: succeeded", attack)
			}
		}
		if out, err := e.run("kill -KILL $PPID 2>/dev/null; sleep 0.1; echo still here"); out != "still here\n" || err != nil {
			t.Errorf("a script that kills its supervisor: %q, %v", out, err)
		}
	})
}

// TestPrivilegesAreGone: scripts have no privileges, even if the agent runs as root.
func TestPrivilegesAreGone(t *testing.T) {
	inWays(t, func(t *testing.T, e *env) {
		out, err := e.run("grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status")
		want := "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
		if os.Geteuid() != 0 && e.cmd.Mode == Landlock { // without the right to drop it, the set bounds nothing
			want = strings.Replace(want, "CapBnd:\t0000000000000000\n", "", 1)
			out = strings.Join(strings.Split(out, "\n")[:2], "\n") + "\n" + strings.Join(strings.Split(out, "\n")[3:], "\n")
		}
		if out != want || err != nil {
			t.Errorf("privileges %q, %v, want %q", out, err, want)
		}
	})
}

// TestNothingSurvives: every process ends with the script, whatever it did to escape.
func TestNothingSurvives(t *testing.T) {
	observed(t)
	children := map[string]string{
		"in the background":   "%s &",
		"in a session":        "setsid %s &",
		"as a daemon":         "(setsid env -i %s </dev/null >/dev/null 2>&1 &)",
		"deaf":                "(trap '' TERM INT HUP; %s; :) &",
		"in a user namespace": "unshare -U --fork %s &",
		"forked twice":        "setsid sh -c '(env -i %s </dev/null >/dev/null 2>&1 &) &'; :",
	}
	ends := map[string]func(*Process){"by itself": nil, "terminated": (*Process).Terminate, "killed": (*Process).Kill, "with the agent": func(p *Process) { p.control.Close() }}
	inAllWays(t, func(t *testing.T, e *env) {
		n := 0
		for child, start := range children {
			for end, stop := range ends {
				n++
				mark := fmt.Sprintf("86%d.%d", os.Getpid(), n) // seconds, used to find the processes
				script := fmt.Sprintf(start, "sleep "+mark) + "\necho ready\n"
				if stop != nil {
					script += "sleep 1000"
				}
				p, out := e.start(script)
				if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
					t.Fatal(err)
				}
				if stop != nil {
					for limit := time.Now().Add(2 * time.Minute); len(running(t, mark)) == 0; time.Sleep(5 * time.Millisecond) {
						if time.Now().After(limit) {
							t.Fatalf("%s, %s: the child does not run", child, end)
						}
					}
					stop(p)
					timer := time.AfterFunc(300*time.Millisecond, p.Kill) // ignores SIGTERM
					defer timer.Stop()
				}
				_ = p.Wait() // other tests check the result
				if left := running(t, mark); len(left) != 0 {
					t.Errorf("%s, %s: %q is left", child, end, left)
				}
			}
		}
	})
}

// running returns the command lines of processes that contain mark.
func running(t *testing.T, mark string) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte("sleep\x00"+mark)) {
			out = append(out, string(line))
		}
	}
	return out
}

// TestEnds: the end of a script is reported correctly.
func TestEnds(t *testing.T) {
	observed(t)
	inWays(t, func(t *testing.T, e *env) {
		for script, want := range map[string]Ended{"exit 3": {Code: 3}, "kill -KILL $$": {Signal: syscall.SIGKILL}, "kill -TERM $$": {Signal: syscall.SIGTERM}} {
			var ended *Ended
			if _, err := e.run(script); !errors.As(err, &ended) || *ended != want {
				t.Errorf("%s: ended with %v, want %v", script, err, &want)
			}
		}
		e.cmd.Dir = e.cmd.Own + "/gone"
		if _, err := e.run("true"); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("a directory that is not there: %v", err)
		}
		e.cmd.Dir, e.cmd.Allow = e.cmd.Own, []string{"/nonesuch"}
		if _, err := e.run("true"); err == nil || !strings.Contains(err.Error(), "/nonesuch") {
			t.Errorf("an allowed path that is not there: %v", err)
		}
	})
}

// TestKilledLauncher: if the launcher of a script is killed, the agent ends the
// script's processes. With namespaces the script continues, and its first process
// reports the end. A supervisor of the agent's own user cannot be replaced.
func TestKilledLauncher(t *testing.T) {
	observed(t)
	inWays(t, func(t *testing.T, e *env) {
		if e.cmd.EndedBy == BySupervisor || e.cmd.EndedBy == ByPIDNamespace {
			return
		}
		mark := fmt.Sprintf("87%d.1", os.Getpid())
		p, out := e.start("(setsid env -i sleep " + mark + " </dev/null >/dev/null 2>&1 &)\necho ready\nsleep 1000")
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "ended without a report") {
			t.Errorf("the script ended with %v", err)
		}
		if left := running(t, mark); len(left) != 0 {
			t.Errorf("%q is left", left)
		}
	})
}

// TestGroupsAreRemoved: no control group of a script is left.
func TestGroupsAreRemoved(t *testing.T) {
	if why := grouping(); why != nil {
		if way, err := Choose(t.Context(), t.TempDir(), Settings{Modes: []Mode{Landlock}}); way.EndedBy == ByCgroup {
			t.Errorf("chose %q, %v, though %v", way, err, why)
		}
		return
	}
	e := newEnv(t, Way{Landlock, ByCgroup})
	if out, err := e.run("cat /proc/self/cgroup"); err != nil || !strings.Contains(out, "/piped-script-") {
		t.Errorf("the script ran in the groups %q, %v", out, err)
	}
	e.cmd.Dir = e.cmd.Own + "/gone"
	if _, err := e.run("true"); err == nil {
		t.Error("a script ran in no directory")
	}
	at, err := home()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(at, "piped-script-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range left {
		if launcher, err := os.ReadFile("/proc/" + strings.TrimPrefix(filepath.Base(dir), "piped-script-") + "/comm"); err != nil {
			t.Errorf("%s is left (%s, %v)", dir, launcher, err)
		}
	}
}

// TestHomes: a process's control group is found with version 2 alone, with both
// versions, and in a container.
func TestHomes(t *testing.T) {
	for name, c := range map[string]struct{ groups, mounts, want string }{
		"version 2":    {"0::/system.slice/piped.service\n", "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/system.slice/piped.service"},
		"both":         {"4:memory:/x\n0::/\n", "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified"},
		"a container":  {"0::/kubepods/pod1/c1\n", "33 23 0:26 /kubepods/pod1/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/sys/fs/cgroup"},
		"another part": {"0::/kubepods/pod1/c1\n", "33 23 0:26 /kubepods/pod2 /sys/fs/cgroup ro - cgroup2 cgroup rw\n", ""},
		"version 1":    {"4:memory:/x\n", "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", ""},
	} {
		if got := strings.Join(homeCandidates(c.groups, c.mounts), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestChoose: the strongest working way is selected, and unisolated scripts only if
// configured.
func TestChoose(t *testing.T) {
	dir := t.TempDir()
	landlock := Way{Landlock, BySupervisor}
	if grouping() == nil {
		landlock.EndedBy = ByCgroup
	}
	if way, err := Choose(t.Context(), dir, Settings{Modes: []Mode{Namespaces, Landlock}}); way != (Way{Namespaces, ByPIDNamespace}) || err != nil {
		t.Errorf("chose %q, %v", way, err)
	}
	if way, err := Choose(t.Context(), dir, Settings{Modes: []Mode{Landlock}}); way != landlock || err != nil {
		t.Errorf("chose %q, %v", way, err)
	}
	_, err := Choose(t.Context(), dir, Settings{Modes: []Mode{OtherUser}, Users: Users{UID: unprivileged, Count: 1, Dir: os.DevNull}})
	if err == nil || !strings.Contains(err.Error(), "scripts cannot be isolated on this machine: user: /dev/null is not a directory") || !strings.Contains(err.Error(), "scripts.isolation: none") {
		t.Errorf("a machine that offers nothing: %v", err)
	}
	if way, err := Choose(t.Context(), dir, Settings{Modes: []Mode{None}}); way != (Way{None, BySupervisor}) || err != nil {
		t.Errorf("chose %q, %v", way, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
