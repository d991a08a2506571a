package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// tree is a set of repository files of which some are checked.
type tree struct {
	fsys fs.FS
	dir  string // directory to search, from the root of the files
	file string // the only file to check; "" checks all below dir
	// show returns the display name of a file.
	show func(name string) string
}

// openTree opens the work tree of a file or directory, or its own directory outside of
// one. Links inside the work tree are followed, as by the agent.
func openTree(given string) (tree, *os.Root, error) {
	absolute, err := filepath.Abs(given)
	if err != nil {
		return tree{}, nil, err
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return tree{}, nil, err
	}
	dir, file := absolute, ""
	if !info.IsDir() {
		dir, file = filepath.Dir(absolute), filepath.Base(absolute)
		given = filepath.Dir(given)
	}
	top := workTree(dir)
	below, err := filepath.Rel(top, dir)
	if err != nil {
		return tree{}, nil, err
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return tree{}, nil, err
	}
	t := tree{fsys: root.FS(), dir: filepath.ToSlash(below), show: func(name string) string {
		if relative, err := filepath.Rel(below, filepath.FromSlash(name)); err == nil {
			return filepath.Join(given, relative)
		}
		return filepath.Join(top, filepath.FromSlash(name))
	}}
	if file != "" {
		t.file = path.Join(t.dir, file)
	}
	return t, root, nil
}

// workTree returns the nearest directory at or above dir that contains .git, else dir.
func workTree(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// found are the names of files to check.
type found struct {
	applications []string
	agents       []string // by name; their kind decides
	shared       []string // shared by applications; their kinds decide
}

func (t tree) find() (found, error) {
	if t.file != "" {
		if isShared(t.file) {
			return found{shared: []string{t.file}}, nil
		}
		return found{applications: []string{t.file}}, nil
	}
	var out found
	err := fs.WalkDir(t.fsys, t.dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
		case config.IsApplicationConfig(entry.Name()):
			out.applications = append(out.applications, name)
		case entry.Name() == "piped.yaml":
			out.agents = append(out.agents, name)
		case isShared(name):
			out.shared = append(out.shared, name)
		}
		return nil
	})
	return out, err
}

// isShared reports whether a file of that name may be shared by applications, of any
// kind.
func isShared(name string) bool {
	return config.IsShared(name) || strings.HasPrefix(name, config.SharedDir+"/") &&
		slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) && !config.IsApplicationConfig(path.Base(name))
}

// lines splits a text about an application and replaces file names at the begin of
// lines by display names.
func (t tree) lines(application, text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		name, rest, _ := strings.Cut(line, ":")
		if !fs.ValidPath(name) {
			name = ""
		} else if _, err := fs.Stat(t.fsys, name); err != nil {
			name = ""
		}
		if name == "" {
			name, rest = application, " "+line
		}
		out = append(out, t.show(name)+":"+rest)
	}
	return out
}

// providerLine returns ":" and the line of spec.platformProvider in a file, or else of
// spec.
func (t tree) providerLine(name string) string {
	data, err := fs.ReadFile(t.fsys, name)
	var file struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err != nil || yaml.Unmarshal(data, &file) != nil {
		return ""
	}
	var spec struct {
		PlatformProvider yaml.Node `yaml:"platformProvider"`
	}
	if err := file.Spec.Decode(&spec); err == nil && spec.PlatformProvider.Line > 0 {
		return fmt.Sprintf(":%d", spec.PlatformProvider.Line)
	}
	return fmt.Sprintf(":%d", file.Spec.Line)
}

// gitPath returns the Git path of a file for the loader.
func gitPath(name string) deploy.GitPath {
	return deploy.GitPath{Dir: path.Dir(name), ConfigFile: path.Base(name)}
}
