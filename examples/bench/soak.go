package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

const (
	soakShare  = 20 // applications of each repository
	soakSample = 10 * time.Second
	soakSettle = 5 * time.Minute // after which nothing may grow
)

// soakFigure is what an agent uses, and how much more it may use at the end than after soakSettle:
// a share of that, and something beside it.
type soakFigure struct {
	name, unit    string
	share, beside float64
	read          func(*wholeFleet) (float64, error)
}

func soakFigures() []soakFigure {
	return []soakFigure{
		{"rss", "MiB", 0.1, 5, func(b *wholeFleet) (float64, error) { return memory(b.agent.PID(), "VmRSS") }},
		{"goroutines", "", 0.05, 20, func(b *wholeFleet) (float64, error) { return b.metric("go_goroutines") }},
		{"open_files", "", 0.05, 10, (*wholeFleet).openFiles},
		{"disk_beside_the_store", "MiB", 0.05, 5, func(b *wholeFleet) (float64, error) { return diskOf(b.agent, "piped.db") }},
	}
}

// measureSoak deploys 30 images a minute for long among 400 applications. What the agent uses after five
// minutes is compared with what it uses in the end. Its store grows by what it is to remember: see the
// part fleet.
func measureSoak(ctx context.Context, e *environment) (err error) {
	if e.soakFor < 3*soakSettle {
		return fmt.Errorf("-soak %s: expected at least %s", e.soakFor, 3*soakSettle)
	}
	b := &wholeFleet{environment: e, share: fleet{dir: "apps", namespace: "bench-soak", count: soakShare, template: driftObjects}}
	if b.second, err = clustertest.Start(ctx, clustertest.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.second.Stop()) }()
	if _, err := b.firstSync(ctx, "soak"); err != nil {
		return fmt.Errorf("first sync: %w", err)
	}
	defer func() { err = errors.Join(err, b.agent.Close()) }()
	samples := map[string][]float64{}
	group, within := errgroup.WithContext(ctx)
	sampling, stop := context.WithCancel(within)
	group.Go(func() error { return b.sample(sampling, samples) })
	group.Go(func() error {
		defer stop()
		_, _, err := b.load(within, int(e.soakFor/fleetInterval))
		return err
	})
	err = group.Wait()
	stop()
	if err != nil {
		return err
	}
	b.reportSoak(samples)
	return nil
}

// sample reads all figures regularly, until ctx ends.
func (b *wholeFleet) sample(ctx context.Context, samples map[string][]float64) error {
	beat := time.NewTicker(soakSample)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		for _, f := range soakFigures() {
			value, err := f.read(b)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			samples[f.name] = append(samples[f.name], value)
		}
	}
}

// reportSoak compares the medians of the five minutes after soakSettle and of the last five.
func (b *wholeFleet) reportSoak(samples map[string][]float64) {
	few := int(soakSettle / soakSample)
	for _, f := range soakFigures() {
		all := samples[f.name]
		before, after := middle(all[few:2*few]), middle(all[len(all)-few:])
		b.info("soak."+f.name+".after_five_minutes", before, f.unit)
		b.info("soak."+f.name+".worst", slices.Max(all), f.unit)
		b.bound("soak."+f.name+".in_the_end", after, f.unit, before*(1+f.share)+f.beside)
	}
}

// middle returns the median.
func middle(sample []float64) float64 { return slices.Sorted(slices.Values(sample))[len(sample)/2] }

// metric returns a metric of the agent that has no labels.
func (b *wholeFleet) metric(name string) (float64, error) {
	resp, err := http.Get("http://" + b.agent.WebAddress + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the agent has no metric %s (%s)", name, resp.Status)
}

// openFiles returns how many files, sockets and pipes the agent has open.
func (b *wholeFleet) openFiles() (float64, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.agent.PID()))
	return float64(len(entries)), err
}

// diskOf returns the size of what an agent keeps in its data directory, in MiB, but the files whose names
// begin with a text, if there is one.
func diskOf(agent *agenttest.Agent, but string) (float64, error) {
	var size int64
	err := filepath.WalkDir(filepath.Dir(agent.KeyFile), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (entry.IsDir() || but != "" && strings.HasPrefix(entry.Name(), but)) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return float64(size) / (1 << 20), err
}
