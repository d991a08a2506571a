package opentofu

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	config "github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/linelog"
	"github.com/c785c783/piped/piped/marked"
	"github.com/c785c783/piped/piped/opentofu"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/secret"
)

// markVariable names the directory of a run in the environment of all its processes.
const markVariable = "PIPED_OPENTOFU_DIR"

// Clean kills the processes and removes the files that a killed agent left in the directory of
// runs. New does so, too.
func Clean(dir string) error {
	marked.Kill(markVariable, dir)
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(socketsDir(dir))); err != nil {
		return fmt.Errorf("remove leftovers of OpenTofu runs: %w", err)
	}
	return os.MkdirAll(dir, 0o700)
}

// socketsDir returns the directory for the temporary files of the runs in a directory. Plugins have
// sockets there, whose paths must be short.
func socketsDir(dir string) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("piped-tofu-%.8x", sha256.Sum256([]byte(dir))))
}

// session is a program in the files of a commit.
type session struct {
	*opentofu.Run
	input    config.Input
	dir      string
	tmp      string
	out      *linelog.Writer
	log      deploy.StageLog
	redactor *secret.Redactor
}

// open prepares a session for an application at a commit. The caller closes it.
func (e *Executor) open(ctx context.Context, kind, provider string, at deploy.GitPath, commit string, log deploy.StageLog) (*session, error) {
	files, err := e.Files(ctx, at, commit)
	if err != nil {
		return nil, err
	}
	return e.openIn(ctx, files, kind, provider, at, commit, log)
}

// openIn prepares a session in files that are those of a commit, or will be. The caller closes it.
func (e *Executor) openIn(ctx context.Context, files source.Files, kind, provider string, at deploy.GitPath, commit string, log deploy.StageLog) (_ *session, err error) {
	p, err := e.Provider(provider)
	if err != nil {
		return nil, err
	}
	s := &session{input: config.SpecOf(files.Config.Platform).Input}
	program, err := e.Programs.Find(ctx, kind, p, s.input.TerraformVersion, nil)
	if err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(e.Dir, "run-"); err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "make the directory of a run: %w", err)
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	root := filepath.Join(s.dir, "files")
	if err := source.Materialise(ctx, files, root); err != nil {
		return nil, err
	}
	s.tmp = filepath.Join(socketsDir(e.Dir), filepath.Base(s.dir))
	if err := os.MkdirAll(s.tmp, 0o700); err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "make the directory of a run: %w", err)
	}
	s.redactor = redactorOf(files, p.PassEnv)
	s.log = s.redactor.Log(log)
	s.out = linelog.New(s.log)
	s.Run, err = opentofu.Open(opentofu.Config{
		Program: program, Provider: p, Input: s.input, Root: root, Dir: at.Dir, Own: filepath.Join(s.dir, "own"),
		Env: map[string]string{markVariable: s.dir, "TMPDIR": s.tmp}, Log: s.out,
	})
	if err != nil {
		return nil, err
	}
	s.log.Infof("Using %s %s, in %s at commit %s", filepath.Base(program.Path), program.Version, at.Dir, deploy.ShortHash(commit))
	return s, nil
}

// redactorOf returns a redactor for what was decrypted for a session, and for the variables of the
// agent's environment that it gets.
func redactorOf(files source.Files, pass []string) *secret.Redactor {
	secrets := map[string]string{}
	maps.Copy(secrets, files.Redactor().Secrets())
	for _, name := range pass {
		if value := os.Getenv(name); isSecret(strings.ToUpper(name)) {
			secrets["environment "+name] = value
		}
	}
	return secret.NewRedactor(secrets)
}

// isSecret reports whether a variable of that name probably holds a secret.
func isSecret(name string) bool {
	return slices.ContainsFunc([]string{"SECRET", "TOKEN", "PASS", "AUTH", "PRIVATE", "KEY", "CREDENTIAL", "DSN", "_URL"}, func(part string) bool { return strings.Contains(name, part) })
}

// close ends what is left of the session's processes, such as plugins, and removes its files.
func (s *session) close() {
	if s.out != nil {
		s.out.Flush()
	}
	marked.Kill(markVariable, s.dir)
	for _, dir := range []string{s.dir, s.tmp} {
		if dir != "" {
			_ = os.RemoveAll(dir) // Clean removes it after the next start
		}
	}
	if s.tmp != "" {
		_ = os.Remove(filepath.Dir(s.tmp)) // if no other run uses it
	}
}
