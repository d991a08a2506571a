package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the path of this module, with a slash.
const module = "github.com/c785c783/piped/"

// startsClusters is the package with which tests start control planes.
const startsClusters = module + "piped/cluster/clustertest"

// runsOpenTofu is the package that provides OpenTofu to tests.
const runsOpenTofu = module + "executor/opentofu/opentofutest"

// runsPrograms is a package whose tests run the programs of this repository, and no cluster.
const runsPrograms = module + "examples/release"

// checksPages is the package whose tests read README.md, CONTRIBUTING.md and docs/.
const checksPages = module + "examples/docs"

// listed is a package as `go list -json` describes it.
type listed struct {
	ImportPath                string
	Deps                      []string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

func listPackages() ([]listed, error) {
	out, err := output("go", "list", "-json=ImportPath,Deps,TestGoFiles,XTestGoFiles,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list prints: %w", err)
		}
		packages = append(packages, p)
	}
}

func (p listed) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// endToEnd reports whether the package's tests start a control plane or OpenTofu, or need the
// programs.
func (p listed) endToEnd() bool {
	uses := func(pkg string) bool { return slices.Contains(p.testImports(), pkg) }
	return p.tested() && (p.ImportPath == startsClusters || p.ImportPath == runsPrograms || uses(startsClusters) || uses(runsOpenTofu))
}

func (p listed) testImports() []string { return slices.Concat(p.TestImports, p.XTestImports) }

// changedFiles returns the files that differ from a commit, and those that Git does not
// track and does not ignore, relative to the working directory.
func changedFiles(base string) ([]string, error) {
	changed, err := output("git", "diff", "--name-only", "--relative", base)
	if err != nil {
		return nil, err
	}
	added, err := output("git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(changed) + string(added)), nil
}

// reach returns the packages with tests, but not the end-to-end ones, of which a changed
// file is part, or that depend on one of which it is.
func reach(packages []listed, files []string) (reached []string) {
	deps := map[string][]string{}
	for _, p := range packages {
		deps[p.ImportPath] = p.Deps
	}
	changed := map[string]bool{}
	for _, f := range files {
		if f == "go.mod" || f == "go.sum" {
			for _, p := range packages {
				changed[p.ImportPath] = true
			}
		}
		if p := packageOf(f, deps); p != "" {
			changed[p] = true
		}
	}
	isChanged := func(p string) bool { return changed[p] }
	for _, p := range packages {
		if !p.tested() || p.endToEnd() {
			continue
		}
		uses := append([]string{p.ImportPath}, p.Deps...)
		for _, imported := range p.testImports() {
			uses = append(append(uses, imported), deps[imported]...)
		}
		if slices.ContainsFunc(uses, isChanged) {
			reached = append(reached, p.ImportPath)
		}
	}
	return reached
}

// packageOf returns the package that a file belongs to: that of its folder, or of the
// nearest one above it (testdata, embedded files); "" if there is none. The pages of the
// documentation belong to the package that checks them.
func packageOf(file string, packages map[string][]string) string {
	if _, ok := packages[checksPages]; ok && path.Ext(file) == ".md" && (strings.HasPrefix(file, "docs/") || !strings.Contains(file, "/")) {
		return checksPages
	}
	for dir := path.Dir(filepath.ToSlash(file)); dir != "."; dir = path.Dir(dir) {
		if _, ok := packages[module+dir]; ok {
			return module + dir
		}
	}
	return ""
}

// output runs a program and returns what it prints.
func output(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
