package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/c785c783/piped/piped/app"
)

// profileDir is the environment variable that names the folder for profiles, and
// by which this program, started again, knows that it is the agent.
const profileDir = "PIPED_BENCH_PROFILE"

// profileTo makes this program the agent.
func (e *environment) profileTo(dir string) (err error) {
	if e.piped, err = os.Executable(); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	return os.Setenv(profileDir, dir)
}

// Waits are sampled once in this time that goroutines wait, and one of so many that wait for a mutex.
const (
	blockEvery = 100 * time.Microsecond
	mutexOneOf = 10
)

// runProfiled is the agent, started as `piped run --config FILE`, with a profile of its processor time
// from its start to its end, and profiles of its memory and of what its goroutines waited for, taken
// then. The folder is meant to be empty: what is there already is of an agent before a restart.
func runProfiled(ctx context.Context, dir, file string) (err error) {
	cfg, _, err := app.Kinds().LoadPiped(file)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.Base(filepath.Dir(file)))
	if _, err := os.Stat(name + ".cpu"); err == nil {
		name += "-restarted"
	}
	cpu, err := os.Create(name + ".cpu")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cpu.Close()) }()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	runtime.SetBlockProfileRate(int(blockEvery))
	runtime.SetMutexProfileFraction(mutexOneOf)
	agent, err := app.New(ctx, cfg, app.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), ConfigFile: file})
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		runtime.GC() // the profile of the memory is of the last collection
		written <- errors.Join(write("heap", name), write("block", name), write("mutex", name))
	})
	err = agent.Run(ctx)
	pprof.StopCPUProfile()
	return errors.Join(err, <-written)
}

// write writes a profile of the runtime to a file that ends with its name.
func write(profile, name string) error {
	file, err := os.Create(name + "." + profile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(profile).WriteTo(file, 0), file.Close())
}
