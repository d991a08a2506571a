package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/c785c783/piped/examples/release/build"
)

// servers are what the agent runs on.
var servers = []build.Target{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}

// The programs; the agent is the first one.
const (
	agent  = "piped"
	client = "pipectl"
)

// buildPrograms compiles programs for a target into a folder of bin, where the next call
// finds them when nothing has changed, and returns their files.
func buildPrograms(ctx context.Context, source build.Source, bin string, target build.Target, programs ...string) (files []string, err error) {
	dir := filepath.Join(bin, target.OS+"_"+target.Arch)
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the programs: %w", err)
	}
	for _, name := range programs {
		file := filepath.Join(dir, name)
		if err := source.Program(ctx, "./piped/cmd/"+name, target, file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
