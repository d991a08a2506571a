package opentofu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
)

// versionTimeout bounds the question for the version of a program.
const versionTimeout = 30 * time.Second

// Program is a program of the operator.
type Program struct {
	Path    string // absolute
	Version string // such as 1.9.8
}

// NameOf returns the name of the program for a kind of application.
func NameOf(kind string) string {
	if kind == deploy.KindOpenTofu {
		return "tofu"
	}
	return "terraform"
}

// Programs finds programs. The zero value is ready to use; it is safe for concurrent use.
type Programs struct {
	mu    sync.Mutex
	known map[string]found // by path
}

// found is the version of a file with a size and a time of modification.
type found struct {
	size     int64
	modified time.Time
	version  string
}

// Find returns the program for an application of a kind. wanted is the version that it asks for,
// "" for any, and required are the constraints of its required_version. The error is of kind
// deploy.Invalid and says what to change.
func (ps *Programs) Find(ctx context.Context, kind string, p *opentofu.Provider, wanted string, required []string) (Program, error) {
	name := p.Program
	if name == "" {
		name = NameOf(kind)
	}
	if wanted != "" && p.VersionsDir != "" {
		name = filepath.Join(p.VersionsDir, wanted, NameOf(kind))
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return Program{}, deploy.Errorf(deploy.Invalid, "there is no program %s (%w): install it on the agent's machine, or name it in program or versionsDir of the platform provider", name, err)
	}
	v, err := ps.version(ctx, path)
	if err != nil {
		return Program{}, err
	}
	return Program{path, v}, check(path, v, wanted, required)
}

// check compares the version of a program with what an application asks for.
func check(path, has, wanted string, required []string) error {
	if wanted != "" && has != wanted {
		return deploy.Errorf(deploy.Invalid, "input.terraformVersion asks for %s, and %s is %s: change one of them, or put %s into versionsDir of the platform provider", wanted, path, has, wanted)
	}
	v, err := version.NewVersion(has)
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "%s has the version %q, which is none: %w", path, has, err)
	}
	for _, text := range required {
		constraint, err := version.NewConstraint(text)
		if err != nil {
			return deploy.Errorf(deploy.Invalid, "required_version %q: %w", text, err)
		}
		if !constraint.Check(v) {
			return deploy.Errorf(deploy.Invalid, "required_version asks for %s, and %s is %s: set input.terraformVersion, or change required_version", text, path, has)
		}
	}
	return nil
}

// version returns the version of a program. It runs the program once for each state of its file.
func (ps *Programs) version(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "the program %s: %w", path, err)
	}
	ps.mu.Lock()
	known, ok := ps.known[path]
	ps.mu.Unlock()
	if ok && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known.version, nil
	}
	v, err := askVersion(ctx, path)
	if err != nil {
		return "", err
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.known == nil {
		ps.known = map[string]found{}
	}
	ps.known[path] = found{info.Size(), info.ModTime(), v}
	return v, nil
}

// askVersion runs a program for its version.
func askVersion(ctx context.Context, path string) (string, error) {
	limited, stop := context.WithTimeout(ctx, versionTimeout)
	defer stop()
	dir, err := os.MkdirTemp("", "piped-version-")
	if err != nil {
		return "", deploy.Errorf(deploy.Unavailable, "ask %s for its version: %w", path, err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(limited, path, "version", "-json")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1"}
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", deploy.Errorf(deploy.Invalid, "%s version -json: %w: is it OpenTofu or Terraform?", path, err)
	}
	var answer struct {
		Version string `json:"terraform_version"` // of both programs
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Version == "" {
		return "", deploy.Errorf(deploy.Invalid, "%s version -json: expected a version, found %q", path, strings.TrimSpace(fmt.Sprintf("%.100s", out)))
	}
	return answer.Version, nil
}
