package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/c785c783/piped/piped/git/gittest"
)

// TestScripts runs the program as people do in their CI.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"bare": bare},
	})
}

// bare makes a bare repository of files: bare repository file...
func bare(ts *testscript.TestScript, _ bool, args []string) {
	repo, err := gittest.NewRepo(ts.MkAbs(args[0]))
	ts.Check(err)
	files := map[string]string{}
	for _, name := range args[1:] {
		files[name] = ts.ReadFile(name)
	}
	ts.Check(repo.Write(files))
	_, err = repo.Commit("Files")
	ts.Check(err)
}
