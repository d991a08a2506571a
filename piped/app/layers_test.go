package app

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/c785c783/piped/"

// layers says which rooms lie in which layer. A package belongs to the longest
// room that contains it. Imports go to a strictly lower layer, or down inside
// one room: to a package in a folder below, or to one that imports nothing of
// the room itself. Test support (package footest) may import what it supports.
// clusterRooms says how the rooms of a cluster may import each other.
var layers = map[string]int{
	"piped/deploy": 0, "piped/build": 0, "piped/metric": 0, "piped/ansi": 0, "piped/marked": 0, "piped/bounded": 0,

	"piped/store": 1, "piped/git": 1, "piped/config": 1, "piped/manifest": 1, "piped/outbound": 1, "piped/forward": 1, "piped/certificate": 1,
	"piped/background": 1, "piped/ratelimit": 1, "piped/linelog": 1,

	"piped/source": 2, "piped/cluster": 2, "piped/githost": 2, "piped/backup": 2, "piped/access": 2, "piped/ownership": 2, "piped/starter": 2, "piped/opentofu": 2, "piped/importer": 2,

	"trigger": 3, "planner": 3, "scheduler": 3, "piped/drift": 3, "piped/event": 3, "piped/preview": 3, "piped/pullpreview": 3,
	"piped/figures": 3, "piped/observe": 3, "piped/control": 3, "piped/notify": 3, "piped/web": 3, "piped/web/page": 3, "piped/trace": 3, "piped/retention": 3, "piped/pipectl": 3,
	"executor/kubernetes": 3, "executor/analysis": 3, "executor/approval": 3, "executor/wait": 3, "executor/script": 3, "executor/opentofu": 3, "piped/install": 3,

	"piped/app": 4, "piped/app/agenttest": 4,

	"piped/cmd": 5, "examples": 5,

	"docs":  -1, // pages that the agent serves
	"proto": -1, // generated wire types; see wireRooms
}

// clusterRooms orders the packages of piped/cluster that import each other, lowest
// first: each may import those before it. The client is one of them, so that rooms which
// send requests stand on the client, and the client knows none of them.
var clusterRooms = []string{"piped/cluster/health", "piped/cluster", "piped/cluster/apply", "piped/cluster/watch", "piped/cluster/workloads", "piped/cluster/live"}

// wireRooms are the rooms that may import the generated wire types.
var wireRooms = []string{"piped/control", "piped/pipectl", "piped/web/page", "proto", "piped/app/agenttest", "examples"}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportsFollowTheLayers(t *testing.T) {
	t.Parallel()
	pkgs := listPackages(t)
	if len(pkgs) < 15 {
		t.Fatalf("go list found only %d packages", len(pkgs))
	}
	for _, problem := range checkLayers(pkgs) {
		t.Error(problem)
	}
}

// TestReversedArrowIsFound shows that the check above can fail.
func TestReversedArrowIsFound(t *testing.T) {
	t.Parallel()
	cases := map[string]goPackage{
		"up a layer":              {module + "piped/store", []string{module + "trigger"}},
		"neighbour in a layer":    {module + "trigger", []string{module + "planner"}},
		"neighbour, deep inside":  {module + "executor/kubernetes", []string{module + "piped/control"}},
		"up inside a room":        {module + "piped/cluster/rollout", []string{module + "piped/cluster"}},
		"the client knows a room": {module + "piped/cluster", []string{module + "piped/cluster/watch"}},
		"the domain imports ours": {module + "piped/deploy", []string{module + "piped/manifest"}},
		"wire types inside":       {module + "scheduler", []string{module + "proto/piped/model/v1"}},
		"the client knows more":   {module + "piped/cmd/pipectl", []string{module + "piped/app"}},
		"the launcher knows more": {module + "executor/script/sandbox", []string{module + "piped/deploy"}},
		"unknown room":            {module + "piped/shed", nil},
	}
	for name, pkg := range cases {
		t.Run(name, func(t *testing.T) {
			if problems := checkLayers([]goPackage{pkg}); len(problems) != 1 {
				t.Errorf("%s importing %v: got problems %q, want exactly one", pkg.ImportPath, pkg.Imports, problems)
			}
		})
	}
	good := goPackage{module + "scheduler", []string{module + "piped/store", module + "piped/deploy", "fmt"}}
	if problems := checkLayers([]goPackage{good}); len(problems) != 0 {
		t.Errorf("arrows down are refused: %q", problems)
	}
}

func checkLayers(pkgs []goPackage) []string {
	leaves := leavesOf(pkgs)
	var problems []string
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module)
		room, ok := roomOf(from)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s lies in no room of the house: give it one in layers", from))
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module); ours && !allowed(from, room, to, leaves) {
				problems = append(problems, fmt.Sprintf("%s (layer %d) must not import %s", from, layers[room], to))
			}
		}
	}
	return problems
}

func allowed(from, room, to string, leaves map[string]bool) bool {
	target, ok := roomOf(to)
	switch {
	case !ok:
		return false
	case target == "proto":
		return slices.Contains(wireRooms, room)
	case from == "piped/cmd/pipectl":
		return to == "piped/pipectl"
	case from == "executor/script/sandbox":
		return false // it is initialized for each script, before what it does not import
	case target == room && slices.Contains(clusterRooms, to):
		return slices.Index(clusterRooms, to) < slices.Index(clusterRooms, supported(from)) || to == supported(from)
	case target == room:
		return strings.HasPrefix(to, from+"/") || leaves[to] || to == supported(from) || room == "examples"
	}
	return layers[target] < layers[room]
}

// supported returns the package that a package of test support is for, or the package
// itself.
func supported(pkg string) string {
	if dir := path.Dir(pkg); path.Base(pkg) == path.Base(dir)+"test" {
		return dir
	}
	return pkg
}

// leavesOf returns the packages that import nothing of their own room.
func leavesOf(pkgs []goPackage) map[string]bool {
	leaves := map[string]bool{}
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module)
		room, _ := roomOf(from)
		leaves[from] = !slices.ContainsFunc(p.Imports, func(imported string) bool {
			to, ours := strings.CutPrefix(imported, module)
			target, _ := roomOf(to)
			return ours && target == room
		})
	}
	return leaves
}

func roomOf(pkg string) (room string, ok bool) {
	for name := range layers {
		if (pkg == name || strings.HasPrefix(pkg, name+"/")) && len(name) > len(room) {
			room, ok = name, true
		}
	}
	return room, ok
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}
