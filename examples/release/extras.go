package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"github.com/c785c783/piped/piped/build"
	"github.com/c785c783/piped/piped/pipectl"
)

// extra is a file that belongs to a program: a manual page, or the completion of a shell.
type extra struct {
	program, name string
	text          []byte
}

type extras []extra

// of returns those of a program.
func (all extras) of(program string) (own []extra) {
	for _, e := range all {
		if e.program == program {
			own = append(own, e)
		}
	}
	return own
}

// completions maps shells to the names under which they look for a program's completion.
var completions = map[string]string{"bash": "%s.bash", "zsh": "_%s", "fish": "%s.fish"}

// extras asks programs that this machine can run for what belongs to them.
func (r release) extras(ctx context.Context, programs []string) (all extras, err error) {
	for _, file := range programs {
		program := filepath.Base(file)
		for shell, name := range completions {
			text, err := exec.CommandContext(ctx, file, "completion", shell).Output()
			if err != nil {
				return nil, fmt.Errorf("%s completion %s: %w", file, shell, err)
			}
			all = append(all, extra{program, "completion/" + fmt.Sprintf(name, program), text})
		}
		manual, err := r.manual(ctx, program, file)
		if err != nil {
			return nil, fmt.Errorf("write the manual of %s: %w", program, err)
		}
		all = append(all, manual...)
	}
	return all, nil
}

// manual returns the manual pages of a program. The agent writes its own; the commands of
// the client are a package.
func (r release) manual(ctx context.Context, program, file string) (pages []extra, err error) {
	dir, err := os.MkdirTemp("", "piped-manual-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if program == client {
		root := pipectl.Command(build.Info{Version: r.source.Version, Commit: r.source.Commit})
		root.DisableAutoGenTag = true
		err = doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: r.source.Version, Manual: client, Date: &r.source.Time}, dir)
	} else {
		cmd := exec.CommandContext(ctx, file, "man", dir)
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.source.Time.Unix()))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%w: %s", err, &stderr)
		}
	}
	if err != nil {
		return nil, err
	}
	return readPages(program, dir)
}

func readPages(program, dir string) (pages []extra, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, extra{program, "man/man1/" + e.Name(), text})
	}
	return pages, nil
}
