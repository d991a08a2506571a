// Package pgtest provides a real PostgreSQL server for tests: one per test process, on a free
// loopback port, in a temporary directory. It starts when a test first needs a database and
// stops after the tests, even if they panic.
//
// It owns the server's process and directory. It needs the server's binaries on the machine
// (Debian package postgresql; its service need not run), and never uses a server that is
// already running. Each test package declares one Server:
//
//	var postgres pgtest.Server
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
//
//	func TestX(t *testing.T) { dsn := postgres.NewDSN(t); … }
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

// Server is the PostgreSQL server of one test process. Its zero value is ready to use. Its
// methods are safe for concurrent use.
type Server struct {
	once      sync.Once
	err       error
	dir, bin  string
	owner     *syscall.Credential // the user that the server runs as; nil is the current user
	port      int
	reserved  net.Listener // keeps port for this server
	process   *process
	databases atomic.Int64
}

const (
	startTimeout = 3 * time.Minute // both allow for a busy machine
	stopTimeout  = 2 * time.Minute
	startTries   = 3 // a program that reserves no ports may bind the free one first

	// Ports lie below those that the system gives to connections and to listeners, which could
	// otherwise take the port of a server that is stopped. Agents have them, too.
	firstPort, ports = 16384, 20000 - 16384

	objectInUse = "55006" // PostgreSQL's code of the error
)

// Main runs the tests, stops the server if one was started, and returns the exit code: that of
// the tests, or 1 if they leak a goroutine.
func (s *Server) Main(m *testing.M) int {
	code := s.run(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func (s *Server) run(m *testing.M) int {
	defer s.stop() // also after a panic in this goroutine
	return m.Run()
}

// Start returns a separate server for one test, which may call Restart. It ends with the test,
// so its databases need not be dropped.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	t.Cleanup(s.stop)
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Restart stops the server, which closes every connection, waits for away, and starts it again
// with the same data and address.
func (s *Server) Restart(t testing.TB, away time.Duration) {
	t.Helper()
	start := s.Interrupt(t)
	time.Sleep(away)
	if err := start(); err != nil {
		t.Fatal(err)
	}
}

// Interrupt stops the server, which closes every connection. The function that it returns starts the
// server again with the same data and address.
func (s *Server) Interrupt(t testing.TB) (start func() error) {
	t.Helper()
	s.process.stop()
	return func() error {
		if err := s.serve(); err != nil {
			return fmt.Errorf("start PostgreSQL again: %w", err)
		}
		return nil
	}
}

// NewDSN returns the DSN of a new, empty database, which is dropped when the test ends. The
// first call starts the server. If the server is not installed, the test fails with a message
// that names the package to install.
func (s *Server) NewDSN(t testing.TB) string {
	t.Helper()
	name, err := s.create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(name); err != nil {
			t.Errorf("drop the database: %v", err)
		}
	})
	return s.dsn(name)
}

// Database returns the DSN of a new, empty database, for a program that is no test. The first call
// starts the server, which the program ends with Close.
func (s *Server) Database() (dsn string, err error) {
	name, err := s.create()
	if err != nil {
		return "", err
	}
	return s.dsn(name), nil
}

// Close ends the server, if one was started, and removes its data.
func (s *Server) Close() { s.stop() }

// ensure starts the server for the first caller.
func (s *Server) ensure() error {
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		return fmt.Errorf("start PostgreSQL: %w", s.err)
	}
	return nil
}

// create makes a database and returns its name.
func (s *Server) create() (name string, err error) {
	if err := s.ensure(); err != nil {
		return "", err
	}
	name = fmt.Sprintf("test_%d", s.databases.Add(1))
	if err := s.admin("CREATE DATABASE " + name); err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return name, nil
}

// drop removes a database. The server ends the connections to it, and refuses to go on when one of
// their processes is still there after 5 s.
func (s *Server) drop(name string) error {
	for end := time.Now().Add(stopTimeout); ; {
		err := s.admin("DROP DATABASE " + name + " WITH (FORCE)")
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != objectInUse || time.Now().After(end) {
			return err
		}
	}
}

func (s *Server) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), RawQuery: "sslmode=disable"}
	return u.String()
}

// admin runs one statement in the maintenance database.
func (s *Server) admin(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

func (s *Server) start() (err error) {
	if s.bin, err = binaries(); err != nil {
		return err
	}
	if s.owner, err = unprivileged(); err != nil {
		return err
	}
	if s.dir, err = tempDir(s.owner); err != nil {
		return err
	}
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	s.prepare(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	for try := 1; ; try++ {
		if err := s.reserve(); err != nil {
			return err
		}
		err := s.serve()
		if err == nil || try == startTries {
			return err
		}
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// serve starts the server and returns when it accepts connections.
func (s *Server) serve() error {
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port))
	for _, setting := range []string{"listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "full_page_writes=off",
		"synchronous_commit=off", "shared_buffers=32MB", "max_connections=300", "autovacuum=off", "timezone=UTC"} {
		cmd.Args = append(cmd.Args, "-c", setting)
	}
	s.prepare(cmd)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	p, err := run(cmd)
	if err != nil {
		return err
	}
	deadline := time.After(startTimeout)
	for {
		select {
		case <-p.done:
			return fmt.Errorf("the server ended at once: %w\n%s", p.err, log.String())
		case <-deadline:
			p.stop()
			return fmt.Errorf("the server did not answer within %s\n%s", startTimeout, log.String())
		case <-time.After(20 * time.Millisecond):
		}
		if err := s.admin("SELECT 1"); err == nil {
			s.process = p
			return nil
		}
	}
}

// prepare makes cmd run in the server's directory, as its owner, without the caller's
// environment except PATH, and end with this process.
func (s *Server) prepare(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C", "LC_ALL=C", "HOME=" + s.dir}
	// SIGQUIT makes the server end its child processes, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Pdeathsig: syscall.SIGQUIT}
}

func (s *Server) stop() {
	if s.process != nil {
		s.process.stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // a leftover directory does not fail a test
	}
	if s.reserved != nil {
		_ = s.reserved.Close() // nothing was ever sent to it
	}
}

// process is a started child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // result of Wait, valid once done is closed
}

// run starts cmd from a locked OS thread that exists until the child ends: the kernel sends
// the parent-death signal when the starting thread ends.
func run(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	return p, <-started
}

// stop ends the child: with SIGINT, and with SIGKILL after stopTimeout.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGINT) // fails if it has ended already
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// reserve chooses a port on which nothing listens. As long as this process runs, no other server of
// a test and no agent gets it, also while the server is stopped: a listener on the same port of another
// loopback address reserves it, as agents do.
func (s *Server) reserve() error {
	if s.reserved != nil {
		_ = s.reserved.Close() // nothing was ever sent to it
		s.reserved = nil
	}
	for range 100 {
		port := firstPort + rand.IntN(ports)
		reserved, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
		if err != nil {
			continue
		}
		probe, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			_ = reserved.Close()
			continue
		}
		s.port, s.reserved = port, reserved
		return probe.Close()
	}
	return fmt.Errorf("of 100 ports from %d to %d, all are in use", firstPort, firstPort+ports-1)
}
