package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// Scripts is spec.scripts: how the scripts of applications are kept from the agent.
type Scripts struct {
	// Isolation is the way of isolation. `auto` is the first that the machine offers of
	// `namespaces`, `landlock` and, with `scripts.user`, `user`.
	Isolation Isolation `yaml:"isolation"`
	// AllowPaths are files and directories that every script may read and write, as their
	// permissions say.
	// Default: none. Type: list of paths.
	AllowPaths []string `yaml:"allowPaths"`
	// User is the users that scripts run as with `user`.
	User ScriptsUser `yaml:"user"`
}

// ScriptsUser is spec.scripts.user: users that run nothing but scripts.
type ScriptsUser struct {
	// UID is the UID of the first user that runs only scripts; the others follow it.
	// Default: none.
	UID int `yaml:"uid"`
	// GID is the only group of these users.
	// Default: the UID's number.
	GID int `yaml:"gid"`
	// Count is how many users there are. So many scripts run at once; others wait.
	// Default: `1`.
	Count int `yaml:"count"`
	// Directory is a directory that these users can enter. The agent makes a directory for scripts
	// in it.
	// Default: that of temporary files. Type: path.
	Directory string `yaml:"directory"`
}

// Isolation is how scripts are isolated.
type Isolation string

// The ways of isolation. IsolationAuto takes the strongest that the machine offers
// and refuses scripts where it offers none; IsolationUser needs a ScriptsUser;
// IsolationNone lets scripts do what the agent can.
const (
	IsolationAuto       Isolation = "auto"
	IsolationNamespaces Isolation = "namespaces"
	IsolationLandlock   Isolation = "landlock"
	IsolationUser       Isolation = "user"
	IsolationNone       Isolation = "none"
)

// Values implements strict.Enum.
func (Isolation) Values() []string {
	return []string{string(IsolationAuto), string(IsolationNamespaces), string(IsolationLandlock), string(IsolationUser), string(IsolationNone)}
}

func (s Scripts) complete(d *strict.Document, r resolver) Scripts {
	for i := range s.AllowPaths {
		field := fmt.Sprintf("scripts.allowPaths[%d]", i)
		required(d, field, s.AllowPaths[i])
		s.AllowPaths[i] = filepath.Clean(r.path(field, s.AllowPaths[i]))
	}
	s.User = s.User.complete(d, r, s.Isolation)
	return s
}

// maxID is the greatest UID and GID: the next number means none to the kernel.
const maxID = 1<<32 - 2

func (u ScriptsUser) complete(d *strict.Document, r resolver, i Isolation) ScriptsUser {
	const at = "scripts.user"
	if u == (ScriptsUser{}) {
		if i == IsolationUser {
			d.Problemf(at+".uid", "required with scripts.isolation: user")
		}
		return u
	}
	if u.Count == 0 {
		u.Count = 1
	}
	switch {
	case u.UID == 0:
		d.Problemf(at+".uid", "required: a user other than root that runs nothing but scripts")
	case u.Count < 0:
		d.Problemf(at+".count", "expected 1 or more, found %d", u.Count)
	case u.UID < 0 || u.UID > maxID-u.Count:
		d.Problemf(at+".uid", "expected a number from 1 to %d with scripts.user.count, found %d", maxID, u.UID)
	case u.GID < 0 || u.GID > maxID:
		d.Problemf(at+".gid", "expected a number from 1 to %d, found %d", maxID, u.GID)
	case i != IsolationAuto && i != IsolationUser:
		d.Warnf(at, "scripts.user has no effect with scripts.isolation: %s", i)
	}
	if u.Directory != "" {
		u.Directory = filepath.Clean(r.path(at+".directory", u.Directory))
	}
	return u
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
	if dir := p.Scripts.User.Directory; dir != "" && within(dir, p.DataDir) {
		d.Problemf("scripts.user.directory", "%s lies in the agent's data directory (%s), which only the agent enters: name one apart from it", dir, p.DataDir)
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
