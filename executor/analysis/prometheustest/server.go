// Package prometheustest starts a Prometheus server for tests, with an exporter whose
// metrics tests set.
//
// The server's process ends with the test. The package needs the program prometheus on
// the machine (Debian package prometheus; its service need not run) and never accesses
// other running servers.
package prometheustest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Scrape is the default scrape interval and timeout.
const Scrape = 500 * time.Millisecond

const (
	startTimeout = 3 * time.Minute
	startTries   = 3 // another process may take the free port first
)

// Server is a Prometheus that scrapes one exporter.
type Server struct {
	URL string
	// UsernameFile and PasswordFile contain the required credentials.
	UsernameFile, PasswordFile string
}

// Username and Password are the credentials of every server.
const (
	Username = "analyst"
	Password = "hunter2-of-prometheus"
)

// Start returns a server that scrapes an exporter and is ready. It ends with the
// test.
func Start(t testing.TB, target *Exporter) *Server {
	t.Helper()
	return StartFor(t, Job{Name: "test", Target: target.Addr})
}

// StartSlow is Start with a scrape every five seconds, for tests in which data must not be missing: a
// scrape that takes longer than the interval, as on a busy machine, fails.
func StartSlow(t testing.TB, target *Exporter) *Server {
	t.Helper()
	return StartFor(t, Job{Name: "test", Target: target.Addr, Every: 5 * time.Second})
}

// Job is a scrape job.
type Job struct {
	Name   string
	Target string        // host:port
	Rules  []string      // rule files, evaluated at the scrape interval
	Every  time.Duration // scrape interval and timeout; 0 is Scrape
}

// StartFor is Start for any target.
func StartFor(t testing.TB, job Job) *Server {
	t.Helper()
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"prometheus.yml": fmt.Sprintf("global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%[2]s]\n"+
			"scrape_configs: [{job_name: %[3]s, static_configs: [{targets: [%[4]q]}]}]\n", cmp.Or(job.Every, Scrape), strings.Join(job.Rules, ", "), job.Name, job.Target),
		"web.yml":  fmt.Sprintf("basic_auth_users: {%s: %q}\n", Username, hash),
		"username": Username + "\n",
		"password": Password + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{UsernameFile: filepath.Join(dir, "username"), PasswordFile: filepath.Join(dir, "password")}
	for try := 1; ; try++ {
		err := s.start(t, dir)
		if err == nil {
			return s
		}
		if try == startTries {
			t.Fatalf("start Prometheus: %v", err)
		}
	}
}

// start starts the server on a free port and waits until it is ready.
func (s *Server) start(t testing.TB, dir string) error {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return fmt.Errorf("%w: install the Debian package prometheus (apt-get install --no-install-recommends prometheus); its service need not run", err)
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	output := &lockedBuffer{}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--web.config.file="+filepath.Join(dir, "web.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = output, output
	ended, err := run(cmd)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	s.URL = "http://" + address
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			return fmt.Errorf("it ended: %s", output)
		default:
		}
		if s.ready() {
			return nil
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill() // else it keeps the directory from the next try
			<-ended
			return fmt.Errorf("it is not ready after %s: %s", startTimeout, output)
		}
	}
}

// run starts a command that ends with this process at the latest: the kernel kills it
// with the thread that started it, which waits for it.
func run(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	return done, <-started
}

func (s *Server) ready() bool {
	req, err := http.NewRequest(http.MethodGet, s.URL+"/-/ready", nil)
	if err != nil {
		return false
	}
	req.SetBasicAuth(Username, Password)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return errors.Join(resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// lockedBuffer is a buffer for concurrent writes and reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
