// Replicachaos proves that the replicas of an agent that share its work (store.replicas: share) lose
// and repeat nothing. It pushes commits to a repository that the agent follows, approves what waits,
// and meanwhile disturbs the replicas with commands that its configuration names: kill a process, stop
// it for a while, cut it off, restart the database. Then it compares what the agent reports with what
// others saw: the file to which scripts write, a receiver of notifications, and the cluster.
//
// Its applications are its own; it changes nothing else in the repository and in the namespace. See
// docs/operations.md, "Try it".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 if everything was as it must be, 1 if not, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("replicachaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "replicachaos.yaml", "the replicas, and how to disturb them")
	size := size{}
	flags.IntVar(&size.deployments, "deployments", 200, "how many deployments there are at least, without those that a newer one cancelled")
	flags.IntVar(&size.applications, "applications", 20, "how many applications there are")
	flags.DurationVar(&size.limit, "limit", time.Hour, "the time after which it gives up")
	takeover := flags.Duration("takeover", 15*time.Second, "how long a takeover may last")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "repeats the choices of a run")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	cfg, err := load(*file)
	if err != nil {
		fmt.Fprintln(stderr, "replicachaos:", err)
		return 2
	}
	fmt.Fprintf(stdout, "seed %d, %d deployments of %d applications\n", *seed, size.deployments, size.applications)
	ctx, cancel := context.WithTimeout(ctx, size.limit)
	defer cancel()
	c := &chaos{config: cfg, size: size, out: stdout, random: rand.New(rand.NewPCG(*seed, 1)), shuffled: rand.New(rand.NewPCG(*seed, 2))}
	err = c.run(ctx, *takeover)
	if err != nil {
		fmt.Fprintln(stderr, "replicachaos:", err)
		return 1
	}
	return 0
}

// size is how much is to happen.
type size struct {
	deployments, applications int
	limit                     time.Duration
}

// run does everything.
func (c *chaos) run(ctx context.Context, takeover time.Duration) (err error) {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.torment(ctx); err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.verify(ctx, takeover)
}
