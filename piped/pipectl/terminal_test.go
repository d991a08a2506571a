package pipectl_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	gosync "sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
)

// terminal is a program in a pseudo terminal, with the content of its screen.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File
	read chan struct{}

	mu     gosync.Mutex
	raw    strings.Builder
	screen screen
}

// inTerminal starts pipectl in a terminal of the given width.
func inTerminal(t *testing.T, width uint16, agent *controltest.Agent, env []string, args ...string) *terminal {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = append([]string{"pipectl"}, args...) // the name makes the test program run pipectl
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "HOME="+t.TempDir(), "PIPECTL_ADDRESS="+agent.Server.Addr(),
		"PIPECTL_INSECURE=true", "PIPECTL_API_KEY="+agent.ReadWrite)
	cmd.Env = append(cmd.Env, env...)
	term := &terminal{t: t, cmd: cmd, read: make(chan struct{})}
	term.file, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: width})
	if err != nil {
		t.Fatal(err)
	}
	go term.copy()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-term.read
		_ = term.file.Close()
	})
	return term
}

// copy reads the program's output until its terminal is closed.
func (term *terminal) copy() {
	defer close(term.read)
	buffer := make([]byte, 4096)
	for {
		n, err := term.file.Read(buffer)
		term.mu.Lock()
		term.raw.Write(buffer[:n])
		term.screen.write(string(buffer[:n]))
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) lines() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// shows waits until the screen matches.
func (term *terminal) shows(pattern string) {
	term.t.Helper()
	want := regexp.MustCompile(pattern)
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if want.MatchString(term.lines()) {
			return
		}
	}
	term.t.Fatalf("the screen does not show %q:\n%s", pattern, term.lines())
}

func (term *terminal) typed(text string) {
	term.t.Helper()
	if _, err := io.WriteString(term.file, text); err != nil {
		term.t.Fatal(err)
	}
}

// ends waits for the program and returns its exit code.
func (term *terminal) ends() int {
	term.t.Helper()
	<-term.read
	_ = term.cmd.Wait() // the exit code has the result
	return term.cmd.ProcessState.ExitCode()
}

// screen is what a terminal displays for text, line feeds, carriage returns and the
// sequence that clears the rest of a line. It ignores colours.
type screen struct {
	lines   [][]rune
	column  int
	pending string // the begin of an escape sequence or of a character
}

func (s *screen) write(text string) {
	text, s.pending = s.pending+text, ""
	for text != "" {
		if text[0] == '\x1b' {
			end := strings.IndexAny(text, "mK")
			if end < 0 {
				s.pending = text
				return
			}
			if text[end] == 'K' {
				line := s.line()
				*line = (*line)[:min(s.column, len(*line))]
			}
			text = text[end+1:]
			continue
		}
		if !utf8.FullRuneInString(text) {
			s.pending = text
			return
		}
		r, size := utf8.DecodeRuneInString(text)
		s.put(r)
		text = text[size:]
	}
}

func (s *screen) line() *[]rune {
	if len(s.lines) == 0 {
		s.lines = [][]rune{nil}
	}
	return &s.lines[len(s.lines)-1]
}

func (s *screen) put(r rune) {
	line := s.line()
	switch r {
	case '\n':
		s.lines = append(s.lines, nil)
	case '\r':
		s.column = 0
	default:
		for len(*line) <= s.column {
			*line = append(*line, ' ')
		}
		(*line)[s.column] = r
		s.column++
	}
}

func (s *screen) String() string {
	var b strings.Builder
	for _, line := range s.lines {
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return b.String()
}

// TestSyncInATerminal: a sync that waits shows its stages and a status line that
// disappears at the end. Its exit code is that of the deployment.
func TestSyncInATerminal(t *testing.T) {
	tests := map[string]struct {
		end  deploy.Status
		code int
		want string
	}{
		"success":   {deploy.Success, pipectl.ExitSuccess, `\[1/1\] K8S_SYNC SUCCESS 1s: because\nDeployment d1 of web is SUCCESS\n+$`},
		"failure":   {deploy.Failure, pipectl.ExitFailure, `K8S_SYNC FAILURE 1s: because\n(Deployment d1 of web is .*\n)+.* deployment d1 ended at DEPLOYMENT_FAILURE\nHint: .*deployment logs`},
		"cancelled": {deploy.Cancelled, pipectl.ExitCancelled, `Deployment d1 of web is CANCELLED: because\n.* ended at DEPLOYMENT_CANCELLED\nHint: `},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := controltest.Start(t, t.TempDir())
			app := agent.Application("web", nil)
			term := inTerminal(t, 100, agent, nil, "application", "sync", "--app-id=app-web", "--wait", "--check-interval=100ms")
			agent.Deployment("d1", app, agent.OpenCommand().ID)
			term.shows(`Successfully triggered deployment d1\nDeployment d1 of web is PENDING: A new commit\n[|/\\-] PENDING: A new commit\n$`)
			agent.Move("d1", deploy.Running, "")
			term.shows(`\[1/1\] K8S_SYNC RUNNING\n[|/\\-] \[1/1\] K8S_SYNC \d+[smhd]\n$`)
			agent.Log("d1", "stage-sync", "applied 3 objects\nwaiting for Deployment shop/web: 1 of 3 pods are new")
			term.shows(`\n[|/\\-] \[1/1\] K8S_SYNC \d+[smhd]: waiting for Deployment shop/web: 1 of 3 pods are new\n$`)
			agent.Move("d1", tc.end, "because")
			if code := term.ends(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if got := term.lines(); !regexp.MustCompile(tc.want).MatchString(got) || strings.Contains(got, "\n|") || strings.Contains(got, "...\n...") {
				t.Errorf("the screen does not end with %s:\n%s", tc.want, got)
			}
			if !strings.Contains(term.written(), "\x1b[33mPENDING\x1b[0m") {
				t.Errorf("no colour in %q", term.written())
			}
		})
	}
}

