package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"
)

// chaos is one run.
type chaos struct {
	config
	size
	out    io.Writer
	random *rand.Rand // chooses what is committed

	client   *client
	cluster  *cluster
	receiver *receiver
	apps     []*application
	head     string // the last commit

	shuffled *rand.Rand // chooses the faults
	hits     []hit
}

// hit is a fault that has happened.
type hit struct {
	fault
	at    time.Time
	taken time.Duration // until the others had its partitions; 0 without a takeover
}

// begin deploys the first revision of all applications.
func (c *chaos) begin(ctx context.Context) (err error) {
	if c.client, err = dial(c.API, c.KeyFile); err != nil {
		return err
	}
	if c.receiver, err = listen(c.Receiver); err != nil {
		return errors.Join(err, c.client.close())
	}
	if c.cluster, err = watchCluster(ctx, c.Kubeconfig, c.Namespace); err != nil {
		return errors.Join(err, c.client.close(), c.receiver.close())
	}
	c.apps = newApplications(c.applications, c.Scripts)
	err = c.commit(ctx, c.apps)
	if err == nil {
		err = c.settle(ctx)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("deploy the first revision: %w", err), c.end())
	}
	return err
}

// end frees what begin has opened.
func (c *chaos) end() error {
	c.cluster.close()
	return errors.Join(c.client.close(), c.receiver.close())
}

// torment disturbs the replicas until the load is done and each fault has happened.
func (c *chaos) torment(ctx context.Context) error {
	loaded := make(chan error, 1)
	loading, stop := context.WithCancel(ctx)
	defer stop()
	go func() { loaded <- c.load(loading) }()
	var err error
	for done := false; err == nil && (!done || len(c.hits) < len(c.Faults)); {
		select {
		case err = <-loaded:
			done, loaded = true, nil
		default:
			if len(c.Faults) == 0 {
				err, done = <-loaded, true
				loaded = nil
				continue
			}
			err = c.disturb(ctx, c.next())
		}
	}
	if loaded != nil {
		stop()
		<-loaded
	}
	return err
}

// next chooses a fault: at first each once.
func (c *chaos) next() fault {
	if n := len(c.hits) % len(c.Faults); n == 0 {
		c.shuffled.Shuffle(len(c.Faults), func(i, j int) { c.Faults[i], c.Faults[j] = c.Faults[j], c.Faults[i] })
	}
	return c.Faults[len(c.hits)%len(c.Faults)]
}

// disturb lets a fault happen.
func (c *chaos) disturb(ctx context.Context, f fault) error {
	if f.Takeover { // of a replica that has something to take
		if err := c.awaitHeld(ctx); err != nil {
			return err
		}
	}
	lasts := f.Min
	if f.Max > f.Min {
		lasts += time.Duration(c.shuffled.Int64N(int64(f.Max - f.Min)))
	}
	fmt.Fprintf(c.out, "%s  %s for %s\n", time.Now().Format("15:04:05.000"), f.Name, lasts.Round(time.Millisecond))
	h := hit{fault: f, at: time.Now()}
	printed, err := shell(ctx, f.Do)
	if err != nil {
		return err
	}
	if f.Takeover {
		if h.taken, err = c.takeover(ctx, printed, h.at); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s  taken over after %s\n", time.Now().Format("15:04:05.000"), h.taken.Round(time.Millisecond))
	}
	c.hits = append(c.hits, h)
	if err := wait(ctx, lasts-time.Since(h.at)); err != nil {
		return err
	}
	_, err = shell(ctx, f.Undo)
	return err
}

// awaitHeld waits until all replicas hold all partitions.
func (c *chaos) awaitHeld(ctx context.Context) error {
	for {
		held, err := c.client.partitions(ctx)
		if err == nil && sum(held) == partitions && len(held) >= len(c.API) {
			return nil
		}
		if waited := wait(ctx, time.Second/10); waited != nil {
			return fmt.Errorf("%d replicas are to hold all partitions, and hold %v: %w", len(c.API), held, errors.Join(err, waited))
		}
	}
}

// partitions is the number of partitions of the work.
const partitions = 64

// takeover waits until others than the replica whose name ends so hold all partitions, and returns how
// long that took.
func (c *chaos) takeover(ctx context.Context, name string, since time.Time) (time.Duration, error) {
	for {
		held, err := c.client.partitions(ctx)
		at := time.Now()
		maps.DeleteFunc(held, func(host string, _ int) bool { return strings.HasSuffix(host, name) })
		if err == nil && sum(held) == partitions {
			return at.Sub(since), nil
		}
		if waited := wait(ctx, time.Second/20); waited != nil {
			return 0, fmt.Errorf("the partitions of the replica %q were not taken over; others hold %v: %w", name, held, errors.Join(err, waited))
		}
	}
}

func sum(held map[string]int) (n int) {
	for _, count := range held {
		n += count
	}
	return n
}

// shell runs a command, and returns what it prints.
func shell(ctx context.Context, command string) (string, error) {
	if command == "" {
		return "", nil
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", command, err, problem.String())
	}
	return strings.TrimSpace(string(out)), err
}
