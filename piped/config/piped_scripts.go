package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// Scripts is spec.scripts: how the scripts of applications are kept from the agent.
type Scripts struct {
	Isolation Isolation `yaml:"isolation"`
	// AllowPaths are files and directories that scripts read and write, as their
	// permissions say, beside what is a script's own.
	AllowPaths []string `yaml:"allowPaths"`
}

// Isolation is how scripts are isolated.
type Isolation string

// The ways of isolation. IsolationAuto takes the strongest that the machine offers
// and refuses scripts where it offers none; IsolationNone lets scripts do what the
// agent can.
const (
	IsolationAuto       Isolation = "auto"
	IsolationNamespaces Isolation = "namespaces"
	IsolationLandlock   Isolation = "landlock"
	IsolationNone       Isolation = "none"
)

// Values implements strict.Enum.
func (Isolation) Values() []string {
	return []string{string(IsolationAuto), string(IsolationNamespaces), string(IsolationLandlock), string(IsolationNone)}
}

func (s Scripts) complete(d *strict.Document, r resolver) Scripts {
	for i := range s.AllowPaths {
		field := fmt.Sprintf("scripts.allowPaths[%d]", i)
		required(d, field, s.AllowPaths[i])
		s.AllowPaths[i] = filepath.Clean(r.path(field, s.AllowPaths[i]))
	}
	return s
}

// programs is what isolated scripts see of the machine without being allowed to.
const programs = "/usr"

// checkScripts reports what would show secrets of the agent to isolated scripts;
// file is the configuration's own.
func (p *Piped) checkScripts(d *strict.Document, file string) {
	if p.Scripts.Isolation == IsolationNone {
		return
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return
	}
	for i, allowed := range p.Scripts.AllowPaths {
		field := fmt.Sprintf("scripts.allowPaths[%d]", i)
		if within(p.DataDir, allowed) || within(allowed, p.DataDir) {
			d.Problemf(field, "%s shows the agent's data directory (%s) to scripts: name what lies apart from it", allowed, p.DataDir)
			continue
		}
		for _, secret := range append(p.Files(), file) {
			if within(secret, allowed) {
				d.Problemf(field, "%s shows %s to scripts, which the agent reads: name what lies apart from it", allowed, secret)
				break
			}
		}
	}
	for _, secret := range append(p.Files(), file, p.DataDir) {
		if within(secret, programs) {
			d.Warnf("scripts", "scripts of applications see %s: move it out of %s", secret, programs)
		}
	}
}

// within reports whether path is dir or lies in it. Links are followed where the
// files are there.
func within(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