// TestNarrowTerminal: the status line is truncated to the width of the terminal.
func TestNarrowTerminal(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Running, "")
	term := inTerminal(t, 24, agent, []string{"NO_COLOR=1"}, "deployment", "watch", "--deployment-id=d1")
	term.shows(`\n[|/\\-] \[1/1\] K8S_SYNC \d+[smhd]\n$`)
	agent.Move("d1", deploy.RollingBack, "a reason that is much longer than the terminal is wide")
	term.shows(`\n[|/\\-] ROLLING_BACK: a reas…\n$`)
	agent.Move("d1", deploy.Failure, "over")
	if code := term.ends(); code != pipectl.ExitFailure {
		t.Errorf("exit code %d, want %d", code, pipectl.ExitFailure)
	}
	if strings.Contains(term.written(), "\x1b[3") {
		t.Errorf("NO_COLOR is set, and there is colour in %q", term.written())
	}
}

// TestTableInATerminal: tables fit the terminal: texts are truncated, IDs are not.
func TestTableInATerminal(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("an-application-with-a-very-long-name", nil)
	agent.Deployment("0123456789-0123456789-0123456789", app, "")
	term := inTerminal(t, 100, agent, nil, "deployment", "list", "--output=table")
	if code := term.ends(); code != 0 {
		t.Errorf("exit code %d: %s", code, term.lines())
	}
	for line := range strings.SplitSeq(term.lines(), "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("a line of %d characters in a terminal of 100:\n%s", len([]rune(line)), line)
		}
	}
	if got := term.lines(); !strings.Contains(got, "0123456789-0123456789-0123456789") || !strings.Contains(got, "  an-appl") || !strings.Contains(got, "…") {
		t.Errorf("want the whole ID and a name that is cut:\n%s", got)
	}
}

// TestJSONOfPipeCDInATerminal: the JSON of PipeCD's commands is the same in a terminal
// and in a pipe.
func TestJSONOfPipeCDInATerminal(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Application("web", nil)
	for _, args := range [][]string{{"list"}, {"get", "--app-id=app-web"}} {
		term := inTerminal(t, 10_000, agent, nil, append([]string{"application", "--output=json"}, args...)...)
		if code := term.ends(); code != 0 || !strings.Contains(term.lines(), `"sync_state":{"status":`) || strings.Contains(term.lines(), `"status":"`) {
			t.Errorf("%s: exit code %d: %s", args, code, term.lines())
		}
	}
}

// TestInterruptedInATerminal: Ctrl-C ends a wait at once, with the usual exit code, and
// removes the status line.
func TestInterruptedInATerminal(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	term := inTerminal(t, 100, agent, nil, "deployment", "watch", "--deployment-id=d1")
	term.shows(`\n[|/\\-] PENDING`)
	term.typed("\x03")
	if code := term.ends(); code != pipectl.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, pipectl.ExitInterrupted)
	}
	if got := term.lines(); !regexp.MustCompile(`interrupted: stopped reading deployment d1`).MatchString(got) || regexp.MustCompile(`(?m)^[|/\\-] PENDING`).MatchString(got) {
		t.Errorf("the screen is\n%s", got)
	}
}

// TestSignalled: signals end the program like Ctrl-C.
func TestSignalled(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	term := inTerminal(t, 100, agent, nil, "deployment", "wait-status", "--deployment-id=d1", "--status=DEPLOYMENT_SUCCESS")
	term.shows(`\.\.\.\n`)
	if err := term.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := term.ends(); code != pipectl.ExitInterrupted {
		t.Errorf("exit code %d, want %d", code, pipectl.ExitInterrupted)
	}
}

// TestConfirmation: irreversible operations require a confirmation.
func TestConfirmation(t *testing.T) {
	tests := map[string]struct {
		answer, want string
		code         int
		asked        bool // the agent received the request
	}{
		"yes":    {"yes\r", `Successfully deleted application id = app-web`, 0, true},
		"y":      {"Y\r", `Successfully deleted application id = app-web`, 0, true},
		"no":     {"no\r", `nothing was done: the answer was not yes`, 1, false},
		"empty":  {"\r", `nothing was done: the answer was not yes`, 1, false},
		"Ctrl-C": {"\x03", `interrupted: nothing was done`, pipectl.ExitInterrupted, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := controltest.Start(t, t.TempDir(), withComponents)
			agent.Application("web", nil)
			term := inTerminal(t, 100, agent, nil, "application", "delete", "--app-id=app-web", "--cascade", "--check-interval=100ms")
			term.shows(`KIND +NAMESPACE +NAME +CLUSTER\nDeployment +shop +web +dev\n`)
			term.shows(`Delete application app-web and 2 objects from the cluster\? \[y/N\]`)
			term.typed(tc.answer)
			if tc.asked {
				answer(t, agent)
			}
			if code := term.ends(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if got := term.lines(); !regexp.MustCompile(tc.want).MatchString(got) {
				t.Errorf("the screen does not show %s:\n%s", tc.want, got)
			}
		})
	}
}

// answer completes the open command like the agent.
func answer(t *testing.T, agent *controltest.Agent) {
	t.Helper()
	if err := agent.Store.FinishCommand(context.Background(), agent.OpenCommand().ID, deploy.CommandSucceeded, nil); err != nil {
		t.Fatal(err)
	}
}
