package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReach: a change reaches the packages with tests that use what it is part of, also
// through what only their tests import, but no end-to-end tests.
func TestReach(t *testing.T) {
	tested := []string{"x_test.go"}
	packages := []listed{
		{ImportPath: module + "base"},
		{ImportPath: module + "middle", Deps: []string{module + "base"}, TestGoFiles: tested},
		{ImportPath: module + "top", Deps: []string{module + "base", module + "middle"}, XTestGoFiles: tested},
		{ImportPath: module + "toptest", Deps: []string{module + "base"}},
		{ImportPath: module + "apart", TestGoFiles: tested, XTestImports: []string{module + "toptest"}},
		{ImportPath: module + "alone", TestGoFiles: tested},
		{ImportPath: module + "examples/docs", TestGoFiles: tested},
		{ImportPath: module + "slow", Deps: []string{module + "base"}, TestGoFiles: tested, TestImports: []string{startsClusters}},
		{ImportPath: runsPrograms, Deps: []string{module + "base"}, TestGoFiles: tested},
	}
	for name, c := range map[string]struct{ files, want []string }{
		"what all use":          {[]string{"base/a.go"}, []string{"middle", "top", "apart"}},
		"what tests use":        {[]string{"toptest/a.go"}, []string{"apart"}},
		"data of tests":         {[]string{"middle/testdata/deep/case.yaml"}, []string{"middle", "top"}},
		"one package":           {[]string{"alone/a_test.go", "notes/README.md"}, []string{"alone"}},
		"end-to-end tests only": {[]string{"slow/a.go"}, nil},
		"no package":            {[]string{"Makefile", "notes/a/b.md"}, nil},
		"a page":                {[]string{"README.md"}, []string{"examples/docs"}},
		"a page below docs":     {[]string{"docs/a/b.md"}, []string{"examples/docs"}},
		"a dependency":          {[]string{"go.mod"}, []string{"middle", "top", "apart", "alone", "examples/docs"}},
	} {
		var want []string
		for _, p := range c.want {
			want = append(want, module+p)
		}
		if diff := cmp.Diff(want, reach(packages, c.files)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
