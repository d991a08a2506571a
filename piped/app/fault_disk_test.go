package app

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// disk is the agent's disk, which can be full.
type disk interface {
	fill(t *testing.T, agent *agenttest.Agent)
	empty(t *testing.T, agent *agenttest.Agent)
}

// smallDisk is a file system of its own, filled by a file.
type smallDisk struct{ dir string }

const (
	smallDiskSize  = "32m"
	smallDiskBytes = 32 << 20
)

func (d smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill returns when the agent has found the disk full. What the agent had there only for a moment, such
// as the file of a probe, leaves space when it goes, which is filled, too.
func (d smallDisk) fill(t *testing.T, agent *agenttest.Agent) {
	eventually(t, "the agent has no space", func() bool {
		d.top(t)
		return hasNoSpace(t, agent)
	})
}

// top fills what is left of the disk.
func (d smallDisk) top(t *testing.T) {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	part := make([]byte, smallDiskBytes/32)
	for range 64 {
		if _, err = f.Write(part); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk cannot be filled: %v", err)
	}
}

func (d smallDisk) empty(t *testing.T, _ *agenttest.Agent) {
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
}

// fileLimit stands for a full disk where no file system may be mounted: no file
// of the agent can be written to, neither the database nor the mirror.
type fileLimit struct{}

func (fileLimit) fill(t *testing.T, agent *agenttest.Agent) { setFileLimit(t, agent, 0) }
func (fileLimit) empty(t *testing.T, agent *agenttest.Agent) {
	setFileLimit(t, agent, unix.RLIM_INFINITY)
}

func setFileLimit(t *testing.T, agent *agenttest.Agent, bytes uint64) {
	if err := unix.Prlimit(agent.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
}

// newDisk mounts a small disk at dir where that is permitted.
func newDisk(t *testing.T, dir string) disk {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+smallDiskSize); err != nil {
		t.Logf("mount a small disk: %v; a limit of file sizes stands for it", err)
		return fileLimit{}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return smallDisk{dir}
}

// readiness is what an agent answers to /readyz: the status code and the text.
func readiness(t *testing.T, agent *agenttest.Agent) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + agent.WebAddress + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// hasNoSpace reports whether an agent says that it is not ready because it cannot write.
func hasNoSpace(t *testing.T, agent *agenttest.Agent) bool {
	t.Helper()
	code, text := readiness(t, agent)
	return code == http.StatusServiceUnavailable && strings.Contains(text, "free space")
}

// TestFaultDiskFull lets the disk run full during a rollout, under the database
// and under the mirror. While it is full, readiness, status and answers say so.
func TestFaultDiskFull(t *testing.T) {
	t.Parallel()
	binary := buildAgent(t)
	for name, newDisk := range map[string]func(*testing.T, string) disk{
		"small disk":    newDisk,
		"limited files": func(*testing.T, string) disk { return fileLimit{} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk := newDisk(t, filepath.Join(dir, "piped"))
			repo := newRepo(t)
			var process *agenttest.Agent
			s := newFaultScene(t, clustertest.Shared(t), repo, func() *client {
				process = startProcess(t, agenttest.Options{Binary: binary, Dir: dir, Remote: repo.Dir, Kubeconfig: clustertest.Shared(t).Kubeconfig()})
				return dial(t, process.Address, filepath.Dir(process.KeyFile))
			})
			disk.fill(t, process)
			calm := s.push(t)
			time.Sleep(outage(t))
			_, err := s.agent.api.SyncApplication(s.agent.ctx, &apiservice.SyncApplicationRequest{ApplicationId: appID("calm")})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a sync that cannot be stored: %v, want Unavailable", err)
			}
			if _, small := disk.(smallDisk); small && !strings.Contains(err.Error(), "disk is full") { // what the client's hint goes by
				t.Errorf("a sync on a full disk: %v", err)
			}
			eventually(t, "the agent is not ready, and says that it cannot write", func() bool { return hasNoSpace(t, process) })
			state, err := s.agent.control.GetStatus(s.agent.ctx, &controlv1.GetStatusRequest{})
			if err != nil || !strings.Contains(state.GetStore().GetError(), "free space") {
				t.Errorf("the status says of the store: %q, %v", state.GetStore().GetError(), err)
			}
			disk.empty(t, process)
			eventually(t, "the agent is ready again", func() bool {
				code, _ := readiness(t, process)
				return code == http.StatusOK
			})
			s.mustHaveLostNothing(t, calm)
		})
	}
}

// TestFaultDatabaseCorrupt starts an agent on a damaged database file: it refuses
// and says what to do, and leaves the file as it is.
func TestFaultDatabaseCorrupt(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	repo := newRepo(t)
	damages := map[string]func([]byte){
		"the header":      func(data []byte) { copy(data, "This is no database at all.") },
		"a page":          func(data []byte) { copy(data[8*4096:], bytes.Repeat([]byte{0xA5}, 4096)) },
		"the end is gone": nil,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()}
			cfg, _, err := Kinds().LoadPiped(s.configFile(t))
			if err != nil {
				t.Fatal(err)
			}
			a, err := New(t.Context(), cfg, Options{Logger: testLogger(t)})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(s.dataDir, "piped.db")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if damage == nil {
				data = data[:len(data)/2]
			} else {
				damage(data)
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = New(t.Context(), cfg, Options{Logger: testLogger(t)})
			if !deploy.IsKind(err, deploy.Invalid) {
				t.Fatalf("New on a damaged database: %v", err)
			}
			mustContain(t, err.Error(), file, "damaged", "backup", "move the three files away")
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, data) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}
